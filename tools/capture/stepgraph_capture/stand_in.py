"""One optimizer during a captured step: it works on the tensors that replace the parameters, with replaced state. Its own
attributes are restored afterwards; changes that a graph could hold for one step only are refused. Of numbers that its
step() changes see `counted`.

State is keyed by parameter, then by the optimizer's name for it. `known` is what the graph starts from; `running` is the
state of the current or last run. `common` is what it keeps in its `state` under names of its own (`state["total_step"]`).

An optimizer may wrap others (SAM, look-ahead): groups and state that it shares with them are theirs.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from . import compat, opened, places, scalers, sharding
from .counted import Counted, Place, Recorded, copied
from .errors import CaptureError
from .scheduled import Scheduled, When

_IN_TENSORS = {"capturable": True, "foreach": False, "fused": False}  # foreach and fused off: one parameter at a time
_COMMON = (int, float, torch.SymInt, torch.SymFloat, Tensor, type(None))  # what may be under a name of its own


class _States(Recorded):
    """`optimizer.state` during a run: by parameter, and what the optimizer keeps there under names of its own."""

    def __missing__(self, key: Any) -> Recorded:
        self[key] = state = Recorded({}, own=())
        return state


class StandIn:
    def __init__(self, optimizer: Any, names: Mapping[int, str], prefix: str, wrapped: Sequence[StandIn] = ()) -> None:
        """names: names of the model's parameters, by id. prefix: prefix of the names of its state. wrapped: the stand-ins
        of optimizers in it."""
        if not isinstance(optimizer, Optimizer):
            raise CaptureError(f"optimizer= has type {type(optimizer).__name__}, not torch.optim.Optimizer")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise CaptureError("LBFGS decides by values how often it calls for a loss, and no graph holds that")
        if compat.spreads_states(optimizer):
            raise CaptureError(
                f"{type(optimizer).__name__} spreads whole parameters over the ranks, in ways that no graph of one step "
                "shows: use fully_shard, or the optimizer that it wraps"
            )
        self.optimizer, self.name = optimizer, type(optimizer).__name__
        self._names, self._prefix, self._wrapped = names, prefix, wrapped
        self._keeper = next((one for one in wrapped if one.optimizer.state is optimizer.state), None)  # of the same state
        if self._keeper is None and isinstance(getattr(type(optimizer), "state", None), property):
            raise CaptureError(f"{self.name} keeps the state of another optimizer: give that one, and call its step()")
        self._check_parameters(names)
        self._check_keys(names)
        self._known = {names[id(p)]: self._initial(state) for p, state in self._states() if state}
        common = {} if self._keeper else optimizer.state
        self._common = {key: copied(value) for key, value in common.items() if isinstance(key, str)}
        self._own_common = frozenset(self._common)
        self._own_keys = {fqn: set(state) for fqn, state in self._known.items()}
        self._running: Dict[str, Recorded] = {}
        self._all_states = _States({}, own=())  # of the current or last run, with what is of no parameter
        self._own = [(group, dict(group)) for group in self._own_groups()]  # its groups, and what was in them
        self._groups: List[Recorded] = []  # those of the current or last run
        self._made: List[Dict[str, Any]] = [{} for _ in self._own]  # what the first run adds to them
        self._settings = [_tensors_of(place) for place in self._places()]  # copies to use in place of its own
        self._at_first = [_tensors_of(place) for place in self._places()]
        self._ids = [{key: id(value) for key, value in place.items()} for place in self._places()]
        self.scheduled = Scheduled(self.name)
        self.counted = Counted(self.name, self.scheduled)

    # State

    def tensors(self) -> Dict[str, Tensor]:
        """The state that the graph starts from, by slot name."""
        return {**dict(self._slots(self._known)), **self.counted.known, **self.scheduled.known}

    def kept(self) -> Dict[str, Tensor]:
        """The tensors of the optimizer's own state, by slot name."""
        return dict(self._slots({self._names[id(p)]: state for p, state in self._states()}))

    def settings(self) -> Dict[str, places.Place]:
        """The places of tensors in its groups, by slot name, without those that step() changes, and what schedulers
        remember there."""
        groups = [(f"{self._prefix}.param_groups.{i}", group) for i, group in enumerate(self._own_groups())]
        found = [(at, group, key) for at, group in groups for key in _tensors_of(group) if key != "initial_lr"]
        slots = {f"{at}.{key}": (group, key) for at, group, key in found}
        known = self.counted.known
        return {slot: places.Place(slot, *at, is_surely_state=True) for slot, at in slots.items() if slot not in known}

    @property
    def made(self) -> Set[str]:
        """The slots of state that the last run created, and of what it changed and was not known to be state."""
        found = {*dict(self._slots(self._running)), *self.counted.found, *self.scheduled.found}
        return found - self.tensors().keys()

    def learn(self) -> None:
        """Takes over the state that the last run created, at its initial values."""
        for fqn, state in self._running.items():
            known = self._known.get(fqn, {})
            made = {key: value for key, value in state.at_first.items() if key not in known}
            for key, value in made.items():
                if len(pytree.tree_leaves(value)) != len(pytree.tree_leaves(state.get(key))):
                    raise CaptureError(
                        f"{self.name} fills the {type(value).__name__} {key} of {fqn} in its first step: let it make a step "
                        "before the capture"
                    )
            for key, value in state.at_first.items():
                if isinstance(state.get(key), Tensor) and isinstance(value, (int, float)):
                    made[key] = torch.full_like(state[key], value)  # a number of which the first step makes a tensor
            if isinstance(self.optimizer, torch.optim.SGD) and "momentum_buffer" in made:
                made["momentum_buffer"].zero_()  # created after the first update, from its gradient
            self._known.setdefault(fqn, {}).update(self._initial(made))
        for (own, _), group, made in zip(self._own, self._groups, self._made):
            made.update({key: value for key, value in group.made() if key not in own and key not in made})
        for key, value in self._all_states.made():
            if isinstance(key, str):
                self._common.setdefault(key, value)
        self.counted.learn()
        self.scheduled.learn()

    def held(self) -> Dict[str, Tensor]:
        """What its own groups hold of numbers that the step sets outside of step(), by slot."""
        return self.scheduled.held(self._named_groups())

    def rebound(self, given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """State bound to a tensor other than the given one, by slot name."""
        now, known = dict(self._slots(self._running)), dict(self._slots(self._known))
        found = {**{name: now.get(name) for name in known}, **self.counted.left}
        for name in (name for name, tensor in found.items() if not isinstance(tensor, Tensor)):
            raise CaptureError(f"{self.name} removes its state {name} in a step: keep it, and write it in each step")
        return {name: sharding.part(tensor) for name, tensor in found.items() if tensor is not given[name]}

    def _slots(self, states: Mapping[str, Mapping[str, Any]]) -> Iterator[Tuple[str, Tensor]]:
        """The tensors, also those in lists, tuples, dicts and deques: `optimizer.factors.0.layers.0.weight`."""
        for fqn, state in states.items():
            for path, value in pytree.tree_flatten_with_path(dict(state))[0]:
                if isinstance(value, Tensor):
                    yield self._slot(path, fqn), value

    def _slot(self, path: Any, fqn: str) -> str:
        return ".".join([self._prefix, *map(opened.step_of, path), fqn])

    def _given(self, state: Mapping[str, Any], fqn: str, given: Mapping[str, Tensor]) -> Dict[str, Any]:
        """The same state with these tensors."""
        return pytree.tree_map_with_path(lambda path, value: given.get(self._slot(path, fqn), value), dict(state))

    def _initial(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        found = {key: copied(value) for key, value in state.items()}
        if type(self.optimizer).__module__.startswith("torch.optim") and isinstance(found.get("step"), Tensor):
            found["step"] = found["step"].double()  # numbers derived from it are doubles where Python counts
        return found

    # A run

    def begin(
        self, leaves: Mapping[str, Tensor], given: Mapping[str, Tensor], instead: Mapping[int, Tensor]
    ) -> Callable[[], None]:
        """Makes it work on `leaves`, with state given by slot name; returns what restores it. instead: what stands for
        tensors that the step keeps as well, by id (`lr = torch.tensor(0.1)`, for one that it changes)."""
        optimizer = self.optimizer
        attributes = dict(vars(optimizer))
        self._own = own = [(group, dict(group)) for group in self._own_groups()]
        self._groups = [Recorded({**group, **made}, own=group) for (group, _), made in zip(own, self._made)]
        all_groups = list(optimizer.param_groups)
        in_run = self.in_run()
        optimizer.param_groups[:] = [in_run.get(id(group), group) for group in all_groups]
        for group in self._groups:
            group["params"] = [leaves[self._names[id(p)]] for p in group["params"]]
            group.update({key: value for key, value in _IN_TENSORS.items() if key in group})
            group.update({key: _largest(value) for key, value in group.items() if _is_infinite(value)})
        for place, settings, ids in zip(self._places(), self._settings, self._ids):
            place.update({key: instead.get(ids[key], setting) for key, setting in settings.items()})
        self._running = {
            fqn: Recorded(self._given(self._known.get(fqn, {}), fqn, given), own=self._own_keys.get(fqn, ()))
            for fqn in leaves
        }
        if self._keeper is None:
            state = {leaves[fqn]: state for fqn, state in self._running.items()}
            optimizer.state = self._all_states = _States({**self._common, **state}, own=self._own_common)
        elif "state" in attributes:
            optimizer.state = self._keeper.optimizer.state
        setattr(optimizer, scalers.SKIPS_ITSELF, getattr(optimizer, "_step_supports_amp_scaling", False))
        optimizer._step_supports_amp_scaling = False  # so a scaler unscales gradients before it calls step()
        self.scheduled.begin(self._named_groups(), given)
        self.counted.begin(self._watched(), given, {id(tensor) for tensor in instead.values()})

        def give_back() -> None:
            vars(optimizer).clear()
            vars(optimizer).update(attributes)
            optimizer.param_groups[:] = all_groups
            for group, before in own:
                group.clear()
                group.update(before)

        return give_back

    def with_wrapped(self) -> Iterator[StandIn]:
        """The optimizers whose numbers its step() may change."""
        for one in self._wrapped:
            yield from one.with_wrapped()
        yield self

    def in_run(self) -> Dict[int, Recorded]:
        """The groups of the current run by the id of those that they replace, of wrapped optimizers, too."""
        found = {id(group): recorded for (group, _), recorded in zip(self._own, self._groups)}
        return {key: group for one in self._wrapped for key, group in one.in_run().items()} | found

    def _own_groups(self) -> List[Dict[str, Any]]:
        """The groups that no wrapped optimizer has."""
        theirs = {id(group) for one in self._wrapped for group in one.groups}
        return [group for group in self.optimizer.param_groups if id(group) not in theirs]

    @property
    def groups(self) -> List[Dict[str, Any]]:
        """The groups that it has during a run, and its own."""
        return [*self.optimizer.param_groups, *(group for group, _ in self._own)]

    def check(self, leaves: Mapping[str, Tensor]) -> None:
        """After a run: refuses changes that the graph would not hold."""
        if self._keeper is None:
            state = self.optimizer.state
            is_kept = (state.get(leaves[fqn]) is own for fqn, own in self._running.items())
            if state is not self._all_states or not all(is_kept):
                raise CaptureError(f"the step clears or replaces the state of {self.name}: write into what is there")
            self._check_keys({id(leaf) for leaf in leaves.values()})
        if len(self._places()) != len(self._settings):
            raise CaptureError(f"the step gives {self.name} another group of parameters: add it before")
        self.counted.check(When.BEHIND, [(Place(was, ""), Place(group, "")) for group, was in self._own])
        self.counted.end()

    def _check_parameters(self, names: Mapping[int, str]) -> None:
        tensors = [p for group in self.optimizer.param_groups for p in group["params"]]
        beside = [list(p.shape) for p in tensors if id(p) not in names]
        if beside:
            raise CaptureError(
                f"{self.name} updates {len(beside)} of {len(tensors)} tensors that are no parameters of the model (the first "
                f"has the shape {beside[0]}): give capture one module that has all that the step trains. Of several networks "
                "make one module; masters of narrow weights can be an nn.ParameterList of it"
            )

    def _check_keys(self, known: Any) -> None:
        for other, state in self.optimizer.state.items():
            if id(other) not in known and not (isinstance(other, str) and isinstance(state, _COMMON)):
                key = "a tensor" if isinstance(other, Tensor) else repr(other)
                raise CaptureError(f"{self.name} keeps state of {key}, which is not a parameter of the model")

    def _states(self) -> Iterator[Tuple[Tensor, Mapping[str, Any]]]:
        """Its state by parameter."""
        states = () if self._keeper else self.optimizer.state.items()
        return ((key, state) for key, state in states if not isinstance(key, str))

    def _places(self) -> List[Dict[str, Any]]:
        """The dicts that hold its settings."""
        return [vars(self.optimizer), *self._own_groups()]

    def _named_groups(self) -> Dict[str, Dict[str, Any]]:
        """Its groups, by what the slots of their entries begin with."""
        return {f"{self._prefix}.param_groups.{i}.": group for i, group in enumerate(self._own_groups())}

    def _watched(self) -> List[Place]:
        """The dicts in which it may keep something."""
        at = f"{self._prefix}."
        before = [at, *self._named_groups()]
        states = [Place(state, at, f".{fqn}") for fqn, state in self._running.items()]
        mine = zip(self._places(), before, self._at_first)
        found = [Place(kept, name, tensors=tensors) for kept, name, tensors in mine]
        if self._keeper is not None:
            return found
        return [*found, Place(self.optimizer.state, f"{at}state.", tensors=_tensors_of(self._common)), *states]


def _is_infinite(setting: Any) -> bool:
    """Whether it says that there is no limit, as D-Adaptation's growth_rate does. The tracer cannot compute with that."""
    return isinstance(setting, float) and math.isinf(setting)


def _largest(infinite: float) -> float:
    return math.copysign(sys.float_info.max, infinite)


def _tensors_of(place: Mapping[str, Any]) -> Dict[str, Tensor]:
    return {key: copied(value) for key, value in place.items() if isinstance(value, Tensor)}
