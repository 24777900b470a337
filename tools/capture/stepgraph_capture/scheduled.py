"""Numbers in an optimizer's groups that the step sets outside of step(): a learning rate, by a scheduler or by hand.

What computes them counts in Python, and no graph holds that. So they are inputs of the graph, state that it does not
write: each step is given those that its step() works with. In a run of the step what the user's code assigns before
step() gives way to what the run is given, and what it assigns behind step() is of no consequence.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, Iterator, Mapping, Set, Tuple

import torch
from torch import Tensor

from . import compat
from .errors import CaptureError

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


class When(Enum):
    """Where in a run a change is seen."""

    BEFORE = "before the first step()"
    BETWEEN = "between two"
    BEHIND = "behind the last"


class Scheduled:
    """The numbers of one optimizer."""

    def __init__(self, whose: str) -> None:
        self.known: Dict[str, Tensor] = {}  # what the capture's own step works with, by slot
        self.found: Dict[str, Tensor] = {}  # more that the last run showed
        self.of_tensors: Set[str] = set()  # those that the step takes out of its own tensors, by slot
        self._whose = whose
        self._given: Dict[str, Any] = {}  # the run's, by slot
        self._runs = 0

    def learn(self) -> None:
        self.known.update(self.found)
        self.found = {}

    def begin(self, groups: Mapping[str, Dict[str, Any]], given: Mapping[str, Tensor]) -> None:
        """A run begins. groups: by what the names of their slots begin with."""
        self._given, self.found = {slot: given[slot].item() for slot in self.known}, {}
        self._runs += 1
        for before, group in groups.items():
            self._put(before, group)

    def takes(self, before: str, group: Dict[str, Any], key: str, was: Any, when: When) -> bool:
        """Takes the change of an entry of a group as one of such numbers, if it is one."""
        parts = list(_parts(f"{before}{key}", was, group[key]))
        if not parts or not all(slot in self.known or _are_plain(*pair) for slot, *pair in parts):
            return False
        if when is When.BETWEEN:
            raise CaptureError(
                f"the step changes {key} of {self._whose} between two of its step(), and the graph has one for a step: "
                "capture a step with one of them"
            )
        is_first = when is When.BEFORE and self._runs == 1  # a run before has shown no change: that worked with the old
        for slot, old, new in parts:
            if when is When.BEFORE and isinstance(new, _SYMBOLIC):
                self.of_tensors.add(slot)
            if slot not in self.known and old != new:
                kind = torch.float64 if isinstance(old, float) or isinstance(new, float) else torch.int64
                self.found[slot] = _tensor(new if is_first else old, kind)
        if when is When.BEFORE:
            self._put(before, group)
        return True

    def held(self, groups: Mapping[str, Mapping[str, Any]]) -> Dict[str, Tensor]:
        """What groups hold in place of the known numbers, by slot."""
        entries = ((f"{before}{key}", value) for before, group in groups.items() for key, value in group.items())
        parts = (part for name, value in entries for part in _parts(name, value, value))
        return {slot: _tensor(value, self.known[slot].dtype) for slot, value, _ in parts if slot in self.known}

    def _put(self, before: str, group: Dict[str, Any]) -> None:
        """Gives a group what the run is given."""
        for key, value in list(group.items()):
            slots = [slot for slot, *_ in _parts(f"{before}{key}", value, value)]
            if any(slot in self._given for slot in slots):
                old = value if isinstance(value, tuple) else (value,)
                new = [self._given.get(slot, one) for slot, one in zip(slots, old)]
                group[key] = tuple(new) if isinstance(value, tuple) else new[0]


def _parts(name: str, was: Any, now: Any) -> Iterator[Tuple[str, Any, Any]]:
    """The numbers of an entry, before and now, with their slots; none if it is anything else."""
    if isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
        if all(map(_is_number, (*was, *now))):
            yield from ((f"{name}.{i}", *pair) for i, pair in enumerate(zip(was, now)))
    elif _is_number(was) and _is_number(now):
        yield name, was, now


def _tensor(number: Any, kind: torch.dtype) -> Tensor:
    return compat.real(lambda: torch.tensor(number, dtype=kind))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, *_SYMBOLIC)) and not isinstance(value, bool)


def _are_plain(*values: Any) -> bool:
    return not any(isinstance(value, _SYMBOLIC) for value in values)
