"""Memory that several of the graph's inputs share: a buffer that is a view of a parameter, overlapping batches. In a
graph each input has memory of its own, so a write to one of them would not be seen in the other.
"""

from __future__ import annotations

from itertools import combinations
from typing import Collection, Dict, List, Set

import torch
from torch import Tensor, fx

from . import compat, sharding
from .errors import CaptureError
from .step import Slot, Step


def none_written(step: Step, graph: fx.Graph, rebound: Collection[str]) -> None:
    """Refuses inputs that share bytes if the step writes one of them. Trainable parameters count as written by an
    optimizer after the step, except for what the batch shares with them: every step has another batch. State that the
    step does not read, and that is `rebound`, by name, shares nothing that counts."""
    told = {node for each in graph.nodes for node in compat.written_by(each)}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    written = {id(slot) for slot, node in zip(step.tensors, placeholders) if node in told}
    replaced = {slot.name for slot, node in zip(step.tensors, placeholders) if not node.users and slot.name in rebound}
    own = step.optimizers.kept()
    by_memory: Dict[int, List[Slot]] = {}
    for slot in step.tensors:
        tensor = own.get(slot.name, slot.value)
        if tensor.layout == torch.strided and not tensor.is_nested and slot.name not in replaced:
            by_memory.setdefault(compat.memory_of(sharding.local(tensor)), []).append(slot)
    for slots in by_memory.values():
        for one, other in combinations(slots, 2):
            writer = _writer(one, other, written)
            if writer and _overlap(*(sharding.local(own.get(slot.name, slot.value)) for slot in (one, other))):
                raise CaptureError(
                    f"the {one.kind} {one.name} and the {other.kind} {other.name} share memory, which {writer} writes, "
                    f"and in a graph each has its own: {_remedy(one, other)}"
                )


def _writer(one: Slot, other: Slot, written: Set[int]) -> str:
    if {id(one), id(other)} & written:
        return "the step"
    is_of_batch = "input" in (one.kind, other.kind)
    return "an optimizer" if (one.trainable or other.trainable) and not is_of_batch else ""


def _remedy(one: Slot, other: Slot) -> str:
    if one.kind == other.kind == "parameter":
        return "tie them, as one Parameter under both names, or make one of them a copy (.clone())"
    if "input" in (one.kind, other.kind):
        return "give one of them as a copy (.clone())"
    return "make one of them a copy (.clone()), or take the view in the step"


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether these tensors of the same memory have a byte in common. Columns of one matrix have none."""
    if 0 in (one.numel(), other.numel()):
        return False
    spans = [_span(one), _span(other)]
    low, high = max(start for start, _ in spans), min(end for _, end in spans)
    if low >= high:
        return False
    if all(end - start == tensor.numel() * tensor.itemsize for tensor, (start, end) in zip((one, other), spans)):
        return True
    end = max(end for _, end in spans)
    return bool((_bytes(one, end) & _bytes(other, end))[low:high].any())


def _span(tensor: Tensor) -> List[int]:
    """The first byte, and the one after the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    start = tensor.storage_offset()
    return [start * tensor.itemsize, (start + last + 1) * tensor.itemsize]


def _bytes(tensor: Tensor, end: int) -> Tensor:
    """Which bytes of the memory before `end` belong to the tensor."""
    size = tensor.itemsize
    found = torch.zeros(end, dtype=torch.bool)
    strides = [stride * size for stride in tensor.stride()]
    found.as_strided((*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size).fill_(True)
    return found
