"""capture(): one training step of a model, as files that sg-import reads."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import sympy
import torch
from torch import Tensor, fx, nn

from . import (
    beside,
    checks,
    compat,
    computed,
    constants,
    decisions,
    default_dtype,
    draws,
    indexing,
    leftovers,
    meshes,
    progress,
    recorder,
    refusals,
    rounding,
    sharding,
    shared,
    source,
    symbols,
    taken,
    twins,
    values,
    world,
    write,
)
from .encode import Encoder, tensor_type
from .errors import CaptureError
from .recorder import Recorder
from .step import Loss, Result, Slot, Step


def capture(
    model: torch.nn.Module,
    loss_fn: Loss = None,
    inputs: Any = (),
    out_dir: str = "capture",
    dynamic: symbols.Dynamic = None,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    targets: Any = None,
    train_step: Optional[Callable[..., Any]] = None,
    optimizer: Any = None,
    fake: bool = False,
    title: str = "",
    compress: bool = False,
    say: progress.Say = None,
) -> str:
    """Traces forward, loss and backward and writes the capture; returns the path of its JSON.

    model    any torch.nn.Module; DistributedDataParallel, DTensor parameters and fully_shard are understood
    loss_fn  takes the model's output (and `targets`, where given) and returns the loss, or (loss, more tensors).
             None: the model returns the loss itself, or something with `.loss` or ["loss"]
    inputs   a mapping (keyword arguments), a tuple or list (positional ones), or the only argument
    out_dir  gets step.json, inputs.safetensors and expected.safetensors; in a distributed job each rank its own, in
             rank{r}/ of it
    dynamic  which sizes of the inputs are symbols: {"input_ids": {0: "batch", 1: ("length", 2, 4096)}}; equal names are
             one symbol. True: all of them
    kwargs   keyword arguments beside positional `inputs`
    targets  what the loss function compares with; inputs of the graph like `inputs`
    train_step in place of a loss function: a whole step, of `inputs`, that calls backward itself, as a loop of
             micro-batches or a pipeline's schedule does; gradients are what it leaves in .grad. Returns the loss,
             (loss, more tensors), or None on a rank that has none. It runs twice before it is traced
    optimizer whose step() the train_step calls, or several: their state is inputs of the graph, which it writes
    fake     trace without memory, for a model that does not fit (its parameters may be on "meta", which is
             written as cpu); no values are written
    compress write step.json.gz
    say      called with what begins now ("traces the step"), as a large step takes minutes

    Values are drawn from what the model, run eagerly, answers; the traced graph is run beside it and must agree.
    Raises CaptureError. The model, its buffers and the random generator are left as they were.
    """
    if not isinstance(model, nn.Module):
        raise CaptureError(f"the model has type {type(model).__name__}: wrap it in a torch.nn.Module, which has parameters")
    folder = os.path.join(out_dir, f"rank{world.rank()}") if world.size() > 1 else out_dir
    say = say or (lambda what: None)
    described = (model, loss_fn, inputs, kwargs, targets, train_step, optimizer)
    with write.empty_folders_removed(folder), _modes_kept(model), ExitStack() as at_end:
        world.of_each_rank(None)  # all have seen which folders are there, before one is made
        step = world.together(lambda: _made(folder, described))
        answers = None
        at_end.callback(step.made.forget)
        if not fake:
            if train_step is None and world.size() > 1:
                _check_that_ranks_meet(step, dynamic)
            say("runs the model" if train_step is None else "runs the step")
            answers = _of_runs(step, dynamic)
        else:
            step.take_in({name: place for name, place in step.reachable().places.items() if place.is_surely_state})
        say("traces the step")
        known = len(step.tensors)
        traced = world.together(lambda: _trace_with_state(step, dynamic, fake))
        answers = answers if len(step.tensors) == known else None
        traced = _with_gradients_of_others(step, traced, dynamic, fake)
        say("describes the graph")
        declared = meshes.Meshes(_meshes(step))
        document, names = world.together(lambda: _document(step, traced, title, declared))
        constants.add_data(document["inputs"], traced.encoder.constants)
        world.check_messages(_graphs(traced.module))
        world.check_agree(_graphs(traced.module))
        if not fake:
            say("holds the graph against the model")
            with world.message_groups(_graphs(traced.module)):
                _write_values(step, traced, names, folder, answers)
        say("writes the capture")
        path = os.path.join(folder, "step.json.gz" if compress else "step.json")
        write.capture_json(path, document, compress)
    return path


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    """Restores training modes: a step may call model.eval() and fail before it calls train() again."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_that_ranks_meet(step: Step, dynamic: symbols.Dynamic) -> None:
    """Ranks that launch different collectives would block as soon as the model runs, so the ranks' traces are compared
    before that. (A train_step has to run first: its optimizer, or its pipeline schedule, creates state.)"""
    failure: Optional[Exception] = None
    graphs: List[fx.Graph] = []
    try:
        with step.replicas.learning():  # which gradients other ranks have is not known yet
            graphs = _graphs(_trace_somehow(step, dynamic, fake=False).module)
        world.group_names(graphs)  # raises on groups that a capture cannot hold
    except Exception as error:  # if all ranks fail: the trace after the run knows more, and raises then if it must
        failure = error
    if world.on_any_rank(failure is None):
        world.together(lambda: _raise(failure))
        world.check_messages(graphs)
        world.check_agree(graphs)


