"""Assumptions of a step about non-integer numbers (`if loss.item() < limit`), as nodes that assert them.

Guards are about integers. A non-integer number has no symbol, only the node that reads it. A condition on it is
therefore computed by nodes appended to the graph, the last of which asserts it; sg-run stops there if the data violates
it.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

import sympy
import torch
from torch import fx

_OPS = {
    "Le": "le",
    "LessThan": "le",
    "StrictLessThan": "lt",
    "GreaterThan": "ge",
    "StrictGreaterThan": "gt",
    "Equality": "eq",
    "Unequality": "ne",
    "Add": "add",
    "Mul": "mul",
    "Pow": "pow",
    "FloatPow": "pow",
    "PowByNatural": "pow",
    "FloatTrueDiv": "truediv",
    "IntTrueDiv": "truediv",
    "FloorDiv": "floordiv",
    "Mod": "mod",
    "PythonMod": "mod",
    "Max": "sym_max",
    "Min": "sym_min",
    "ToFloat": "sym_float",
    "OpaqueUnaryFn_sqrt": "sym_sqrt",
    "OpaqueUnaryFn_log2": "sym_log2",
    "TruncToInt": "trunc",
    "FloorToInt": "floor",
    "CeilToInt": "ceil",
}
_TO_INTEGERS = {"trunc", "floor", "ceil"}
_OF_ONE = {*_TO_INTEGERS, "sym_float", "sym_sqrt", "sym_log2"}
_NEAR = 1e-4  # how far apart numbers may be that two programs round differently, relative to them
_COMPARISONS = {"le", "lt", "ge", "gt", "eq", "ne"}


class Checks:
    """The added nodes, in order."""

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self._readers = {
            symbol: node.name
            for node in graph.nodes
            if node.target is torch.ops.aten._local_scalar_dense.default
            for symbol in node.meta.get("unbacked_bindings") or {}
        }
        self._taken = {node.name for node in graph.nodes}
        self._source: Optional[Dict[str, Any]] = None  # the user's line that the next nodes are about

    def are_about(self, guard: Any) -> bool:
        """Whether it refers to a number that has no symbol in the document."""
        return any(symbol in self._readers and not symbol.is_integer for symbol in guard.free_symbols)

    def add(self, guard: Any, origin: Any = None) -> bool:
        """Returns False if the condition contains more than comparisons and arithmetic on such numbers. origin: of the
        condition, if known."""
        before, self._source = list(self.nodes), origin.source if origin is not None else None
        condition = self._value(guard)
        if condition is None:
            self.nodes = before
        else:
            self._assert(condition, f"the step was captured where {guard}")
        self._source = None
        return condition is not None

    def equal(self, symbol: Any, value: Any) -> List[str]:
        """Asserts that a number is the one that a condition of the step says. Returns what cannot be asserted, in
        words."""
        guard = sympy.Eq(symbol, value, evaluate=False)
        return [] if self.are_about(guard) and self.add(guard) else [f"no node asserts that {guard}"]

    def near(self, expr: Any, number: Any, origin: Any) -> List[str]:
        """Asserts that what Python took out of float tensors is the example's number, up to rounding. Returns what
        cannot be asserted, in words."""
        self._source = origin.source
        value = self._value(expr)
        if value is not None:
            message = f"the step was captured where a number that Python takes here out of a tensor is {number:g}"
            for op, end in _around(number):
                end = value if end is None else end
                self._assert(self._append(op, f"python.{op}", [value, end], "bool"), message)
        self._source = None
        return [] if value is not None else [f"no node asserts that {expr}, a Python number in the step, is {number:g}"]

    def _assert(self, condition: Any, message: str) -> None:
        self._append("assert_scalar", "aten._assert_scalar.default", [condition, message], None)

    def _value(self, expr: Any) -> Optional[Any]:
        if expr in self._readers:
            return {"ref": self._readers[expr]}
        if expr.is_Integer:
            return int(expr)
        if expr.is_Float or expr.is_Rational:
            return float(expr)
        op = _OPS.get(type(expr).__name__)
        parts = [self._value(part) for part in expr.args]
        if op is None or any(part is None for part in parts) or (len(parts) > 1) == (op in _OF_ONE):
            return None
        kind = "bool" if op in _COMPARISONS else "int" if expr.is_integer else "float"
        if op in _OF_ONE:
            return self._append(op, f"python.{op}", parts, kind)
        found = parts[0]
        for part in parts[1:]:
            found = self._append(op, f"python.{op}", [found, part], kind)
        return found

    def _append(self, name: str, op: str, arguments: Iterable[Any], result: Optional[str]) -> Dict[str, str]:
        unused = next(n for n in (f"check_{name}_{i}" for i in range(len(self._taken) + 1)) if n not in self._taken)
        self._taken.add(unused)
        entry = {"name": unused, "op": op, "args": list(arguments), "phase": "backward"}
        entry["type"] = {"scalar": result} if result else None
        if self._source is not None:
            entry["source"] = self._source
        self.nodes.append(entry)
        return {"ref": unused}


def _around(number: Any) -> List[Tuple[str, Optional[float]]]:
    """The comparisons that hold for numbers near this one; None is the compared number itself."""
    if isinstance(number, int):
        return [("eq", number)]
    if math.isnan(number):
        return [("ne", None)]
    if math.isinf(number):
        return [("gt", sys.float_info.max) if number > 0 else ("lt", -sys.float_info.max)]
    reach = max(_NEAR * abs(number), 1e-12)
    return [("ge", number - reach), ("le", number + reach)]
