"""Digests of a step's constants: small ones are stored as bytes in the graph, others as a hash."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from . import world

MOST_HELD_BYTES = 256


def add_data(inputs: List[Dict[str, Any]], constants: Dict[str, Tensor]) -> None:
    """Adds digests to the inputs of a capture, except for constants that differ between ranks: one graph stands for all
    ranks, and each rank's files have its own. All ranks must call."""
    mine = {name: _data(constant) for name, constant in constants.items() if _has_data(constant)}
    of_ranks = world.of_each_rank(mine)
    for entry in inputs:
        data = mine.get(entry["name"])
        if data is not None and all(theirs.get(entry["name"], data) == data for theirs in of_ranks):
            entry["digest"] = data


def _has_data(constant: Tensor) -> bool:
    return not (constant.is_meta or isinstance(constant, FakeTensor))


def _data(constant: Tensor) -> str:
    resolved = constant.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = resolved.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"bytes:{data.hex()}" if len(data) <= MOST_HELD_BYTES else f"sha256:{hashlib.sha256(data).hexdigest()}"
