"""Tensors that the functions of flex attention close over, such as a mask by documents or a learned bias.

Dynamo passes such tensors to the op as operands; a tracer that sees only the function makes them constants. Here they
become operands before autograd sees the op, so that they get gradients.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


_PLACES = [torch.int] * 4  # batch, head, query, key


@contextmanager
def with_operands() -> Iterator[None]:
    """In this context, `flex_attention` passes the tensors that its score_mod and mask_mod close over as operands."""
    from torch.nn.attention import flex_attention as module

    launch = module.flex_attention_hop

    def call(query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, *more: Any) -> Any:
        of_scores = _closed_over(score_mod, query, [query.dtype, *_PLACES])
        of_mask = _closed_over(block_mask[-1], query, _PLACES)
        block_mask = (*block_mask[:-1], _taking(block_mask[-1], of_mask))
        return launch(query, key, value, _taking(score_mod, of_scores), block_mask, *more, of_scores, of_mask)

    module.flex_attention_hop = call
    try:
        yield
    finally:
        module.flex_attention_hop = launch


class _Watching(TorchFunctionMode):
    """Records the tensors that existed before the function ran: those that no op in it created."""

    def __init__(self, known: List[Tensor]) -> None:
        self._known = {id(tensor): tensor for tensor in known}  # holds them, so that no id is reused
        self.found: Dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and id(leaf) not in self._known:
                self.found[id(leaf)] = leaf
        result = func(*args, **(kwargs or {}))
        self._known.update((id(leaf), leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        return result


class _Replacing(TorchFunctionMode):
    def __init__(self, others: Dict[int, Tensor]) -> None:
        self._others = others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        put = lambda leaf: self._others.get(id(leaf), leaf)  # noqa: E731
        args, kwargs = pytree.tree_map_only(Tensor, put, (args, kwargs or {}))
        return func(*args, **kwargs)


def _closed_over(function: Callable[..., Any], like: Tensor, dtypes: List[torch.dtype]) -> Tuple[Tensor, ...]:
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with torch.no_grad(), disable_proxy_modes_tracing(), TransformGetItemToIndex():
        examples = [like.new_zeros((), dtype=dtype) for dtype in dtypes]
        with _Watching(examples) as watching:
            function(*examples)
    return tuple(watching.found.values())


def _taking(function: Callable[..., Any], operands: Tuple[Tensor, ...]) -> Callable[..., Any]:
    """A function that takes the tensors it closes over as additional arguments, after its own."""
    if not operands:
        return function

    def taking(*args: Any) -> Any:
        given = dict(zip(map(id, operands), args[len(args) - len(operands) :]))
        with _Replacing(given):
            return function(*args[: len(args) - len(operands)])

    return taking
