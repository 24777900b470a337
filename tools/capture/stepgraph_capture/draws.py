"""Random numbers that are drawn again: an activation checkpoint gives PyTorch's generator the state that it had in
forward, and draws in backward what it drew there. In the graph the node in backward names the one in forward, whose
random stream it shares.

While a step is traced, mostly nothing is drawn, as its tensors are fake. So the generator is moved on here at each
random op, and ops that begin with the same state draw the same numbers.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import fx

from . import compat
from .errors import CaptureError
from .recorder import origin_of

_BEGIN = "stepgraph_draw"  # the number of the state that the op begins with, in Node.meta
_FIRST = "stepgraph_draws_as"  # the name of the node in forward that drew the same
_SEEDS = 1 << 40  # seeds from here on are none that a step is likely to give


class Draws:
    """Called with each node of a trace when it is made. `is_real`: ops also run with real tensors, and draw."""

    def __init__(self, is_real: bool) -> None:
        self._is_real = is_real
        self._numbers: Dict[bytes, int] = {}

    def tag(self, node: fx.Node) -> None:
        if not compat.is_random(node):
            return
        number = self._numbers.setdefault(_state(), len(self._numbers))
        node.meta[_BEGIN] = number
        if not self._is_real:
            torch.default_generator.manual_seed(_SEEDS + number)


def _state() -> bytes:
    state = torch.default_generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


def link(graphs: Sequence[fx.Graph]) -> None:
    """Finds for each random op of backward the one of forward that drew the same numbers."""
    begun: Dict[int, List[fx.Node]] = {}
    for graph in graphs:
        for node in graph.nodes:
            if _BEGIN in node.meta and compat.is_random(node):
                begun.setdefault(node.meta[_BEGIN], []).append(node)
    for nodes in begun.values():
        again = [node for node in nodes if _in_backward(node)]
        first = [node for node in nodes if not _in_backward(node)]
        if not again or len(nodes) == 1:
            continue
        if len(first) != 1 or not all(_is_alike(first[0], node) for node in again):
            raise CaptureError(
                f"{again[0].target} draws random numbers within an activation checkpoint, which draws them again in "
                "backward, and it is not clear which numbers these are: capture with a dropout of 0, or without "
                "checkpoints, which sg-remat can make in the graph"
            )
        for node in again:
            node.meta[_FIRST] = first[0].name


def first(node: fx.Node) -> Optional[str]:
    """The name of the node of forward that drew the numbers which this one draws again."""
    return node.meta.get(_FIRST)


def _in_backward(node: fx.Node) -> bool:
    origin = origin_of(node)
    return origin is not None and origin.phase == "backward"


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether they draw as many numbers in the same way, in one graph."""
    return one.target is other.target and one.graph is other.graph and _kind(one) == _kind(other)


def _kind(node: fx.Node) -> Any:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [(tuple(map(str, v.shape)), v.dtype) for v in values if isinstance(v, torch.Tensor)]


class Replay:
    """For a run of a graph, node by node: gives PyTorch's generators the state that they had when `first` drew."""

    def __init__(self, graph: fx.Graph) -> None:
        self._needed = {node.meta[_FIRST] for node in graph.nodes if _FIRST in node.meta}
        self._before: Dict[str, List[torch.Tensor]] = {}

    def run(self, node: fx.Node, run: Any) -> Any:
        if node.name in self._needed:
            self._before[node.name] = _states()
        earlier = first(node)
        if earlier is None:
            return run(node)
        now = _states()
        _set_states(self._before[earlier])
        try:
            return run(node)
        finally:
            _set_states(now)


def _generators() -> List[torch.Generator]:
    more = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *more]


def _states() -> List[torch.Tensor]:
    return [generator.get_state() for generator in _generators()]


def _set_states(states: List[torch.Tensor]) -> None:
    for generator, state in zip(_generators(), states):
        generator.set_state(state)
