"""The step as a graph: traced with fake tensors, or with real ones alongside where it decides by values."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, fx

from . import (
    asked,
    attention,
    compat,
    constants,
    decisions,
    default_dtype,
    draws,
    indexing,
    jagged,
    leftovers,
    libraries,
    of_numbers,
    recorder,
    sharding,
    symbols,
    taken,
    trace_errors,
    twins,
    values,
    world,
)
from .encode import Encoder
from .errors import CaptureError, listed
from .recorder import Recorder
from .step import Result, Slot, Step
from .trace_errors import AsksForValues


class Traced:
    """The graph, the fake inputs it was traced with, and what the step returned."""

    def __init__(
        self,
        module: fx.GraphModule,
        fakes: List[Tensor],
        mode: Any,
        result: Result,
        names: Dict[str, str],
        answers: Dict[Any, int],
        replaced: List[Tuple[str, Tensor]],
        notes: List[str],
        asks: List[str],
    ) -> None:
        self.module, self.fakes, self.mode, self.result, self.names = module, fakes, mode, result, names
        self.answers = answers  # the values that data-dependent symbols must have
        self.settles: Optional[bool] = None  # None: traced without values
        self.uses_taken = False  # whether the graph depends on plain numbers that the step takes out of float tensors
        self.replaced = replaced  # attributes of the model to which the step assigned other tensors
        self.notes = notes  # what the user should know of the graph
        self.asks = asks  # where the step asked whether it is traced
        self.encoder = Encoder(module)

    @property
    def graphs(self) -> List[fx.Graph]:
        """The step's graph and those of its regions."""
        return [part.graph for part in self.module.modules() if isinstance(part, fx.GraphModule)]


def with_state(step: Step, dynamic: symbols.Dynamic, fake: bool) -> Traced:
    """Traces a step whose optimizers have their state. If the trace shows more numbers that they change (runs may have
    added zero), traces again. Refuses a step that made other state meanwhile."""
    traced = somehow(step, dynamic, fake)
    if step.optimizers.made and step.optimizers.numbers.issuperset(step.optimizers.made):
        step.learn_optimizers()
        traced = somehow(step, dynamic, fake)
    for name in step.optimizers.made:
        raise CaptureError(_NO_STATE_WHEN_FAKE if fake else _STATE_BY_TRACING.format(name))
    _check_numbers(step, dynamic, traced)
    return traced


def _check_numbers(step: Step, dynamic: symbols.Dynamic, traced: Traced) -> None:
    """Refuses a graph that depends on Python numbers which the step changes: with others in their place it says something
    else. By a whole number a step may choose what it does now and then, so that only constants count."""
    for names, is_count in ((step.made.floats, False), (step.made.whole, True)):
        if not names:
            continue
        with step.made.moved(names):
            again = lambda: _trace(step, dynamic, traced.settles is not None, bool(traced.settles))  # noqa: E731
            if taken.says_else(traced, again, in_constants=is_count):
                raise CaptureError(_GOES_BY.format(listed(sorted(names))))


_GOES_BY = (
    "the step goes by {}, which it changes, and of Python numbers a graph holds those of one step: keep it in a tensor "
    "(`torch.tensor(1.0)`), which is state of the graph"
)


def somehow(step: Step, dynamic: symbols.Dynamic, fake: bool) -> Traced:
    """Traces with fake tensors; if the step asks for values, with real tensors alongside; as a last resort with the
    example's numbers in place of data-dependent symbols."""
    has_values = not fake and world.size() == 1
    try:
        with decisions.asking() if has_values else nullcontext():
            return _trace(step, dynamic)
    except CaptureError as error:
        if not isinstance(error, AsksForValues):
            raise
        if not has_values:
            averages = compat.asks_whether_averaged(error.__cause__)
            way_out = _NO_VALUES_TO_AVERAGE if averages else _NO_VALUES_WHEN_FAKE if fake else _NO_VALUES_IN_A_JOB
            raise CaptureError(f"{error}. {way_out}") from error
    except Exception:
        if not has_values:
            raise
        values.of_the_model(step)  # if eager PyTorch fails, too, it says more: errors of fakes are about kernels
        with trace_errors.of_tracing_alone():
            raise
    with trace_errors.of_tracing_alone():
        settle, traced = _with_values(step, dynamic)
    traced.settles = settle
    traced.uses_taken = taken.are_used(traced, lambda move, see: _trace(step, dynamic, True, settle, move, see))
    return traced


def _with_values(step: Step, dynamic: symbols.Dynamic) -> Tuple[bool, Traced]:
    """The trace, and whether data-dependent symbols had to be settled."""
    try:
        return False, _trace(step, dynamic, with_values=True)
    except AsksForValues:
        return True, _trace(step, dynamic, with_values=True, settle=True)


_NO_STATE_WHEN_FAKE = (
    "With fake=True no step is run, and the optimizer has no state yet: let it make a step before, or capture a smaller "
    "model"
)
_STATE_BY_TRACING = (
    "the step changes {} of the optimizer, which its first two runs left as it was: let it make more steps before the "
    "capture, until its state only changes"
)
_NO_VALUES_WHEN_FAKE = (
    "With fake=True there are no values to decide by: capture a smaller model without it, or use torch.where"
)
_NO_VALUES_TO_AVERAGE = (
    "AveragedModel.update_parameters() asks whether it has averaged before (n_averaged == 0), which is not followed with "
    "fake=True or in a distributed job: let it update outside of the step, or average in the step yourself "
    "(`for mean, p in zip(averaged.parameters(), model.parameters()): mean.lerp_(p, 1 - decay)`, under torch.no_grad())"
)
_NO_VALUES_IN_A_JOB = (
    "In a distributed job ranks could decide differently, so that is not followed: use torch.where, or sizes as "
    "symbols (torch._check), or capture the model in a world of one rank"
)


