"""`torch.set_default_dtype`: a graph's ops have the default of f32, so another one is written into the calls."""

from __future__ import annotations

from typing import Any, Dict, List

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree


def write_out(graph: fx.Graph) -> None:
    """Names the dtype of what the calls of `graph` make by the default alone: `zeros(4)` gets a dtype, integers that
    become fractions (`count / 2`, `mask * 0.5`) are cast before. Does nothing under the usual default."""
    default = torch.get_default_dtype()
    if default == torch.float32:
        return
    for node in list(graph.nodes):
        made, schema = node.meta.get("val"), getattr(node.target, "_schema", None)
        if schema is None or not isinstance(made, Tensor) or not _is_by_default(made.dtype, default):
            continue
        tensors = [arg for arg in pytree.tree_leaves((node.args, node.kwargs)) if _is_tensor(arg)]
        if not tensors and any(arg.name == "dtype" and arg.kwarg_only for arg in schema.arguments):
            if node.kwargs.get("dtype") is None:
                node.kwargs = {**node.kwargs, "dtype": made.dtype}
        elif node.target is torch.ops.aten.where.Scalar:
            _choose_tensors(graph, node, default)
        elif tensors and torch.Tag.pointwise in node.target.tags and not any(map(_has_fractions, tensors)):
            casts = {arg: _before(graph, node, torch.ops.aten._to_copy.default, arg, default) for arg in tensors}
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: casts.get(arg, arg))


def _is_by_default(dtype: torch.dtype, default: torch.dtype) -> bool:
    return dtype == (default.to_complex() if dtype.is_complex else default)


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, fx.Node) and isinstance(arg.meta.get("val"), Tensor)


def _has_fractions(arg: fx.Node) -> bool:
    dtype = arg.meta["val"].dtype
    return dtype.is_floating_point or dtype.is_complex


def _choose_tensors(graph: fx.Graph, node: fx.Node, default: torch.dtype) -> None:
    """where(condition, 1.0, 0.0): two numbers as tensors of the default."""
    condition, *numbers = node.args
    made: List[fx.Node] = [
        _before(graph, node, torch.ops.aten.scalar_tensor.default, number, default, device=node.meta["val"].device)
        for number in numbers
    ]
    node.target, node.args = torch.ops.aten.where.self, (condition, *made)


def _before(graph: fx.Graph, node: fx.Node, op: Any, arg: Any, dtype: torch.dtype, **more: Any) -> fx.Node:
    """A call in front of `node`, of the same line of the user's code."""
    options: Dict[str, Any] = {"dtype": dtype, **more}
    with graph.inserting_before(node):
        call = graph.call_function(op, (arg,), options)
    value = node.meta["val"]
    with value.fake_mode:
        made = op(arg.meta["val"] if isinstance(arg, fx.Node) else arg, **options)
    kept = {key: what for key, what in node.meta.items() if key not in ("val", "unbacked_bindings", "tensor_meta")}
    call.meta = {**kept, "val": made}
    return call
