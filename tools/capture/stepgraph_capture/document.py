"""The capture document: what step.json holds."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import sympy
import torch
from torch import Tensor

from . import checks, compat, computed, constants, meshes, refusals, sharding, shared, symbols, world
from .encode import tensor_type
from .step import Slot, Step
from .trace import Traced


def meshes_of(step: Step) -> meshes.Meshes:
    found: List[Any] = []
    for slot in step.tensors:
        mesh = slot.value.device_mesh if sharding.is_sharded(slot.value) else None
        if mesh is not None and all(mesh is not known for known in found):
            found.append(mesh)
    return meshes.Meshes(found)


def describe(step: Step, traced: Traced, title: str, declared: meshes.Meshes) -> Tuple[Dict[str, Any], List[str]]:
    """The capture document, and for each output a name for messages."""
    shapes = computed.Computed(traced.graphs)
    with symbols.words(shapes.in_words):
        return _described(step, traced, title, declared, shapes)


def _described(
    step: Step, traced: Traced, title: str, declared: meshes.Meshes, shapes: computed.Computed
) -> Tuple[Dict[str, Any], List[str]]:
    encoder = traced.encoder
    refusals.none_sparse(traced.graphs)
    refusals.none_bound(traced.graphs)
    nodes = encoder.nodes(shapes.bound_by)
    refusals.no_state_as_constant(step, traced.graphs, encoder.constants)
    refusals.no_count_settled(step, traced)
    refusals.none_replaced(traced.replaced, encoder.constants)
    refusals.no_write_to_constant(traced.module)
    shared.none_written(step, traced.module.graph, traced.result.rebound)
    outputs, names = _outputs(step, traced, declared)
    document: Dict[str, Any] = {
        "format": "step-capture",
        "version": 1,
        "title": title or type(step.model).__name__,
        "producer": {"torch": torch.__version__.split("+")[0], "stepgraph_capture": "0.1.0"},
        "world": {"size": world.size(), "rank": world.rank(), **declared.declared()},
        "groups": world.groups(world.group_names(traced.graphs), declared.axes_of_groups()),
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


def _inputs(step: Step, traced: Traced, declared: meshes.Meshes) -> List[Dict[str, Any]]:
    placeholders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    entries: List[Dict[str, Any]] = []
    for node, slot, fake in zip(placeholders, step.tensors, traced.fakes):
        entry = {"name": node.name, "type": tensor_type(fake), "kind": slot.kind, "fqn": slot.name}
        entry.update(sharding.describe(slot.value, declared))
        if slot.tied:
            entry["tied"] = slot.tied
        if slot.name in step.optimizers.scheduled:
            entry["scheduled"] = True
        entries.append(entry)
    taken = {entry["fqn"] for entry in entries}
    names = constants.names_of(traced.encoder.constants, step.reachable().tensors)
    for name, constant in traced.encoder.constants.items():
        entry = {"name": name, "type": tensor_type(constant), "kind": "constant"}
        if name in names and names[name] not in taken:
            taken.add(names[name])
            entry["fqn"] = names[name]
        entries.append(entry)
    return entries


def _outputs(step: Step, traced: Traced, declared: meshes.Meshes) -> Tuple[List[Dict[str, Any]], List[str]]:
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


def _add_symbols(document: Dict[str, Any], step: Step, traced: Traced, shapes: computed.Computed) -> None:
    """Declares the symbols that nodes, inputs and guards use."""
    shape_env = traced.mode.shape_env
    asserted = checks.Checks(traced.module.graph)
    guards, notes, lost = _sayable(compat.guards(shape_env), shapes, shape_env, asserted)
    notes += traced.notes
    refusals.no_guard_of_count_lost(step, traced, lost)
    if lost:
        notes.append("guards that the format has no form for: " + "; ".join(map(str, lost)))
    for graph in traced.graphs:
        for symbol, value in compat.settled_floats(shape_env, graph).items():
            notes += asserted.equal(symbol, value)
    if traced.uses_taken:
        for expr, number, origin in compat.taken(shape_env):
            notes += asserted.near(expr, number, origin)
    document["nodes"] += asserted.nodes
    written = {guard: symbols.text(guard) for guard in guards}
    texts = [text for text in dict.fromkeys(written.values()) if text not in (None, "True")]
    settled = dict(traced.answers)
    for graph in traced.graphs:
        settled.update(compat.settled(shape_env, graph))
    texts += [f"Eq({symbol},{number})" for symbol, number in settled.items()]
    equal: Dict[Any, Any] = {}
    for graph in traced.graphs:
        equal.update(compat.equal(shape_env, graph))
    sizes = {symbol: symbols.text(shapes.in_words(size)) for symbol, size in equal.items()}
    texts += [f"Eq({symbol},{size})" for symbol, size in sizes.items() if size is not None]
    document["guards"] = [{"expr": text} for text in texts]
    drawn = [node.name for graph in traced.graphs for node in graph.nodes if compat.is_random(node)]
    if drawn:
        notes.append(
            f"random numbers are drawn, by {drawn[0]}{' and others' if len(drawn) > 1 else ''}, which cannot be "
            "reproduced elsewhere: expected values that depend on them will differ"
        )
    add_notes(document, notes)
    used = symbols.used_symbols([shapes.in_words(expr) for expr in _expressions(traced)] + guards)
    used += [symbol for symbol in [*settled, *equal] if symbol not in used]
    document["symbols"] = [
        shapes.describe(shape_env, symbol) or symbols.describe(shape_env, symbol) for symbol in used
    ]


def add_notes(document: Dict[str, Any], notes: List[str]) -> None:
    """What the user should know of the graph."""
    told = [document["note"]] if "note" in document else []
    if notes:
        document["note"] = ". ".join([*told, *notes])


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


def _expressions(traced: Traced) -> List[Any]:
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
    for graph in traced.graphs:
        for node in graph.nodes:
            visit(node.meta.get("val"))
    return found
