"""Properties of the nodes of a traced graph."""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree


def results(node: fx.Node) -> Any:
    """The node's results as far as tracing knows them. FlexAttention of older versions does not return the maxima of
    the scores; their shape is that of the logarithms."""
    found = node.meta.get("val")
    is_flex = getattr(node.target, "name", lambda: "")() == "flex_attention"
    return (*found, found[1]) if is_flex and isinstance(found, tuple) and len(found) == 2 else found


def is_answered(node: fx.Node) -> bool:
    """Whether it is a query of tensors (`is_same_size`) answered during tracing whose result no node uses."""
    schema = getattr(node.target, "_schema", None)
    return not node.users and schema is not None and [str(r.type) for r in schema.returns] == ["bool"]


def bound_symbols(node: fx.Node) -> List[str]:
    """The symbols whose values come from what this node computes. A non-integer number is no size: it is referred to by
    its node."""
    bound = node.meta.get("unbacked_bindings") or {}
    return [str(symbol) for symbol in bound if symbol.is_integer]


def bound_lengths(node: fx.Node) -> Dict[int, str]:
    """The axes of a slice whose length is a symbol of its own, which it binds, by the symbol: the length may have become a
    number since, of which the bounds do not tell."""
    bound = node.meta.get("unbacked_bindings") or {} if node.target is torch.ops.aten.slice.Tensor else {}
    return {path[-1].idx: str(symbol) for symbol, path in bound.items() if hasattr(path[-1], "idx")}


def written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[Tensor]:
    """The arguments that a call of an op writes."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = [args[i] if i < len(args) else kwargs.get(argument.name) for i, argument in enumerate(schema.arguments)]
    writes = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    found = [value for value, is_written in zip(given, writes) if is_written]
    return [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor)]


def is_collective(target: Any) -> bool:
    """Whether it is a collective or the wait for one."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "_c10d_functional"


def is_launch(target: Any) -> bool:
    """Whether it communicates: waits, and wrappers of tensors for autograd, do not."""
    return is_collective(target) and any(argument.name == "group_name" for argument in target._schema.arguments)


def is_exchange(target: Any) -> bool:
    return is_collective(target) and target is torch.ops._c10d_functional.all_to_all_single.default


def is_random(node: fx.Node) -> bool:
    """Whether it draws random numbers; attention and dropout with probability 0 do not."""
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


def written_by(node: fx.Node) -> List[fx.Node]:
    """The nodes whose memory it writes to, directly or through views."""
    return [_shown_by(given) for given, alias in _aliased(node) if alias.is_write]


def _shown_by(node: fx.Node) -> fx.Node:
    while (base := _viewed_by(node)) is not None:
        node = base
    return node


def _viewed_by(node: fx.Node) -> Optional[fx.Node]:
    """The argument that the result aliases, modified or not; None if the result has its own memory."""
    if node.target is operator.getitem:
        return node.args[0] if isinstance(node.args[0], fx.Node) else None
    shown: Set[str] = set()
    if isinstance(node.target, torch._ops.OpOverload):
        shown = {name for r in node.target._schema.returns if r.alias_info for name in r.alias_info.before_set}
    return next((given for given, alias in _aliased(node) if shown & set(alias.before_set)), None)


def _aliased(node: fx.Node) -> Iterator[Tuple[fx.Node, Any]]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for position, argument in enumerate(node.target._schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        for one in given if isinstance(given, (list, tuple)) else [given]:
            if argument.alias_info is not None and isinstance(one, fx.Node):
                yield one, argument.alias_info


def drop_idle(graph: fx.Graph) -> None:
    """Removes the calls that raised an exception, which the step has caught, and those on "meta" that nothing uses, as
    torch.func.linearize leaves them: they give no value. So do sizes that PyTorch's own C++ asks for (torch 2.6) where they
    are numbers by then. And those that bind a tensor to another (`set_`), whose later
    uses are the other's then; an input of the graph keeps its memory."""
    for node in reversed(graph.nodes):
        if is_set(node) and (node.args[0] in node.args[1:] or _origin(node).op != "placeholder"):
            if node.target is torch.ops.aten.set_.source_Tensor:
                node.replace_all_uses_with(node.args[1])
            if not node.users:
                graph.erase_node(node)
            continue
        schema = getattr(node.target, "_schema", None)
        is_unused = schema is not None and schema.returns and not schema.is_mutable and not node.users
        if is_unused and ("val" not in node.meta or _is_on_meta(node.meta["val"])):
            graph.erase_node(node)
        elif not node.users and torch.ops.aten.size.default in (node.target, *(arg.target for arg in _picked_from(node))):
            graph.erase_node(node)


def _picked_from(node: fx.Node) -> List[fx.Node]:
    return [node.args[0]] if node.target is operator.getitem and isinstance(node.args[0], fx.Node) else []


def is_set(node: fx.Node) -> bool:
    """Whether the node binds a tensor to other memory."""
    return getattr(node.target, "overloadpacket", None) is torch.ops.aten.set_


def _origin(node: fx.Node) -> fx.Node:
    """What a tensor was before it was bound to other memory."""
    return _origin(node.args[0]) if is_set(node) else node


def _is_on_meta(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "meta"