def _raise(failure: Optional[Exception]) -> None:
    if failure is not None:
        raise failure


def _of_runs(step: Step, dynamic: symbols.Dynamic) -> values.Answers:
    """Runs the step. The first run shows which gradients other ranks have, what state it writes besides parameters and
    buffers, and what it creates or counts. If it finds any of these, the answers are those of a second run. A
    train_step always runs twice: a pipeline schedule learns sizes from other ranks in its first step."""
    beside_it = beside.Watched(step.reachable().places)
    with step.replicas.learning() as unused, beside_it.running():
        first = _first_run(step, dynamic)
    step.made.look()
    made = bool(step.optimizers.made)
    of_first = {slot.name: tensor.detach() for slot, tensor in zip(step.tensors, first.inputs)}
    step.take_in(world.together(beside_it.written))
    step.learn_optimizers()
    step.replicas.used_elsewhere = _used_elsewhere(step, sorted(unused))
    tells = bool(step.train_step or unused or step.beside or step.made.has_made or step.made.counted)
    if not world.on_any_rank(tells):
        return first
    second = values.of_the_model(step)
    if step.optimizers.made:  # numbers that each step sets, as it turns out
        step.learn_optimizers()
        second = values.of_the_model(step)
    step.made.look()
    of_second = {slot.name: tensor.detach() for slot, tensor in zip(step.tensors, second.inputs)}
    updated = [slot for slot in step.trainable if (made or step.made.counted) and slot.name not in unused]
    world.together(lambda: _check_first(step, updated, of_first, of_second))
    if step.made.counted:
        world.together(lambda: _check_counted(step, first, second))
    return second


def _first_run(step: Step, dynamic: symbols.Dynamic) -> values.Answers:
    try:
        return values.of_the_model(step)
    except Exception:
        if step.train_step is None:
            _trace_somehow(step, dynamic, fake=False)  # a refusal by the tracer says more
        raise


def _check_first(
    step: Step, updated: List[Slot], of_first: Mapping[str, Tensor], of_second: Mapping[str, Tensor]
) -> None:
    """Checks that the second run updates parameters as the first did. The second run starts with what the first one
    counted, and with the optimizer state that the first one created, at its initial values."""
    for slot in updated:
        if not values.is_same_update(slot.local, of_first[slot.name], of_second[slot.name]):
            raise CaptureError(f"{_first_step(step)} updates {slot.name} in another way than later ones: {_before(step)}")


def _check_counted(step: Step, first: values.Answers, second: values.Answers) -> None:
    """Checks the same for the loss and the gradients, except gradients that are mere rounding noise."""
    pairs = zip(first.outputs[: 1 + len(step.trainable)], second.outputs)
    both = [(a.detach(), b.detach()) for a, b in pairs if a is not None and b is not None and a.shape == b.shape]
    sizes = [float(one.abs().max()) if one.numel() else 0.0 for one, _ in both]
    for (one, other), size in zip(both, sizes):
        if size > 1e-6 * max(sizes) and not values.is_same_update(torch.zeros_like(one), one, other):
            raise CaptureError(
                f"{_first_step(step)} has another loss or gradients than later ones: {_before(step)}, {_OR_WHICH}"
            )


