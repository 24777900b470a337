"""Refuses traced graphs that would be right for this one step only."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from torch import Tensor, fx

from . import beside, compat
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
    held = {compat.memory_of(constant) for constant in constants.values() if beside.is_strided(constant)}
    for name, tensor in replaced:
        if not compat.is_fake(tensor) and beside.is_strided(tensor) and compat.memory_of(tensor) in held:
            raise CaptureError(
                f"the step reads {name} of the model and assigns another tensor to it: make it a buffer, or capture "
                "without fake=True, so that what the model keeps is found"
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


def _where(graphs: Sequence[fx.Graph], name: str) -> str:
    found = (node for graph in graphs for node in graph.nodes if node.op == "get_attr" and node.name == name)
    return next((_place(user) for node in found for user in [node, *node.users] if _place(user)), "")


def _place(node: fx.Node) -> str:
    origin = origin_of(node)
    line = origin.source if origin is not None else None
    return f" at {line['file']}:{line['line']} in {line['function']}" if line else ""
