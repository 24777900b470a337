"""One optimizer during a captured step: it works on the tensors that replace the parameters, with replaced state. Its own
attributes are restored afterwards; changes that a graph could hold for one step only are refused.

State is keyed by parameter, then by the optimizer's name for it. `known` is what the graph starts from; `running` is the
state of the current or last run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from . import scalers, sharding
from .errors import CaptureError

_IN_TENSORS = {"capturable": True, "foreach": False, "fused": False}  # foreach and fused off: one parameter at a time


class _State(dict):  # type: ignore[type-arg]
    """The state of one parameter; `at_first` has the values at creation."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.at_first = {key: value for key, value in given.items() if not isinstance(value, Tensor)}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self and value is not None:
            self.at_first[key] = _copied(value)
        super().__setitem__(key, value)

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def setdefault(self, key: str, value: Any = None) -> Any:
        if key not in self:
            self[key] = value
        return self[key]


class StandIn:
    def __init__(self, optimizer: Any, names: Mapping[int, str], prefix: str) -> None:
        """names: names of the model's parameters, by id. prefix: prefix of the names of its state."""
        if not isinstance(optimizer, Optimizer):
            raise CaptureError(f"optimizer= has type {type(optimizer).__name__}, not torch.optim.Optimizer")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise CaptureError("LBFGS decides by values how often it calls for a loss, and no graph holds that")
        self.optimizer, self.name = optimizer, type(optimizer).__name__
        self._names, self._prefix = names, prefix
        if any(id(p) not in names for group in optimizer.param_groups for p in group["params"]):
            raise CaptureError(f"{self.name} updates a tensor that is not a parameter of the model")
        self._check_keys(names)
        self._known = {names[id(p)]: self._initial(state) for p, state in optimizer.state.items() if state}
        self._running: Dict[str, _State] = {}
        self._settings = [_tensors_of(place) for place in self._places()]  # copies to use in place of its own
        self._numbers: List[Dict[str, Any]] = []

    # State

    def tensors(self) -> Dict[str, Tensor]:
        """The state that the graph starts from, by slot name."""
        return dict(self._slots(self._known))

    def kept(self) -> Dict[str, Tensor]:
        """The tensors of the optimizer's own state, by slot name."""
        return dict(self._slots({self._names[id(p)]: state for p, state in self.optimizer.state.items()}))

    @property
    def has_made_state(self) -> bool:
        """Whether the last run created state."""
        return not dict(self._slots(self._running)).keys() <= self.tensors().keys()

    def learn(self) -> None:
        """Takes over the state that the last run created, at its initial values."""
        for fqn, state in self._running.items():
            made = {key: value for key, value in state.at_first.items() if key not in self._known.get(fqn, {})}
            if isinstance(self.optimizer, torch.optim.SGD) and "momentum_buffer" in made:
                made["momentum_buffer"].zero_()  # created after the first update, from its gradient
            self._known.setdefault(fqn, {}).update(self._initial(made))

    def rebound(self, given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """State bound to a tensor other than the given one, by slot name."""
        now = dict(self._slots(self._running))
        return {name: sharding.part(now[name]) for name in self.tensors() if now[name] is not given[name]}

    def _slots(self, states: Mapping[str, Mapping[str, Any]]) -> Iterator[Tuple[str, Tensor]]:
        for fqn, state in states.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    yield f"{self._prefix}.{key}.{fqn}", value

    def _initial(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        found = {key: _copied(value) for key, value in state.items()}
        if type(self.optimizer).__module__.startswith("torch.optim") and isinstance(found.get("step"), Tensor):
            found["step"] = found["step"].double()  # numbers derived from it are doubles where Python counts
        return found

    # A run

    def begin(self, leaves: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Callable[[], None]:
        """Makes it work on `leaves`, with state given by slot name; returns what restores it."""
        optimizer = self.optimizer
        attributes, groups = dict(vars(optimizer)), [dict(group) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = [leaves[self._names[id(p)]] for p in group["params"]]
            group.update({key: value for key, value in _IN_TENSORS.items() if key in group})
        for place, settings in zip(self._places(), self._settings):
            place.update(settings)
        self._running = {
            fqn: _State({k: given.get(f"{self._prefix}.{k}.{fqn}", v) for k, v in self._known.get(fqn, {}).items()})
            for fqn in leaves
        }
        state = {leaves[fqn]: state for fqn, state in self._running.items()}
        optimizer.state = defaultdict(lambda: _State({}), state)
        setattr(optimizer, scalers.SKIPS_ITSELF, getattr(optimizer, "_step_supports_amp_scaling", False))
        optimizer._step_supports_amp_scaling = False  # so a scaler unscales gradients before it calls step()
        self._numbers = [_numbers_of(place) for place in self._places()]

        def give_back() -> None:
            vars(optimizer).clear()
            vars(optimizer).update(attributes)
            optimizer.param_groups[:] = optimizer.param_groups[: len(groups)]
            for group, was in zip(optimizer.param_groups, groups):
                group.clear()
                group.update(was)

        return give_back

    def check(self, leaves: Mapping[str, Tensor]) -> None:
        """After a run: refuses changes that the graph would not hold."""
        self._check_keys({id(leaf) for leaf in leaves.values()})
        if len(self._places()) != len(self._settings):
            raise CaptureError(f"the step gives {self.name} another group of parameters: add it before")
        for place, settings, numbers in zip(self._places(), self._settings, self._numbers):
            changed = [key for key, value in _numbers_of(place).items() if numbers.get(key) != value]
            changed += [key for key, value in settings.items() if place[key] is not value or value._version != 0]
            if changed:
                raise CaptureError(
                    f"the step changes {changed[0]} of {self.name}, which the graph holds as a number: leave it to what "
                    "is around the step"
                )
        for fqn, state in self._running.items():
            for key, value in state.items():
                self._check_state(f"{key} of {fqn}", state.at_first.get(key), value)

    def _check_state(self, place: str, at_first: Any, value: Any) -> None:
        if isinstance(value, (int, float)) and at_first != value:
            raise CaptureError(
                f"{self.name} counts in a Python number ({place}), of which the graph would hold one step's: keep it in "
                "a tensor"
            )
        if not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value)):
            raise CaptureError(f"{self.name} keeps tensors in a {type(value).__name__} ({place}): keep each by itself")

    def _check_keys(self, known: Any) -> None:
        other = next((key for key in self.optimizer.state if id(key) not in known), None)
        if other is not None:
            key = "a tensor" if isinstance(other, Tensor) else repr(other)
            raise CaptureError(f"{self.name} keeps state of {key}, which is not a parameter of the model")

    def _places(self) -> List[Dict[str, Any]]:
        """The dicts that hold its settings."""
        return [vars(self.optimizer), *self.optimizer.param_groups]


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), value)


def _tensors_of(place: Mapping[str, Any]) -> Dict[str, Tensor]:
    return {key: _copied(value) for key, value in place.items() if isinstance(value, Tensor)}


def _numbers_of(place: Mapping[str, Any]) -> Dict[str, Any]:
    """Leaves out names with an underscore: schedulers put marks there."""
    return {k: v for k, v in place.items() if isinstance(v, (int, float, tuple)) and not k.startswith("_")}
