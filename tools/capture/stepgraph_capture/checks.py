"""Assumptions of a step about non-integer numbers (`if loss.item() < limit`), as nodes that assert them.

Guards are about integers. A non-integer number has no symbol, only the node that reads it. A condition on it is
therefore computed by nodes appended to the graph, the last of which asserts it; sg-run stops there if the data violates
it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

import sympy
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
    "FloatTrueDiv": "truediv",
}
_COMPARISONS = {"le", "lt", "ge", "gt", "eq", "ne"}


class Checks:
    """The added nodes, in order."""

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self._readers = {
            symbol: node.name
            for node in graph.nodes
            for symbol in node.meta.get("unbacked_bindings") or {}
            if not symbol.is_integer
        }
        self._taken = {node.name for node in graph.nodes}

    def are_about(self, guard: Any) -> bool:
        """Whether it refers to a number that has no symbol in the document."""
        return any(symbol in self._readers for symbol in guard.free_symbols)

    def add(self, guard: Any) -> bool:
        """Returns False if the condition contains more than comparisons and arithmetic on such numbers."""
        before = list(self.nodes)
        condition = self._value(guard)
        if condition is None:
            self.nodes = before
            return False
        message = f"the step was captured where {guard}"
        self._append("assert_scalar", "aten._assert_scalar.default", [condition, message], None)
        return True

    def _value(self, expr: Any) -> Optional[Any]:
        if expr in self._readers:
            return {"ref": self._readers[expr]}
        if expr.is_Integer:
            return int(expr)
        if expr.is_Float or expr.is_Rational:
            return float(expr)
        op = _OPS.get(type(expr).__name__)
        parts = [self._value(part) for part in expr.args]
        if op is None or len(parts) < 2 or any(part is None for part in parts):
            return None
        found = parts[0]
        for part in parts[1:]:
            found = self._append(op, f"python.{op}", [found, part], "bool" if op in _COMPARISONS else "float")
        return found

    def _append(self, name: str, op: str, arguments: Iterable[Any], result: Optional[str]) -> Dict[str, str]:
        unused = next(n for n in (f"check_{name}_{i}" for i in range(len(self._taken) + 1)) if n not in self._taken)
        self._taken.add(unused)
        entry = {"name": unused, "op": op, "args": list(arguments), "phase": "backward"}
        entry["type"] = {"scalar": result} if result else None
        self.nodes.append(entry)
        return {"ref": unused}
