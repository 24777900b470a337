"""Plain Python numbers that a step takes out of float tensors: `float(norm)`, `math.sqrt(norm.item())`, `"%.2f" % loss`.

Python loses track of them, so an op that is given one holds the example's. The step is traced again with other numbers
in their place: if that changes the graph, the graph depends on them and asserts that they are the example's. If it does
not, they were only logged.
"""

from __future__ import annotations

import io
import math
from contextlib import redirect_stdout
from typing import Any, Callable, List, Optional

import torch
from torch import Tensor, fx

from . import compat

Move = Callable[[int, Any], Any]  # another number in place of the n-th taken one
See = Callable[[fx.Node], None]  # called with each node as it is made

_FEW = 1000  # nodes


class _IsLonger(BaseException):
    """The step makes far more nodes than it did: it loops by the number. No `except Exception` of the user's ends it."""


def are_used(traced: Any, trace: Callable[[Move, See], Any]) -> bool:
    """Whether the graph depends on the numbers taken. trace: traces the step with others in their place.

    Numbers far from the example's also show what the step decides by them. A step may raise an exception for those
    (`if loss > 1e4: raise`): then there is no other graph. For numbers close by it may not."""
    if not compat.taken(traced.mode.shape_env):
        return False
    known = _said(traced)

    def graph_by(move: Move) -> Optional[List[Any]]:
        return _graph(lambda: trace(move, _counter(2 * len(known) + _FEW)))

    apart = [graph for graph in (graph_by(_far(0)), graph_by(_far(1))) if graph is not None]
    if any(graph != known for graph in apart):
        return True
    return len(apart) < 2 and graph_by(_near) != known


def says_else(traced: Any, trace: Callable[[], Any], in_constants: bool) -> bool:
    """Whether the step says something else when it is traced again, or fails then. in_constants: does the same, with
    other numbers."""
    known, found = _said(traced), _graph(trace)
    if found == known or not in_constants:
        return found != known
    return found is not None and [_skeleton(one) for one in found] == [_skeleton(one) for one in known]


def _skeleton(one: Any) -> Any:
    """What is left of a part of _said() without its numbers."""
    return one[:3] if isinstance(one, tuple) else type(one)


def _graph(trace: Callable[[], Any]) -> Optional[List[Any]]:
    """What the step says with other numbers; None if it raises an exception. Nothing is printed."""
    try:
        with redirect_stdout(io.StringIO()):
            return _said(trace())
    except _IsLonger:
        return []
    except Exception:
        return None


def _counter(most: int) -> See:
    """Ends a trace of more nodes."""
    counted = 0

    def see(_: fx.Node) -> None:
        nonlocal counted
        counted += 1
        if counted > most:
            raise _IsLonger

    return see


def _far(turn: int) -> Move:
    """Every other number larger and the rest smaller, so that their order changes as well; turn: 0 or 1. A whole number
    may be a size: one that is large already becomes twice as large."""

    def move(index: int, number: Any) -> Any:
        up = index % 2 == turn
        if isinstance(number, int):
            return number * (100 if abs(number) <= 100 else 2) + 1 if up else number // 100 - 1
        number = number if math.isfinite(number) else 1.0
        return number * 1000 + 1 if up else number / 1000

    return move


def _near(_: int, number: Any) -> Any:
    if isinstance(number, int):
        return number + 1
    return number * (1 + 2**-10) + 2**-30 if math.isfinite(number) else 1.0


class _Same:
    """A constant of a graph, equal to another one of the same values."""

    def __init__(self, value: Any) -> None:
        self._value = compat.constant_of(value) if isinstance(value, Tensor) else value

    def __eq__(self, other: Any) -> bool:
        a, b = self._value, other._value
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            return type(a) is type(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return compat.is_fake(a) or compat.is_fake(b) or torch.equal(a.nan_to_num(), b.nan_to_num())


def _said(traced: Any) -> List[Any]:
    """All that a capture would hold of the step."""
    found: List[Any] = [str(guard) for guard in compat.guards(traced.mode.shape_env)]
    found += [f"{symbol} = {answer}" for symbol, answer in traced.answers.items()]
    for name, part in traced.module.named_modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                found.append((name, node.op, str(node.target), str(node.args), str(node.kwargs)))
                if node.op == "get_attr":
                    found.append(_Same(_attribute(part, str(node.target))))
    return found


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module