def _trace(
    step: Step,
    dynamic: symbols.Dynamic,
    with_values: bool = False,
    settle: bool = False,
    move: taken.Move = lambda _, number: number,
    see: taken.See = lambda node: None,
) -> Traced:
    drawn = draws.Draws(is_real=with_values)

    def seen(node: fx.Node) -> None:
        drawn.tag(node)
        see(node)

    watcher = Recorder(step.model, seen)
    mode = compat.new_fake_mode(allow_real_inputs=True, here=watcher.here, with_values=with_values, move=move)
    varying = {slot.name: slot.value for slot in step.inputs if slot.is_tensor and not sharding.is_sharded(slot.value)}
    varying = {name: _apart(tensor, with_values) for name, tensor in varying.items()}
    wanted = symbols.wishes(dynamic, varying)
    with_symbols = symbols.fake_inputs(mode, varying, wanted)
    twin = _twin_with_value if with_values else _twin
    fakes = [
        with_symbols[slot.name].requires_grad_(slot.requires_grad)
        if slot.kind == "input" and slot.name in with_symbols
        else compat.as_written(twin(mode, slot), slot.value)
        for slot in step.tensors
    ]
    as_given = [fake.detach() for fake in fakes]  # the step may turn its inputs in place (`transpose_`)
    results: List[Result] = []
    answers: Dict[Any, int] = {}
    bodies = libraries.Bodies()

    def traced_step(*tensors: Tensor) -> Tuple[Any, ...]:
        decided = decisions.answering(answers, settle) if with_values else nullcontext()
        with ExitStack() as modes:
            for mode in (indexing.SelectsByData(), of_numbers.TensorsOfNumbers(), attention.ChosenByOtherSizes()):
                modes.enter_context(mode)
            with decided, bodies, compat.data_assigned_by_copies(), compat.modes_in_backward():
                result = step.run(tensors, watcher)
        results.append(result)
        return tuple(result.outputs)

    with trace_errors.explained(settle), watcher.recording(), _traceable(step) as replaced, asked.noted() as asks:
        module = compat.trace(traced_step, fakes, mode, symbolic=bool(wanted))
    place_of = lambda size: recorder.place(compat.settled_at(size), module.graph)  # noqa: E731
    notes = symbols.check_still_dynamic(with_symbols, varying, wanted, place_of)
    names = symbols.names_of(with_symbols, wanted)
    traced = Traced(module, as_given, mode, results[0], names, answers, replaced, notes + bodies.notes, asks)
    for graph in traced.graphs:
        jagged.drop_lengths(graph)
        compat.drop_idle(graph)
        default_dtype.write_out(graph)
        constants.in_pairs(graph, mode)
        recorder.link(graph)
    draws.link(traced.graphs)
    recorder.locate(module.graph, compat.decided_at(mode.shape_env))
    if step.train_step is not None:
        recorder.tell_optimizer(module.graph)
    return traced


@contextmanager
def _traceable(step: Step) -> Iterator[List[Tuple[str, Tensor]]]:
    """Sets what a step needs while it is traced, of PyTorch and of itself. Yields the attributes of the model to which
    the step assigned other tensors, known at the end."""
    with ExitStack() as set_up:
        set_up.enter_context(values.seeded())
        set_up.enter_context(step.generators.set_aside_while_traced())
        replaced = set_up.enter_context(leftovers.removed(step.modules_around))
        set_up.enter_context(step.made.refused())
        set_up.enter_context(step.made.without_gradients())
        set_up.enter_context(compat.fakes_of({**compat.CORRECTED, **decisions.FAKES}))
        set_up.enter_context(compat.python_twins(twins.TWINS))
        set_up.enter_context(compat.formats())
        set_up.enter_context(compat.averages_of_all_batches())
        set_up.enter_context(compat.numbers_as_in_python())
        set_up.enter_context(compat.math_keeps_symbols(step.modules))
        set_up.enter_context(compat.without_notices())
        set_up.enter_context(compat.without_batch_limits())
        set_up.enter_context(compat.views_ask_of_sharded_axes())
        set_up.enter_context(compat.with_eager_checkpoints())
        set_up.enter_context(compat.lengths_without_numbers())
        set_up.enter_context(compat.addresses_of_fakes())
        set_up.enter_context(compat.causal_biases())
        yield replaced


def _apart(tensor: Tensor, with_value: bool) -> Tensor:
    """A copy that shares no memory with another input (`ids` used as labels, `tokens[:, 1:]`): the graph has two
    separate inputs, and no size of either gives the row stride of a common tensor."""
    return tensor.detach().clone() if with_value else torch.empty_like(tensor, requires_grad=False)


def _twin(mode: Any, slot: Slot) -> Tensor:
    """A fake tensor like this rank's part of the slot."""
    real = slot.local
    place = "cpu" if real.device.type == "meta" else real.device
    with mode:
        twin = torch.empty_strided(tuple(real.shape), real.stride(), dtype=real.dtype, device=place)
    return twin.requires_grad_(slot.requires_grad)


def _twin_with_value(mode: Any, slot: Slot) -> Tensor:
    return compat.fake_with_value(mode, values.laid_copy(slot.local)).requires_grad_(slot.requires_grad)
