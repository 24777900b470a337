"""How far right answers may be from each other: PyTorch's own error, and what noise of the size of rounding does.

Deep models of convolutions and batch norms multiply rounding errors, and a value next to 0 may fall to either side of
a ReLU: two right answers differ by more than any fixed tolerance allows. Who compares with a capture may go by
PyTorch's own distance from the same step in double, or by how far noise in each result moves that, whichever is more.
It is kept beside each value.

In a job all ranks run this together. Each launches every collective of its graph, whatever fails meanwhile, and what
one of them decides is decided by all; so none waits for another that is not coming. And what they exchange has the
types and sizes that the recorded type and size say, on each rank for itself; so none gets what it does not expect.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from . import compat, world
from .values import as_traced, laid_copy

_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.float8_e4m3fn: torch.float64,
    torch.float8_e5m2: torch.float64,
    torch.float8_e4m3fnuz: torch.float64,
    torch.float8_e5m2fnuz: torch.float64,
}

# In each result, of what its type rounds by: several roundings of f32 go into most, and it is rare that a value falls
# to the other side; the narrow types round enough by themselves.
_NOISE = {
    torch.float32: 4 * 2.0**-24,
    torch.complex64: 4 * 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e4m3fnuz: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
    torch.float8_e5m2fnuz: 2.0**-3,
}
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
    is_large = world.on_any_rank(sum(tensor.numel() for tensor in inputs) > _LARGEST)
    for draw in range(0 if is_large else _DRAWS):
        noisy = _in_double(module, inputs, torch.Generator().manual_seed(draw + _DRAWS * world.rank()))
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
    if world.on_any_rank(any(compat.is_random(node) for node in module.graph.nodes)):
        return None
    given = [_Pair(laid_copy(tensor), _widened(tensor.detach())) for tensor in inputs]
    twice = _Twice(module, noise)
    with torch.no_grad():
        outputs = twice.run(*given)
    if world.on_any_rank(twice.failed):
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
    """A tensor in its recorded type and in double, of one size."""

    recorded: Tensor
    wide: Tensor


def _widened(tensor: Tensor) -> Tensor:
    """A copy; in double if it is floating point."""
    return tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else laid_copy(tensor)


class _Twice(fx.Interpreter):
    """Each tensor is a pair. noise: the wide one of each result is off by the recorded one's rounding, or more.

    failed: an op has no form in double. The recorded values stand for the wide ones from there on, so that the graph
    runs to its end; what it gives is nobody's.
    """

    def __init__(self, module: fx.GraphModule, noise: Optional[torch.Generator]) -> None:
        super().__init__(module)
        self._noise = noise
        self.failed = False

    def run_node(self, n: fx.Node) -> Any:
        self._traced = n.meta.get("val")
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, fx.GraphModule):
            self.failed = True  # a nested graph holds element types of its own
        return _Pair(value.clone(), _widened(value)) if isinstance(value, Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        given, keywords = pytree.tree_map_only(_Pair, lambda pair: pair.recorded, (args, kwargs))
        recorded = target(*given, **keywords)
        given, keywords = pytree.tree_map_only(_Pair, self._wide_of(target), (args, kwargs))
        given, keywords = pytree.tree_map_only(torch.dtype, lambda dtype: _WIDE.get(dtype, dtype), (given, keywords))
        try:
            if target is torch.ops.aten.view.dtype:
                self.failed = True  # bits mean something else in double
            if not self.failed or compat.is_collective(target):
                with _default_in_double():
                    wide = _FORMS.get(target, target)(*given, **keywords)
                return self._paired(target, recorded, wide)
        except Exception:  # whatever: the other ranks count on this one
            self.failed = True
        if _is_fresh(target):
            recorded = as_traced(recorded, self._traced)  # the views behind it count on that
        return pytree.tree_map_only(Tensor, lambda tensor: _Pair(tensor, _widened(tensor)), recorded)

    def _wide_of(self, target: Any) -> Callable[[_Pair], Tensor]:
        """How this op gets a wide argument. What is sent after a failure is of the recorded size, whatever ops in place
        have done since then, to the recorded tensors only."""
        if self.failed and compat.is_launch(target):
            return lambda pair: _widened(pair.recorded)
        return lambda pair: pair.wide

    def _paired(self, target: Any, recorded: Any, wide: Any) -> Any:
        if compat.is_launch(target):  # on its way: nobody looks at it before the wait
            return pytree.tree_map(lambda a, b: _Pair(a, b), recorded, wide)
        wide = pytree.tree_map(_held_to, recorded, wide)
        if _is_fresh(target):
            recorded, wide = as_traced(recorded, self._traced), as_traced(wide, self._traced)
            if self._noise is not None:
                pytree.tree_map(self._add_noise, recorded, wide)
        return pytree.tree_map(_pair_of, recorded, wide)

    def _add_noise(self, recorded: Any, wide: Any) -> None:
        if isinstance(wide, Tensor) and recorded.dtype in _NOISE and wide.numel():
            draw = torch.rand(wide.shape, generator=self._noise, dtype=torch.float64).mul_(2).sub_(1)
            wide.mul_(draw.to(wide.device).mul_(_NOISE[recorded.dtype]).add_(1))


def _scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Optional[Tensor] = None,
    scale_result: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Block scales do not broadcast and are not supported here."""
    product = (a * scale_a) @ (b * scale_b)
    product = product if bias is None else product + bias
    return product if scale_result is None else product * scale_result


# Of ops that take no doubles.
_FORMS = {torch.ops.aten._scaled_mm.default: _scaled_mm}


def _is_fresh(target: Any) -> bool:
    """Whether the op's results are not views of its arguments."""
    return isinstance(target, torch._ops.OpOverload) and not any(r.alias_info for r in target._schema.returns)


@contextmanager
def _default_in_double() -> Iterator[None]:
    """Makes double the default float type (`torch.zeros(n)`, quotients of integers)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(_WIDE.get(before, before))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _held_to(recorded: Any, wide: Any) -> Any:
    """The wide result in the type that goes with the recorded one: an op may give one type whatever it is given. The
    numbers of a narrow one are as far off as its type says, no more. Another size is an error."""
    if not isinstance(recorded, Tensor):
        return wide
    if recorded.shape != wide.shape:
        raise RuntimeError(f"{tuple(recorded.shape)} in its own type, {tuple(wide.shape)} in double")
    return wide.to(_WIDE.get(recorded.dtype, recorded.dtype))  # the same tensor, where it has that type


def _pair_of(recorded: Any, wide: Any) -> Any:
    if not isinstance(recorded, Tensor):
        return recorded
    if recorded.dtype not in _WIDE and not torch.equal(recorded, wide):
        wide.copy_(recorded)
    return _Pair(recorded, wide)