def _first_step(step: Step) -> str:
    if step.made.counted:
        what = "run of the model" if step.train_step is None else "step"
        return f"the first {what}, which changes {', '.join(step.made.counted)},"
    return f"the first step of {step.optimizers.names}, which makes its state,"


def _before(step: Step) -> str:
    return "run it once before" if step.train_step is None else "let it make a step before"


_OR_WHICH = "if only the first does. A graph holds one step: of a step that alternates capture each kind by itself"


def _made(folder: str, described: Tuple[Any, ...]) -> Step:
    write.make_folder(folder)
    return Step(*described)


def _with_gradients_of_others(step: Step, traced: _Traced, dynamic: symbols.Dynamic, fake: bool) -> _Traced:
    """Traces again if other ranks average gradients of parameters that this rank does not use."""
    missing = [slot.name for slot, found in zip(step.trainable, traced.result.gradients) if found is None]
    used = _used_elsewhere(step, missing)
    if world.on_any_rank(bool(used)):
        step.replicas.used_elsewhere = used
        return world.together(lambda: _trace_somehow(step, dynamic, fake) if used else traced)
    return traced


def _used_elsewhere(step: Step, missing: List[str]) -> Set[str]:
    """The parameters without a gradient on this rank that have one on a rank it averages with."""
    unused = step.replicas.unused(missing)
    of_ranks = world.of_each_rank(unused)
    return {fqn for fqn, ranks in unused.items() if any(fqn not in of_ranks[rank] for rank in ranks)}


class _Traced:
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
    ) -> None:
        self.module, self.fakes, self.mode, self.result, self.names = module, fakes, mode, result, names
        self.answers = answers  # the values that data-dependent symbols must have
        self.uses_taken = False  # whether the graph depends on plain numbers that the step takes out of float tensors
        self.replaced = replaced  # attributes of the model to which the step assigned other tensors
        self.encoder = Encoder(module)


class _AsksForValues(CaptureError):
    """The step branches on the value of a tensor; fake tensors have none."""


def _trace_with_state(step: Step, dynamic: symbols.Dynamic, fake: bool) -> _Traced:
    """Traces a step whose optimizers have their state. If the trace shows more numbers that they change (runs may have
    added zero), traces again. Refuses a step that made other state meanwhile."""
    traced = _trace_somehow(step, dynamic, fake)
    if step.optimizers.made and step.optimizers.numbers.issuperset(step.optimizers.made):
        step.learn_optimizers()
        traced = _trace_somehow(step, dynamic, fake)
    for name in step.optimizers.made:
        raise CaptureError(_NO_STATE_WHEN_FAKE if fake else _STATE_BY_TRACING.format(name))
    return traced


def _trace_somehow(step: Step, dynamic: symbols.Dynamic, fake: bool) -> _Traced:
    """Traces with fake tensors; if the step asks for values, with real tensors alongside; as a last resort with the
    example's numbers in place of data-dependent symbols."""
    has_values = not fake and world.size() == 1
    try:
        with decisions.asking() if has_values else nullcontext():
            return _trace(step, dynamic)
    except CaptureError as error:
        if not isinstance(error, _AsksForValues):
            raise
        if not has_values:
            averages = compat.asks_whether_averaged(error.__cause__)
            way_out = _NO_VALUES_TO_AVERAGE if averages else _NO_VALUES_WHEN_FAKE if fake else _NO_VALUES_IN_A_JOB
            raise CaptureError(f"{error}. {way_out}") from error
    except Exception:
        if has_values:
            values.of_the_model(step)  # if eager PyTorch fails, too, it says more: errors of fakes are about kernels
        raise
    try:
        settle, traced = False, _trace(step, dynamic, with_values=True)
    except _AsksForValues:
        settle, traced = True, _trace(step, dynamic, with_values=True, settle=True)
    traced.uses_taken = taken.are_used(traced, lambda move: _trace(step, dynamic, True, settle, move))
    return traced


