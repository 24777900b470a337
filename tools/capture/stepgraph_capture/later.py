"""Decisions by state that the step itself changes (`if average.n_averaged == 0`): the graph holds the way of the captured
step. Where the step after it goes another way, the graph would stop at a guard, and a note says so.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from torch import Tensor, fx

from . import compat, values
from .recorder import origin_of
from .step import Step
from .trace import Traced


def notes(step: Step, traced: Traced, answers: values.Answers) -> List[str]:
    """answers: of the captured step."""
    graph, env = traced.module.graph, traced.mode.shape_env
    state = _state_after(step, traced, answers)
    settled = {**traced.answers, **compat.settled(env, graph)}
    numbers: Dict[Any, Any] = {}  # those of the next step, of symbols that such state alone makes
    words: Dict[Any, str] = {}
    for node in graph.nodes:
        if not node.meta.get("unbacked_bindings"):
            continue
        try:
            known: Dict[fx.Node, Any] = {}
            found = compat.found_in(node, _value(node, state, known))
        except (_NotOfState, TypeError, ValueError, RuntimeError):  # of the batch; more than one number
            continue
        names = [name for place, (name, _) in state.items() if place in known]
        numbers.update(found)
        words.update({symbol: _OTHERWISE.format(_place(node), " and ".join(names)) for symbol in found})
    for symbol, number in numbers.items():
        if symbol in settled and int(number) != settled[symbol]:
            return [words[symbol]]
    for guard in compat.assumptions(env):
        symbols = sorted(guard.free_symbols, key=str)
        if symbols and numbers.keys() >= set(symbols) and compat.decided(guard, numbers) is False:
            return [words[symbols[0]]]
    return []


_OTHERWISE = (
    "the step decides{} by {}, which it changes so that the next step goes another way, and the graph would stop there: if "
    "only the first goes this way, let it make a step before the capture"
)

_State = Dict[fx.Node, Tuple[str, Tensor]]  # by placeholder: its name, and what the step leaves


class _NotOfState(Exception):
    """A value that depends on more than such state."""


def _state_after(step: Step, traced: Traced, answers: values.Answers) -> _State:
    """The state that the step changes."""
    nodes, rebound = traced.module.graph.nodes, traced.result.rebound
    bound = dict(zip(rebound, answers.outputs[len(answers.outputs) - len(rebound) :]))
    written = {node for each in nodes for node in compat.written_by(each)}
    found: _State = {}
    for slot, node, left in zip(step.tensors, (node for node in nodes if node.op == "placeholder"), answers.inputs):
        now = bound.get(slot.name, left if node in written else None)
        if slot.kind != "input" and now is not None:
            found[node] = slot.name, now.detach()
    return found


def _value(node: fx.Node, state: _State, known: Dict[fx.Node, Any]) -> Any:
    """What the node makes of the state. `known` has what has been found."""
    if node in known:
        return known[node]
    if node in state:
        known[node] = state[node][1].clone()
    elif node.op != "call_function" or len(known) >= _MOST or compat.is_collective(node.target) or compat.is_random(node):
        raise _NotOfState
    else:
        args, keywords = fx.node.map_arg((node.args, node.kwargs), lambda given: _value(given, state, known))
        known[node] = node.target(*args, **keywords)  # type: ignore[operator]
    return known[node]


_MOST = 64  # nodes behind a decision: one by a count has few


def _place(node: fx.Node) -> str:
    line = getattr(origin_of(node), "source", None)
    return f" at {line['file']}:{line['line']}" if line else ""
