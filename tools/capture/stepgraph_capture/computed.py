"""Sizes that the format's expressions cannot express, such as trunc(0.9 * rows).

The node that computes such a size binds a data-dependent symbol, whose value the runner reads from the node. Guards
about such sizes refer to these symbols. A guard that still cannot be expressed is replaced by the range of sizes around
the example for which it holds.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

import sympy
import torch
from torch import Tensor, fx
from torch.utils._sympy.functions import FloorDiv

from . import compat, symbols

_FURTHEST = 4096  # sizes to try for a guard, in each direction


class Computed:
    """Maps each such expression to its symbol, and each symbol to the node that binds it."""

    def __init__(self, graphs: Iterable[fx.Graph]) -> None:
        self.symbols: Dict[Any, sympy.Symbol] = {}
        self._binders: Dict[sympy.Symbol, fx.Node] = {}
        for graph in graphs:
            for node in graph.nodes:
                for expr in _expressions(node.meta.get("val")):
                    self._meet(expr, node)

    def _meet(self, expr: Any, node: fx.Node) -> None:
        if expr in self.symbols or symbols.text(self.in_words(expr)) is not None:
            return
        symbol = sympy.Symbol(f"made{len(self.symbols)}", integer=True)
        self.symbols[expr] = symbol
        self._binders[symbol] = node

    def in_words(self, expr: Any) -> Any:
        """The expression with symbols for what nodes compute, and without floats where integers are exact."""
        expr = expr.xreplace(self.symbols) if self.symbols else expr
        return expr if symbols.text(expr) is not None else expr.replace(_is_rounding, _exact)

    def bound_by(self, node: fx.Node) -> List[str]:
        return [str(symbol) for symbol, binder in self._binders.items() if binder is node]

    def describe(self, shape_env: Any, symbol: sympy.Symbol) -> Optional[Dict[str, Any]]:
        """The symbol's entry in `symbols`; None if no node here binds it."""
        found = [expr for expr, made in self.symbols.items() if made == symbol]
        if not found:
            return None
        low, high = compat.bounds(shape_env, found[0])
        return {"name": str(symbol), "kind": "data", "min": low, "max": high, "hint": None}


def _is_rounding(expr: Any) -> bool:
    return type(expr).__name__ in ("TruncToInt", "FloorToInt", "CeilToInt") and _exact(expr) is not expr


def _exact(expr: Any) -> Any:
    """Rewrites math.ceil(a / b) and math.floor(0.5 * a) as integer divisions; leaves others unchanged."""
    above, below = _ratio(expr.args[0])
    name = type(expr).__name__
    if above is None or (name == "TruncToInt" and not (above.is_nonnegative and below.is_positive)):
        return expr
    return -FloorDiv(-above, below) if name == "CeilToInt" else FloorDiv(above, below)


def _ratio(expr: Any) -> Tuple[Any, Any]:
    """Numerator and denominator of a / b, or of what a single division makes of numbers that binary floats hold
    exactly, as the length of arange(0.5, height); (None, None) for others."""
    kind = type(expr).__name__
    if kind == "IntTrueDiv":
        return expr.args
    if kind != "FloatTrueDiv":
        return _binary(expr)
    (above, parts), (by, of) = _binary(expr.args[0]), _binary(expr.args[1])
    if above is None and by == of == 1:
        return _ratio(expr.args[0])
    if above is None or by is None or not by.is_number or by == 0:
        return None, None
    sign = 1 if by > 0 else -1
    return sign * above * of, sign * by * parts


def _binary(expr: Any) -> Tuple[Any, Any]:
    """Numerator and denominator of a sum of sizes and of floats that are few parts of a power of two; (None, None) for
    others."""
    if type(expr).__name__ == "ToFloat":
        return expr.args[0], sympy.Integer(1)
    if isinstance(expr, (sympy.Float, sympy.Integer)):
        parts = float(expr).as_integer_ratio()
        return tuple(map(sympy.Integer, parts)) if max(map(abs, parts)) <= 1 << 16 else (None, None)
    if type(expr).__name__ == "IntTrueDiv" and expr.args[1] in (2, 4, 8, 16):
        return expr.args
    if not isinstance(expr, (sympy.Add, sympy.Mul)):
        return None, None
    parts = [_binary(arg) for arg in expr.args]
    if any(above is None for above, _ in parts):
        return None, None
    if isinstance(expr, sympy.Mul):
        return sympy.prod(above for above, _ in parts), sympy.prod(below for _, below in parts)
    common = max(below for _, below in parts)
    return sympy.Add(*(above * (common // below) for above, below in parts)), common


def _expressions(value: Any) -> List[Any]:
    if isinstance(value, torch.SymInt):
        return [compat.expression(value)]
    if isinstance(value, Tensor):
        return [expr for size in value.shape for expr in _expressions(size)]
    if isinstance(value, (list, tuple)):
        return [expr for element in value for expr in _expressions(element)]
    return []


def range_of(shape_env: Any, guard: Any) -> Optional[Tuple[Any, int, int]]:
    """(symbol, low, high): the range around the example in which the guard holds. None unless it is about one size."""
    names = list(guard.free_symbols)
    example = symbols.describe(shape_env, names[0])["hint"] if len(names) == 1 else None
    if example is None or not _holds(guard, names[0], example):
        return None
    ends = []
    for step in (-1, 1):
        size = example
        while abs(size - example) < _FURTHEST and size + step >= 0 and _holds(guard, names[0], size + step):
            size += step
        ends.append(size)
    return names[0], ends[0], ends[1]


def _holds(guard: Any, symbol: Any, size: int) -> bool:
    return bool(guard.xreplace({symbol: sympy.Integer(size)}).doit() == sympy.true)
