"""Parameters that lists, dicts and attributes hold besides the modules' own places, and their ids: `self.by_name["w"]`,
`kept = list(model.parameters())`, `decayed = [id(p) for p in ...]`, groups of an optimizer that is not stepped. During a
step the tensors that replace the parameters are there instead. Keys of dicts, and sets, are left to by_parameter.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from torch import Tensor
from torch.optim import Optimizer

from .beside import Found
from .places import Place

if TYPE_CHECKING:
    from .step import Slot


class Held:
    def __init__(self, parameters: List[Slot], found: Found, optimizers: Sequence[Optimizer]) -> None:
        """found: what the step reaches before its first run. optimizers: those that it steps, which hold other parameters
        while they run. read_only: the lists of parameters of all others that hold some of the model, by id."""
        self._names = {id(slot.value): slot.name for slot in parameters}
        everything: Dict[str, Tuple[Place, Any]] = {name: (place, place.tensor) for name, place in found.tensors.items()}
        everything.update({name: (place, thing) for name, (place, thing) in found.others.items() if place.is_there()})
        theirs = {id(group["params"]) for optimizer in optimizers for group in optimizer.param_groups}
        read = [
            (place, parameter)
            for place, parameter in _of_optimizers(found)
            if id(place.container) not in theirs and self._is_about_parameters(parameter)
        ]
        self.read_only = {id(place.container) for place, _ in read}
        self._places = [
            (place, thing)
            for name, (place, thing) in everything.items()
            if "param_groups" not in name.split(".") and self._is_about_parameters(thing)
        ] + read

    @contextmanager
    def replaced(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """In this context these tensors, by the parameters' names, are in the places. What the step itself puts there
        stays."""
        there = [(place, was) for place, was in self._places if place.is_there() and place.tensor is was]
        now = [self._instead(was, tensors) for _, was in there]
        try:
            for (place, _), thing in zip(there, now):
                place.container[place.key] = thing
            yield
        finally:
            for (place, was), thing in zip(there, now):
                if place.is_there() and place.tensor is thing:
                    place.container[place.key] = was

    def _is_about_parameters(self, thing: Any) -> bool:
        if isinstance(thing, frozenset):
            return any(map(self._is_about_parameters, thing))
        return (thing if type(thing) is int else id(thing)) in self._names

    def _instead(self, thing: Any, tensors: Mapping[str, Tensor]) -> Any:
        if isinstance(thing, frozenset):
            return frozenset(self._instead(one, tensors) if self._is_about_parameters(one) else one for one in thing)
        return id(tensors[self._names[thing]]) if type(thing) is int else tensors[self._names[id(thing)]]


def _of_optimizers(found: Found) -> Iterator[Tuple[Place, Any]]:
    """What groups of optimizers hold, also of those that the step only reads (rates of an inner loop)."""
    for name, (_, thing) in found.others.items():
        for group in thing.param_groups if isinstance(thing, Optimizer) else ():
            for i, parameter in enumerate(group["params"]):
                yield Place(f"{name}.param_groups", group["params"], i), parameter
