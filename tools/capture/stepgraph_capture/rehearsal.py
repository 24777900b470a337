"""The user's program for two steps, as it is, beside the graph for two.

The values of a capture come from runs on tensors that replace the user's, each as if it were the first. What a step
leaves for the next one and no graph holds (gradients, a cache made of parameters, hooks, a buffer that gradients are
views of) shows here alone. Each step of the graph begins with what the program's does, so that roundings do not add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor, fx

from . import compat, rounding, sharding, values, world
from .as_found import AsFound
from .errors import CaptureError
from .step import Others, Step
from .trace import Traced


def notes(step: Step, traced: Traced, say: Callable[[str], None]) -> List[str]:
    """Refuses a step of which the graph is the first alone; returns notes for the user. Ranks do this together."""
    if world.on_any_rank(not _is_worth_it(step, traced)):
        return []
    say(f"runs the {_whose(step)} twice as it is")
    try:
        apart = _first_difference(step, traced, drops_gradients=False)
        if apart is None:
            return []
        if _first_difference(step, traced, drops_gradients=True) is None:
            return [_GRADIENTS.format(apart.what)] if apart.what is not None else []
    except _Failed as failed:
        if world.size() > 1:  # the others may wait for this rank in a collective of the program
            raise CaptureError(_FAILS_IN_JOB.format(_whose(step), failed)) from failed
        return [_FAILS.format(_whose(step), failed)]
    world.together(lambda: _refuse(step, apart))
    return []


@dataclass
class _Apart:
    """The first step in which a rank has another value than its graph; `what` it is, on this rank."""

    turn: int
    what: Optional[str]


def _refuse(step: Step, apart: _Apart) -> None:
    if apart.what is not None:
        raise CaptureError((_FIRST, _SECOND)[apart.turn].format(_whose(step), apart.what))


class _Failed(Exception):
    """The program does, and says so."""


_FAILS = "run twice on your own tensors, the {} fails ({}): the graph is that of one step"
_FAILS_IN_JOB = "run twice on your own tensors, the {} fails: {}"
_GRADIENTS = (
    "the train_step uses gradients that the one before it has left in .grad (the {} of its second call shows it), and "
    "each step of the graph begins without: call zero_grad() before the first backward()"
)
_FIRST = (
    "on your own tensors the {} has another {} than the graph: it goes by what no graph holds, as addresses, weak "
    "references, or gradients that are views of one buffer"
)
_SECOND = (
    "called a second time, the {} has another {} than the graph: it goes by what its first call leaves and no graph "
    "holds, as a cache made of parameters, or hooks that each call adds. Make it a buffer, or compute it in each step; "
    "if only the first call makes it, let that be before the capture"
)


def _whose(step: Step) -> str:
    return "model" if step.train_step is None else "train_step"


def _is_worth_it(step: Step, traced: Traced) -> bool:
    """A model without a train_step leaves nothing but what it caches, and in a job its wrappers are not the step's. In
    a job ranks that decide by values may decide apart."""
    if step.train_step is None and (world.size() > 1 or step.units or not step.made.has_made):
        return False
    if world.is_one_for_all() or (world.size() > 1 and _Way(traced).is_decided):
        return False
    return sum(slot.local.numel() for slot in step.tensors) <= _LARGEST


_LARGEST = 1 << 29  # numbers; three copies of them are made


class _Way:
    """What a step decides by values: another one may go another way than the graph's, which is no difference."""

    def __init__(self, traced: Traced) -> None:
        env, nodes = traced.mode.shape_env, [node for graph in traced.graphs for node in graph.nodes]
        of_data = {symbol for node in nodes for symbol in node.meta.get("unbacked_bindings") or {}}
        self._numbers = dict(traced.answers)  # that symbols must be
        for graph in traced.graphs:
            self._numbers.update({**compat.settled(env, graph), **compat.settled_floats(env, graph)})
        self._guards = [guard for guard in compat.assumptions(env) if guard.free_symbols & of_data]
        self._uses_taken = traced.uses_taken
        sizes = {symbol for guard in self._guards for symbol in guard.free_symbols - of_data}
        self._found: Dict[Any, Any] = {symbol: compat.symbol_facts(env, symbol).hint for symbol in sizes}
        self.is_decided = bool(self._numbers or self._guards or self._uses_taken)

    def see(self, node: fx.Node, result: Any) -> None:
        """What a node makes in the step."""
        self._found.update(compat.found_in(node, result))

    def is_the_graphs(self) -> bool:
        """Whether the step is known to have gone this way."""
        are_these = all(self._found.get(symbol) == number for symbol, number in self._numbers.items())
        return are_these and not self._uses_taken and all(compat.decided(each, self._found) for each in self._guards)


def _first_difference(step: Step, traced: Traced, drops_gradients: bool) -> Optional[_Apart]:
    """Runs both, step by step. The user's objects are as they were, afterwards."""
    given = {slot.name: tensor for slot, tensor in zip(step.tensors, values.given(step, with_gaps=False))}
    with AsFound(step).kept():
        for turn in range(2):
            state = _parts(step.own_state())
            if world.on_any_rank(any(tensor.shape != given[name].shape for name, tensor in state.items())):
                return None  # of the data's size: the graph may be that of other sizes
            for name, tensor in state.items():
                given[name].detach().copy_(tensor)
            with step.optimizers.scheduled_as_used() as used:
                loss, others = _results_of_program(step)
            given.update(used)
            way = _Way(traced)
            try:
                ours = _OfGraph(traced, given, way)
            except Exception:
                if way.is_decided:  # sizes of the other way, mostly
                    return None
                raise
            world.together(lambda: _check_sizes(step, traced, state))
            what = ours.first_difference(loss, others, _parts(step.own_state()))
            if world.on_any_rank(what is not None):
                return None if way.is_decided and not way.is_the_graphs() else _Apart(turn, what)
            for slot in step.optimizer_state:
                given[slot.name] = ours.after(slot.name)
            _between(step, drops_gradients)
    return None


