"""torch.amp.GradScaler in a train_step. Its scale and growth tracker are state outside the model.

If gradients are not finite PyTorch skips the update by an `if`, of which a graph would hold one branch. Here each update
runs, and what it wrote is restored by `where` if it should have been skipped. PyTorch's special operators for scalers
are replaced by plain ones, which can also be run in double.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import compat, sharding
from .errors import CaptureError

Place = Tuple[Any, Any]  # a container (list or dict), and the key of a tensor in it
Bindings = Callable[[], Iterable[Place]]
_Region = Tuple[Any, ...]

SKIPS_ITSELF = "_stepgraph_skips_itself"  # set on fused optimizers, which skip by themselves: their hooks always run
NAMES = {"scale": "_scale", "growth_tracker": "_growth_tracker"}  # its state, and the attributes that hold it


def is_on(thing: Any) -> bool:
    return isinstance(thing, torch.amp.GradScaler) and thing.is_enabled()


def begun(scaler: Any, device: torch.device) -> None:
    """Creates the state that a scaler creates when it scales its first loss."""
    if scaler._scale is None:
        scaler._lazy_init_scale_growth_tracker(torch.device("cpu") if device.type == "meta" else device)


@contextmanager
def without_conditions(bindings: Bindings) -> Iterator[None]:
    """In this context scalers do not skip updates. What they record about optimizers meanwhile is dropped on exit.

    `bindings` lists where the step keeps tensors outside its optimizers: an update may bind other tensors there."""
    used: Dict[int, Tuple[Any, Any]] = {}

    def use(scaler: Any) -> None:
        _check_state(scaler)
        if id(scaler) not in used:
            used[id(scaler)] = scaler, scaler._per_optimizer_states
            scaler._per_optimizer_states = defaultdict(scaler._per_optimizer_states.default_factory)

    try:
        with compat.scalers(use, partial(_updated, bindings), _unscale, _follow):
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


def _updated(bindings: Bindings, optimizer: Any, found_inf: List[Tensor], update: Callable[[], Any]) -> Any:
    """Runs an update and undoes it if an infinity was found. Hooks around the step() are undone with it, unless the
    optimizer itself skips (fused ones): PyTorch runs their hooks always."""
    is_skipped = sum(found_inf[1:], found_inf[0]) > 0
    if getattr(optimizer, SKIPS_ITSELF, False):
        with compat.within_hooks(optimizer, partial(_undone, optimizer, is_skipped, None)):
            return update()
    with _undone(optimizer, is_skipped, bindings):
        return update()


@contextmanager
def _undone(optimizer: Any, is_skipped: Tensor, bindings: Optional[Bindings]) -> Iterator[None]:
    """Undoes what is written in this context if `is_skipped`. Without bindings, only the optimizer's parameters and
    state."""
    states = [state for state in optimizer.state.values() if isinstance(state, dict)]
    places = [(kept, key) for kept in (*states, *optimizer.param_groups) for key in kept]
    places += [(optimizer.state, key) for key in optimizer.state if isinstance(key, str)]
    bound = _Bound([*places, *(bindings() if bindings is not None else ())])
    writes = _Writes(optimizer, is_skipped, with_others=bindings is not None)
    with writes:
        yield
    writes.settle()
    bound.settle(is_skipped)


class _Bound:
    """Tensors by the places that hold them. If an update binds another tensor there, settle() selects the old value for
    a skipped update."""

    def __init__(self, places: List[Place]) -> None:
        self._before = [(kept, key, kept[key]) for kept, key in places if isinstance(kept[key], Tensor)]

    def settle(self, is_skipped: Tensor) -> None:
        chosen: Dict[Tuple[int, int], Tensor] = {}  # by the ids of both, as places may have the same tensors
        for kept, key, before in self._before:
            now = _found(kept, key)
            if now is before:
                continue
            pair = id(before), id(now)
            if pair not in chosen:
                mine = torch.where(is_skipped, sharding.local(before), sharding.local(_like(before, key, now)))
                chosen[pair] = sharding.whole(mine, before)
            kept[key] = chosen[pair]


def _found(kept: Any, key: Any) -> Any:
    try:
        return kept[key]
    except LookupError:
        return None


def _like(before: Tensor, key: Any, now: Any) -> Tensor:
    if isinstance(now, Tensor) and (now.shape, now.dtype) == (before.shape, before.dtype):
        return now
    becomes = f"one of {now.dtype} {list(now.shape)}" if isinstance(now, Tensor) else type(now).__name__
    place = "a variable" if key is None else f"`{key}`"
    raise CaptureError(
        f"a scaler may skip an update that makes of {place}, a tensor of {before.dtype} {list(before.shape)}, {becomes}, "
        "and a graph holds one of both: change that outside of the optimizer's step()"
    )


class _Writes(TorchDispatchMode):
    """Restores what an update writes if it is to be skipped: a parameter and its state right after their turn, so that
    copies of only one parameter are in memory at a time. `with_others`: also any other memory that existed before the
    update, as hooks around step() may write to anything."""

    supports_higher_order_operators = True

    def __init__(self, optimizer: Any, is_skipped: Tensor, with_others: bool) -> None:
        super().__init__()
        self._is_skipped, self._with_others = is_skipped, with_others
        self._known: Dict[int, Tuple[Tensor, int]] = {}  # by memory: the tensor, and the index of its parameter
        self._made: Set[int] = set()  # memory allocated during the update
        self._before: Dict[_Region, Tuple[Tensor, Tensor]] = {}  # by region, in order of writes: the tensor, and a copy
        self._turn: Optional[int] = None
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for turn, parameter in enumerate(parameters):
            state = optimizer.state[parameter].values() if parameter in optimizer.state else ()
            for tensor in (parameter, *(value for value in state if isinstance(value, Tensor))):
                mine = sharding.part(tensor)
                self._known[compat.memory_of(mine)] = mine, turn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = [self._whole(tensor) for tensor in compat.written(func, args, kwargs or {})]
        self._keep([found for found in written if found is not None])
        result = func(*args, **(kwargs or {}))
        self._made |= _memory_in(result) - _memory_in((args, kwargs))
        return result

    def _whole(self, tensor: Tensor) -> Optional[Tuple[Tensor, int]]:
        """The whole tensor to copy, and the parameter whose turn it belongs to; None if no copy is needed."""
        mine = sharding.part(tensor if tensor._base is None else tensor._base)
        memory = compat.memory_of(mine)
        if memory in self._known:
            return self._known[memory]
        return None if memory in self._made or not self._with_others else (mine, -1 - memory)

    def _keep(self, written: List[Tuple[Tensor, int]]) -> None:
        if any(turn != self._turn for _, turn in written):
            self.settle()
            self._turn = written[0][1] if len({turn for _, turn in written}) == 1 else None
        for tensor, _ in written:
            region = compat.memory_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
            if region not in self._before:
                self._before[region] = tensor, tensor.clone()

    def settle(self) -> None:
        """Restores the last region first, as regions may overlap."""
        for tensor, before in reversed(self._before.values()):
            tensor.copy_(torch.where(self._is_skipped, before, tensor))
        self._before.clear()


def _memory_in(tree: Any) -> Set[int]:
    tensors = [sharding.part(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    return {compat.memory_of(tensor) for tensor in tensors if tensor.layout == torch.strided}


def _unscale(gradients: List[Tensor], found_inf: Tensor, inverse: Tensor) -> None:
    """Unscales the gradients, and sets `found_inf` to 1 if one is not finite on any rank."""
    found = [gradient.isfinite().all().logical_not() for gradient in map(sharding.local, gradients)]
    found_inf.masked_fill_(torch.stack(found).any(), 1.0)
    found_inf.copy_(sharding.largest(found_inf, gradients[0]))
    for gradient in map(sharding.local, gradients):
        gradient.copy_(gradient * inverse.to(torch.promote_types(gradient.dtype, torch.float32)))


def _follow(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth_factor: float, backoff_factor: float, growth_interval: int
) -> Tensor:
    """Updates the scale: lower after a skipped step, higher after `growth_interval` others in a row, if finite."""
    is_skipped, count = found_inf > 0, tracker + 1
    grows = count == growth_interval
    larger, smaller = ((scale.double() * factor).to(scale.dtype) for factor in (growth_factor, backoff_factor))
    kept = torch.where(grows & larger.isfinite(), larger, scale)
    tracker.copy_(torch.where(is_skipped | grows, 0, count))
    return scale.copy_(torch.where(is_skipped, smaller, kept))
