"""What one rank sends to another (send, recv, isend, irecv). In a graph a message is an exchange on a group of the two
ranks alone, in which one of them sends all and the other nothing; each direction has a group of its own. So what a rank
sends meets what the other receives in the order of both, whatever goes between them besides: all that PyTorch promises.
Messages with a tag, and those of another process group, meet only each other there, and have groups of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
from torch import Tensor, fx

from . import compat, recorder
from .errors import CaptureError


@dataclass(frozen=True)
class Way:
    """From rank to rank, by their numbers in the world. `via`: which of the process groups that have both."""

    source: int
    target: int
    tag: int = 0
    via: int = 0

    @property
    def name(self) -> str:
        more = (f"-tag{self.tag}" if self.tag else "") + (f"-via{self.via}" if self.via else "")
        return f"rank{self.source}to{self.target}{more}"

    @property
    def ranks(self) -> List[int]:
        return sorted((self.source, self.target))

    def counts(self, count: Any, is_mine: bool) -> List[Any]:
        """Of a rank that has `count` elements for, or from, the other."""
        other = self.target if is_mine else self.source
        return [count if rank == other else 0 for rank in self.ranks]


_ways: Dict[str, Way] = {}  # those that steps have used here, by name


def way_of(name: str) -> Optional[Way]:
    """The way that a group of this name is; None of all other groups."""
    return _ways.get(name)


def launch_send(tensor: Tensor, group: Any, target: int, tag: int) -> Tensor:
    """`target` by its number in the group. What comes of it is empty, and there once the other has the message."""
    way = _way(group, group.rank(), target, tag)
    flat = tensor.reshape(-1)
    return compat.launch_all_to_all(flat, [0, 0], way.counts(flat.numel(), True), way.name)


def launch_receive(like: Tensor, group: Any, source: int, tag: int) -> Tensor:
    """A message of the size and type of `like`, flat."""
    way = _way(group, source, group.rank(), tag)
    nothing = torch.empty(0, dtype=like.dtype, device=like.device)
    return compat.launch_all_to_all(nothing, way.counts(like.numel(), False), [0, 0], way.name)


def _way(group: Any, source: int, target: int, tag: int) -> Way:
    ranks = compat.group_ranks(group.group_name)
    ends = ranks[source], ranks[target]
    if source == target:
        raise CaptureError(f"rank {ends[0]} sends to itself, or receives from itself: a copy says the same")
    via = [name for name, members in compat.groups_of_this_rank() if set(ends) <= set(members)].index(group.group_name)
    way = Way(*ends, tag=tag, via=via)
    return _ways.setdefault(way.name, way)


Message = Tuple[Way, str, str]  # what, where


def of_graphs(graphs: Iterable[fx.Graph], rank: int) -> List[Message]:
    """Those of this rank, as they are launched."""
    found = []
    for graph in graphs:
        for node in graph.nodes:
            way = _ways.get(str(node.args[3])) if compat.is_exchange(node.target) else None
            if way is None:
                continue
            counts, value = node.args[2 if way.source == rank else 1], node.args[0].meta["val"]
            count = next((count for count in counts if not isinstance(count, int) or count), 0)
            what = f"{count if isinstance(count, int) else '?'} {str(value.dtype).replace('torch.', '')}"
            place = recorder.place(recorder.origin_of(node), graph)
            found.append((way, what, f" at {place}" if place else ""))
    return found


def check_agree(of_ranks: List[List[Message]]) -> None:
    """What each rank sends the other receives, one behind the other; otherwise they would wait, or read something
    else."""
    for way in dict.fromkeys(way for messages in of_ranks for way, _, _ in messages):
        sent, received = ([m for m in of_ranks[rank] if m[0] == way] for rank in (way.source, way.target))
        for at in range(max(len(sent), len(received))):
            here, there = sent[at : at + 1], received[at : at + 1]
            if here and there and (here[0][1] == there[0][1] or "?" in here[0][1] + there[0][1]):
                continue
            raise CaptureError(
                f"rank {way.source} sends {_told(here, at)} to rank {way.target}, which receives {_told(there, at)}"
                f"{f' with tag {way.tag}' if way.tag else ''}: each message needs its partner, of the same number of "
                "elements and type, in the same order"
            )


def _told(messages: List[Message], at: int) -> str:
    return f"{messages[0][1]}{messages[0][2]}" if messages else f"no more than {at}" if at else "nothing"