def _check_sizes(step: Step, traced: Traced, before: Mapping[str, Tensor]) -> None:
    """Refuses state whose size a step changes, unless it is the data's."""
    for name, now in _parts(step.own_state()).items():
        was, bound = before.get(name, now), traced.result.rebound.get(name)
        is_of_data = bound is not None and any(isinstance(size, torch.SymInt) for size in bound.shape)
        if was.shape != now.shape and not is_of_data:
            raise CaptureError(_RESIZED.format(_whose(step), name, list(was.shape), list(now.shape)))


_RESIZED = (
    "the {} makes of {}, which has the size {}, one of {}, and a graph holds it in one: if only the first does, let it "
    "make a step before the capture"
)


def _parts(state: Mapping[str, Tensor]) -> Dict[str, Tensor]:
    """This rank's."""
    return {name: sharding.local(tensor) for name, tensor in state.items()}


def _results_of_program(step: Step) -> Tuple[Optional[Tensor], Others]:
    inputs = [values.given_for(slot) for slot in step.tensors if slot.kind == "input"]
    try:
        with values.seeded(), step.generators.set_aside(), compat.eager_everywhere():
            return step.as_it_is(inputs)
    except CaptureError:
        raise
    except Exception as error:
        raise _Failed(f"{type(error).__name__}: {error}") from error


def _between(step: Step, drops_gradients: bool) -> None:
    """What a training loop does between steps; parameters that no train_step updates are moved a little."""
    for slot in step.trainable:
        if drops_gradients or step.train_step is None:
            slot.value.grad = None
        if step.train_step is None:
            slot.value.data.mul_(_MOVED)


_MOVED = 1.01


class _OfGraph:
    """One step of the graph."""

    def __init__(self, traced: Traced, given: Mapping[str, Tensor], way: _Way) -> None:
        self._given, self._module, self._has_loss = given, traced.module, traced.result.loss is not None
        tensors = [values.laid_copy(tensor, with_gaps=False) for tensor in given.values()]
        answers = values.of_the_graph_on(tensors, traced.module, way.see)
        self._all = [*answers.outputs, *answers.inputs]
        self._places = {name: i for i, name in enumerate(given, len(answers.outputs))}  # in _all
        first = len(answers.outputs) - len(traced.result.rebound)
        self._first_other = first - len(traced.result.others)
        self._places.update({name: i for i, name in enumerate(traced.result.rebound, first)})

    def after(self, name: str) -> Tensor:
        """What the step has left."""
        return self._all[self._places[name]]

    def first_difference(self, loss: Optional[Tensor], others: Others, state: Mapping[str, Tensor]) -> Optional[str]:
        """The first value that the program has otherwise, by more than rounding."""
        updates = [(name, self._given[name], now, self.after(name)) for name, now in state.items()]
        far = [name for name, *three in updates if _is_another_update(*three)]
        is_loss_far = loss is not None and self._has_loss and _is_another(loss, self._all[0])
        results = {i: other for i, other in enumerate(others.values(), self._first_other) if self._is_far(other, i)}
        if not world.on_any_rank(bool(far) or is_loss_far or bool(results)):
            return None
        noise = rounding.of(self._module, list(self._given.values()), self._all)
        if is_loss_far and _distance(loss, self._all[0]) > values.SLACK * (noise[0] or 0.0):
            return "loss"
        for name in far:
            if _distance(state[name], self.after(name)) > values.SLACK * (noise[self._places[name]] or 0.0):
                return f"update of {name}"
        is_far = any(_distance(other, self._all[i]) > values.SLACK * (noise[i] or 0.0) for i, other in results.items())
        return "result beside the loss" if is_far else None

    def _is_far(self, result: Tensor, i: int) -> bool:
        """Whether a result of the program is another one. Of whole numbers (the class found) rounding may decide."""
        return result.dtype.is_floating_point and _is_another_update(torch.zeros_like(result), result, self._all[i])


def _is_another(program: Tensor, graph: Tensor) -> bool:
    limit = values.tolerance(graph.dtype) * (float(_wide(program).abs()) + 1e-3)
    return _distance(program.reshape(graph.shape), graph) > limit


def _is_another_update(before: Tensor, program: Tensor, graph: Tensor) -> bool:
    """Whether the two are not the same update, as a whole."""
    if program.shape != graph.shape or program.dtype != graph.dtype:
        return True
    if not program.dtype.is_floating_point and not program.dtype.is_complex:
        return not torch.equal(program, graph)
    if _distance(program, graph) == math.inf:
        return True
    one_rounding = 4 * torch.finfo(program.dtype).eps
    was, one, other = (_wide(tensor).nan_to_num(posinf=0, neginf=0) for tensor in (before, program, graph))
    return bool((one - other).norm() > _SAME * (one - was).norm() + one_rounding * one.norm())


_SAME = 0.02  # relative distance of updates that are the same but for rounding


def _distance(one: Tensor, other: Tensor) -> float:
    return values.farthest(_wide(one), _wide(other)) if one.shape == other.shape else math.inf


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)
