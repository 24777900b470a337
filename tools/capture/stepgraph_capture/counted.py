"""What an optimizer's step() changes besides tensors in the state of a parameter: Python numbers (the count of steps, a
sum of weights), and tensors in its groups and attributes. All become state of the graph.

Of a number that is a tensor of one number. A run begins by reading it (in a trace it is a symbolic number, and so is what
Python computes from it), and after each step() the new number is written.

Other changes are refused: those made outside of step(), unless they are `scheduled` ones, and those of anything but a
tensor, an int or a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from . import compat
from .errors import CaptureError
from .scheduled import Scheduled, When


class Recorded(dict):  # type: ignore[type-arg]
    """A dict of an optimizer during a run. `at_first` has what was in it, and of keys that the run adds the first value;
    `again` has the keys that are not the user's `own` and were assigned to a value that was there."""

    def __init__(self, given: Mapping[str, Any], own: Iterable[str]) -> None:
        super().__init__(given)
        self.at_first = {key: value for key, value in given.items() if not isinstance(value, Tensor)}
        self.again: Set[str] = set()
        self._own = frozenset(own)

    def made(self) -> Iterator[Tuple[str, Any]]:
        """What the run added that is no tensor, at its first value."""
        for key, value in self.at_first.items():
            if key not in self._own and not isinstance(value, Tensor):
                yield key, value

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self and value is not None:
            if not isinstance(value, _SYMBOLIC):  # a trace's own, which is of no use behind it
                self.at_first[key] = copied(value)
        elif key not in self._own:
            self.again.add(key)
        super().__setitem__(key, value)

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def setdefault(self, key: str, value: Any = None) -> Any:
        if key not in self:
            self[key] = value
        return self[key]


def copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, _copied, value)


def _copied(tensor: Tensor) -> Tensor:
    try:
        return tensor.detach().clone()
    except NotImplementedError as error:
        raise CaptureError(
            f"an optimizer keeps its state in {type(tensor).__name__}, tensors of a class of its own that cannot be "
            "copied (8-bit or 4-bit codes, mostly): no graph holds those"
        ) from error


@dataclass
class Place:
    """A dict in which an optimizer may hold numbers: its attributes, a group, the state of a parameter. The slot of a
    number is named `before`, its key, `after`."""

    kept: Dict[str, Any]
    before: str
    after: str = ""
    tensors: Optional[Mapping[str, Tensor]] = None  # what is in it before any run; None if its tensors are not watched

    def slot(self, key: str) -> str:
        return f"{self.before}{key}{self.after}"

    def numbers(self) -> Dict[str, Any]:
        """Leaves out flags with an underscore, which PyTorch and schedulers put there."""
        return {
            key: value
            for key, value in self.kept.items()
            if isinstance(value, (*_NUMBERS, tuple)) and not (isinstance(value, bool) and key.startswith("_"))
        }

    def watched(self) -> Dict[str, Tensor]:
        if self.tensors is None:
            return {}
        return {key: value for key, value in self.kept.items() if isinstance(value, Tensor)}

    def at_first(self, key: str) -> Any:
        """None if unknown."""
        if self.tensors is not None and key in self.tensors:
            return self.tensors[key]
        return self.kept.at_first.get(key) if isinstance(self.kept, Recorded) else None


_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_NUMBERS = (int, float, *_SYMBOLIC)
_Change = Tuple[Place, str, Any, Any]  # where, the key, what it was (None if it is new), and what it is


