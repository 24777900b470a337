"""The runs of the step before it is traced."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Set

import torch
from torch import Tensor, fx

from . import places, symbols, trace, values, world
from .errors import CaptureError, listed
from .left import Left
from .step import Slot, Step


def check_that_ranks_meet(step: Step, dynamic: symbols.Dynamic) -> None:
    """Ranks that launch different collectives would block as soon as the model runs, so the ranks' traces are compared
    before that. (A train_step has to run first: its optimizer, or its pipeline schedule, creates state.)"""
    failure: Optional[Exception] = None
    graphs: List[fx.Graph] = []
    try:
        with step.replicas.learning():  # which gradients other ranks have is not known yet
            graphs = trace.somehow(step, dynamic, fake=False).graphs
        world.group_names(graphs)  # raises on groups that a capture cannot hold
    except Exception as error:  # if all ranks fail: the trace after the run knows more, and raises then if it must
        failure = error
    step.made.forget()  # the first run is yet to come: what the trace has counted would hide what that one does
    if world.on_any_rank(failure is None):
        world.together(lambda: _raise(failure))
        world.check_messages(graphs)
        world.check_agree(graphs)


def _raise(failure: Optional[Exception]) -> None:
    if failure is not None:
        raise failure


def answers(step: Step, dynamic: symbols.Dynamic) -> values.Answers:
    """Runs the step. The first run shows which gradients other ranks have, what state it writes besides parameters and
    buffers, and what it creates or counts. If it finds any of these, the answers are those of a second run. A
    train_step always runs twice: a pipeline schedule learns sizes from other ranks in its first step."""
    reachable = step.reachable().places
    step.take_in({name: place for name, place in reachable.items() if place.is_surely_state})
    beside_it, left = places.Watched(reachable), Left(step)
    with step.replicas.learning() as unused, beside_it.running():
        first = _first_run(step, dynamic)
    step.made.look()
    made = bool(step.optimizers.made)
    of_first = _by_name(step, first)
    step.take_in(world.together(beside_it.written))
    step.learn_optimizers()
    step.replicas.used_elsewhere = used_elsewhere(step, sorted(unused))
    left_behind = left.begin()
    tells = bool(step.train_step or unused or step.beside or step.made.has_made or step.made.counted or left_behind)
    if not world.on_any_rank(tells):
        return first
    second = _second_run(step, step.made.counted + left_behind)
    if step.optimizers.made:  # numbers that each step sets, as it turns out
        step.learn_optimizers()
        second = values.of_the_model(step)
    left.end()
    step.made.look()
    changed = step.made.counted + left_behind
    updated = [slot for slot in step.parameters if (made or changed) and slot.name not in unused]
    changes = world.on_any_rank(bool(changed))
    if changes:
        second = _with_filled_caches(step, updated, first, of_first, second)
    world.together(lambda: _check_first(step, changed, updated, of_first, second))
    if changes:
        world.together(lambda: _check_outputs(step, changed, first, second))
    return second


def _second_run(step: Step, changed: List[str]) -> values.Answers:
    try:
        return values.of_the_model(step)
    except Exception as error:
        if not changed:
            raise
        raise CaptureError(
            f"{_first_step(step, changed)} cannot be run again from the same buffers: {_before(step)} ({symbols.first_line(error)})"
        ) from error


def _with_filled_caches(
    step: Step,
    updated: List[Slot],
    first: values.Answers,
    of_first: Mapping[str, Tensor],
    second: values.Answers,
) -> values.Answers:
    """A cache that the first run fills, in a buffer that is not saved, and counts in Python (`self.filled = n`) is empty
    in the second run, which takes it for full. If so, it begins as the first run left it; else the second's answers.
    What a run writes that finds it full is no cache."""

    def is_another(answers: values.Answers) -> bool:
        is_other = bool(_other_updates(step, updated, of_first, answers))
        return world.on_any_rank(is_other or _differ(step, first, answers))

    if not is_another(second):
        return second
    written: Set[str] = set()
    while world.on_any_rank(step.fill_caches(of_first, but=written)):
        third = values.of_the_model(step)
        filled = {slot.name for slot, _ in step.filled}
        found = {slot.name for slot, is_written in zip(step.tensors, third.written) if is_written} & filled
        if not world.on_any_rank(bool(found)):
            if is_another(third):
                break
            return third
        written |= found
        step.empty_caches()
    step.empty_caches()
    return second


def _by_name(step: Step, answers: values.Answers) -> Dict[str, Tensor]:
    """What a run left in the inputs."""
    return {slot.name: tensor.detach() for slot, tensor in zip(step.tensors, answers.inputs)}


def _first_run(step: Step, dynamic: symbols.Dynamic) -> values.Answers:
    try:
        return values.of_the_model(step)
    except Exception:
        if step.train_step is None:
            trace.somehow(step, dynamic, fake=False)  # a refusal by the tracer says more
        raise


def _check_first(
    step: Step, changed: List[str], updated: List[Slot], of_first: Mapping[str, Tensor], second: values.Answers
) -> None:
    """Checks that the second run updates parameters as the first did. The second run starts with what the first one
    counted, and with the optimizer state that the first one created, at its initial values."""
    for name in _other_updates(step, updated, of_first, second):
        raise CaptureError(
            f"{_first_step(step, changed)} updates {name} in another way than later ones: {_before(step)}"
            + (f", {_OR_WHICH}" if changed else "")
        )


def _other_updates(
    step: Step, updated: List[Slot], of_first: Mapping[str, Tensor], second: values.Answers
) -> List[str]:
    now = _by_name(step, second)
    return [slot.name for slot in updated if not values.is_same_update(slot.local, of_first[slot.name], now[slot.name])]


def _check_outputs(step: Step, changed: List[str], first: values.Answers, second: values.Answers) -> None:
    """Checks the same for the loss and the gradients."""
    if _differ(step, first, second):
        raise CaptureError(
            f"{_first_step(step, changed)} has another loss or gradients than later ones: {_before(step)}, {_OR_WHICH}"
        )


def _differ(step: Step, first: values.Answers, second: values.Answers) -> bool:
    """Whether losses or gradients do, except gradients that are mere rounding noise."""
    pairs = list(zip(first.outputs[: 1 + len(step.trainable)], second.outputs))
    if any((one is None) != (other is None) for one, other in pairs):
        return True
    both = [(a.detach(), b.detach()) for a, b in pairs if a is not None and b is not None and a.shape == b.shape]
    sizes = [float(one.abs().max()) if one.numel() else 0.0 for one, _ in both]
    return any(
        size > 1e-6 * max(sizes) and not values.is_same_update(torch.zeros_like(one), one, other)
        for (one, other), size in zip(both, sizes)
    )


def _first_step(step: Step, changed: List[str]) -> str:
    what = "run of the model" if step.train_step is None else "step"
    if changed:
        return f"the first {what}, which changes {listed(changed)},"
    if step.optimizers.names:
        return f"the first step of {step.optimizers.names}, which makes its state,"
    return f"the first {what}, which on another rank changes what it counts,"


def _before(step: Step) -> str:
    return "run it once before" if step.train_step is None else "let it make a step before"


_OR_WHICH = "if only the first does. A graph holds one step: of a step that alternates capture each kind by itself"


def used_elsewhere(step: Step, missing: List[str]) -> Set[str]:
    """The parameters without a gradient on this rank that have one on a rank it averages with."""
    unused = step.replicas.unused(missing)
    of_ranks = world.of_each_rank(unused)
    return {fqn for fqn, ranks in unused.items() if any(fqn not in of_ranks[rank] for rank in ranks)}
