"""Parameters that fully_shard gathers: their description, and what happens to them and their gradients during a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn

from . import compat, sharding


@dataclass
class Settings:
    """PyTorch's settings of a group, which a step may change between its backwards."""

    group: Any

    @property
    def reduces(self) -> bool:
        return bool(self.group.reduce_grads)

    @property
    def reduces_copies(self) -> bool:
        return bool(self.group.all_reduce_grads)

    def kept(self) -> Callable[[], None]:
        """Returns what restores the current settings."""
        names = ("reduce_grads", "all_reduce_grads", "reshard_after_backward")
        before = {name: getattr(self.group, name) for name in names}

        def restore() -> None:
            for name, value in before.items():
                setattr(self.group, name, value)

        return restore


@dataclass
class Shard:
    """One parameter that a fully_shard module gathers."""

    fqn: str
    places: List[Tuple[nn.Module, str]]  # modules that hold it, and its name there
    size: torch.Size  # unsharded; for a parameter that is tensor-parallel as well, this rank's part
    dim: int
    shards: Any  # process group over which it is sharded
    replicas: Optional[Any]  # process group of copies of the shard, or None
    param_dtype: Optional[torch.dtype]
    reduce_dtype: Optional[torch.dtype]
    grad_dtype: Optional[torch.dtype]  # of gradients of the gathered parameter, if it is not that of the parameter
    defers_upcast: bool  # what backward gives now and reduces at once may stay narrower than grad_dtype
    divisor: float
    settings: Settings
    layout: Optional[
        Tuple[Any, Tuple[Any, ...], torch.Size, Tuple[int, ...]]
    ]  # mesh, placements, size, stride when gathered

    @property
    def shown(self) -> Tensor:
        """What its modules have now."""
        module, name = self.places[0]
        return module._parameters[name]  # type: ignore[return-value]


@dataclass
class Unit:
    """What one call of fully_shard manages."""

    modules: Tuple[nn.Module, ...]
    shards: List[Shard]
    input_dtype: Optional[torch.dtype]  # floating-point arguments are cast to it
    output_dtype: Optional[torch.dtype]
    stays: bool  # whole between forward and backward


class Running:
    """A shard during a step."""

    def __init__(self, shard: Shard, kept: Tensor) -> None:
        self.shard = shard
        self.kept = kept  # what the model holds outside of forward and backward
        local = sharding.local(kept)
        self._rows, self._dtype = local.shape[shard.dim], local.dtype
        self.gathered: Optional[Tensor] = None
        self._unreduced: Optional[Tensor] = None  # local gradients of earlier backwards
        self._unshared: Optional[Tensor] = None  # their sums over the shards' ranks, not yet over the replicas'

    def gather(self) -> None:
        self.gathered = _gathered(self)
        self.show(self.gathered)

    def show(self, tensor: Tensor) -> None:
        """Puts the tensor in the model."""
        for module, name in self.shard.places:
            module._parameters[name] = tensor  # type: ignore[assignment]

    def is_gathered(self) -> bool:
        """Whether it was gathered under autograd: a reentrant checkpoint runs forward without."""
        shown = self.shard.shown
        return shown is self.gathered and shown.requires_grad == self.kept.requires_grad  # type: ignore[union-attr]

    @property
    def accepts(self) -> Optional[torch.dtype]:
        """The dtype to which autograd casts gradients of the gathered parameter; None leaves them as they are."""
        is_at_once = self.shard.settings.reduces or self._unreduced is not None
        return None if self.shard.defers_upcast and is_at_once else self.shard.grad_dtype

    @property
    def is_waiting(self) -> bool:
        return self._unreduced is not None or self._unshared is not None

    def take_unreduced(self) -> Optional[Tensor]:
        """The gradient to reduce now, if no backward has reached it since the step allowed reduction."""
        if not self.shard.settings.reduces:
            return None
        found, self._unreduced = self._unreduced, None
        return found

    def reduced(self, gradient: Tensor) -> Optional[Tensor]:
        """This rank's part of the mean; None if the step leaves it to a later backward."""
        shard = self.shard
        if shard.reduce_dtype is not None and shard.reduce_dtype != gradient.dtype:
            gradient = gradient.to(shard.reduce_dtype)
        if self._unreduced is not None:
            gradient, self._unreduced = self._unreduced + gradient, None
        if not shard.settings.reduces:
            self._unreduced = gradient
            return None
        before, after = divisors(shard.divisor, gradient.dtype)
        part = _scattered(gradient / before if before != 1 else gradient, shard)
        if shard.replicas is not None:
            if self._unshared is not None:
                part, self._unshared = self._unshared + part, None
            if not shard.settings.reduces_copies:
                self._unshared = part
                return None
            part = compat.all_reduce(part, shard.replicas)
        part = part / after
        if part.shape[shard.dim] != self._rows:
            part = part.narrow(shard.dim, 0, self._rows)
        return part.to(self._dtype) if part.dtype != self._dtype else part


