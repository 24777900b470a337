"""torch.amp.GradScaler in a train_step. Its scale, and how many steps it has had that, are state beside the model.

Where gradients are not finite it skips the update: by an `if`, of which a graph would hold one way. Here each update is
made, and what it wrote is what it was before where it is to be skipped. What PyTorch computes in operators of their own
for scalers is made of plain ones here, which are known in double, too.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat, sharding
from .errors import CaptureError

NAMES = {"scale": "_scale", "growth_tracker": "_growth_tracker"}  # of its state, and where it keeps that


def is_on(thing: Any) -> bool:
    return isinstance(thing, torch.amp.GradScaler) and thing.is_enabled()


def begun(scaler: Any, device: torch.device) -> None:
    """It makes its state when it scales the first loss."""
    if scaler._scale is None:
        scaler._lazy_init_scale_growth_tracker(torch.device("cpu") if device.type == "meta" else device)


@contextmanager
def without_conditions() -> Iterator[None]:
    """Within it scalers skip no update. What they know of optimizers meanwhile is forgotten at the end."""
    used: Dict[int, Tuple[Any, Any]] = {}

    def use(scaler: Any) -> None:
        _check_state(scaler)
        if id(scaler) not in used:
            used[id(scaler)] = scaler, scaler._per_optimizer_states
            scaler._per_optimizer_states = defaultdict(scaler._per_optimizer_states.default_factory)

    try:
        with compat.scalers(use, _updated, _unscale, _follow):
            yield
    finally:
        for scaler, before in used.values():
            scaler._per_optimizer_states = before


def _check_state(scaler: Any) -> None:
    if type(scaler) not in compat.kinds_of_scalers():
        raise CaptureError(f"the step scales its loss by {type(scaler).__name__}: torch.amp.GradScaler is understood")
    if scaler._scale is None:
        raise CaptureError(
            "the step scales its loss by a torch.amp.GradScaler that capture does not find in what the train_step "
            "names: make it before the step, and use it in the train_step itself"
        )


def _updated(optimizer: Any, found_inf: List[Tensor], update: Callable[[], Any]) -> Any:
    """One update, of which nothing is left where an infinity was found."""
    kept = {id(state): dict(state) for state in optimizer.state.values()}
    is_skipped = sum(found_inf[1:], found_inf[0]) > 0
    writes = _Writes(optimizer, is_skipped)
    with writes:
        result = update()
    writes.settle()
    for state in optimizer.state.values():
        for key, before in kept.get(id(state), {}).items():
            if isinstance(before, Tensor) and state[key] is not before:  # bound to another one
                now = sharding.local(state[key])
                now.copy_(torch.where(is_skipped, sharding.local(before), now))
    return result


class _Writes(TorchDispatchMode):
    """What an update writes becomes what it was where the update is to be skipped: soon after each parameter's turn, so
    that copies of the state of one are in memory at a time."""

    supports_higher_order_operators = True

    def __init__(self, optimizer: Any, is_skipped: Tensor) -> None:
        super().__init__()
        self._is_skipped = is_skipped
        self._known: Dict[int, Tuple[Tensor, int]] = {}  # by memory: the tensor, and whose it is
        self._before: Dict[int, Tensor] = {}  # by memory
        self._turn: Optional[int] = None
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for turn, parameter in enumerate(parameters):
            state = optimizer.state[parameter].values() if parameter in optimizer.state else ()
            for tensor in (parameter, *(value for value in state if isinstance(value, Tensor))):
                mine = sharding.local(tensor)
                self._known[compat.memory_of(mine)] = mine, turn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in compat.written(func, args, kwargs or {}):
            self._keep(compat.memory_of(sharding.local(tensor)))
        return func(*args, **(kwargs or {}))

    def _keep(self, memory: int) -> None:
        if memory not in self._known:
            return
        tensor, turn = self._known[memory]
        if turn != self._turn:
            self.settle()
            self._turn = turn
        if memory not in self._before:
            self._before[memory] = tensor.clone()

    def settle(self) -> None:
        for memory, before in self._before.items():
            tensor, _ = self._known[memory]
            tensor.copy_(torch.where(self._is_skipped, before, tensor))
        self._before.clear()


def _unscale(gradients: List[Tensor], found_inf: Tensor, inverse: Tensor) -> None:
    """`found_inf` becomes 1 where one of them is not finite, on whatever rank."""
    found = [gradient.isfinite().all().logical_not() for gradient in map(sharding.local, gradients)]
    found_inf.masked_fill_(torch.stack(found).any(), 1.0)
    found_inf.copy_(sharding.largest(found_inf, gradients[0]))
    for gradient in map(sharding.local, gradients):
        gradient.copy_(gradient * inverse.to(torch.promote_types(gradient.dtype, torch.float32)))


def _follow(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth_factor: float, backoff_factor: float, growth_interval: int
) -> Tensor:
    """The scale falls behind a step that was skipped, and rises behind so many ones that were not, if it can."""
    is_skipped, count = found_inf > 0, tracker + 1
    grows = count == growth_interval
    larger, smaller = ((scale.double() * factor).to(scale.dtype) for factor in (growth_factor, backoff_factor))
    kept = torch.where(grows & larger.isfinite(), larger, scale)
    tracker.copy_(torch.where(is_skipped | grows, 0, count))
    return scale.copy_(torch.where(is_skipped, smaller, kept))
