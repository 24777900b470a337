"""The graph run beside the model: both must agree, to the rounding. The values that a capture holds are the model's."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import asked, rounding, values, world, write
from .bits import changed
from .errors import CaptureError, listed
from .step import Step
from .trace import Traced


def checked(
    step: Step, traced: Traced, names: List[str], answers: Optional[values.Answers]
) -> Tuple[values.Answers, values.Answers]:
    """The results of the model and of the graph."""
    model = answers or values.of_the_model(step)
    graph = values.of_the_graph(step, traced.module)
    try:
        world.together(lambda: _check_same(step, traced, names, model, graph))
    except CaptureError:  # on all ranks; the gradient of a bias before a batch norm is mere rounding noise
        left = [*graph.outputs, *graph.inputs]
        noise = rounding.of(traced.module, values.given(step, with_gaps=False), left, draws_alike=True)
        world.together(lambda: _check_same(step, traced, names, model, graph, noise))
    return model, graph


def write_values(step: Step, traced: Traced, folder: str, model: values.Answers, graph: values.Answers) -> None:
    """Inputs before the step; outputs and inputs written in place after it."""
    placeholders = [node.name for node in traced.module.graph.nodes if node.op == "placeholder"]
    before = dict(zip(placeholders, (tensor.detach() for tensor in values.given(step))))
    before.update(traced.encoder.constants)
    after = {f"out{i}": value for i, value in enumerate(model.outputs) if value is not None}
    for name, left, traced_left, is_written in zip(placeholders, model.inputs, graph.inputs, graph.written):
        if is_written or changed(before[name], left):
            after[f"mutated.{name}"] = left if _lie_alike(traced_left, before[name]) else _as_it_was(left, before[name])
    # The model's own names: graphs of the same model traced another way use different input names.
    own_names = {f"fqn.{name}": slot.name for name, slot in zip(placeholders, step.tensors)}
    made_by = {"threads": str(torch.get_num_threads()), "torch": torch.__version__.split("+")[0]}
    notes = {**made_by, **_rounding(step, traced, placeholders, after)}
    write.tensors(os.path.join(folder, "inputs.safetensors"), before, own_names)
    write.tensors(os.path.join(folder, "expected.safetensors"), after, notes)


def _as_it_was(left: Tensor, given: Tensor) -> Tensor:
    """Of a tensor that the graph turns in place, too (`transpose_`): seen as before the step."""
    return left.as_strided(given.shape, given.stride())


def _lie_alike(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.stride() == right.stride()


def _check_same(
    step: Step,
    traced: Traced,
    names: List[str],
    model: values.Answers,
    graph: values.Answers,
    noise: Sequence[Optional[float]] = (),
) -> None:
    noise = noise or [None] * (len(model.outputs) + len(model.inputs))
    try:
        values.check_same(names, model, graph, noise)
        gradients = dict(zip(names, zip(model.outputs, graph.outputs)))
        for slot, left, right, moved in zip(step.tensors, model.inputs, graph.inputs, noise[len(model.outputs) :]):
            pair = gradients.get(f"the gradient of {slot.name}", (None, None))
            if changed(left, right):
                if pair[0] is not None and pair[1] is not None:
                    right = values.settled_by_gradients(left, right, *pair)
                _check_left(slot.name, left, right, moved)
    except CaptureError as error:
        reasons = asked.reasons(traced.asks, traced.module.graph)
        if step.made.counted:
            reasons.insert(0, f"It changes {listed(step.made.counted)}, and a graph holds the numbers of one step")
        raise CaptureError(". ".join([str(error), *reasons])) from error


def _check_left(name: str, left: Tensor, right: Tensor, moved: Optional[float]) -> None:
    """Checks what the step leaves of an input. A rate in a tensor may be set by what Python counts, as by most
    schedulers."""
    try:
        values.check_close(f"{name} after the step", left, right, moved)
    except CaptureError as error:
        if ".param_groups." not in name:
            raise
        raise CaptureError(
            f"the step sets {name}, a tensor, by numbers that no graph holds (a scheduler's count): give it as a number "
            "(lr=1e-3), of which each step of the graph is given its own"
        ) from error


def _rounding(step: Step, traced: Traced, placeholders: List[str], after: Dict[str, Tensor]) -> Dict[str, str]:
    """How far off rounding may put correct values: by output, and by input as the step leaves it."""
    count = len(next(node for node in traced.module.graph.nodes if node.op == "output").args[0])
    names = [f"out{i}" for i in range(count)] + [f"mutated.{name}" for name in placeholders]
    errors = rounding.of(traced.module, values.given(step), [after.get(name) for name in names])
    return {f"rounding.{name}": repr(error) for name, error in zip(names, errors) if error is not None}
