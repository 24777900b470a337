"""The places of state beside the model's parameters and buffers: what stands there, what a run writes there, and other
tensors put there for a while."""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Mapping, MutableMapping, Set, Union

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from . import sharding
from .bits import changed
from .containers import Inside, has
from .errors import CaptureError


@dataclass
class Place:
    """The place where a tensor is kept."""

    name: str  # as the function names it: ema.module.0.weight
    container: Union[MutableMapping[Any, Any], List[Any]]
    key: Any
    is_surely_state: bool = False  # even if no run writes it
    attribute: str = ""  # the attribute of a module that is or contains it: blocks.0.running
    tied: List[Place] = field(default_factory=list)  # others that hold the same tensor: a copy of tied weights

    @property
    def variable(self) -> str:
        """The variable (or the module's attribute) that it belongs to, as the function names it."""
        return self.attribute or self.name.partition(".")[0]

    @property
    def tensor(self) -> Tensor:
        return self.container[self.key]  # type: ignore[no-any-return]

    def put(self, tensor: Tensor) -> None:
        for place in (self, *self.tied):
            place.container[place.key] = tensor

    def is_there(self) -> bool:
        """False if the step has removed the entry from its list or dict."""
        return has(self.container, self.key)

    def holds(self, tensor: Tensor) -> bool:
        return self.is_there() and self.tensor is tensor

    def with_keys(self, keys: Mapping[int, Any]) -> Place:
        """The place while these keys, by the id of what they replace, are those of dicts."""
        at = {"container": _with_keys(self.container, keys), "key": keys.get(id(self.key), self.key)}
        return replace(self, **at, tied=[other.with_keys(keys) for other in self.tied])


def _with_keys(container: Any, keys: Mapping[int, Any]) -> Any:
    if not isinstance(container, Inside):
        return container
    now = copy.copy(container)
    now.container, now.key = _with_keys(container.container, keys), keys.get(id(container.key), container.key)
    return now


@contextmanager
def swapped(places: Mapping[str, Place], given: Dict[str, Tensor]) -> Iterator[None]:
    """Puts the tensors `given` in these places. On exit `given` has what the places held last, and the places are
    restored."""
    before = {name: place.tensor for name, place in places.items()}
    try:
        for name, place in places.items():
            place.put(given[name])
        yield
        for name, place in places.items():
            given[name] = place.tensor
            for other in place.tied:
                if not other.holds(place.tensor):
                    raise CaptureError(f"{name} and {other.name} are one tensor before the step, and not after it")
    finally:
        for name, place in places.items():
            place.put(before[name])


class Watched:
    """The state of places before a run: undoes what the run writes there, and reports it."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._before = {name: place.tensor for name, place in places.items()}
        self._numbers = {name: sharding.local(tensor).clone() for name, tensor in self._before.items()}
        self._versions = {name: tensor._version for name, tensor in self._before.items()}
        self._trained: Set[int] = set()
        self._uses = _Uses({id(place.tensor) for place in places.values() if place.attribute})

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context for the run that records which of the model's attributes it uses, and what it trains."""
        trainable = [tensor for tensor in self._before.values() if tensor.requires_grad and tensor.is_leaf]
        train = lambda tensor: self._trained.add(id(tensor))  # noqa: E731
        hooks = [tensor.register_post_accumulate_grad_hook(train) for tensor in trainable]
        try:
            with self._uses if self._uses.ids else nullcontext():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def written(self) -> Dict[str, Place]:
        """All places of the variables in which the run wrote something. Excludes an attribute of a module that the run
        only reassigned without using it first (the last hidden states). Places that hold different tensors after it are
        not tied."""
        there = {name: place for name, place in self._places.items() if place.is_there()}
        written = [name for name in there if self._is_replaced(name) or self._is_changed(name)]
        state = [name for name in written if self._is_used(name) or self._is_changed(name)]
        tied = {name: [other for other in place.tied if other.holds(place.tensor)] for name, place in there.items()}
        for name in written:
            self._undo(name)
        for name, place in there.items():
            place.tied = tied[name]
        for name in state:
            self._check_untrained(name)
        variables = {there[name].variable for name in state}
        return {name: place for name, place in there.items() if place.variable in variables or place.is_surely_state}

    def _is_replaced(self, name: str) -> bool:
        place = self._places[name]
        return place.container[place.key] is not self._before[name]

    def _is_changed(self, name: str) -> bool:
        tensor = self._before[name]
        if tensor._version != self._versions[name]:
            return True
        return changed(self._numbers[name], sharding.local(tensor))  # a write through .data keeps the version

    def _is_used(self, name: str) -> bool:
        return not self._places[name].attribute or id(self._before[name]) in self._uses.found

    def _undo(self, name: str) -> None:
        place, tensor = self._places[name], self._before[name]
        place.put(tensor)
        if self._is_changed(name):
            with torch.no_grad():
                sharding.local(tensor).copy_(self._numbers[name])

    def _check_untrained(self, name: str) -> None:
        tensor = self._before[name]
        if tensor.requires_grad and (tensor.grad is not None or id(tensor) in self._trained):
            raise CaptureError(
                f"the train_step trains {name}, which is beside the model: make both parts of one module, and give "
                "that to capture"
            )


class _Uses(TorchFunctionMode):
    """Records which of the given tensors torch functions use; reading a type or size is not a use."""

    def __init__(self, ids: Set[int]) -> None:
        super().__init__()
        self.ids, self.found = ids, set[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _NO_USE:
            given = (id(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
            self.found.update(self.ids.intersection(given))
        return func(*args, **(kwargs or {}))


_NO_USE = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.stride, Tensor.is_contiguous, Tensor.is_floating_point),
}


def is_strided(tensor: Tensor) -> bool:
    """Whether it has plain memory. No step writes other tensors (sparse, quantized, nested, inference mode)."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    return tensor.device.type != "meta" and not tensor.is_inference()