def _gathered(running: Running) -> Tensor:
    whole = _Gather.apply(sharding.part(running.kept), running)
    if running.shard.layout is None or running.shard.grad_dtype is not None:
        return whole
    return _laid_out(whole, running.shard)


def _laid_out(whole: Tensor, shard: Shard) -> Tensor:
    from torch.distributed.tensor import DTensor

    mesh, placements, size, stride = shard.layout  # type: ignore[misc]
    return DTensor.from_local(whole, mesh, placements, run_check=False, shape=size, stride=stride)


class _Gather(torch.autograd.Function):
    """Forward casts and gathers. Backward reduces in its own dtype, which autograd of these ops could not do. With a
    dtype of its gradients' own it returns a DTensor itself: autograd of from_local would cast them."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, running: Running) -> Tensor:
        ctx.running, shard = running, running.shard
        if shard.param_dtype is not None and shard.param_dtype != local.dtype:
            local = local.to(shard.param_dtype)
        count = shard.shards.size()
        padding = -shard.size[shard.dim] % count
        rows = (shard.size[shard.dim] + padding) // count
        parts = compat.all_gather(_padded(local, shard.dim, rows), shard.shards)
        if shard.dim != 0:
            parts = torch.cat(parts.chunk(count), shard.dim)
        whole = parts.narrow(shard.dim, 0, shard.size[shard.dim]) if padding else parts
        if shard.grad_dtype is None:
            return whole
        ctx.set_output_grad_dtype(running.accepts)
        return whole if shard.layout is None else _laid_out(whole, shard)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], None]:
        shard = ctx.running.shard
        if shard.layout is not None and shard.grad_dtype is not None:
            gradient = gradient.redistribute(placements=shard.layout[1]).to_local()  # type: ignore[attr-defined]
        return ctx.running.reduced(gradient), None


def _scattered(gradient: Tensor, shard: Shard) -> Tensor:
    """This rank's part of the sum over the ranks of the shards, with padding."""
    count = shard.shards.size()
    gradient = _padded(gradient, shard.dim, shard.size[shard.dim] + -shard.size[shard.dim] % count)
    if shard.dim != 0:
        gradient = torch.cat(gradient.chunk(count, shard.dim))
    return compat.reduce_scatter(gradient.contiguous(), shard.shards)


def divisors(divisor: float, dtype: torch.dtype) -> Tuple[float, float]:
    """Divisors of gradients before and after the sum. As in fully_shard, both are about the square root of the total if
    the sum could leave the range of the type."""
    before = 1.0
    if dtype not in (torch.float32, torch.bfloat16):
        while divisor % before == 0 and divisor / before > before:
            before *= 2
    return before, divisor / before


def _padded(tensor: Tensor, dim: int, rows: int) -> Tensor:
    """Pads `dim` with zeros to `rows`."""
    missing = rows - tensor.shape[dim]
    if missing == 0:
        return tensor
    return nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, missing])
