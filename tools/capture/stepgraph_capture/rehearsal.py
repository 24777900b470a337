"""The user's program for two steps, as it is, beside the graph for two.

The values of a capture come from runs on tensors that replace the user's, each as if it were the first. What a step
leaves for the next one and no graph holds (gradients, a cache made of parameters, hooks, a buffer that gradients are
views of) shows here alone. Each step of the graph begins with what the program's does, so that roundings do not add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import compat, rounding, sharding, values, world
from .as_found import AsFound
from .errors import CaptureError
from .step import Step
from .trace import Traced


def notes(step: Step, traced: Traced, say: Callable[[str], None]) -> List[str]:
    """Refuses a step of which the graph is the first alone; returns notes for the user."""
    if not _is_worth_it(step, traced):
        return []
    say(f"runs the {_whose(step)} twice as it is")
    try:
        program = _rehearsed(step, drops_gradients=False)
    except CaptureError:
        raise
    except Exception as error:
        return [_FAILS.format(_whose(step), f"{type(error).__name__}: {error}")]
    apart = _first_difference(step, traced, program)
    if apart is None:
        return []
    turn, what = apart
    if _first_difference(step, traced, _rehearsed(step, drops_gradients=True)) is None:
        return [_GRADIENTS.format(what)]
    raise CaptureError((_FIRST, _SECOND)[turn].format(_whose(step), what))


_FAILS = "run twice on your own tensors, the {} fails ({}): the graph is that of one step"
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
    """A model without a train_step leaves nothing but what it caches. In a job wrappers keep state of their own. What
    decides by values may decide otherwise in the second step, and has guards."""
    if step.train_step is None and not step.made.has_made:
        return False
    if world.size() > 1 or step.units or any(sharding.is_sharded(slot.value) for slot in step.tensors):
        return False
    return not _decides_by_values(traced)


def _decides_by_values(traced: Traced) -> bool:
    shape_env, nodes = traced.mode.shape_env, [node for graph in traced.graphs for node in graph.nodes]
    of_data = {symbol for node in nodes for symbol in node.meta.get("unbacked_bindings") or {}}
    are_settled = any(compat.settled(shape_env, graph) for graph in traced.graphs)
    are_guarded = any(guard.free_symbols & of_data for guard in compat.guards(shape_env))
    return bool(traced.answers) or traced.uses_taken or are_settled or are_guarded


@dataclass
class _OfProgram:
    """One step of it: tensors by slot name, before and after, and the loss."""

    before: Dict[str, Tensor]
    after: Dict[str, Tensor]
    loss: Optional[Tensor]


def _rehearsed(step: Step, drops_gradients: bool) -> List[_OfProgram]:
    """The program's first two steps. Between them, parameters that no train_step updates are moved a little. The user's
    objects are as they were, afterwards."""
    found: List[_OfProgram] = []
    with AsFound(step).kept():
        for _ in range(2):
            before = _copies(step)
            inputs = [values.given_for(slot) for slot in step.tensors if slot.kind == "input"]
            with values.seeded(), step.generators.set_aside(), compat.eager_everywhere():
                loss = step.as_it_is(inputs)
            found.append(_OfProgram(before, _copies(step), None if loss is None else loss.detach().clone()))
            for slot in step.trainable:
                if drops_gradients or step.train_step is None:
                    slot.value.grad = None
                if step.train_step is None:
                    slot.value.data.mul_(_MOVED)
    return found


_MOVED = 1.01


def _copies(step: Step) -> Dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in step.own_state().items()}


def _first_difference(step: Step, traced: Traced, program: Sequence[_OfProgram]) -> Optional[Tuple[int, str]]:
    """The first value that the graph has otherwise, and the number of its step."""
    given = {slot.name: tensor for slot, tensor in zip(step.tensors, values.given(step, with_gaps=False))}
    for turn, theirs in enumerate(program):
        for name, tensor in theirs.before.items():
            if tensor.shape != given[name].shape:
                return None  # of the data's size: the graph may be that of other sizes
            given[name].detach().copy_(tensor)
        ours = _OfGraph(traced, given)
        name = ours.first_difference(theirs)
        if name is not None:
            return turn, name
        for slot in step.optimizer_state:
            given[slot.name] = ours.after(slot.name)
    return None


class _OfGraph:
    """One step of the graph."""

    def __init__(self, traced: Traced, given: Mapping[str, Tensor]) -> None:
        self._given, self._module, self._loss = given, traced.module, traced.result.loss
        tensors = [values.laid_copy(tensor, with_gaps=False) for tensor in given.values()]
        answers = values.of_the_graph_on(tensors, traced.module)
        self._all = [*answers.outputs, *answers.inputs]
        self._places = {name: i for i, name in enumerate(given, len(answers.outputs))}  # in _all
        first = len(answers.outputs) - len(traced.result.rebound)
        self._places.update({name: i for i, name in enumerate(traced.result.rebound, first)})

    def after(self, name: str) -> Tensor:
        """What the step has left."""
        return self._all[self._places[name]]

    def first_difference(self, theirs: _OfProgram) -> Optional[str]:
        """The first value that the program has otherwise, by more than rounding."""
        updates = [(name, theirs.before[name], now, self.after(name)) for name, now in theirs.after.items()]
        far = [name for name, *three in updates if _is_another_update(*three)]
        loss_is_far = theirs.loss is not None and self._loss is not None and _is_another(theirs.loss, self._all[0])
        if not far and not loss_is_far:
            return None
        noise = rounding.of(self._module, list(self._given.values()), self._all)
        if loss_is_far and _distance(theirs.loss, self._all[0]) > values.SLACK * (noise[0] or 0.0):
            return "loss"
        for name in far:
            if _distance(theirs.after[name], self.after(name)) > values.SLACK * (noise[self._places[name]] or 0.0):
                return f"update of {name}"
        return None


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
