"""How far right answers may be from each other: PyTorch's own error, and what noise of the size of rounding does.

Deep models of convolutions and batch norms multiply rounding errors, and a value next to 0 may fall to either side of
a ReLU: two right answers differ by more than any fixed tolerance allows. Who compares with a capture may go by
PyTorch's own distance from the same step in double, or by how far noise in each result moves that, whichever is more.
It is kept beside each value.
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


# In each result, of what its type rounds by: several roundings of f32 go into most, and it is rare that a value falls
# to the other side; the narrow types round enough by themselves.
_NOISE = {torch.float32: 4 * 2.0**-24, torch.complex64: 4 * 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_DRAWS = 3
_LARGEST = 1 << 25  # elements of all inputs: beyond, the noise is left out

Values = Sequence[Optional[Tensor]]


def of(module: fx.GraphModule, inputs: Sequence[Tensor], recorded: Values) -> List[Optional[float]]:
    """By output, then by input as the graph leaves it: the largest error of an element; None where there is none to
    speak of.

    `recorded`: PyTorch's values of the same. All None where the graph draws random numbers, or has an op without a
    form in double. Runs the graph twice, side by side, once and for each draw of noise; `inputs` themselves stay as
    they are.
    """
    exact = _in_double(module, inputs, None)
    if exact is None:
        return [None] * len(recorded)
    errors = [_error_of(value, wide) for value, wide in zip(recorded, exact)]
    for draw in range(_DRAWS if sum(tensor.numel() for tensor in inputs) <= _LARGEST else 0):
        noisy = _in_double(module, inputs, torch.Generator().manual_seed(draw))
        if noisy is None:
            break  # PyTorch's own errors stand
        moved = [_error_of(wide, other) for wide, other in zip(exact, noisy)]
        errors = [max(a, b) if a is not None and b is not None else a for a, b in zip(errors, moved)]
    return errors


def _in_double(
    module: fx.GraphModule, inputs: Sequence[Tensor], noise: Optional[torch.Generator]
) -> Optional[List[Optional[Tensor]]]:
    """The outputs of the graph in double, then its inputs as it leaves them. Integers and booleans are those of the
    recorded types, so that no index falls another way."""
    given = [_Pair(tensor.detach().clone(), _widened(tensor.detach())) for tensor in inputs]
    if any(compat.is_random(node) for node in module.graph.nodes):
        return None
    try:
        with torch.no_grad():
            outputs = _Twice(module, noise).run(*given)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return [output.wide if isinstance(output, _Pair) else None for output in [*outputs, *given]]


def _error_of(value: Optional[Tensor], wide: Optional[Tensor]) -> Optional[float]:
    if value is None or wide is None or value.numel() == 0 or value.shape != wide.shape:
        return None
    if value.dtype not in _WIDE and value.dtype not in _WIDE.values():
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
    """Each tensor is a pair. noise: the wide one of each result is off by the recorded one's rounding, or more."""

    def __init__(self, module: fx.GraphModule, noise: Optional[torch.Generator]) -> None:
        super().__init__(module)
        self._noise = noise

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
            if self._noise is not None:
                pytree.tree_map(self._add_noise, recorded, wide)
        return pytree.tree_map(_pair_of, recorded, wide)

    def _add_noise(self, recorded: Any, wide: Any) -> None:
        if isinstance(wide, Tensor) and recorded.dtype in _NOISE and wide.numel():
            draw = torch.rand(wide.shape, generator=self._noise, dtype=torch.float64).mul_(2).sub_(1)
            wide.mul_(draw.to(wide.device).mul_(_NOISE[recorded.dtype]).add_(1))


def _pair_of(recorded: Any, wide: Any) -> Any:
    if not isinstance(recorded, Tensor):
        return recorded
    if recorded.dtype not in _WIDE and not torch.equal(recorded, wide):
        wide.copy_(recorded)
    return _Pair(recorded, wide)
