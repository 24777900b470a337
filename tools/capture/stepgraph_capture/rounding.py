"""How far apart correct results may be: PyTorch's own error, and the effect of noise of the size of rounding errors.

Deep models of convolutions and batch norms amplify rounding errors, and a value close to 0 may fall on either side of a
ReLU: two correct results may differ by more than any fixed tolerance allows. A comparison with a capture may use
PyTorch's own distance from the same step in double precision, or the distance that noise in each result causes there,
whichever is larger. It is stored with each value.

In a job all ranks run this together. Each launches every collective of its graph, even after a failure, and decisions
are made by all ranks together, so no rank waits for another in vain. What they exchange has the recorded size, and the
type that corresponds to the recorded one, so every rank gets what it expects. In double they have groups of their own:
gloo may corrupt memory if each collective overlaps with its twin on one group, and waits at other places than the
step's could block ranks that send to each other.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor, fx

from . import compat, draws, world
from .values import as_traced, laid_copy, seeded

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

# Relative noise added to each result, by its type: for f32 several roundings, as most results take several and values
# rarely change sides; for narrow types one rounding is enough.
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
_LARGEST = 1 << 25  # elements of all inputs; beyond this, no noise is tried

Values = Sequence[Optional[Tensor]]


def of(
    module: fx.GraphModule, inputs: Sequence[Tensor], recorded: Values, draws_alike: bool = False
) -> List[Optional[float]]:
    """The largest error of an element, by output, then by input as the graph leaves it; None if there is none.

    `recorded`: PyTorch's values of the same tensors. All are None if the graph has an op that does not work in double,
    or if they depend on random numbers that it draws; unless `draws_alike`: they are of a run of this graph. Runs the
    graph in its own types and in double side by side, once without noise and once for each draw of it. Leaves `inputs`
    unchanged.
    """
    is_random = any(compat.is_random(node) and _is_told(node) for node in module.graph.nodes)
    if not draws_alike and world.on_any_rank(is_random):
        return [None] * len(recorded)
    with world.second_groups(module.graph) as groups:
        return _errors(module, inputs, recorded, groups)


def _is_told(drawn: fx.Node) -> bool:
    """Whether results may depend on what this node draws. A size chosen at random, of one, is no more than looked at."""
    seen, todo = set[fx.Node](), [drawn, *compat.written_by(drawn)]
    while todo:
        node = todo.pop()
        if node.op != "call_function":  # the results, or what lasts longer than the step
            return True
        if node not in seen:
            seen.add(node)
            todo += [*node.users, *compat.written_by(node)]
    return False


def _errors(
    module: fx.GraphModule, inputs: Sequence[Tensor], recorded: Values, groups: Mapping[str, str]
) -> List[Optional[float]]:
    exact = _in_double(module, inputs, groups, None)
    if exact is None:
        return [None] * len(recorded)
    errors = [_error_of(value, wide) for value, wide in zip(recorded, exact)]
    is_large = world.on_any_rank(sum(tensor.numel() for tensor in inputs) > _LARGEST)
    for draw in range(0 if is_large else _DRAWS):
        noisy = _in_double(module, inputs, groups, torch.Generator().manual_seed(draw + _DRAWS * world.rank()))
        if noisy is None:
            break  # PyTorch's own errors stand
        moved = [_error_of(wide, other) for wide, other in zip(exact, noisy)]
        errors = [max(a, b) if a is not None and b is not None else a for a, b in zip(errors, moved)]
    return errors


def _in_double(
    module: fx.GraphModule, inputs: Sequence[Tensor], groups: Mapping[str, str], noise: Optional[torch.Generator]
) -> Optional[List[Optional[Tensor]]]:
    """The outputs of the graph in double, then its inputs as it leaves them. Integers and booleans are taken from the
    run in recorded types, so that indices agree."""
    given = [_Pair(laid_copy(tensor), _widened(tensor.detach())) for tensor in inputs]
    twice = _Twice(module, groups, noise)
    with seeded(), torch.no_grad(), compat.as_recorded():
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
    """A tensor in its recorded type and in double; both have the same size."""

    recorded: Tensor
    wide: Tensor


def _widened(tensor: Tensor) -> Tensor:
    """A copy; in double if the type is a narrower float or complex type."""
    return tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else laid_copy(tensor)


class _Twice(fx.Interpreter):
    """Interprets the graph on pairs. groups: which to use in double, by name of the graph's. noise: perturbs each result
    in double by about the rounding of its recorded type.

    failed: an op does not work in double. From there on recorded values stand in for double ones, so that the graph
    runs to its end; the result is not used.
    """

    def __init__(
        self, module: fx.GraphModule, groups: Mapping[str, str], noise: Optional[torch.Generator]
    ) -> None:
        super().__init__(module)
        self._groups, self._noise = groups, noise
        self._draws = draws.Replay(module.graph)
        self.failed = False

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        return self._draws.run(n, self._drawn if compat.is_random(n) else self._called_by)

    def _called_by(self, n: fx.Node) -> Any:
        return self._called(n, n.target)

    def _drawn(self, n: fx.Node) -> Any:
        """What the recorded type draws, for both: in double there would be other numbers."""
        given, keywords = self._arguments(n, _recorded_of)
        recorded = n.target(*given, **keywords)
        pairs = [self.env[node] for node in n.all_input_nodes if isinstance(self.env[node], _Pair)]
        for pair in pairs if n.target._schema.is_mutable else []:
            pair.wide.copy_(pair.recorded)
        for pair in pairs:
            if pair.recorded is recorded:
                return pair
        if _is_fresh(n.target):
            recorded = as_traced(recorded, n.meta.get("val"))
        drawn = _mapped(_widened_pair_of, recorded)
        if n.target is torch.ops.aten.native_dropout.default:
            _, rate, trains = given
            if trains is not False and rate < 1:
                drawn[0].wide.copy_(pairs[0].wide * drawn[1].wide / (1 - rate))
        return drawn

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, fx.GraphModule):
            self.failed = True  # a nested graph names element types of its own
        return _Pair(value.clone(), _widened(value)) if isinstance(value, Tensor) else value

    def _called(self, n: fx.Node, target: Any) -> Any:
        given, keywords = self._arguments(n, _recorded_of)
        recorded, traced = target(*given, **keywords), n.meta.get("val")
        try:
            if target is torch.ops.aten.view.dtype:
                self.failed = True  # bits mean something else in double
            if not self.failed or compat.is_collective(target):
                given, keywords = self._arguments(n, self._side_in_double(target))
                with _default_in_double():
                    wide = _FORMS.get(target, target)(*given, **keywords)
                return self._paired(target, traced, recorded, wide)
        except Exception:  # any error: the other ranks wait for this one
            self.failed = True
        if _is_fresh(target):
            recorded = as_traced(recorded, traced)  # later views rely on it
        return _mapped(_widened_pair_of, recorded)

    def _arguments(self, n: fx.Node, side: Callable[[Any], Any]) -> Tuple[Any, Any]:
        """The node's arguments; `side` of each value."""

        def of(given: Any) -> Any:
            return _mapped(side, self.env[given]) if isinstance(given, fx.Node) else side(given)

        return fx.node.map_aggregate(n.args, of), fx.node.map_aggregate(n.kwargs, of)

    def _side_in_double(self, target: Any) -> Callable[[Any], Any]:
        """How this op's arguments in double are obtained. After a failure a collective sends the recorded values,
        widened: in-place ops since then have changed only those."""
        if not compat.is_launch(target):
            return _wide_of

        def of(value: Any) -> Any:
            if isinstance(value, str):
                return self._groups.get(value, value)
            return _widened(value.recorded) if self.failed and isinstance(value, _Pair) else _wide_of(value)

        return of

    def _paired(self, target: Any, traced: Any, recorded: Any, wide: Any) -> Any:
        if compat.is_launch(target):  # in flight: not to be read before the wait
            return _mapped(_Pair, recorded, wide)
        wide = _mapped(_held_to, recorded, wide)
        if _is_fresh(target):
            recorded, wide = as_traced(recorded, traced), as_traced(wide, traced)
            if self._noise is not None:
                _mapped(self._add_noise, recorded, wide)
        return _mapped(_pair_of, recorded, wide)

    def _add_noise(self, recorded: Any, wide: Any) -> None:
        if isinstance(wide, Tensor) and recorded.dtype in _NOISE and wide.numel():
            draw = torch.empty(wide.shape, dtype=torch.float64).uniform_(-1, 1, generator=self._noise)
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
    """Scales must broadcast: block-wise scales are not supported."""
    product = (a * scale_a) @ (b * scale_b)
    product = product if bias is None else product + bias
    return product if scale_result is None else product * scale_result


