"""Distributed jobs with activation checkpoints, for `torchrun -m stepgraph_capture checkpoint_jobs.py:NAME`. Each leaves
in JOB_ANSWERS/rank{r}.safetensors what PyTorch's own first step gives, and in trained{r}.safetensors what its training
gives in its last step; then the model is as it was.
"""

import os

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

STEPS, RATE = 3, 0.5


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """use_reentrant: of the checkpoints that it makes itself; None makes none."""

    def __init__(self, width=8, use_reentrant=None):
        super().__init__()
        self.table, self.head = nn.Embedding(24, width), nn.Linear(width, 24, bias=False)
        self.layers = nn.ModuleList(Mlp(width, 16) for _ in range(2))
        self.use_reentrant = use_reentrant

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            own = self.use_reentrant is not None
            x = checkpoint(layer, x, use_reentrant=self.use_reentrant) if own else layer(x)
        return self.head(x)


def loss_fn(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def _local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _own_answers(model, loss, names):
    answers = {"loss": loss.detach().clone()}
    for name, parameter in zip(names, model.parameters()):
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)
        answers[name] = _local(gradient).detach().clone().contiguous()
    return answers


def _step(model, seed, narrow=False):
    torch.manual_seed(100 + seed)
    inputs, targets = {"ids": torch.randint(0, 24, (2, 6))}, torch.randint(0, 24, (2, 6))
    folder, rank = os.environ["JOB_ANSWERS"], dist.get_rank()
    names = [name for name, _ in model.named_parameters()]
    before = [_local(parameter.detach()).clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_fn(model(**inputs), targets)
        loss.backward()
        answers = _own_answers(model, loss, names)
        if step == 0:
            save_file(answers, os.path.join(folder, f"rank{rank}.safetensors"))
        if step < STEPS - 1:
            optimizer.step()
    trained = {name if name == "loss" else f"gradient:{name}": value for name, value in answers.items()}
    if narrow:  # after some steps of bf16 gradients are several roundings apart; the first step's are compared
        trained = {"loss": trained["loss"]}
    save_file(trained, os.path.join(folder, f"trained{rank}.safetensors"))
    optimizer.zero_grad()
    for parameter, value in zip(model.parameters(), before):
        _local(parameter.detach()).copy_(value)
    return dict(model=model, loss_fn=loss_fn, inputs=inputs, targets=targets)


def _sharded(model, **policy):
    for module in [*model.layers, model]:
        fully_shard(module, mp_policy=MixedPrecisionPolicy(**policy))
    return _step(model, dist.get_rank(), narrow=bool(policy))


def wrapped_then_sharded(**policy):
    """Wrapped first, sharded then: the modules of fully_shard have the checkpoints inside."""
    model = Model()
    for i, layer in enumerate(model.layers):
        model.layers[i] = checkpoint_wrapper(layer)
    return _sharded(model, **policy)


def wrapped_then_sharded_bf16():
    return wrapped_then_sharded(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def sharded_within():
    """Checkpoints around modules of fully_shard."""
    return _sharded(Model(use_reentrant=False))


def sharded_within_reentrant():
    return _sharded(Model(use_reentrant=True))


def tensor_parallel():
    """All ranks see the same data."""
    model = Model(use_reentrant=False)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _step(model, 0)
