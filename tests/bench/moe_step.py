"""A mixture-of-experts step for `torchrun -m stepgraph_capture moe_step.py:step`: each rank has its tokens, one expert
of each layer, and the same shared parameters. Tokens go to the expert that the data chooses. Sizes: MOE_TOKENS,
MOE_WIDTH, MOE_LAYERS. Used by run_overlap_bench.py, which says what is measured.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from stepgraph_capture import annotate

WORDS = 64
TOKENS, WIDTH, LAYERS = (
    int(os.environ.get(f"MOE_{name}", n)) for name, n in (("TOKENS", 1024), ("WIDTH", 512), ("LAYERS", 2))
)


def all_to_all(rows, received, sent, group):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_to_all_single(rows, received, sent, group.group_name))


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, received, sent, group):
        ctx.sizes, ctx.group = (sent, received), group
        return all_to_all(rows, received, sent, group)

    @staticmethod
    def backward(ctx, gradient):
        return all_to_all(gradient.contiguous(), *ctx.sizes, ctx.group), None, None, None


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Experts(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.gate = nn.Linear(width, group.size(), bias=False)
        self.shared, self.expert = FeedForward(width, 2 * width), FeedForward(width, 2 * width)

    def forward(self, x):
        ranks = self.group.size()
        scores = self.gate(x).softmax(-1)
        weight, choice = scores.topk(1, -1)
        with annotate(role="dispatch"):
            counts = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, choice, True).sum(0)
            order = choice.view(-1).sort(stable=True)[1]
            with annotate(role="dispatch", step="token_count_exchange"):
                coming = all_to_all(counts, [1] * ranks, [1] * ranks, self.group)
            with annotate(role="dispatch", step="token_count_sync"):
                sent, received = counts.tolist(), coming.tolist()
            rows = x[order]
            with annotate(role="dispatch", step="token_exchange"):
                rows = Exchange.apply(rows, received, sent, self.group)
        rows = self.expert(rows)
        with annotate(role="combine", step="token_exchange"):
            back = Exchange.apply(rows, sent, received, self.group)
        places = order[:, None].expand(-1, x.shape[1])
        return self.shared(x) + weight * torch.zeros_like(x).scatter_add(0, places, back)


class Block(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.norm, self.moe = nn.LayerNorm(width), Experts(width, group)

    def forward(self, x):
        return x + self.moe(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block(WIDTH, dist.group.WORLD) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def step():
    torch.manual_seed(0)
    model = Model()
    torch.manual_seed(100 + dist.get_rank())
    ids, targets = (torch.randint(0, WORDS, (TOKENS,)) for _ in range(2))
    return dict(model=model, loss_fn=F.cross_entropy, inputs={"ids": ids}, targets=targets)
