"""Nested tensors of the jagged layout: rows of unlike lengths in one tensor, with offsets that say where each piece
begins. Their operators are Python that calls plain ones, which the tracer sees."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, fx
from torch.fx import _symbolic_trace
from torch.fx.experimental import proxy_tensor
from torch.utils._thunk import Thunk

from .fakes import real


def is_jagged(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.is_nested and tensor.layout == torch.jagged


def ragged_axis(tensor: Any) -> int:
    """Which axis of a jagged tensor has unlike lengths; that of its values is one less."""
    return int(tensor._ragged_idx)


def longest(tensor: Any) -> Any:
    """The length of the longest piece, if the tensor was told; it pads to that one, and otherwise to all rows."""
    return tensor._maybe_max_seqlen


def shortest(tensor: Any) -> Any:
    return tensor._maybe_min_seqlen


def jagged(
    values: Tensor, offsets: Tensor, lengths: Optional[Tensor] = None, axis: int = 1, shortest: Any = None, longest: Any = None
) -> Tensor:
    """A jagged view of these values."""
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths as view

    return view(values, offsets, lengths, ragged_idx=axis, min_seqlen=shortest, max_seqlen=longest)


def from_padded(padded: Tensor, like: Any) -> Tensor:
    """The rows of `padded`, whose axis 1 is padded, that `like` has: jagged along axis 1."""
    from torch.nested._internal.nested_tensor import nested_from_padded

    rows = like._values.shape[ragged_axis(like) - 1]
    return nested_from_padded(
        padded, like._offsets, ragged_idx=1, min_seqlen=shortest(like), max_seqlen=longest(like), sum_S=rows
    )


@contextmanager
def attention_over_pieces(attention: Callable[..., Optional[Tensor]]) -> Iterator[None]:
    """Uses `attention` for nested tensors of the jagged layout, where it has a result."""
    from torch.nested._internal import ops

    before = ops.jagged_scaled_dot_product_attention

    def instead(*args: Any, **kwargs: Any) -> Tensor:
        found = attention(*args, **kwargs)
        return before(*args, **kwargs) if found is None else found

    ops.jagged_scaled_dot_product_attention = instead
    try:
        yield
    finally:
        ops.jagged_scaled_dot_product_attention = before


@contextmanager
def lengths_without_numbers() -> Iterator[None]:
    """The size of the ragged axis stands for a whole list of lengths. It is no number of the graph: sizes made of it are
    never written down, and a jagged tensor may be made from values and offsets."""
    from torch._subclasses.fake_tensor import FakeTensor

    if not hasattr(FakeTensor, "get_nested_int"):
        yield
        return
    real(_make_stand_in)
    get, asks = FakeTensor.get_nested_int, _symbolic_trace.is_fx_tracing

    def get_tracked(self: Any, *, coeff: Any = 1) -> Any:
        is_new = self.nested_int_memo is None
        size = get(self, coeff=1)
        mode = proxy_tensor.get_proxy_mode() if is_new else None
        if mode is not None:
            proxy = mode.tracer.create_proxy("call_function", _lengths, (), {})
            proxy.node.meta["val"] = size
            proxy_tensor.set_proxy_slot(size, mode.tracer, Thunk(lambda: proxy))
        return size * coeff

    FakeTensor.get_nested_int = get_tracked  # type: ignore[method-assign]
    _symbolic_trace.is_fx_tracing = lambda: False
    try:
        yield
    finally:
        FakeTensor.get_nested_int = get  # type: ignore[method-assign]
        _symbolic_trace.is_fx_tracing = asks


def _make_stand_in() -> None:
    """PyTorch keeps the first dummy that it passes for a jagged tensor: none of a trace."""
    from torch.nested._internal.nested_tensor import _nt_view_dummy

    _nt_view_dummy()


def _lengths() -> Any:
    """Stands for the size of a ragged axis while a graph is made."""
    raise AssertionError("in no graph")


def drop_lengths(graph: fx.Graph) -> Optional[fx.Node]:
    """Removes what was computed of ragged axes' sizes and is not used, and the tensors without elements in whose sizes a
    jagged tensor keeps its longest and shortest piece. Returns the first use of a ragged axis' size, if there is one."""
    of_lengths = {node: None for node in graph.nodes if node.target is _lengths}
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt) and any(arg in of_lengths for arg in node.all_input_nodes):
            of_lengths[node] = None
    for node in reversed(list(of_lengths)):
        if node.users:
            return next(iter(node.users))
        graph.erase_node(node)
    for node in graph.nodes:
        if node.target is torch.ops.aten.zeros.default and not node.users and node.args[0][1:] == [0]:
            graph.erase_node(node)
    return None
