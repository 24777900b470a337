"""Optimizers whose step() is part of a train_step. Their state is in the graph as buffers are: inputs that the step
writes, `optimizer.exp_avg.layers.0.weight`. Meanwhile their parameters are those that stand for the model's.

State that an optimizer does not have yet is as it makes it: with the values of its creation, so that the step is the
first one. What torch.optim counts in Python numbers on a CPU is counted in tensors, as it does where its step is to be
captured (capturable=True): a number would be that of this one step.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import compat, sharding
from .errors import CaptureError
from .recorder import Recorder

_IN_TENSORS = {"capturable": True, "foreach": False, "fused": False}  # one parameter after the other


class _State(dict):  # type: ignore[type-arg]
    """Of one parameter; `at_first` is what it was when it was made."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.at_first = {key: value for key, value in given.items() if not isinstance(value, Tensor)}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self and value is not None:
            self.at_first[key] = value.detach().clone() if isinstance(value, Tensor) else value
        super().__setitem__(key, value)

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def setdefault(self, key: str, value: Any = None) -> Any:
        if key not in self:
            self[key] = value
        return self[key]


class Optimizers:
    """All that a train_step calls; each with its state by parameter, then by its own name for it."""

    def __init__(self, given: Any, names: Mapping[int, str]) -> None:
        """names: of the model's parameters, by id."""
        given = list(given.values()) if isinstance(given, Mapping) else given or ()
        self._all: List[Optimizer] = [given] if isinstance(given, Optimizer) else list(given)
        for optimizer in self._all:
            _check(optimizer, names)
        if len({id(optimizer) for optimizer in self._all}) != len(self._all):
            raise CaptureError("an optimizer is in optimizer= twice")
        self._names = names
        self._known = [
            {names[id(p)]: _initial(optimizer, state) for p, state in optimizer.state.items() if state}
            for optimizer in self._all
        ]
        # Settings that are tensors: copies, which stand for them.
        self._tensors = [
            [{key: _copied(value) for key, value in group.items() if isinstance(value, Tensor)} for group in o.param_groups]
            for o in self._all
        ]
        self._running: List[Dict[str, _State]] = []  # of the last run
        self._stepping = ExitStack()  # while a step() runs
        self.gradients: Dict[str, Tensor] = {}  # that a step() found, by parameter

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def names(self) -> str:
        return " and ".join(type(optimizer).__name__ for optimizer in self._all)

    @property
    def have_made_state(self) -> bool:
        """In the last run, which found none."""
        tensors = lambda states: {name for name, value in self._by_slot(states) if isinstance(value, Tensor)}  # noqa: E731
        return not tensors(self._running) <= tensors(self._known)

    def tensors(self) -> Dict[str, Tensor]:
        """Their state, by the names of slots."""
        return {name: value for name, value in self._by_slot(self._known) if isinstance(value, Tensor)}

    def learn(self) -> None:
        """The state that the last run made, as it was then."""
        for optimizer, known, running in zip(self._all, self._known, self._running):
            for fqn, state in running.items():
                made = {key: value for key, value in state.at_first.items() if key not in known.get(fqn, {})}
                if isinstance(optimizer, torch.optim.SGD) and "momentum_buffer" in made:
                    made["momentum_buffer"].zero_()  # made behind the first update, of its gradient
                known.setdefault(fqn, {}).update(_initial(optimizer, made))

    @contextmanager
    def running(
        self, leaves: Mapping[str, Tensor], given: Mapping[str, Tensor], recorder: Recorder
    ) -> Iterator[None]:
        """Within it they update `leaves`, with the state `given` by the names of slots."""
        self.gradients.clear()
        self._running = []
        before = [_numbers(optimizer) for optimizer in self._all]
        undo: List[Callable[[], None]] = [
            register_optimizer_step_pre_hook(lambda one, *_: self._begin(one, leaves, recorder)).remove,
            register_optimizer_step_post_hook(lambda *_: self._stepping.close()).remove,
            self._stepping.close,
        ]
        try:
            for i, optimizer in enumerate(self._all):
                self._running.append(self._state_of(i, leaves, given))
                undo.append(_swap(optimizer, self._names, leaves, self._running[i], self._tensors[i]))
            yield
            for i, optimizer in enumerate(self._all):
                _check_keys(optimizer, {id(leaf) for leaf in leaves.values()})
                _check_settings(optimizer, before[i], self._tensors[i])
                _check_counts(optimizer, self._running[i])
        finally:
            for step in reversed(undo):
                step()

    def _begin(self, optimizer: Optimizer, leaves: Mapping[str, Tensor], recorder: Recorder) -> None:
        """A step() does, however it was called."""
        groups = {id(group) for one in self._all for group in one.param_groups}
        if any(optimizer is one for one in self._all):
            self.gradients.update({fqn: leaf.grad for fqn, leaf in leaves.items() if leaf.grad is not None})
            self._stepping.enter_context(compat.as_compiled())
            self._stepping.enter_context(recorder.updating())
        elif any(id(group) in groups for group in optimizer.param_groups):
            raise CaptureError(
                f"the step() of an optimizer= calls that of {type(optimizer).__name__}, whose parameters are the same: "
                "give that one to capture"
            )

    def rebound(self, given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """State that is another tensor than was given, by the names of slots."""
        running = dict(self._by_slot(self._running))
        return {name: sharding.part(running[name]) for name in given if running[name] is not given[name]}

    def _by_slot(self, states: Sequence[Mapping[str, Mapping[str, Any]]]) -> Iterator[Tuple[str, Any]]:
        for i, state in enumerate(states):
            for fqn, values in state.items():
                for key, value in values.items():
                    yield self._slot(i, key, fqn), value

    def _slot(self, i: int, key: str, fqn: str) -> str:
        return f"optimizer{i if len(self._all) > 1 else ''}.{key}.{fqn}"

    def _state_of(self, i: int, leaves: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Dict[str, _State]:
        return {
            fqn: _State({key: given.get(self._slot(i, key, fqn), value) for key, value in values.items()})
            for fqn, values in ((fqn, self._known[i].get(fqn, {})) for fqn in leaves)
        }


def _check(optimizer: Any, names: Mapping[int, str]) -> None:
    if not isinstance(optimizer, Optimizer):
        raise CaptureError(f"optimizer= is a {type(optimizer).__name__}, and no torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise CaptureError("LBFGS decides by values how often it calls for a loss, and no graph holds that")
    if any(id(p) not in names for group in optimizer.param_groups for p in group["params"]):
        raise CaptureError(f"{type(optimizer).__name__} updates a tensor that is no parameter of the model")
    _check_keys(optimizer, set(names))


def _check_keys(optimizer: Optimizer, known: Set[int]) -> None:
    other = next((key for key in optimizer.state if id(key) not in known), None)
    if other is not None:
        key = "a tensor" if isinstance(other, Tensor) else repr(other)
        raise CaptureError(f"{type(optimizer).__name__} keeps state of {key}, which is no parameter of the model")


def _swap(
    optimizer: Optimizer,
    names: Mapping[int, str],
    leaves: Mapping[str, Tensor],
    states: Mapping[str, _State],
    tensors: Sequence[Mapping[str, Tensor]],
) -> Callable[[], None]:
    """Lets it work on these; gives what lets it work on its own again."""
    attributes, groups = dict(vars(optimizer)), [dict(group) for group in optimizer.param_groups]
    for group, settings in zip(optimizer.param_groups, tensors):
        group["params"] = [leaves[names[id(p)]] for p in group["params"]]
        group.update(settings)
        group.update({key: value for key, value in _IN_TENSORS.items() if key in group})
    optimizer.state = defaultdict(lambda: _State({}), {leaves[fqn]: state for fqn, state in states.items()})

    def give_back() -> None:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        for group, was in zip(optimizer.param_groups, groups):
            group.clear()
            group.update(was)

    return give_back


def _initial(optimizer: Optimizer, values: Mapping[str, Any]) -> Dict[str, Any]:
    """A copy, as the step is to find it."""
    found = {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in values.items()}
    if type(optimizer).__module__.startswith("torch.optim") and isinstance(found.get("step"), Tensor):
        found["step"] = found["step"].double()  # the numbers that are computed of it are doubles where Python counts
    return found


def _copied(value: Tensor) -> Tensor:
    return value.detach().clone()


def _numbers(optimizer: Optimizer) -> Dict[Tuple[int, str], Any]:
    """What it keeps in Python, by its group (-1: the optimizer itself) and name. Schedulers leave marks of their own."""
    own = {key: value for key, value in vars(optimizer).items() if not key.startswith("_")}
    places = [(-1, own), *enumerate(optimizer.param_groups)]
    return {(i, k): v for i, found in places for k, v in found.items() if isinstance(v, (int, float, tuple))}


def _check_settings(
    optimizer: Optimizer, before: Mapping[Tuple[int, str], Any], tensors: Sequence[Mapping[str, Tensor]]
) -> None:
    changed = [k for (i, k), v in _numbers(optimizer).items() if k not in _IN_TENSORS and before.get((i, k)) != v]
    for group, settings in zip(optimizer.param_groups, tensors):
        changed += [k for k, v in settings.items() if group[k] is not v or v._version != 0]
    if changed:
        raise CaptureError(
            f"the step changes {changed[0]} of {type(optimizer).__name__}, which the graph holds as a number: leave it to "
            "what is around the step"
        )


def _check_counts(optimizer: Optimizer, states: Mapping[str, _State]) -> None:
    for fqn, state in states.items():
        for key, value in state.items():
            if isinstance(value, (int, float)) and state.at_first[key] != value:
                raise CaptureError(
                    f"{type(optimizer).__name__} counts in a Python number ({key} of {fqn}), of which the graph would "
                    "hold one step's: keep it in a tensor"
                )
