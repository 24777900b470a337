"""Steps of distributed jobs whose traffic the passes of communication have to bring in order: more kinds than jobs.py has,
which is about capturing. For `torchrun -m stepgraph_capture comm_jobs.py:NAME`, on any even number of ranks
(sharded_experts: any).
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed._functional_collectives import all_reduce, wait_tensor  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F  # noqa: E402

import jobs  # noqa: E402

VOCABULARY, WIDTH, LENGTH = 80, 8, 6


class Attention(nn.Module):
    def __init__(self, width, crossed=False):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.crossed = crossed

    def forward(self, x, other=None):
        h = self.norm(x)
        k, v = self.kv(h if other is None else other).chunk(2, -1)
        return x + self.out(F.scaled_dot_product_attention(self.q(h), k, v, is_causal=other is None))


class EncoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.ff = Attention(width), jobs.Mlp(width, 2 * width)

    def forward(self, x):
        return self.ff(self.attention(x))


class DecoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.crossed, self.ff = Attention(width), Attention(width), jobs.Mlp(width, 2 * width)

    def forward(self, x, other):
        return self.ff(self.crossed(self.attention(x), other))


class EncoderDecoder(nn.Module):
    """Two stacks, each with a layer 0; one table for both, which is the head as well."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.encoder = nn.ModuleList(EncoderLayer(width) for _ in range(2))
        self.decoder = nn.ModuleList(DecoderLayer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = y = self.table(ids)
        for layer in self.encoder:
            x = layer(x)
        for layer in self.decoder:
            y = layer(y, x)
        return self.norm(y) @ self.table.weight.t()


def _batch(rank):
    torch.manual_seed(100 + rank)
    return {"ids": torch.randint(0, VOCABULARY, (2, LENGTH))}, torch.randint(0, VOCABULARY, (2, LENGTH))


def _step(model, rank=None, loss_fn=jobs.loss_fn):
    inputs, targets = _batch(dist.get_rank() if rank is None else rank)
    return dict(model=model, loss_fn=loss_fn, inputs=inputs, targets=targets)


def _mesh(*shape, names):
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def _shard(model, layers, mesh, **policy):
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))


def two_stacks():
    model = EncoderDecoder()
    _shard(model, [*model.encoder, *model.decoder], _mesh(dist.get_world_size(), names=("fsdp",)))
    return _step(model)


def two_stacks_bf16():
    model = EncoderDecoder(32)
    mesh = _mesh(dist.get_world_size(), names=("fsdp",))
    _shard(model, [*model.encoder, *model.decoder], mesh, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _step(model)


class Shared(nn.Module):
    """One layer called three times, a frozen one, one whose output nobody takes, and a bias shared by two."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(jobs.Mlp(WIDTH, 2 * WIDTH) for _ in range(3))
        self.layers[2].down.bias = self.layers[1].down.bias
        for parameter in self.layers[0].parameters():
            parameter.requires_grad_(False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.layers[0](self.table(ids))
        for _ in range(3):
            x = self.layers[1](x)
        return self.head(self.layers[2](x).float())


def shared():
    model = Shared()
    _shard(model, model.layers[:2], _mesh(dist.get_world_size(), names=("fsdp",)))
    return _step(model)


def shared_data_parallel():
    return _step(nn.parallel.DistributedDataParallel(Shared()))


class Norms(nn.Module):
    """Statistics over all ranks, in the forward and in the backward: not of FSDP, on its group."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(jobs.Mlp(WIDTH, 2 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            mean = _AverageOverRanks.apply(x.mean((0, 1)), dist.group.WORLD)
            x = layer(x - mean)
        return self.head(x)


class _AverageOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return wait_tensor(all_reduce(x, "avg", group))

    @staticmethod
    def backward(ctx, gradient):
        return wait_tensor(all_reduce(gradient.contiguous(), "avg", ctx.group)), None


def statistics_over_ranks():
    model = Norms()
    _shard(model, model.layers, _mesh(dist.get_world_size(), names=("fsdp",)))
    return _step(model)


def _tensor_parallel(model, mesh, sequence):
    for layer in model.layers:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence:
            plan = {
                "norm": SequenceParallel(),
                "up": ColwiseParallel(input_layouts=Shard(1)),
                "down": RowwiseParallel(output_layouts=Shard(1)),
            }
        parallelize_module(layer, mesh, plan)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(jobs.Mlp(WIDTH, 2 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def sequence_parallel():
    """FSDP over half of the ranks, and gathers and reductions of activations over two."""
    model = Plain()
    mesh = _mesh(dist.get_world_size() // 2, 2, names=("fsdp", "tp"))
    _tensor_parallel(model, mesh["tp"], True)
    table = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh["tp"], {"table": table, "head": head})
    if dist.get_world_size() > 2:
        _shard(model, model.layers, mesh["fsdp"])
    return _step(model, rank=mesh["fsdp"].get_local_rank())


_always = None


def loss_over_ranks():
    """The head's classes are split over ranks, and PyTorch's own loss_parallel."""
    global _always
    model = Plain()
    mesh = _mesh(dist.get_world_size(), names=("tp",))
    _tensor_parallel(model, mesh, False)
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    _always = loss_parallel()  # of the backward too, which capture() runs
    _always.__enter__()
    return _step(model, rank=0)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return wait_tensor(all_reduce(x, "sum", group))

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return wait_tensor(all_reduce(gradient.contiguous(), "sum", ctx.group)), None


class SplitHead(nn.Module):
    """Megatron's: each rank has some of the classes."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.table, self.mid = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY // group.size(), bias=False)

    def forward(self, ids):
        return self.head(_Copy.apply(torch.tanh(self.mid(self.table(ids))), self.group))


class _ExpertLayer(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.ff, self.moe = jobs.Mlp(width, 3 * width), jobs.Experts(width, group)

    def forward(self, x):
        return self.moe(self.ff(x))


class _ExpertModel(nn.Module):
    """Three layers with tokens exchanged in each, a norm and a head: 14 tokens, which three chunks do not divide."""

    def __init__(self, width, group):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(_ExpertLayer(width, group) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.table(ids).flatten(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def sharded_experts():
    """Experts are each rank's own, all else is sharded over the same ranks: exchanges and gathers on one group."""
    model = _ExpertModel(12, dist.group.WORLD)
    own = {p for layer in model.layers for p in layer.moe.parameters()}
    mesh = _mesh(dist.get_world_size(), names=("fsdp",))
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh, ignored_params=own)
    torch.manual_seed(100 + dist.get_rank())
    ids, targets = torch.randint(0, VOCABULARY, (2, 7)), torch.randint(0, VOCABULARY, (2, 7))
    return dict(model=model, loss_fn=jobs.loss_fn, inputs={"ids": ids}, targets=targets)


def split_head():
    group = dist.group.WORLD
    torch.manual_seed(0)
    model = SplitHead(group)
    torch.manual_seed(dist.get_rank())
    nn.init.normal_(model.head.weight)

    def loss_fn(logits, targets):
        logits, at = logits.flatten(0, -2), targets.flatten()
        shifted = logits - wait_tensor(all_reduce(logits.detach().amax(-1), "max", group))[:, None]
        total = _Sum.apply(shifted.exp().sum(-1), group)
        at = at - dist.get_rank() * logits.shape[1]
        mine = (at >= 0) & (at < logits.shape[1])
        picked = shifted[torch.arange(len(at)), torch.where(mine, at, 0)]
        return (total.log() - _Sum.apply(torch.where(mine, picked, 0.0), group)).mean()

    return _step(model, rank=0, loss_fn=loss_fn)