_NO_STATE_WHEN_FAKE = (
    "With fake=True no step is run, and the optimizer has no state yet: let it make a step before, or capture a smaller "
    "model"
)
_STATE_BY_TRACING = (
    "the step changes {} of the optimizer, which its first two runs left as it was: let it make a step before the capture"
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
) -> _Traced:
    watcher = Recorder(step.model, draws.Draws(is_real=with_values).tag)
    mode = compat.new_fake_mode(allow_real_inputs=True, here=watcher.here, with_values=with_values, move=move)
    varying = {slot.name: slot.value for slot in step.inputs if slot.is_tensor and not sharding.is_sharded(slot.value)}
    varying = {name: _apart(tensor, with_values) for name, tensor in varying.items()}
    wanted = symbols.wishes(dynamic, varying)
    with_symbols = symbols.fake_inputs(mode, varying, wanted)
    twin = _twin_with_value if with_values else _twin
    fakes = [
        with_symbols[slot.name] if slot.kind == "input" and slot.name in with_symbols else twin(mode, slot)
        for slot in step.tensors
    ]
    results: List[Result] = []
    answers: Dict[Any, int] = {}

    def traced_step(*tensors: Tensor) -> Tuple[Any, ...]:
        with indexing.SelectsByData(), decisions.answering(answers, settle) if with_values else nullcontext():
            result = step.run(tensors, watcher)
        results.append(result)
        return tuple(result.outputs)

    try:
        with watcher.recording(), values.seeded(), step.generators.set_aside_while_traced(), leftovers.removed(step.model) as replaced, step.made.refused(), compat.fakes_of(
            {**compat.CORRECTED, **decisions.FAKES}
        ), compat.python_twins(twins.TWINS), compat.formats(), compat.data_assigned_by_copies(), compat.math_keeps_symbols(step.modules), compat.without_notices(), compat.without_batch_limits(), compat.with_eager_checkpoints():
            module = compat.trace(traced_step, fakes, mode, symbolic=bool(wanted))
    except compat.data_dependent_errors() as error:
        raise _AsksForValues(_because(_BY_VALUE, error)) from error
    except compat.unsupported_errors() as error:
        raise CaptureError(_because(f"it calls {_unsupported(str(error))}", error)) from error
    except (TypeError, AttributeError) as error:
        if compat.asks_about_nan(error):
            raise CaptureError(_because(_BY_NAN, error)) from error
        if compat.takes_no_symbol(error):
            raise CaptureError(_because(_NO_SYMBOLS, error)) from error
        raise
    except AssertionError as error:
        if compat.meets_infinity(error):
            raise CaptureError(_because(_INFINITE, error)) from error
        raise
    except RuntimeError as error:
        if compat.is_mixed_up(error):
            raise CaptureError(_because(_FORWARD_OVER_REVERSE, error)) from error
        if compat.takes_no_symbol(error):
            raise CaptureError(_because(_NO_SYMBOLS, error)) from error
        if settle or not compat.wants_numbers(error):
            raise
        raise _AsksForValues(_because(_BY_VALUE, error)) from error
    place_of = lambda size: recorder.place(compat.settled_at(size), module.graph)  # noqa: E731
    symbols.check_still_dynamic(with_symbols, wanted, place_of)
    for graph in _graphs(module):
        default_dtype.write_out(graph)
        recorder.link(graph)
    draws.link(_graphs(module))
    recorder.locate(module.graph, compat.decided_at(mode.shape_env))
    if step.train_step is not None:
        recorder.tell_optimizer(module.graph)
    return _Traced(module, fakes, mode, results[0], symbols.names_of(with_symbols, wanted), answers, replaced)


def _unsupported(words: str) -> str:
    if "c10d." in words:
        return world.IN_PLACE
    if "backward on CPU" in words:
        return "an op that PyTorch has no backward of on CPUs (freeze what comes before it, or capture on a GPU)"
    if "sharding strategy" in words:
        return "an op that DTensor has no sharding strategy for on this device (call full_tensor() before, or another op)"
    return "an op that PyTorch has no fake of (torch.library.register_fake)"


_BY_VALUE = (
    "it decides by the value of a tensor (an `if`, int() or .item() of one), and the graph would hold only one way"
)


