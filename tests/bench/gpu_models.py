"""Training steps of real sizes in plain torch, for run_gpu_bench.py: PyTorch runs them, and tools/capture makes our graphs of them.

  python -m stepgraph_capture gpu_models.py:gpt2 --fake -o FOLDER

Each function gives (module, None, inputs), as tools/capture takes it; the module returns its loss. SG_BENCH_SIZE=small makes them small.
"""
import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F

SMALL = os.environ.get('SG_BENCH_SIZE') == 'small'


def heads_of(x, count):
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


# --- GPT-2 ---


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(t, self.heads) for t in self.attention(self.norm_1(x)).split(x.shape[-1], 2))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate='tanh'))


class Gpt(nn.Module):
    """GPT-2 with tied embeddings; `dtype` is that of autocast."""

    def __init__(self, dtype, vocabulary=50257, length=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.dtype = dtype
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, labels):
        device = 'cuda' if tokens.is_cuda else 'cpu'
        with nullcontext() if self.dtype == torch.float32 else torch.autocast(device, self.dtype):
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            scores = self.head(self.norm(x))
        return F.cross_entropy(scores.float().view(-1, scores.shape[-1]), labels.view(-1))


# --- Llama ---


def rotation(length, depth, device):
    angles = torch.arange(length, device=device)[:, None] * 500000.0 ** (-torch.arange(0, depth, 2, device=device) / depth)
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def rotated(x, turn):
    cos, sin = (t.to(x.dtype) for t in turn)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.heads, self.groups, depth = heads, groups, width // heads
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.o = linear(width, width), linear(width, groups * depth), linear(width, groups * depth), linear(width, width)
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)

    def forward(self, x, turn):
        y = self.norm_1(x)
        q, k, v = heads_of(self.q(y), self.heads), heads_of(self.k(y), self.groups), heads_of(self.v(y), self.groups)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (rotated(k, turn), v))
        x = x + self.o(joined(F.scaled_dot_product_attention(rotated(q, turn), k, v, is_causal=True)))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """The shape of Llama-3.2 1B, weights in bf16, tied embeddings."""

    def __init__(self, vocabulary=128256, width=2048, layers=16, heads=32, groups=8, inner=8192):
        super().__init__()
        self.depth = width // heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.bfloat16()

    def forward(self, tokens, labels):
        x, turn = self.tokens(tokens), rotation(tokens.shape[1], self.depth, tokens.device)
        for block in self.blocks:
            x = block(x, turn)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.float().view(-1, scores.shape[-1]), labels.view(-1))


# --- a block of experts ---


class Experts(nn.Module):
    """A mixture-of-experts block as of DeepSeek-V3 16B on one GPU: each token to `top` of the experts, by sorted rows and grouped products."""

    def __init__(self, width=2048, inner=1408, experts=64, top=6):
        super().__init__()
        self.experts, self.top = experts, top
        self.router = nn.Linear(width, experts, bias=False)
        made = lambda *shape: nn.Parameter(torch.randn(shape) * shape[1] ** -0.5)
        self.gate, self.up, self.down = made(experts, width, inner), made(experts, width, inner), made(experts, inner, width)
        self.bfloat16()

    def forward(self, x, wanted):
        shares, chosen = self.router(x).float().softmax(-1).topk(self.top, -1)
        order = chosen.view(-1).argsort(stable=True)
        counts = F.one_hot(chosen.view(-1), self.experts).sum(0)
        ends = counts.cumsum(0).to(torch.int32)
        rows = x[order // self.top]
        inner = F.silu(torch._grouped_mm(rows, self.gate, ends)) * torch._grouped_mm(rows, self.up, ends)
        made = torch._grouped_mm(inner, self.down, ends) * shares.view(-1)[order, None].to(x.dtype)
        out = torch.zeros_like(x).index_add(0, order // self.top, made)
        return (out.float() - wanted.float()).square().mean()


# --- as tools/capture takes them ---


def of_words(module, batch, length, vocabulary, device):
    tokens = torch.randint(0, vocabulary, (batch, length), device=device)
    return module, None, {'tokens': tokens, 'labels': tokens.clone()}


def build(make, device):
    with torch.device(device):
        return make()


def gpt2_f32(device='meta'):
    if SMALL:
        return of_words(build(lambda: Gpt(torch.float32, 100, 16, 32, 2, 4), device), 2, 16, 100, device)
    return of_words(build(lambda: Gpt(torch.float32), device), 4, 64, 50257, device)


def gpt2(device='meta'):
    if SMALL:
        return of_words(build(lambda: Gpt(torch.bfloat16, 100, 16, 32, 2, 4), device), 2, 16, 100, device)
    return of_words(build(lambda: Gpt(torch.bfloat16), device), 32, 1024, 50257, device)


def llama(device='meta'):
    if SMALL:
        return of_words(build(lambda: Llama(100, 32, 2, 4, 2, 64), device), 2, 16, 100, device)
    return of_words(build(Llama, device), 2, 8192, 128256, device)


def experts(device='meta'):
    make, rows, width = ((lambda: Experts(32, 16, 4, 2)), 24, 32) if SMALL else (Experts, 16384, 2048)
    x = torch.randn(rows, width, device=device).bfloat16()
    return build(make, device), None, {'x': x, 'wanted': torch.zeros_like(x)}
