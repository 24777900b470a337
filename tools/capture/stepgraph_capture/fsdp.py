"""FSDP2 models. `fully_shard` gathers parameters in hooks that move memory by hand, which no tracer can follow. While a
step runs here its hooks rest, and the same communication is explicit: before a module's forward a gather of each of its
parameters, in backward a reduce-scatter of each gradient.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import compat
from .recorder import Recorder


@dataclass
class Shard:
    """One parameter that a fully_shard module gathers."""

    fqn: str
    places: List[Tuple[nn.Module, str]]  # modules that have it, and by which name
    size: torch.Size  # whole; for a parameter that is tensor-parallel too, this rank's part of that
    dim: int
    shards: Any  # process group over which it is sharded
    replicas: Optional[Any]  # process group of copies of the shard, or None
    param_dtype: Optional[torch.dtype]
    reduce_dtype: Optional[torch.dtype]
    divisor: float
    layout: Optional[
        Tuple[Any, Tuple[Any, ...], torch.Size, Tuple[int, ...]]
    ]  # mesh, placements, size, stride when gathered


@dataclass
class Unit:
    """What one call of fully_shard manages."""

    modules: Tuple[nn.Module, ...]
    shards: List[Shard]
    input_dtype: Optional[torch.dtype]  # floating-point arguments are cast to it
    output_dtype: Optional[torch.dtype]


@contextmanager
def explicit(model: nn.Module, units: List[Unit], state: Dict[str, Tensor], recorder: Recorder) -> Iterator[None]:
    """Within it `state` is the model's: of a unit's parameters this rank's shards, whole once its modules have run."""
    with compat.swapped(model, state), compat.fsdp_hooks_at_rest(model):
        undo = [step for unit in units for step in _hooks(unit, state, recorder)]
        try:
            yield
        finally:
            for step in undo:
                step()


def _hooks(unit: Unit, state: Dict[str, Tensor], recorder: Recorder) -> List[Callable[[], None]]:
    """Sets what a unit does around its modules; gives what takes that off again."""
    local = {shard.fqn: state[shard.fqn] for shard in unit.shards}

    def before(_: nn.Module, args: Any, kwargs: Any) -> Tuple[Any, Any]:
        for shard in unit.shards:
            if recorder.in_backward and _is_whole(shard, local[shard.fqn]):
                continue  # what a checkpoint computes again takes what forward gathered, as the rest of backward does
            with recorder.inside(shard.fqn.rpartition(".")[0]):
                whole = _gathered(local[shard.fqn], shard)
            for module, name in shard.places:
                module._parameters[name] = whole  # type: ignore[assignment]
        return _cast((args, kwargs), unit.input_dtype)

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        return _cast(output, unit.output_dtype)

    undo: List[Callable[[], None]] = []
    for i, module in enumerate(unit.modules):
        # The modules of one unit run one after the other: the first brings the parameters of all.
        hook = before if i == 0 else lambda _, args, kwargs: _cast((args, kwargs), unit.input_dtype)
        undo.append(module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True).remove)
        undo.append(module.register_forward_hook(after).remove)
        undo += [_replace(module, *method, before, after, recorder) for method in compat.fsdp_methods(module)]
    return undo


def _replace(
    module: nn.Module, name: str, plain: Callable[..., Any], before: Any, after: Any, recorder: Recorder
) -> Callable[[], None]:
    """The method (register_fsdp_forward_method) does what forward does; gives what puts the old one back."""
    registered = vars(module)[name]

    def method(*args: Any, **kwargs: Any) -> Any:
        with recorder.inside_module(module):
            args, kwargs = before(module, args, kwargs)
            return after(module, args, plain(*args, **kwargs))

    setattr(module, name, method)
    return lambda: setattr(module, name, registered)


def _is_whole(shard: Shard, local: Tensor) -> bool:
    """Is it gathered, by way of autograd? Within a reentrant checkpoint forward runs without."""
    module, name = shard.places[0]
    return module._parameters[name].requires_grad == local.requires_grad  # type: ignore[union-attr]


def _cast(tree: Any, dtype: Optional[torch.dtype]) -> Any:
    if dtype is None:
        return tree

    def cast(value: Any) -> Any:
        return (
            value.to(dtype)
            if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype
            else value
        )

    return pytree.tree_map(cast, tree)


def _gathered(local: Tensor, shard: Shard) -> Tensor:
    whole = _Gather.apply(local, shard)
    if shard.layout is None:
        return whole
    from torch.distributed.tensor import DTensor

    mesh, placements, size, stride = shard.layout
    return DTensor.from_local(whole, mesh, placements, run_check=False, shape=size, stride=stride)


class _Gather(torch.autograd.Function):
    """Forward casts and gathers; backward reduces in a dtype of its own, which autograd of the parts could not."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, shard: Shard) -> Tensor:
        ctx.shard, ctx.dtype, ctx.rows = shard, local.dtype, local.shape[shard.dim]
        if shard.param_dtype is not None and shard.param_dtype != local.dtype:
            local = local.to(shard.param_dtype)
        count = shard.shards.size()
        padding = -shard.size[shard.dim] % count
        rows = (shard.size[shard.dim] + padding) // count
        parts = compat.all_gather(_padded(local, shard.dim, rows), shard.shards)
        if shard.dim != 0:
            parts = torch.cat(parts.chunk(count), shard.dim)
        return parts.narrow(shard.dim, 0, shard.size[shard.dim]) if padding else parts

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, None]:
        shard: Shard = ctx.shard
        if shard.reduce_dtype is not None and shard.reduce_dtype != gradient.dtype:
            gradient = gradient.to(shard.reduce_dtype)
        count = shard.shards.size()
        before, after = divisors(shard.divisor, gradient.dtype)
        if before != 1:
            gradient = gradient / before
        gradient = _padded(gradient, shard.dim, shard.size[shard.dim] + -shard.size[shard.dim] % count)
        if shard.dim != 0:
            gradient = torch.cat(gradient.chunk(count, shard.dim))
        part = compat.reduce_scatter(gradient.contiguous(), shard.shards)
        if shard.replicas is not None:
            part = compat.all_reduce(part, shard.replicas)
        part = part / after
        if part.shape[shard.dim] != ctx.rows:
            part = part.narrow(shard.dim, 0, ctx.rows)
        return part.to(ctx.dtype) if part.dtype != ctx.dtype else part, None


def divisors(divisor: float, dtype: torch.dtype) -> Tuple[float, float]:
    """Of gradients before and after they are summed: as fully_shard has it, both about the root of the whole where the
    sum could leave the range of the type."""
    before = 1.0
    if dtype not in (torch.float32, torch.bfloat16):
        while divisor % before == 0 and divisor / before > before:
            before *= 2
    return before, divisor / before


def _padded(tensor: Tensor, dim: int, rows: int) -> Tensor:
    """Zeros at the end of `dim`, where a size is no multiple of the ranks."""
    missing = rows - tensor.shape[dim]
    if missing == 0:
        return tensor
    return nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, missing])
