"""A step's constants. Small ones are stored as bytes in the graph, of others a digest, and their numbers in a file."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Tuple

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import compat, recorder, sharding, world
from .places import Place, is_strided

MOST_HELD_BYTES = 256


def in_pairs(graph: fx.Graph, mode: FakeTensorMode) -> None:
    """Files hold no complex128: a constant of it, as a table of rotations often is, becomes pairs of float64, of which
    a node makes the complex numbers."""
    module = graph.owning_module
    for node in [node for node in graph.nodes if node.op == "get_attr" and node.users]:
        constant = getattr(module, node.target, None)
        is_wide = isinstance(constant, Tensor) and constant.dtype == torch.complex128
        origin = next(filter(None, map(recorder.origin_of, node.users)), None)
        if not is_wide or origin is None:
            continue
        name = f"{node.target}_pairs"
        setattr(module, name, torch.view_as_real(constant.detach().resolve_conj()))
        with graph.inserting_before(node):
            pairs = graph.get_attr(name)
            whole = graph.call_function(torch.ops.aten.view_as_complex.default, (pairs,))
        with mode:
            twin = torch.empty_strided(constant.shape, constant.stride(), dtype=constant.dtype, device=constant.device)
        whole.meta = {"val": twin, recorder.KEY: replace(origin, seq=None)}
        node.replace_all_uses_with(whole)
        graph.erase_node(node)


def names_of(constants: Mapping[str, Tensor], places: Mapping[str, Place]) -> Dict[str, str]:
    """What the user's code calls them, of those that stand in a place that has a name: `reference.layers.0.weight`."""
    there = {name: place.tensor for name, place in places.items() if place.is_there()}
    at = {_span(tensor): name for name, tensor in reversed(there.items()) if is_strided(tensor)}
    found = {name: at.get(_span(constant)) for name, constant in constants.items() if is_strided(constant)}
    return {name: place for name, place in found.items() if place is not None}


def _span(tensor: Tensor) -> Tuple[Any, ...]:
    """What two tensors have in common that are one."""
    mine = sharding.local(tensor)
    return compat.memory_of(mine), mine.storage_offset(), tuple(mine.shape), mine.stride(), mine.dtype


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