_BY_NAN = (
    "it decides by the value of a tensor, which is NaN in the example: give values with which it is a number (a step "
    "that a scaler skips has gradients that are not: let it begin with a smaller init_scale)"
)

_NO_SYMBOLS = (
    "it hands a tensor, or a number read from one, to code that is none of PyTorch's and takes no stand-in for it: give "
    "a number as float(...) or int(...), and compute with tensors in PyTorch, not NumPy"
)

_INFINITE = (
    "PyTorch's tracer knows no bounds of what an infinite number and one read from a tensor give: take a large finite one"
)

_FORWARD_OVER_REVERSE = (
    "PyTorch's tracer loses the device of what vmap makes of derivatives of both modes (torch.func.hessian under vmap)"
    ": use jacrev of jacrev, or a loop"
)


def _because(reason: str, error: BaseException) -> str:
    place = source.raised_at(error)
    return f"the step cannot be captured{f' at {place}' if place else ''}: {reason} [{symbols.first_line(error)}]"


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
    return twin.requires_grad_(slot.trainable)


def _twin_with_value(mode: Any, slot: Slot) -> Tensor:
    return compat.fake_with_value(mode, values.laid_copy(slot.local)).requires_grad_(slot.trainable)


def _graphs(module: fx.GraphModule) -> List[fx.Graph]:
    return [part.graph for part in module.modules() if isinstance(part, fx.GraphModule)]


def _document(step: Step, traced: _Traced, title: str, declared: meshes.Meshes) -> Tuple[Dict[str, Any], List[str]]:
    """The capture document, and for each output a name for messages."""
    shapes = computed.Computed(_graphs(traced.module))
    with symbols.words(shapes.in_words):
        return _document_of(step, traced, title, declared, shapes)


def _document_of(
    step: Step, traced: _Traced, title: str, declared: meshes.Meshes, shapes: computed.Computed
) -> Tuple[Dict[str, Any], List[str]]:
    encoder = traced.encoder
    nodes = encoder.nodes(shapes.bound_by)
    refusals.no_state_as_constant(step, _graphs(traced.module), encoder.constants)
    refusals.no_count_settled(step, traced)
    refusals.none_replaced(traced.replaced, encoder.constants)
    refusals.no_write_to_constant(traced.module)
    shared.none_written(step, traced.module.graph)
    outputs, names = _outputs(step, traced, declared)
    document: Dict[str, Any] = {
        "format": "step-capture",
        "version": 1,
        "title": title or type(step.model).__name__,
        "producer": {"torch": torch.__version__.split("+")[0], "stepgraph_capture": "0.1.0"},
        "world": {"size": world.size(), "rank": world.rank(), **declared.declared()},
        "groups": world.groups(world.group_names(_graphs(traced.module)), declared.axes_of_groups()),
        "symbols": [],
        "guards": [],
        "inputs": _inputs(step, traced, declared),
        "nodes": nodes,
        "outputs": outputs,
    }
    if encoder.graphs:
        document["graphs"] = encoder.graphs
    _add_symbols(document, step, traced, shapes)
    symbols.rename(document, traced.names)
    return document, names


def _meshes(step: Step) -> List[Any]:
    found: List[Any] = []
    for slot in step.tensors:
        mesh = slot.value.device_mesh if sharding.is_sharded(slot.value) else None
        if mesh is not None and all(mesh is not known for known in found):
            found.append(mesh)
    return found


def _inputs(step: Step, traced: _Traced, declared: meshes.Meshes) -> List[Dict[str, Any]]:
    placeholders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    entries: List[Dict[str, Any]] = []
    for node, slot, fake in zip(placeholders, step.tensors, traced.fakes):
        entry = {"name": node.name, "type": tensor_type(fake), "kind": slot.kind, "fqn": slot.name}
        entry.update(sharding.describe(slot.value, declared))
        if slot.tied:
            entry["tied"] = slot.tied
        entries.append(entry)
    for name, constant in traced.encoder.constants.items():
        entries.append({"name": name, "type": tensor_type(constant), "kind": "constant"})
    return entries


