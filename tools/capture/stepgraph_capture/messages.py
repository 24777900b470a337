"""What one rank sends to another (send, recv, isend, irecv). In a graph a message is an all-to-all on a group of these
two ranks, in which one sends everything and the other nothing; each direction has its own group. So sends and receives
match in the order of both ranks, regardless of other messages in between: all that PyTorch guarantees. Messages with a
tag, and those of another process group, match only each other, and have groups of their own.
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
    """The direction of messages between two ranks, numbered in the world. `via`: the process group, by its index among
    the groups that contain both."""

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
        """The counts of an all-to-all in which a rank exchanges `count` elements with the other. is_mine: this rank
        sends."""
        other = self.target if is_mine else self.source
        return [count if rank == other else 0 for rank in self.ranks]


_ways: Dict[str, Way] = {}  # those that steps have used in this process, by name


def way_of(name: str) -> Optional[Way]:
    """The way whose group has this name; None for other groups."""
    return _ways.get(name)


def launch_send(tensor: Tensor, group: Any, target: int, tag: int) -> Tensor:
    """`target` is a rank of the group. The result is empty, and available once the message is received."""
    way = _way(group, group.rank(), target, tag)
    flat = tensor.reshape(-1)
    return compat.launch_all_to_all(flat, [0, 0], way.counts(flat.numel(), True), way.name)


def launch_receive(like: Tensor, group: Any, source: int, tag: int) -> Tensor:
    """Receives a message with the size and type of `like`, flattened."""
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


Message = Tuple[Way, str, str]  # where it goes, what it is, and the line that asked for it


def of_graphs(graphs: Iterable[fx.Graph], rank: int) -> List[Message]:
    """The messages of this rank, in launch order."""
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
    """Checks that each message sent is received, in the same order; otherwise ranks would block, or receive the wrong
    data."""
    for way in dict.fromkeys(way for messages in of_ranks for way, _, _ in messages):
        sent, received = ([m for m in of_ranks[rank] if m[0] == way] for rank in (way.source, way.target))
        for at in range(max(len(sent), len(received))):
            here, there = sent[at : at + 1], received[at : at + 1]
            if here and there and _fit(here[0][1], there[0][1]):
                continue
            raise CaptureError(
                f"rank {way.source} sends {_told(here, at)} to rank {way.target}, which receives {_told(there, at)}"
                f"{f' with tag {way.tag}' if way.tag else ''}: each message needs its partner, of the same number of "
                "elements and type, in the same order"
            )


def _fit(sent: str, received: str) -> bool:
    """Whether one message can be the other's partner. A count that only the data decides ("?") may be any."""
    (count, dtype), (other_count, other_dtype) = sent.split(" "), received.split(" ")
    return dtype == other_dtype and (count == other_count or "?" in (count, other_count))


def _told(messages: List[Message], at: int) -> str:
    return f"{messages[0][1]}{messages[0][2]}" if messages else f"no more than {at}" if at else "nothing"