def _grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """Groups are matrices of both, else rows of `a`, columns of `b` or, of two matrices, what is summed over."""
    if offs is None:
        return torch.bmm(a, b)
    ends: List[int] = offs.tolist()
    groups = [slice(begin, end) for begin, end in zip([0, *ends], ends)]
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, group] @ b[group] for group in groups])
    out = a.new_zeros(a.shape[-2], b.shape[-1])
    for i, group in enumerate(groups):
        if a.dim() == 2:
            out[group] = a[group] @ b[i]
        else:
            out[:, group] = a[i] @ b[:, group]
    return out


# Replacements for ops that do not accept doubles.
_FORMS = {torch.ops.aten._scaled_mm.default: _scaled_mm, torch.ops.aten._grouped_mm.default: _grouped_mm}


def _mapped(of: Callable[..., Any], first: Any, *others: Any) -> Any:
    """`of` each element, in tuples, lists and dicts as those of the first; all must have the same structure. For the
    few elements at hand, pytree would take longer than most ops."""
    if not isinstance(first, (tuple, list, dict)):
        return of(first, *others)
    if any(type(other) is not type(first) or len(other) != len(first) for other in others):
        raise RuntimeError("the results have another structure in double")
    if isinstance(first, dict):
        return {key: _mapped(of, one, *(other[key] for other in others)) for key, one in first.items()}
    make = getattr(first, "_make", type(first))  # a named tuple takes its elements one by one
    return make(_mapped(of, *each) for each in zip(first, *others))


@lru_cache(maxsize=None)
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


def _recorded_of(value: Any) -> Any:
    return value.recorded if isinstance(value, _Pair) else value


def _wide_of(value: Any) -> Any:
    """The argument in double, or the type that corresponds to one."""
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    return value.wide if isinstance(value, _Pair) else value


def _held_to(recorded: Any, wide: Any) -> Any:
    """The result in double, cast to the type that corresponds to the recorded one, as an op may return a fixed type. A
    size other than the recorded one is an error."""
    if not isinstance(recorded, Tensor):
        return wide
    if recorded.shape != wide.shape:
        raise RuntimeError(f"{tuple(recorded.shape)} in its own type, {tuple(wide.shape)} in double")
    return wide.to(_WIDE.get(recorded.dtype, recorded.dtype))  # the same tensor if it has that type already


def _pair_of(recorded: Any, wide: Any) -> Any:
    if not isinstance(recorded, Tensor):
        return recorded
    if recorded.dtype not in _WIDE and not torch.equal(recorded, wide):
        wide.copy_(recorded)
    return _Pair(recorded, wide)


def _widened_pair_of(recorded: Any) -> Any:
    return _Pair(recorded, _widened(recorded)) if isinstance(recorded, Tensor) else recorded
