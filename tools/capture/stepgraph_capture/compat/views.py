"""How DTensors are viewed: the questions about sizes that PyTorch asks without a use for the answers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, List


@contextmanager
def views_ask_of_sharded_axes() -> Iterator[None]:
    """In this context a view of a DTensor that splits an axis (`[batch * length, width]` into `[batch, length, width]`)
    asks whether the ranks divide it only if a placement shards it. The answer is looked up for these alone, but would
    be a guard on the batch anyway. (Releases before `_ViewShardingPropagator` are left as they are.)"""
    try:
        from torch.distributed.tensor._ops import _view_ops
    except ImportError:  # a PyTorch without distributed
        yield
        return
    kind = getattr(_view_ops, "_ViewShardingPropagator", None)
    theirs = getattr(kind, "_analyze_split", None)
    if kind is None or theirs is None:
        yield
        return

    def analyze_split(self: Any, split: Any) -> List[Any]:
        axes = self._input_dims_in_rule((split,))
        if any(getattr(placement, "dim", None) in axes for placement in self.input_src_placements):
            return theirs(self, split)
        return self._analyze_dim(split.input_dim)[:1] if split.split_id == 0 else []

    kind._analyze_split = analyze_split
    try:
        yield
    finally:
        kind._analyze_split = theirs
