"""Refuses traced graphs that would be right for this one step only."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from . import compat, places, recorder
from .errors import CaptureError
from .recorder import origin_of
from .step import Step


def no_state_as_constant(step: Step, graphs: Sequence[fx.Graph], constants: Dict[str, Tensor]) -> None:
    """A parameter held as a constant would stay unchanged while an optimizer trains it."""
    for name, constant in constants.items():
        slot = step.state_behind(constant)
        if slot is not None:
            raise CaptureError(
                f"the step reads the {slot.kind} {slot.name}{_where(graphs, name)} by a tensor kept from before it, "
                "which a graph would hold as a constant that no optimizer changes: read it from its module in each step"
            )


def none_replaced(replaced: Sequence[Tuple[str, Tensor]], constants: Dict[str, Tensor]) -> None:
    """Refuses constants that the step replaces by another tensor: they are state. A run reveals them; if there was
    none, this check does."""
    held = {compat.memory_of(constant) for constant in constants.values() if places.is_strided(constant)}
    for name, tensor in replaced:
        if not compat.is_fake(tensor) and places.is_strided(tensor) and compat.memory_of(tensor) in held:
            raise CaptureError(
                f"the step reads {name} of the model and assigns another tensor to it: make it a buffer, or capture "
                "without fake=True, so that what the model keeps is found"
            )


def none_sparse(graphs: Sequence[fx.Graph]) -> None:
    """Refuses tensors that the step makes without plain memory: sparse ones."""
    for node in (node for graph in graphs for node in graph.nodes):
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, Tensor) and value.layout != torch.strided:
                kind = str(value.layout).replace("torch.", "")
                raise CaptureError(
                    f"the step makes a tensor of layout {kind}{_place(node)}, which no graph holds: compute with dense ones "
                    "(scatter, index_add)"
                )


def none_bound(graphs: Sequence[fx.Graph]) -> None:
    """Refuses what binds an input to other memory, or a tensor to anything but another one."""
    for node in (node for graph in graphs for node in graph.nodes):
        if compat.is_set(node):
            raise CaptureError(
                f"the step binds a parameter, a buffer or its input to other memory (set_){_place(node)}, or reads what it "
                "has freed so, and a graph's inputs keep theirs: write into it (copy_), or work on a clone"
            )


def no_write_to_constant(module: fx.GraphModule) -> None:
    """Whatever a step writes must be an input, or the next step would not see it."""
    for node in module.graph.nodes:
        for kept in compat.written_by(node):
            if kept.op == "get_attr" and isinstance(getattr(module, str(kept.target), None), Tensor):
                shape = tuple(getattr(module, str(kept.target)).shape)
                raise CaptureError(
                    f"the step writes{_place(node)} to a tensor of size {shape} that is there before it and is no part "
                    "of the model: make it a buffer of the model, or write it in a train_step, which is run first "
                    "(without fake=True), so that what it keeps is found"
                )


def no_count_settled(step: Step, traced: Any) -> None:
    """A graph that takes for a constant what each step counts would be right once."""
    shape_env, graph = traced.mode.shape_env, traced.module.graph
    counts = counts_of(step, graph)
    for symbol, name in counts.items():
        if not shape_env.replace(symbol).free_symbols:
            raise _of_one_step(name, recorder.place(compat.settled_symbol_at(shape_env, symbol), graph))
    for expr, _, origin in compat.taken(shape_env) if traced.uses_taken else ():
        for symbol in expr.free_symbols & counts.keys():
            raise _of_one_step(counts[symbol], recorder.place(origin, graph))


def no_guard_of_count_lost(step: Step, traced: Any, lost: Sequence[Any]) -> None:
    """lost: conditions that neither a guard nor a node can state."""
    counts = counts_of(step, traced.module.graph)
    for guard in lost:
        for symbol in guard.free_symbols & counts.keys():
            raise CaptureError(
                f"the step decides by {counts[symbol]}, which it changes, and no graph can state the condition: {guard}. "
                "Decide outside of the step, or by torch.where"
            )


def counts_of(step: Step, graph: fx.Graph) -> Dict[Any, str]:
    """The symbols of the numbers that optimizers count in, and their names."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    names = {node: slot.name for node, slot in zip(inputs, step.tensors) if slot.name in step.optimizers.numbers}
    reads = [node for node in graph.nodes if node.target is torch.ops.aten._local_scalar_dense.default]
    return {
        symbol: names[node.args[0]]
        for node in reads
        if node.args[0] in names
        for symbol in node.meta.get("unbacked_bindings") or {}
    }


def _of_one_step(name: str, place: Optional[str]) -> CaptureError:
    return CaptureError(
        f"the step changes the number {name}, and makes a constant of it{f' at {place}' if place else ''}: the graph would "
        "be that of one step. Where only the first steps differ (`if step == 1`), let it make those before the capture; "
        "else compute with the number as it is (arithmetic, comparisons, math.sqrt), without int(), float(), range() or "
        "formatting, and in PyTorch, not NumPy"
    )


def _where(graphs: Sequence[fx.Graph], name: str) -> str:
    found = (node for graph in graphs for node in graph.nodes if node.op == "get_attr" and node.name == name)
    return next((_place(user) for node in found for user in [node, *node.users] if _place(user)), "")


def _place(node: fx.Node) -> str:
    origin = origin_of(node)
    line = origin.source if origin is not None else None
    return f" at {line['file']}:{line['line']} in {line['function']}" if line else ""
