"""The user's own objects before his step runs on them: parameters and their gradients, modules, optimizers, and what
the step keeps beside them. Afterwards they are as they were found.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from torch import Tensor

from . import compat, sharding
from .beside import entries
from .bits import changed
from .containers import LONGEST, Contents
from .places import Place, is_strided
from .step import Step


class AsFound:
    def __init__(self, step: Step) -> None:
        self._step = step
        self._contents = Contents()
        self._seen: Set[int] = set()  # lists, tuples and dicts, by id
        self._tensors: Dict[int, _Kept] = {}
        self._places: List[Tuple[Place, Tensor]] = []
        for thing in (*(module for _, module in step.modules_around), *step.optimizers.own):
            self._take(vars(thing))
        for place in (*step.beside.values(), *step.reachable().tensors.values()):
            self._places.append((place, place.tensor))
            self._take(place.tensor)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A context in which the step may run on them. It begins without what earlier runs made."""
        self._step.made.forget()
        for kept in self._tensors.values():
            kept.begin()
        try:
            with compat.version_kept([kept.tensor for kept in self._tensors.values()]):
                yield
        finally:
            self._step.made.forget()
            for place, tensor in self._places:
                if place.is_there():
                    place.container[place.key] = tensor
            self._contents.restore()
            for kept in self._tensors.values():
                kept.restore()

    def _take(self, thing: Any) -> None:
        if isinstance(thing, Tensor):
            if id(thing) not in self._tensors and is_strided(thing):
                self._tensors[id(thing)] = _Kept(thing)
                self._take(thing.grad if thing.is_leaf else None)
        elif isinstance(thing, (dict, list, deque, tuple)) and id(thing) not in self._seen and entries(thing) <= LONGEST:
            self._seen.add(id(thing))
            self._contents.take(thing)
            for one in thing.values() if isinstance(thing, dict) else thing:
                self._take(one)


class _Kept:
    """A tensor: its memory and the numbers in it, its gradient, its hooks."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self._data = tensor, sharding.local(tensor.data)
        self._numbers = self._data.clone()
        self._requires_grad = tensor.requires_grad
        self._gradient: Optional[Tensor] = tensor.grad if tensor.is_leaf else None
        self._hooks = [(hooks, dict(hooks)) for hooks in compat.hook_tables(tensor)]

    def begin(self) -> None:
        """Drops a gradient that a loss has left there; a view of other memory was put there for steps to write to."""
        if self._gradient is not None and not self._gradient._is_view():
            self.tensor.grad = None

    def restore(self) -> None:
        now = sharding.local(self.tensor.data)
        if compat.memory_of(now) != compat.memory_of(self._data) or now.shape != self._data.shape:
            sharding.rebind(self.tensor, self._data)
        if changed(self._numbers, self._data):  # else it may be memory that nobody can write to
            self._data.copy_(self._numbers)
        if self.tensor.is_leaf:
            self.tensor.requires_grad_(self._requires_grad)
            self.tensor.grad = self._gradient
        known = {id(hooks): before for hooks, before in self._hooks}
        for hooks in compat.hook_tables(self.tensor):
            for key in hooks.keys() - known.get(id(hooks), {}).keys():
                del hooks[key]
