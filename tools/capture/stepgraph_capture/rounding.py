"""How far PyTorch's own answers are from the same step in double.

Deep models of convolutions and batch norms multiply rounding errors: two right answers differ by more than any fixed
tolerance allows. Who compares with a capture may go by PyTorch's own error, which is kept beside each expected value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from . import compat
from .values import as_traced

_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


def in_double(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Optional[List[Optional[Tensor]]]:
    """The outputs of the graph in double, then its inputs as it leaves them; `inputs` themselves stay as they are.

    Integers and booleans are those of the recorded types, so that no decision falls another way. None where the graph draws
    random numbers, or has an op without a form in double. Runs the graph twice, side by side.
    """
    given = [_Pair(tensor.detach().clone(), _widened(tensor.detach())) for tensor in inputs]
    if any(compat.is_random(node) for node in module.graph.nodes):
        return None
    try:
        with torch.no_grad():
            outputs = _Twice(module).run(*given)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return [output.wide if isinstance(output, _Pair) else None for output in [*outputs, *given]]


def error_of(value: Tensor, wide: Optional[Tensor]) -> Optional[float]:
    """The largest error of an element; None where there is none to speak of."""
    if wide is None or value.dtype not in _WIDE or value.numel() == 0 or value.shape != wide.shape:
        return None
    error = (value.detach().to(wide.dtype) - wide).abs().max().item()
    return error if math.isfinite(error) else None


@dataclass(eq=False)
class _Pair:
    """A tensor in its recorded type, and in double."""

    recorded: Tensor
    wide: Tensor


def _widened(tensor: Tensor) -> Tensor:
    """A copy, in double if it holds floats."""
    return tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else tensor.clone()


class _Twice(fx.Interpreter):
    """Each tensor is a pair."""

    def run_node(self, n: fx.Node) -> Any:
        self._traced = n.meta.get("val")
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, fx.GraphModule):
            raise NotImplementedError("a nested graph holds element types of its own")
        return _Pair(value.clone(), _widened(value)) if isinstance(value, Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.aten.view.dtype:
            raise NotImplementedError("bits mean something else in double")
        given, keywords = pytree.tree_map_only(_Pair, lambda pair: pair.recorded, (args, kwargs))
        recorded = target(*given, **keywords)
        given, keywords = pytree.tree_map_only(_Pair, lambda pair: pair.wide, (args, kwargs))
        given, keywords = pytree.tree_map_only(torch.dtype, lambda dtype: _WIDE.get(dtype, dtype), (given, keywords))
        wide = target(*given, **keywords)
        if isinstance(target, torch._ops.OpOverload) and not any(r.alias_info for r in target._schema.returns):
            recorded, wide = as_traced(recorded, self._traced), as_traced(wide, self._traced)
        return pytree.tree_map(_pair_of, recorded, wide)


def _pair_of(recorded: Any, wide: Any) -> Any:
    if not isinstance(recorded, Tensor):
        return recorded
    if recorded.dtype not in _WIDE and not torch.equal(recorded, wide):
        wide.copy_(recorded)
    return _Pair(recorded, wide)