def _outputs(step: Step, traced: _Traced, declared: meshes.Meshes) -> Tuple[List[Dict[str, Any]], List[str]]:
    node = next(node for node in traced.module.graph.nodes if node.op == "output")
    kinds: List[Tuple[str, Optional[Slot]]] = [] if traced.result.loss is None else [("loss", None)]
    kinds += [("gradient", slot) for slot in step.trainable]
    kinds += [("other", None)] * len(traced.result.others)
    by_name = {slot.name: slot for slot in step.state + step.optimizer_state + step.beside_state}
    kinds += [("buffer", by_name[name]) for name in traced.result.rebound]
    entries, names = [], []
    for value, (kind, slot) in zip(node.args[0], kinds):
        entry: Dict[str, Any] = {"value": traced.encoder.reference(value), "kind": kind}
        if slot is not None:
            entry["of"] = slot.name
            entry.update(sharding.describe(slot.value, declared) if kind == "gradient" else {})
        entries.append(entry)
        names.append(kind if slot is None else f"the {kind} of {slot.name}")
    return entries, names


def _add_symbols(document: Dict[str, Any], step: Step, traced: _Traced, shapes: computed.Computed) -> None:
    """Declares the symbols that nodes, inputs and guards use."""
    shape_env = traced.mode.shape_env
    asserted = checks.Checks(traced.module.graph)
    guards, notes, lost = _sayable(compat.guards(shape_env), shapes, shape_env, asserted)
    refusals.no_guard_of_count_lost(step, traced, lost)
    if lost:
        notes.append("guards that the format has no form for: " + "; ".join(map(str, lost)))
    for graph in _graphs(traced.module):
        for symbol, value in compat.settled_floats(shape_env, graph).items():
            notes += asserted.equal(symbol, value)
    if traced.uses_taken:
        for expr, number, origin in compat.taken(shape_env):
            notes += asserted.near(expr, number, origin)
    document["nodes"] += asserted.nodes
    written = {guard: symbols.text(guard) for guard in guards}
    texts = [text for text in dict.fromkeys(written.values()) if text not in (None, "True")]
    settled = dict(traced.answers)
    for graph in _graphs(traced.module):
        settled.update(compat.settled(shape_env, graph))
    texts += [f"Eq({symbol},{number})" for symbol, number in settled.items()]
    equal: Dict[Any, Any] = {}
    for graph in _graphs(traced.module):
        equal.update(compat.equal(shape_env, graph))
    sizes = {symbol: symbols.text(shapes.in_words(size)) for symbol, size in equal.items()}
    texts += [f"Eq({symbol},{size})" for symbol, size in sizes.items() if size is not None]
    document["guards"] = [{"expr": text} for text in texts]
    drawn = [node.name for graph in _graphs(traced.module) for node in graph.nodes if compat.is_random(node)]
    if drawn:
        notes.append(
            f"random numbers are drawn, by {drawn[0]}{' and others' if len(drawn) > 1 else ''}, which cannot be "
            "reproduced elsewhere: expected values that depend on them will differ"
        )
    if notes:
        document["note"] = ". ".join(notes)
    used = symbols.used_symbols([shapes.in_words(expr) for expr in _expressions(traced)] + guards)
    used += [symbol for symbol in [*settled, *equal] if symbol not in used]
    document["symbols"] = [
        shapes.describe(shape_env, symbol) or symbols.describe(shape_env, symbol) for symbol in used
    ]


def _sayable(
    guards: List[Any], shapes: computed.Computed, shape_env: Any, asserted: checks.Checks
) -> Tuple[List[Any], List[str], List[Any]]:
    """The guards that the format can express, notes on others, and those that are lost. A guard about a single size
    becomes a range of that size; one about a non-integer number goes to the nodes that assert it."""
    found, notes, lost = [], [], []
    origins = compat.assumed_at(shape_env)
    for guard, origin in ((part, at) for whole, at in zip(guards, origins) for part in sympy.And.make_args(whole)):
        if asserted.are_about(guard):
            if not asserted.add(guard, origin):
                lost.append(guard)
            continue
        worded = shapes.in_words(guard)
        ends = None if symbols.text(worded) is not None else computed.range_of(shape_env, guard)
        if symbols.text(worded) is not None:
            found.append(worded)
        elif ends is None:
            if not asserted.add(guard, origin):
                lost.append(worded)
        else:
            symbol, low, high = ends
            found += [sympy.Ge(symbol, low, evaluate=False), sympy.Le(symbol, high, evaluate=False)]
            notes.append(
                f"the step is that of {symbol} from {low} to {high}, for which {guard}: where int() of a size made "
                "it a constant, torch.sym_int() keeps it a size"
            )
    return found, notes, lost


