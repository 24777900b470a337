"""What the nodes of a traced graph are."""

from __future__ import annotations

from typing import Any, List

import torch
from torch import fx


def results(node: fx.Node) -> Any:
    """What the node gives, as far as tracing knows. FlexAttention of older versions gave no maxima of the scores, which
    are as many as their logarithms."""
    found = node.meta.get("val")
    is_flex = getattr(node.target, "name", lambda: "")() == "flex_attention"
    return (*found, found[1]) if is_flex and isinstance(found, tuple) and len(found) == 2 else found


def is_answered(node: fx.Node) -> bool:
    """A question about tensors (`is_same_size`) whose answer Python had while tracing, and that no node asks for."""
    schema = getattr(node.target, "_schema", None)
    return not node.users and schema is not None and [str(r.type) for r in schema.returns] == ["bool"]


def bound_symbols(node: fx.Node) -> List[str]:
    """The symbols whose values come from what this node computes. A number with a fraction is no size: its node is its
    name."""
    return [str(symbol) for symbol in (node.meta.get("unbacked_bindings") or {}) if symbol.is_integer]


def is_collective(target: Any) -> bool:
    """One that the graph waits for, or the wait."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "_c10d_functional"


def is_launch(target: Any) -> bool:
    """Waits, and what wraps a tensor for autograd, talk to nobody."""
    return is_collective(target) and any(argument.name == "group_name" for argument in target._schema.arguments)


def is_exchange(target: Any) -> bool:
    return is_collective(target) and target is torch.ops._c10d_functional.all_to_all_single.default


def is_random(node: fx.Node) -> bool:
    """Does it draw numbers? Attention and dropout do not when their probability is 0."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in ("dropout_p", "p"):
            given = (
                node.args[position]
                if position < len(node.args)
                else node.kwargs.get(argument.name, argument.default_value)
            )
            return given != 0
    return True
