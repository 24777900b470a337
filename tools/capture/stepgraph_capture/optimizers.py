"""Optimizers whose step() is part of a train_step. Their state enters the graph like buffers, as inputs that the step
writes (`optimizer.exp_avg.layers.0.weight`). During the step their parameters are the tensors that replace the model's.

State that does not exist yet is created by the first run; the graph starts from its initial values, so its first step is
the optimizer's first. Counts that torch.optim keeps in Python numbers on a CPU are kept in tensors (capturable=True): a
number would be that of the traced step.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Set, Tuple

from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map

from . import compat
from .errors import CaptureError
from .places import Place
from .recorder import Recorder
from .stand_in import StandIn


class Optimizers:
    """The optimizers that a train_step calls."""

    def __init__(self, given: Any, names: Mapping[int, str]) -> None:
        """names: of the model's parameters, by id."""
        given = list(given.values()) if isinstance(given, Mapping) else given or ()
        found = [_unwrapped(one) for one in ([given] if isinstance(given, Optimizer) else given)]
        if len({id(optimizer) for optimizer in found}) != len(found):
            raise CaptureError("an optimizer is in optimizer= twice")
        prefixes = ["optimizer"] if len(found) == 1 else [f"optimizer{i}" for i in range(len(found))]
        named = {id(optimizer): prefix for optimizer, prefix in zip(found, prefixes)}
        self._all: List[StandIn] = []  # wrapped ones before those that wrap them
        for optimizer, prefix in zip(found, prefixes):
            self._stand_in(optimizer, prefix, names, named)
        self._stepping = ExitStack()  # while a step() runs
        self._depth = 0  # how many step() run, one calling the other
        self.gradients: Dict[str, Tensor] = {}  # the gradients found by a step(), by parameter

    def _stand_in(
        self, optimizer: Any, prefix: str, names: Mapping[int, str], named: Mapping[int, str]
    ) -> StandIn:
        """The stand-in of an optimizer; makes it, and those of optimizers among its attributes. named: the prefixes of
        those that the user gave, by id."""
        known = next((one for one in self._all if one.optimizer is optimizer), None)
        if known is not None:
            return known
        inside = [(key, value) for key, value in _attributes(optimizer) if isinstance(value, Optimizer)]
        wrapped = [self._stand_in(one, named.get(id(one), f"{prefix}.{key}"), names, named) for key, one in inside]
        self._all.append(StandIn(optimizer, names, prefix, wrapped))
        return self._all[-1]

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def names(self) -> str:
        return " and ".join(dict.fromkeys(one.name for one in self._all))

    @property
    def own(self) -> List[Optimizer]:
        """The optimizers themselves."""
        return [one.optimizer for one in self._all]

    @property
    def hooks(self) -> List[Callable[..., Any]]:
        """User functions that run before or after step()."""
        return [hook for one in self._all for hook in compat.hooks_around(one.optimizer)]

    @property
    def made(self) -> List[str]:
        """The slots of state that the last run created, and of what it changed and was not known to be state."""
        return sorted(name for one in self._all for name in one.made)

    @property
    def numbers(self) -> Set[str]:
        """The slots of Python numbers that step() changes, and of scheduled ones."""
        return {name for one in self._all for name in one.counted.numbers} | set(self.scheduled)

    @property
    def scheduled(self) -> List[str]:
        """The slots of numbers that the step sets outside of step()."""
        return [name for one in self._all for name in {**one.scheduled.known, **one.scheduled.found}]

    @property
    def set_by_tensors(self) -> List[str]:
        """Those of them that the step takes out of its own tensors."""
        return [name for name in self.scheduled if any(name in one.scheduled.of_tensors for one in self._all)]

    @contextmanager
    def scheduled_as_used(self) -> Iterator[Dict[str, Tensor]]:
        """In this context the user's program runs as it is; yields the scheduled numbers that its step() work with."""
        used: Dict[str, Tensor] = {}

        def look(optimizer: Optimizer, *_: Any) -> None:
            for one in (one for one in self._all if one.optimizer is optimizer):
                for each in one.with_wrapped():
                    used.update({name: held for name, held in each.held().items() if name not in used})

        hook = register_optimizer_step_pre_hook(look)
        try:
            yield used
        finally:
            hook.remove()

    @property
    def modules(self) -> List[str]:
        """The Python modules that their classes are from, and their methods (PyTorch's classes are of another one)."""
        kinds = [kind for one in self._all for kind in type(one.optimizer).__mro__ if kind is not object]
        return [of.__module__ for kind in kinds for of in (kind, vars(kind).get("step", kind))]

    def tensors(self) -> Dict[str, Tensor]:
        """Their state by slot name."""
        return {name: tensor for one in self._all for name, tensor in one.tensors().items()}

    def settings(self) -> Dict[str, Place]:
        """The places of tensors among the settings of their groups (a learning rate), by slot name."""
        return {name: place for one in self._all for name, place in one.settings().items()}

    def replaced(self, places: Mapping[str, Place], given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """The settings, among state beside the model, that a run has replaced by other tensors, by name."""
        groups = {key: group for one in self._all for key, group in one.in_run().items()}
        now = {name: groups.get(id(place.container), {}).get(place.key) for name, place in places.items()}
        return {name: it for name, it in now.items() if isinstance(it, Tensor) and it is not given[name]}

    def kept(self) -> Dict[str, Tensor]:
        """The tensors that they hold themselves, by slot name; the graph's state is copies of them."""
        return {name: tensor for one in self._all for name, tensor in one.kept().items()}

    def own_tensors(self) -> Iterator[Tensor]:
        """The tensors of their own state, which no run touches."""
        for one in self._all:
            yield from (leaf for leaf in tree_leaves(dict(one.optimizer.state)) if isinstance(leaf, Tensor))

    def learn(self) -> None:
        """Takes over the state that the last run created, at its initial values."""
        for one in self._all:
            one.learn()

    def rebound(self, given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """State bound to a tensor other than the given one, by slot name."""
        return {name: tensor for one in self._all for name, tensor in one.rebound(given).items()}

    @contextmanager
    def running(
        self,
        leaves: Mapping[str, Tensor],
        given: Mapping[str, Tensor],
        instead: Mapping[int, Tensor],
        recorder: Recorder,
    ) -> Iterator[None]:
        """In this context, the optimizers update `leaves`, with the state `given` by slot name. instead: what stands for
        tensors that the step itself keeps, by id."""
        self.gradients.clear()
        self._depth = 0
        undo: List[Callable[[], None]] = [
            register_optimizer_step_pre_hook(
                lambda optimizer, args, keywords: self._begin(optimizer, args, keywords, leaves, recorder)
            ).remove,
            register_optimizer_step_post_hook(lambda optimizer, *_: self._end(optimizer)).remove,
            self._stepping.close,
        ]
        try:
            with recorder.updating():
                undo += [one.begin(leaves, given, instead) for one in self._all]
            yield
            for one in self._all:
                one.check(leaves)
        finally:
            for step in reversed(undo):
                step()

    def _begin(
        self, optimizer: Optimizer, args: Any, keywords: Any, leaves: Mapping[str, Tensor], recorder: Recorder
    ) -> Any:
        """Runs before every step(). Returns its arguments, with closures wrapped."""
        groups = {id(group) for one in self._all for group in one.groups}
        ours = next((one for one in self._all if one.optimizer is optimizer), None)
        if ours is not None:
            self._depth += 1
            self._update(leaves, recorder)
            for one in ours.with_wrapped():
                one.counted.before_step()
            return tree_map(
                lambda given: self._aside(given, leaves, recorder) if callable(given) else given, (args, keywords)
            )
        if any(id(group) in groups for group in optimizer.param_groups):
            raise CaptureError(
                f"the step() of an optimizer= calls that of {type(optimizer).__name__}, whose parameters are the same: "
                "give that one to capture"
            )
        return None

    def _end(self, optimizer: Optimizer) -> None:
        """Runs after every step()."""
        ours = next((one for one in self._all if one.optimizer is optimizer), None)
        if ours is not None:
            self._depth -= 1
            for one in ours.with_wrapped():
                one.counted.after_step()
        if self._depth == 0:
            self._stepping.close()

    def _update(self, leaves: Mapping[str, Tensor], recorder: Recorder) -> None:
        """Starts an update with the current gradients."""
        self.gradients.update({fqn: leaf.grad for fqn, leaf in leaves.items() if leaf.grad is not None})
        self._stepping.close()
        self._stepping.enter_context(compat.as_compiled())
        self._stepping.enter_context(recorder.updating())

    def _aside(self, closure: Callable[[], Any], leaves: Mapping[str, Tensor], recorder: Recorder) -> Callable[[], Any]:
        """Wraps a closure given to step(): its nodes belong to forward and backward, not to the update."""

        def run() -> Any:
            self._stepping.close()
            try:
                return closure()
            finally:
                self._update(leaves, recorder)

        return run


def _unwrapped(optimizer: Any) -> Any:
    """The optimizer itself, in place of a wrapper that is one by its class alone (accelerate's). One with groups and
    state of its own that never called Optimizer.__init__ (many a look-ahead) gets the attributes that others have."""
    if not isinstance(optimizer, Optimizer) or hasattr(optimizer, "_optimizer_step_pre_hooks"):
        return optimizer
    inner = vars(optimizer).get("optimizer")
    if isinstance(inner, Optimizer) and "param_groups" not in vars(optimizer):
        return _unwrapped(inner)
    vars(optimizer).setdefault("defaults", {})
    vars(optimizer).update(_optimizer_step_pre_hooks=OrderedDict(), _optimizer_step_post_hooks=OrderedDict())
    return optimizer


def _attributes(optimizer: Any) -> Iterator[Tuple[str, Any]]:
    """Its attributes, and what lists, tuples and dicts among them hold: `optimizers.0`."""
    for key, value in vars(optimizer).items():
        yield key, value
        if isinstance(value, (list, tuple, dict)):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{key}.{name}", one) for name, one in inside)
