"""State that a step creates in its first run: `if p not in momentum: momentum[p] = torch.zeros_like(p)`, or a model:
`self.register_buffer("running", ...)`. Its initial values are unknown, so a graph could only be that of the first step;
a step that reads such state is refused by name. What a step creates and never reads (the last loss), or creates once
and never changes (a mask), is not state. What it counts in (`self.steps += 1`, a flag, a set) is recorded by name, for
checks of the step and for messages. Afterwards all of these are as they were before the runs, and so is what the step's
lists, deques, dicts and sets hold.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch
from torch import Tensor

from . import compat, kept, sharding
from .beside import Found
from .bits import changed
from .containers import Contents
from .errors import CaptureError
from .places import Place, is_strided


class Made:
    """Tracks tensors that runs of a step put in places that held none."""

    def __init__(self, search: Callable[[], Found], whose: str) -> None:
        """whose: "step", or "model" if it is captured without a train_step."""
        self._search, self._whose = search, whose
        self.before = search()  # what there was before the runs
        self._tensors = [(place, place.tensor) for place in self.before.tensors.values()]
        self._contents = _contents_of(self.before)
        self._schedulers = [(scheduler, dict(vars(scheduler))) for scheduler in self.before.schedulers]
        self._last: Dict[str, Tuple[Tensor, int, Tensor]] = {}  # after the last run: tensor, version, values
        self._runs = 0
        self._state: Set[str] = set()  # places that hold state, by name
        self.counted: List[str] = []  # Python numbers, flags and sets that a run has changed
        self.floats: Set[str] = set()  # and the fractions among them, also those that a trace has changed
        self.whole: Set[str] = set()  # and whole numbers

    def look(self) -> None:
        """Must be called after each run. State is what a run finds in place and changes."""
        found = self._search()
        now = {name: place for name, place in self._places(found).items() if _has_numbers(place.tensor)}
        counted = [name for name, (_, was) in self.before.others.items() if _is_counted(was, found.others.get(name))]
        self.floats |= {name for name in counted if self._is_number(name, float)}
        self.whole |= {name for name in counted if self._is_number(name, int)}
        self.counted = list(dict.fromkeys([*self.counted, *counted]))  # also what a second run puts back, as a ring of two
        self._runs += 1
        if self._runs > 1:
            self._state |= {name for name, place in now.items() if self._is_changed(name, place.tensor)}
        self._last = {
            name: (place.tensor, place.tensor._version, sharding.local(place.tensor).detach().clone())
            for name, place in now.items()
        }

    @property
    def has_made(self) -> bool:
        return bool(self._last)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """In this context, which is for tracing, reads of this state are refused. Tensors that the model caches are
        removed, so that the graph computes them, for any sizes. On exit everything else is restored."""
        before = self._search()
        contents = _contents_of(before)
        made = self._places(before)
        message = _WORDS.format(f"the {self._whose} reads {{0}}", _LATER[self._whose])
        stand_ins = {
            name: kept.unreadable(place.tensor, message.format(name))
            for name, place in made.items()
            if name in self._state
        }
        if not stand_ins:
            for name in [name for name, place in made.items() if place.attribute]:
                _undo(name, before, self.before)
            before = self._search()
            made = self._places(before)
        was = {name: place.tensor for name, place in made.items()}
        try:
            for name, stand_in in stand_ins.items():
                made[name].container[made[name].key] = stand_in
            yield
            if self._runs == 0:
                self._check_untold()
        finally:
            found = self._search()
            for name, (place, value) in before.others.items():
                if isinstance(value, float) and _is_counted(value, found.others.get(name)):
                    self.floats |= {name} if self._is_number(name, float) else set()
                    place.container[place.key] = value
            self._restore(before, was)
            contents.restore()

    @contextmanager
    def moved(self, names: Set[str]) -> Iterator[None]:
        """In this context, which is for tracing, these numbers that the step changes are other ones, close by."""
        now = self._search().others
        places = [now[name] for name in sorted(names) if name in now]
        try:
            for place, value in places:
                place.container[place.key] = value + 1 if isinstance(value, int) else value * _MOVED + _MOVED_BY
            yield
        finally:
            for place, value in places:
                place.container[place.key] = value

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        """In this context tensors beside the model begin without the gradients that earlier steps left in them, as its
        parameters do: a backward adds to those of a teacher that nobody has frozen, and nobody reads them."""
        leaves = [tensor for _, tensor in self._tensors if tensor.is_leaf and tensor.requires_grad]
        before = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        try:
            yield
        finally:
            for leaf, gradient in zip(leaves, before):
                leaf.grad = gradient

    def forget(self) -> None:
        """Removes what the runs created, puts back what they replaced, and resets numbers and sets."""
        self._restore(self.before, {})
        for place, tensor in self._tensors:
            if place.is_there() and place.tensor is not tensor:
                place.container[place.key] = tensor
        found = self._search()
        for name, (place, was) in self.before.others.items():
            if _is_counted(was, found.others.get(name)):
                if isinstance(was, frozenset):
                    place.container[place.key].clear()
                    place.container[place.key].update(was)
                else:
                    place.container[place.key] = was
        self._contents.restore()
        for scheduler, was in self._schedulers:
            vars(scheduler).update(was)

    def _is_number(self, name: str, kind: type) -> bool:
        """What schedulers count in stays outside of the graph."""
        place, was = self.before.others.get(name, (None, None))
        of_schedulers = [vars(scheduler) for scheduler in self.before.schedulers]
        return type(was) is kind and not any(place.container is each for each in of_schedulers)

    def _places(self, found: Found) -> Dict[str, Place]:
        """The places that the runs created."""
        return {name: place for name, place in found.tensors.items() if name not in self.before.tensors}

    def _is_changed(self, name: str, tensor: Tensor) -> bool:
        if name not in self._last:
            return True
        was, version, numbers = self._last[name]
        return tensor is not was or tensor._version != version or changed(numbers, sharding.local(tensor))

    def _check_untold(self) -> None:
        """Refuses, for a step that was never run, what it created for a parameter: that must be state."""
        now = self._search()
        made = sorted(name for name in self._places(now) if name in now.by_parameter)
        if made:
            raise CaptureError(_WORDS_WHEN_FAKE.format(made[0]))

    def _restore(self, before: Found, was: Dict[str, Tensor]) -> None:
        """was: the tensors to put back into created places, by name; other created places are undone."""
        now = self._search()
        for name, place in reversed(list(self._places(now).items())):  # elements of lists from the end
            if name in was:
                place.container[place.key] = was[name]
            else:
                _undo(name, now, before)


def _contents_of(found: Found) -> Contents:
    return Contents([*found.lists, *found.dicts])


_MOVED, _MOVED_BY = 1 + 2**-10, 2**-30

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_KINDS = (int, float, str, frozenset, type, FunctionType, BuiltinFunctionType, MethodType)


def _is_counted(was: Any, now: Optional[Tuple[Place, Any]]) -> bool:
    """Whether a run has counted there, or put another name or function there (`self.act = torch.relu`). now: what is in
    the same place now, if not a tensor."""
    if not isinstance(was, _KINDS) or now is None:
        return False
    return isinstance(now[1], _SYMBOLS) or (isinstance(now[1], _KINDS) and now[1] != was)


def _has_numbers(tensor: Tensor) -> bool:
    return not compat.is_fake(tensor) and is_strided(sharding.local(tensor))


def _undo(name: str, now: Found, before: Found) -> None:
    """Restores what was in this place, or in the outermost place on its path that is new or rebound."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        outer = ".".join(parts[:i])
        place, thing = now.others.get(outer, (now.tensors.get(outer), None))
        had, was = before.others.get(outer, (None, None))
        if place is None or (had is not None and thing is was and thing is not None):
            continue
        if had is not None:
            place.container[place.key] = was
        elif place.is_there():
            del place.container[place.key]
        return


_WORDS = "{0}, which its first run makes: the graph would be that of a first step for ever. {1}, so that {{0}} is there"
_LATER = {"step": "Let it make a step before", "model": "Run it once before"}
_WORDS_WHEN_FAKE = (
    "the step makes {0}, and with fake=True no step is run that would tell what becomes of it: capture a smaller model "
    "without fake=True"
)
