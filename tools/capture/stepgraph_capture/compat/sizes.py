"""Symbolic sizes: their ranges, what is known about them, and what tracing assumed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple

import sympy
import torch
from torch import Tensor, fx
from torch.fx.experimental import symbolic_shapes


class Dimension:
    """The range of one dimension of an input; None means unbounded."""

    def __init__(self, low: Optional[int], high: Optional[int]) -> None:
        self.low, self.high = low, high


def fake_with_symbols(fake_mode: Any, tensor: Tensor, name: str, dimensions: Dict[int, Dimension]) -> Tensor:
    """A fake twin of `tensor` with a symbol for each of `dimensions`."""
    from torch._dynamo.source import ConstantSource
    from torch.utils._sympy.value_ranges import ValueRanges

    sizes, constraints = [], []
    for axis in range(tensor.dim()):
        dimension = dimensions.get(axis)
        sizes.append(symbolic_shapes.DimDynamic.DYNAMIC if dimension else symbolic_shapes.DimDynamic.STATIC)
        if dimension is None:
            constraints.append(None)
            continue
        low = dimension.low if dimension.low is not None else 2
        high = dimension.high if dimension.high is not None else symbolic_shapes.int_oo
        constraints.append(symbolic_shapes.StrictMinMaxConstraint(vr=ValueRanges(low, high), warn_only=False))
    context = symbolic_shapes.StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=constraints)
    return fake_mode.from_tensor(tensor, source=ConstantSource(name), symbolic_context=context)


@contextmanager
def numbers_as_in_python() -> Iterator[None]:
    """In this context numbers of the data and symbolic sizes have more of what Python's numbers have. They can be keys of
    dicts and elements of sets: a step that looks for one decides by its value, as PyTorch has it for fractions and
    conditions. PyTorch's own code is told that there is no hash, as before, and goes another way. Whole powers of a
    fraction are without the condition that it is not negative."""
    original = torch.SymInt.__hash__

    def of_value(self: torch.SymInt) -> int:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        if self.node.is_nested_int() or asks.partition(".")[0] in ("torch", "sympy"):
            return original(self)
        return hash(int(self))

    more = {
        "__divmod__": lambda a, b: (a // b, a % b),
        "__rdivmod__": lambda a, b: (b // a, b % a),
        "bit_length": lambda number: int(number).bit_length(),
    }
    power = torch.SymFloat.__pow__

    def without_condition(self: torch.SymFloat, exponent: Any) -> Any:
        is_whole = isinstance(exponent, (int, float)) and float(exponent).is_integer()
        return self.__float_pow__(exponent) if is_whole else power(self, exponent)

    added = {name: method for name, method in more.items() if not hasattr(torch.SymInt, name)}
    torch.SymInt.__hash__ = of_value  # type: ignore[method-assign]
    torch.SymFloat.__pow__ = without_condition  # type: ignore[method-assign]
    for name, method in added.items():
        setattr(torch.SymInt, name, method)
    try:
        yield
    finally:
        torch.SymInt.__hash__ = original  # type: ignore[method-assign]
        torch.SymFloat.__pow__ = power  # type: ignore[method-assign]
        for name in added:
            delattr(torch.SymInt, name)


class SymbolFacts:
    """What PyTorch knows about one symbol."""

    def __init__(self, low: Any, high: Any, hint: Any, source: Optional[str]) -> None:
        self.low, self.high, self.hint, self.source = low, high, hint, source


def symbol_facts(shape_env: Any, symbol: Any) -> SymbolFacts:
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val  # its name until 2.9
    bounds = shape_env.var_to_range.get(symbol)
    sources = shape_env.var_to_sources.get(symbol) or []
    return SymbolFacts(
        bounds.lower if bounds else None,
        bounds.upper if bounds else None,
        values.get(symbol),
        sources[0].name if sources and isinstance(sources[0].name, str) else sources[0].name() if sources else None,
    )


def guards(shape_env: Any) -> List[Any]:
    """What tracing assumed about sizes, as sympy expressions: guards, then run-time checks."""
    return [shape_env.replace(expr) for expr in assumptions(shape_env)]


def assumptions(shape_env: Any) -> List[Any]:
    """The same as it was first stated."""
    found = [guard.expr for guard in shape_env.guards]
    for checks in shape_env.deferred_runtime_asserts.values():
        found += [check.expr for check in checks]
    return found


def count_of_assumptions(shape_env: Any) -> int:
    return len(shape_env.guards) + sum(map(len, shape_env.deferred_runtime_asserts.values()))


def assumed_at(shape_env: Any) -> List[Any]:
    """What was being traced where each of `guards` came about; None if unknown."""
    known = vars(shape_env).get("assumed_here", {})
    return [known.get(expr) for expr in assumptions(shape_env)]


def bounds(shape_env: Any, expr: Any) -> Tuple[Optional[int], Optional[int]]:
    """The smallest and largest value of an integer; None means unbounded."""
    found = shape_env.bound_sympy(expr)
    low, high = (
        int(end) if getattr(end, "is_Integer", False) and abs(int(end)) < 2**62 else None
        for end in (found.lower, found.upper)
    )
    return low, high


def decided_at(shape_env: Any) -> Dict[Any, Any]:
    """What was being traced where the first assumption about each symbol came about, if known."""
    found: Dict[Any, Any] = {}
    for expr, here in zip(assumptions(shape_env), assumed_at(shape_env)):
        found.update({symbol: here for symbol in expr.free_symbols if here is not None and symbol not in found})
    return found


def is_number_of_floats(expr: Any) -> bool:
    """Whether it is a number, not a condition, that depends on values of float tensors, or one with a fraction that
    depends on those of any."""
    is_condition = isinstance(expr, (sympy.core.relational.Relational, sympy.logic.boolalg.BooleanFunction))
    if is_condition or any(not symbol.is_integer for symbol in expr.free_symbols):
        return not is_condition
    return not expr.is_integer and bool(symbolic_shapes.free_unbacked_symbols(expr))


def taken(shape_env: Any) -> List[Tuple[Any, Any, Any]]:
    """The numbers that Python took out of float tensors: the expression, the example's number, and what was being
    traced."""
    return [(expr, number, here) for expr, (_, number, here) in vars(shape_env).get("taken", {}).items()]


def settled_floats(shape_env: Any, graph: fx.Graph) -> Dict[Any, Any]:
    """The numbers read from float tensors in this graph that a condition (`if scale.item() == 1`) makes equal to
    something else, and that."""
    bound = [symbol for node in graph.nodes for symbol in (node.meta.get("unbacked_bindings") or {})]
    values = {symbol: shape_env.replace(symbol) for symbol in bound if not symbol.is_integer}
    return {symbol: value for symbol, value in values.items() if value != symbol}


@contextmanager
def formats() -> Iterator[None]:
    """In this context symbolic numbers can be formatted (f"{loss.item():.4f}"), as the plain numbers they are in the
    example."""

    def float_format(self: Any, spec: str) -> str:
        return format(float(self), spec)

    def int_format(self: Any, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)

    kinds = {torch.SymFloat: float_format, torch.SymInt: int_format}
    for kind, function in kinds.items():
        kind.__format__ = function
    try:
        yield
    finally:
        for kind in kinds:
            del kind.__format__


def settled(shape_env: Any, graph: fx.Graph) -> Dict[Any, int]:
    """Data-dependent symbols of this graph that tracing replaced by numbers, from the real values alongside, and these
    numbers."""
    numbers = _in_place_of(shape_env, graph)
    return {symbol: int(number) for symbol, number in numbers.items() if number.is_Integer}


def equal(shape_env: Any, graph: fx.Graph) -> Dict[Any, Any]:
    """Data-dependent symbols of this graph that tracing replaced by other sizes, as a guard makes them equal, and these
    sizes."""
    sizes = _in_place_of(shape_env, graph)
    return {symbol: size for symbol, size in sizes.items() if size != symbol and not size.is_Integer}


def _in_place_of(shape_env: Any, graph: fx.Graph) -> Dict[Any, Any]:
    bound = [symbol for node in graph.nodes for symbol in (node.meta.get("unbacked_bindings") or {})]
    return {symbol: shape_env.replace(symbol) for symbol in bound if symbol.is_integer}


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic number."""
    return value.node.expr


