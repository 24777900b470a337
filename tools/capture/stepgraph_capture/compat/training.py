"""Modules, optimizers and scalers during a step."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .parameters import named_buffers, named_parameters


@contextmanager
def swapped(module: nn.Module, tensors: Dict[str, Tensor]) -> Iterator[None]:
    """A context in which `tensors` are the module's parameters and buffers, tied ones included. A module that is
    registered under several names is swapped once.

    On exit `tensors` holds what the module has under these names: another object if it was reassigned.
    """
    own = {**dict(named_parameters(module, remove_duplicate=False)), **dict(named_buffers(module, remove_duplicate=False))}
    names = {id(own[name]): name for name in tensors if name in own}
    places = [
        (part, key, names[id(tensor)])
        for part in module.modules()
        for key, tensor in (*part._parameters.items(), *part._buffers.items())
        if id(tensor) in names
    ]
    before: List[Tuple[nn.Module, str, str, Tensor]] = []
    try:
        for part, key, name in places:
            before.append((part, key, name, _swap(part, key, tensors[name])))
        yield
    finally:
        # The first of several places gives the name, so it comes last here.
        for part, key, name, tensor in reversed(before):
            tensors[name] = _swap(part, key, tensor)


def _swap(part: nn.Module, key: str, tensor: Tensor) -> Tensor:
    """Puts the tensor into the module under this key, and returns what was there."""
    from torch.nn.utils._named_member_accessor import swap_tensor

    if "." not in key:
        return swap_tensor(part, key, tensor, allow_missing=True)
    table: Dict[str, Any] = part._parameters if key in part._parameters else part._buffers  # tensordict keeps them flat
    before, table[key] = table[key], tensor
    return before


@contextmanager
def casts_in_forward() -> Iterator[None]:
    """In this context, a module that casts itself (`self.router.to(dtype)`) gets other tensors under its names. PyTorch
    would swap the memory of its parameters, which is not possible for the tensors that stand in for them. Gradients
    flow through the cast, even if a reentrant checkpoint runs forward without autograd: the module is already cast when
    it runs again."""
    original = nn.Module._apply

    def apply(self: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(function)
        for tensors in (self._parameters, self._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    with torch.enable_grad():
                        tensors[name] = function(tensor)  # type: ignore[assignment]
        return self

    nn.Module._apply = apply  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


@contextmanager
def averages_of_all_batches() -> Iterator[None]:
    """In this context BatchNorm with momentum=None, whose averages are those of all batches, counts them in a tensor. It
    makes a number of the count, which in a graph would be that of one step."""
    original = _BatchNorm.forward

    def forward(self: _BatchNorm, input: Tensor) -> Tensor:
        count, mean, variance = self.num_batches_tracked, self.running_mean, self.running_var
        is_tracked = self.training and self.track_running_stats and mean is not None and variance is not None
        if self.momentum is not None or count is None or not is_tracked:
            return original(self, input)
        self._check_input_dim(input)
        count.add_(1)
        of_batch = torch.zeros_like(mean), torch.zeros_like(variance)
        result = nn.functional.batch_norm(input, *of_batch, self.weight, self.bias, True, 1.0, self.eps)
        with torch.no_grad():
            part = 1.0 / count.double()
            for average, one in zip((mean, variance), of_batch):
                average.mul_(1.0 - part).add_(one * part)
        return result

    _BatchNorm.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        _BatchNorm.forward = original  # type: ignore[method-assign]


def is_made_of_others(tensor: Tensor) -> bool:
    """Whether it is a wrapper, whose parts have the memory."""
    return is_traceable_wrapper_subclass(tensor)


def memory_of(tensor: Tensor) -> int:
    """An identity of the tensor's memory, also on "meta", where there is no address."""
    return tensor.untyped_storage()._cdata


@contextmanager
def as_compiled() -> Iterator[None]:
    """Makes PyTorch's optimizers accept capturable=True on every device."""
    original = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compiler.is_compiling = original  # type: ignore[assignment]


def kinds_of_scalers() -> Tuple[type, ...]:
    """The scaler classes that `scalers` understands; subclasses may do more."""
    return torch.amp.GradScaler, torch.cuda.amp.GradScaler, torch.cpu.amp.GradScaler


@contextmanager
def scalers(
    use: Callable[[Any], None],
    update: Callable[[Any, List[Tensor], Callable[[], Any]], Any],
    unscale: Callable[..., None],
    follow: Callable[..., Tensor],
) -> Iterator[None]:
    """Calls `use` with each torch.amp.GradScaler that scales a loss, and replaces parts of it: `update(optimizer,
    found_inf, make_update)` the conditional update, `unscale` the operator that unscales gradients, and `follow` the
    one that updates the scale."""
    kind = torch.amp.GradScaler
    scale = kind.scale

    def use_and_scale(self: Any, outputs: Any) -> Any:
        if self.is_enabled():
            use(self)
        return scale(self, outputs)

    def step_anyway(self: Any, optimizer: Any, state: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if type(self) not in kinds_of_scalers():  # subclasses may scale in their own way
            use(self)
        with torch.no_grad():
            found = list(state["found_inf_per_device"].values())
            return update(optimizer, found, lambda: optimizer.step(*args, **kwargs))

    ours = [
        (kind, "scale", use_and_scale),
        (kind, "_maybe_opt_step", step_anyway),
        (torch, "_amp_foreach_non_finite_check_and_unscale_", unscale),
        (torch, "_amp_update_scale_", torch.no_grad()(follow)),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in ours]
    try:
        for place, name, function in ours:
            setattr(place, name, function)
        yield
    finally:
        for place, name, function in before:
            setattr(place, name, function)


def hooks_around(optimizer: Any) -> List[Callable[..., Any]]:
    """What PyTorch calls before and after each step of this optimizer."""
    return [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]


@contextmanager
def within_hooks(optimizer: Any, around: Callable[[], Any]) -> Iterator[None]:
    """Runs each step() of the optimizer in the context `around()`, but not the hooks before and after it."""
    running = ExitStack()

    def begin(*_: Any) -> None:
        running.enter_context(around())

    begins = optimizer.register_step_pre_hook(begin)
    ends = optimizer.register_step_post_hook(lambda *_: running.close())
    optimizer._optimizer_step_post_hooks.move_to_end(ends.id, last=False)
    try:
        with running:
            yield
    finally:
        begins.remove()
        ends.remove()
