"""The ranks of a job: world, mesh and process groups as the capture declares them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from . import compat, messages, recorder
from .errors import CaptureError

T = TypeVar("T")

IN_PLACE = (
    "a collective that works through a handle of this process. Use tensors and not objects, recv from a rank that is "
    "named, plain sums, or functional collectives"
)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    return torch.distributed.get_rank() if is_distributed() else 0


def size() -> int:
    return torch.distributed.get_world_size() if is_distributed() else 1


def is_one_for_all() -> bool:
    """Whether one process represents all ranks (backend "fake")."""
    return is_distributed() and torch.distributed.get_backend() == "fake"


def of_each_rank(value: T) -> List[T]:
    """Gathers a value from every rank. Collective. A process that represents all ranks repeats its own value."""
    if size() == 1 or is_one_for_all():
        return [value] * size()
    found: List[Any] = [None] * size()
    torch.distributed.all_gather_object(found, value)
    return found


def on_any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank. Collective."""
    return any(of_each_rank(flag))


def together(work: Callable[[], T]) -> T:
    """The result of `work`, unless it fails on any rank. A failing rank raises its own error; the others raise one that
    names that rank, instead of blocking in the next collective. Collective. `work` must not contain collectives that a
    failure on one rank could skip."""
    failure: Optional[Exception] = None
    try:
        result = work()
    except Exception as error:
        failure = error
    words = None if failure is None else f"{'' if isinstance(failure, CaptureError) else _kind(failure)}{failure}"
    of_all = of_each_rank(words)
    failed = [rank for rank, text in enumerate(of_all) if text is not None]
    if failed and is_distributed() and not is_one_for_all():
        torch.distributed.barrier()  # no rank leaves while another still reads
    if failure is not None:
        raise failure
    if failed:
        raise CaptureError(f"rank {failed[0]}: {of_all[failed[0]]}")
    return result


def _kind(error: Exception) -> str:
    return f"{type(error).__name__}: "


def check_agree(graphs: Iterable[fx.Graph]) -> None:
    """Checks that all ranks of a group launch the same collectives in the same order; otherwise they would deadlock."""
    of_ranks = of_each_rank(_launches(graphs))
    for ranks in {ranks for launches in of_ranks for ranks, _, _ in launches}:
        sequences = [[(what, where) for group, what, where in of_ranks[rank] if group == ranks] for rank in ranks]
        for rank, sequence in zip(ranks, sequences):
            at = _first_difference([what for what, _ in sequences[0]], [what for what, _ in sequence])
            if at is not None:
                raise CaptureError(
                    f"ranks {ranks[0]} and {rank} would wait for each other: where rank {ranks[0]} launches "
                    f"{_told(sequences[0], at)}, rank {rank} launches {_told(sequence, at)}. Ranks of a group have to "
                    "launch the same collectives in the same order"
                )


def check_messages(graphs: Iterable[fx.Graph]) -> None:
    """Checks that sends and receives match. A process that represents all ranks cannot know the receives."""
    of_ranks = of_each_rank(messages.of_graphs(graphs, rank()))
    if not is_one_for_all():
        messages.check_agree(of_ranks)


Launch = Tuple[Tuple[int, ...], str, str]  # the group's ranks, what, where


def _launches(graphs: Iterable[fx.Graph]) -> List[Launch]:
    found = []
    for graph in graphs:
        for node in graph.nodes:
            if not compat.is_launch(node.target):
                continue
            names = [argument.name for argument in node.target._schema.arguments]
            given = {**dict(zip(names, node.args)), **node.kwargs}
            if messages.way_of(str(given["group_name"])) is not None:
                continue
            ranks = tuple(compat.group_ranks(str(given["group_name"])))
            origin = recorder.origin_of(node)
            where = f" for {origin.module}" if origin is not None and origin.module else ""
            found.append((ranks, _what(node, given), where))
    return found


def _what(node: fx.Node, given: Dict[str, Any]) -> str:
    """The op, and what its operands must have in common on all ranks: no sizes that are symbolic or belong to an
    all-to-all."""
    name = node.target._schema.name.rpartition("::")[2].rstrip("_")
    words = [str(given[key]) for key in ("reduce_op", "src") if key in given]
    for operand in pytree.tree_leaves(given.get("input", given.get("inputs"))):
        value = operand.meta.get("val") if isinstance(operand, fx.Node) else None
        if isinstance(value, Tensor):
            count = value.numel() if all(isinstance(size, int) for size in value.shape) else "?"
            is_counted = count != "?" and not name.startswith("all_to_all")
            words.append(f"{count} {value.dtype}" if is_counted else f"{value.dtype}")
    return f"{name}({', '.join(words).replace('torch.', '')})"


def _first_difference(left: List[str], right: List[str]) -> Optional[int]:
    if left == right:
        return None
    return next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))


def _told(sequence: List[Tuple[str, str]], at: int) -> str:
    return "".join(sequence[at]) if at < len(sequence) else "no more"


@contextmanager
def message_groups(graphs: Iterable[fx.Graph]) -> Iterator[None]:
    """Creates the groups in which ranks of these graphs send messages. Collective."""
    used = [way for way in map(messages.way_of, group_names(graphs)) if way is not None]
    ways = {way.name: way for of_rank in of_each_rank(used) for way in of_rank}
    groups = [(name, compat.new_group(ways[name].ranks)) for name in sorted(ways)]
    mine = [(name, group) for name, group in groups if rank() in ways[name].ranks]
    for name, group in mine:
        compat.name_group(name, group)
    try:
        yield
    finally:
        for name, _ in mine:
            compat.forget_group(name)
    of_each_rank(None)  # destroy groups only when no rank uses them any more
    for _, group in mine:
        torch.distributed.destroy_process_group(group)


@contextmanager
def second_groups(graph: fx.Graph) -> Iterator[Dict[str, str]]:
    """Creates a second group for each that the graph names; yields its name by that of the first. Collective."""
    mine = [(name, tuple(compat.group_ranks(name))) for name in group_names([graph])]
    declared = sorted({group for of_rank in of_each_rank(mine) for group in of_rank})
    created = {group: compat.new_group(list(group[1])) for group in declared}
    yield {group[0]: created[group].group_name for group in mine}
    of_each_rank(None)  # destroy groups only when no rank uses them any more
    for group in mine:
        torch.distributed.destroy_process_group(created[group])


def group_names(graphs: Iterable[fx.Graph]) -> List[str]:
    """The process groups that these graphs name, in order of first use."""
    found: Dict[str, None] = {}
    for graph in graphs:
        for node in graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.op != "call_function" or schema is None:
                continue
            _check_functional(node)
            for position, argument in enumerate(schema.arguments):
                if argument.name == "group_name":
                    value = node.args[position] if position < len(node.args) else node.kwargs.get("group_name")
                    found.setdefault(str(value))
    return list(found)


def _check_functional(node: fx.Node) -> None:
    if node.target.namespace == "c10d":
        raise CaptureError(f"the step calls {node.target}, {IN_PLACE}")


def groups(names: Iterable[str], axes: Mapping[str, str]) -> List[Dict[str, Any]]:
    """The entry `groups`. The axis is that of the mesh that owns the group, otherwise `world` for all ranks or `group`;
    for messages it is the group's name."""
    found = []
    for name in names:
        way = messages.way_of(name)
        ranks = way.ranks if way is not None else compat.group_ranks(name)
        axis = name if way is not None else axes.get(name) or ("world" if len(ranks) == size() else "group")
        found.append({"name": name, "axis": axis, "ranks": ranks})
    return found