def found_in(node: fx.Node, result: Any) -> Dict[Any, Any]:
    """The data-dependent symbols that a node brings, and the numbers that these are in its result."""
    return {symbol: _at(path, result) for symbol, path in (node.meta.get("unbacked_bindings") or {}).items()}


def _at(path: Any, result: Any) -> Any:
    for key in path:
        result = int(result) if isinstance(key, symbolic_shapes.ConvertIntKey) else key.get(result)
    return result.item() if isinstance(result, Tensor) else result


def decided(condition: Any, numbers: Dict[Any, Any]) -> Optional[bool]:
    """Whether a condition holds where the symbols are these numbers; None if that does not tell."""
    found = condition.xreplace({symbol: sympy.sympify(number) for symbol, number in numbers.items()})
    return bool(found) if found in (sympy.true, sympy.false) else None


def settled_at(size: Any) -> Any:
    """What was being traced when a symbolic size became a number; None if unknown."""
    return None if isinstance(size, int) else settled_symbol_at(size.node.shape_env, size.node._expr)


def settled_symbol_at(shape_env: Any, symbol: Any) -> Any:
    """The same of a symbol."""
    known, found = vars(shape_env).get("settled_here", {}), None
    while symbol in known:
        symbol, found = known[symbol]
    return found if symbol.is_number else None


def is_of_data(value: Any) -> bool:
    """Whether the symbolic number depends on tensor values."""
    return bool(symbolic_shapes.free_unbacked_symbols(value))


def example(size: Any) -> Optional[int]:
    """The size in the example; None if it depends on data, even if tracing replaced it by another size."""
    if isinstance(size, int) or expression(size).is_Integer:
        return size if isinstance(size, int) else int(expression(size))
    return None if is_of_data(size) or size.node.hint is None else int(size.node.hint)


def hint(size: Any) -> int:
    """The size in the example, whatever its symbol."""
    return size if isinstance(size, int) else int(size.node.hint)