class Counted:
    """The numbers and watched tensors of one optimizer that its step() changes."""

    def __init__(self, whose: str, scheduled: Scheduled) -> None:
        self.known: Dict[str, Tensor] = {}  # what the graph starts from, by slot
        self.found: Dict[str, Tensor] = {}  # more that the last run showed
        self.numbers: Set[str] = set()  # the slots of numbers among them
        self.left: Dict[str, Any] = {}  # the known tensors that are no numbers, as the last run left them, by slot
        self._whose, self._scheduled = whose, scheduled
        self._keys: Dict[str, Tuple[str, str, str]] = {}  # by slot: before, key, after
        self._places: List[Place] = []
        self._given: Mapping[str, Tensor] = {}
        self._others: Set[int] = set()
        self._seen: Dict[str, Any] = {}  # the numbers as the run began, or after the last step()
        self._seen_tensors: Dict[str, Tuple[Tensor, int]] = {}  # and the tensors, with their versions
        self._has_stepped, self._depth = False, 0

    def learn(self) -> None:
        """Takes over what the last run showed."""
        self.known.update(self.found)
        self.found = {}

    def begin(self, places: List[Place], given: Mapping[str, Tensor], others: Set[int]) -> None:
        """A run begins. given: its tensors by slot. others: the ids of tensors that are state already."""
        self._places, self._given, self.found, self._has_stepped = places, given, {}, False
        self._others = others
        self._depth = 0
        self._put({slot: given[slot] for slot in self.known.keys() - self.numbers})
        self._read()

    def end(self) -> None:
        """A run ends, and the places still hold what it leaves."""
        kept = {(place.before, place.after): place.kept for place in self._places}
        found = {slot: self._keys[slot] for slot in self.known if slot not in self.numbers}
        self.left = {slot: kept[before, after].get(key) for slot, (before, key, after) in found.items()}

    def before_step(self) -> None:
        self._depth += 1
        if self._depth > 1:  # a step() that calls that of its base class
            return
        self.check(When.BETWEEN if self._has_stepped else When.BEFORE)
        if self._has_stepped:  # a scaler may have undone the last one, in the tensors alone
            self._read()

    def after_step(self) -> None:
        """Writes the numbers that step() has changed."""
        self._depth -= 1
        if self._depth > 0:
            return
        self._others.update(id(place.kept[key]) for place, key in [*self._replaced()])
        for place, key in self._changed_tensors():
            if place.slot(key) not in self.known:
                self._find(place, key, self._tensor(place, key))
        for place, key, before, now in list(self._changes(or_assigned=True)):
            slot = place.slot(key)
            if isinstance(now, Tensor) and slot not in self.known:
                continue  # a number of which the first step makes a tensor
            if slot in self.numbers and _is_number(now) and not (_is_fraction(now) and self._is_whole(slot)):
                self._given[slot].fill_(now)
            else:
                self._find(place, key, self._number(place, key, before, now))
                self.numbers.add(slot)
        self._see()
        self._has_stepped = True

    def check(self, when: When, more: Sequence[Tuple[Place, Place]] = ()) -> None:
        """Refuses changes made since the last step(), but for scheduled ones. more: other places that should be like each
        other."""
        for place, key in [*self._replaced(), *self._changed_tensors()]:
            raise CaptureError(
                f"the step changes {key} of {self._whose} outside of its step(): only tensors in its groups may change "
                "there, and only in place"
            )
        changed = [(place, key) for place, key, was, _ in self._changes() if not self._is_scheduled(place, key, was, when)]
        for before, now in more:
            numbers = before.numbers()
            changed += [(now, key) for key, value in now.numbers().items() if not _is_same(numbers.get(key), value)]
        for place, key in changed[:1]:
            raise CaptureError(
                f"the step changes {key} of {self._whose}, which the graph holds as it is: change it between steps"
            )

    def _is_scheduled(self, place: Place, key: str, was: Any, when: When) -> bool:
        is_taken = "params" in place.kept and self._scheduled.takes(place.before, place.kept, key, was, when)
        if is_taken:
            self._seen[place.slot(key)] = place.kept[key]
        return is_taken

    def _read(self) -> None:
        self._put({slot: self._given[slot].item() for slot in self.known if slot in self.numbers})
        self._see()

    def _put(self, values: Mapping[str, Any]) -> None:
        """Puts values into the places of these slots."""
        kept = {(place.before, place.after): place.kept for place in self._places}
        for slot, value in values.items():
            before, key, after = self._keys[slot]
            kept[before, after][key] = value

    def _find(self, place: Place, key: str, at_first: Tensor) -> None:
        self.found[place.slot(key)] = at_first
        self._keys[place.slot(key)] = place.before, key, place.after

    def _is_whole(self, slot: str) -> bool:
        return self.known[slot].dtype == torch.int64

    def _see(self) -> None:
        self._seen, self._seen_tensors = {}, {}
        for place in self._places:
            self._seen.update({place.slot(key): value for key, value in place.numbers().items()})
            for key, tensor in place.watched().items():
                self._seen_tensors[place.slot(key)] = tensor, tensor._version
            if isinstance(place.kept, Recorded):
                place.kept.again.clear()

    def _changes(self, or_assigned: bool = False) -> Iterator[_Change]:
        """or_assigned: also numbers of the optimizer's making that were assigned, though to the same value."""
        for place in self._places:
            numbers = place.numbers()
            for key in (key for key in place.kept if key not in numbers and place.slot(key) in self._seen):
                yield place, key, self._seen[place.slot(key)], place.kept[key]
            for key, now in numbers.items():
                before, is_new = self._seen.get(place.slot(key)), place.slot(key) not in self._seen
                is_assigned = or_assigned and not is_new and key in getattr(place.kept, "again", ()) and _is_number(now)
                if is_assigned or not _is_same(place.at_first(key) if is_new else before, now):
                    yield place, key, before, now

    def _replaced(self) -> Iterator[Tuple[Place, str]]:
        """Where another tensor is now than one that is state already."""
        for place in self._places:
            for key, tensor in place.watched().items():
                was, _ = self._seen_tensors.get(place.slot(key), (None, 0))
                if id(was) in self._others and tensor is not was:
                    yield place, key

    def _changed_tensors(self) -> Iterator[Tuple[Place, str]]:
        for place in self._places:
            for key, tensor in place.watched().items():
                was, version = self._seen_tensors.get(place.slot(key), (None, 0))
                if id(tensor) not in self._others and (tensor is not was or tensor._version != version):
                    yield place, key

    def _tensor(self, place: Place, key: str) -> Tensor:
        """What the graph starts from, of a tensor. The optimizer itself may begin with a number."""
        found, now = place.at_first(key), place.kept[key]
        found = self._seen.get(place.slot(key)) if found is None else found
        if _is_number(found):
            return torch.full_like(now, found)
        if not isinstance(found, Tensor):
            raise self._refusal(place, key, found, now)
        return found

    def _number(self, place: Place, key: str, before: Any, now: Any) -> Tensor:
        """What the graph starts from, of a number."""
        before = place.at_first(key) if before is None else before
        if not _is_number(before) or not _is_number(now) or isinstance(before, _SYMBOLIC):
            raise self._refusal(place, key, before, now)
        kind = torch.float64 if _is_fraction(before) or _is_fraction(now) else torch.int64
        return compat.real(lambda: torch.tensor(before, dtype=kind))

    def _refusal(self, place: Place, key: str, before: Any, now: Any) -> CaptureError:
        return CaptureError(
            f"the step changes {place.slot(key)} of {self._whose} from {_told(before)} to {_told(now)}, and a graph holds "
            "one of both: let it make a step before the capture, if only the first does so"
        )


def _is_same(before: Any, now: Any) -> bool:
    """Whether it is the same number; symbolic ones are not compared, which would be a decision of the step."""
    if before is now:
        return True
    is_plain = not isinstance(before, (*_SYMBOLIC, Tensor)) and not isinstance(now, (*_SYMBOLIC, Tensor))
    return is_plain and isinstance(before, bool) == isinstance(now, bool) and before == now


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _is_fraction(number: Any) -> bool:
    return isinstance(number, (float, torch.SymFloat))


def _told(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else f"a {type(value).__name__}"
