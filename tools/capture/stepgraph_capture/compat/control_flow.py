"""torch.cond, while_loop, scan and map as the `if` and the loops that they stand for."""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


@contextmanager
def control_flow_as_python() -> Iterator[None]:
    """Calls of these operators run as plain Python, whose branches and bodies autograd and the tracer see. As operators
    they would be nodes with graphs of their own, and uncompiled they give no gradients to what their functions close
    over."""
    with ExitStack() as replaced:
        for kind, call in _calls().items():
            original = kind.__call__
            replaced.callback(setattr, kind, "__call__", original)
            kind.__call__ = call
        yield


def _calls() -> Dict[Any, Callable[..., Any]]:
    from torch._higher_order_ops.cond import CondOp
    from torch._higher_order_ops.map import MapImpl
    from torch._higher_order_ops.scan import ScanOp
    from torch._higher_order_ops.while_loop import WhileLoopOp

    calls = {CondOp: _cond, WhileLoopOp: _while_loop, MapImpl: _map}
    if "dim" not in inspect.signature(ScanOp.__call__).parameters:  # as up to 2.6
        calls[ScanOp] = _scan
    return calls


def _cond(op: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return (true_fn if pred else false_fn)(*operands)


def _while_loop(op: Any, cond_fn: Any, body_fn: Any, carried: Sequence[Any], additional: Any = (), **_: Any) -> Any:
    if not cond_fn(*carried, *additional):
        return pytree.tree_map_only(Tensor, torch.clone, tuple(carried))
    while True:
        carried = tuple(body_fn(*carried, *additional))
        if not cond_fn(*carried, *additional):
            return carried


def _scan(op: Any, combine_fn: Any, init: Sequence[Any], xs: Sequence[Tensor], additional: Any, **_: Any) -> Any:
    carry, rows = list(init), []
    for place in range(xs[0].shape[0]):
        made = combine_fn(*carry, *(x.select(0, place) for x in xs), *additional)
        carry, row = list(made[: len(carry)]), made[len(carry) :]
        rows.append(row)
    return (*carry, *_stacked(rows))


def _map(op: Any, f: Any, xs: Sequence[Tensor], pos_args: Any, **_: Any) -> Any:
    made = [f(*(x.select(0, place) for x in xs), *pos_args) for place in range(xs[0].shape[0])]
    spec = pytree.tree_structure(made[0])
    return pytree.tree_unflatten(_stacked([pytree.tree_leaves(row) for row in made]), spec)


def _stacked(rows: List[Sequence[Any]]) -> List[Any]:
    return [None if column[0] is None else torch.stack(column) for column in zip(*rows)]