def _expressions(traced: _Traced) -> List[Any]:
    """Every symbolic size of every tensor in the graph."""
    found: List[Any] = []

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            for size in (*value.shape, *value.stride(), value.storage_offset()):
                visit(size)
        elif isinstance(value, torch.SymInt):
            found.append(compat.expression(value))
        elif isinstance(value, (list, tuple)):
            for element in value:
                visit(element)

    visit(traced.fakes)
    for graph in _graphs(traced.module):
        for node in graph.nodes:
            visit(node.meta.get("val"))
    return found


def _write_values(
    step: Step, traced: _Traced, names: List[str], folder: str, answers: Optional[values.Answers]
) -> None:
    """Inputs before the step; outputs and inputs written in place after it."""
    placeholders = [node.name for node in traced.module.graph.nodes if node.op == "placeholder"]
    before = dict(zip(placeholders, (tensor.detach() for tensor in values.given(step))))
    before.update(traced.encoder.constants)
    model = answers or values.of_the_model(step)
    graph = values.of_the_graph(step, traced.module)
    try:
        world.together(lambda: _check_same(step, names, model, graph))
    except CaptureError:  # on all ranks; the gradient of a bias before a batch norm is mere rounding noise
        noise = rounding.of(traced.module, values.given(step, with_gaps=False), [*graph.outputs, *graph.inputs])
        world.together(lambda: _check_same(step, names, model, graph, noise))
    after = {f"out{i}": value for i, value in enumerate(model.outputs) if value is not None}
    for name, left, is_written in zip(placeholders, model.inputs, graph.written):
        if is_written or values.changed(before[name], left):
            after[f"mutated.{name}"] = left
    # The model's own names: graphs of the same model traced another way use different input names.
    own_names = {f"fqn.{name}": slot.name for name, slot in zip(placeholders, step.tensors)}
    made_by = {"threads": str(torch.get_num_threads()), "torch": torch.__version__.split("+")[0]}
    notes = {**made_by, **_rounding(step, traced, placeholders, after)}
    write.tensors(os.path.join(folder, "inputs.safetensors"), before, own_names)
    write.tensors(os.path.join(folder, "expected.safetensors"), after, notes)


def _check_same(
    step: Step, names: List[str], model: values.Answers, graph: values.Answers, noise: Sequence[Optional[float]] = ()
) -> None:
    noise = noise or [None] * (len(model.outputs) + len(model.inputs))
    try:
        values.check_same(names, model, graph, noise)
        gradients = dict(zip(names, zip(model.outputs, graph.outputs)))
        for slot, left, right, moved in zip(step.tensors, model.inputs, graph.inputs, noise[len(model.outputs) :]):
            pair = gradients.get(f"the gradient of {slot.name}", (None, None))
            if values.changed(left, right):
                if pair[0] is not None and pair[1] is not None:
                    right = values.settled_by_gradients(left, right, *pair)
                values.check_close(f"{slot.name} after the step", left, right, moved)
    except CaptureError as error:
        if not step.made.counted:
            raise
        counts = ", ".join(step.made.counted)
        raise CaptureError(f"{error}. It changes {counts}, and a graph holds the numbers of one step") from error


def _rounding(step: Step, traced: _Traced, placeholders: List[str], after: Dict[str, Tensor]) -> Dict[str, str]:
    """How far off rounding may put correct values: by output, and by input as the step leaves it."""
    count = len(next(node for node in traced.module.graph.nodes if node.op == "output").args[0])
    names = [f"out{i}" for i in range(count)] + [f"mutated.{name}" for name in placeholders]
    errors = rounding.of(traced.module, values.given(step), [after.get(name) for name in names])
    return {f"rounding.{name}": repr(error) for name, error in zip(names, errors) if error is not None}
