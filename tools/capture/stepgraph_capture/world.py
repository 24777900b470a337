"""The ranks of a job: world, mesh and process groups as the capture declares them."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

import torch
from torch import fx

from . import compat, sharding
from .errors import CaptureError

IN_PLACE = (
    "a collective that works through a handle of this process. Use the functional ones of "
    "torch.distributed._functional_collectives, or DTensor"
)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    return torch.distributed.get_rank() if is_distributed() else 0


def size() -> int:
    return torch.distributed.get_world_size() if is_distributed() else 1


def on_any_rank(flag: bool) -> bool:
    """Whether one of the ranks says so. All of them have to ask."""
    if size() == 1:
        return flag
    flags: List[Any] = [None] * size()
    torch.distributed.all_gather_object(flags, flag)
    return any(flags)


def describe(meshes: List[Any]) -> Dict[str, Any]:
    """`world`: with the mesh of most ranks and axes, when tensors are sharded over one."""
    entry: Dict[str, Any] = {"size": size(), "rank": rank()}
    if meshes:
        mesh = max(meshes, key=lambda mesh: (mesh.size(), mesh.ndim))
        if mesh.size() == size():
            entry["mesh"] = {"axes": sharding.axes(mesh), "shape": list(mesh.shape)}
    return entry


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


def groups(names: Iterable[str], meshes: List[Any]) -> List[Dict[str, Any]]:
    """`groups`: the axis is that of the mesh which owns the group, `world` for all ranks, else `group`."""
    axes = _axes_of_groups(meshes)
    found = []
    for name in names:
        ranks = compat.group_ranks(name)
        axis = axes.get(name) or ("world" if len(ranks) == size() else "group")
        found.append({"name": name, "axis": axis, "ranks": ranks})
    return found


def _axes_of_groups(meshes: List[Any]) -> Dict[str, str]:
    found: Dict[str, List[str]] = {}
    for mesh in meshes:
        for axis, name in enumerate(sharding.axes(mesh)):
            group: Optional[Any] = mesh.get_group(axis)
            words = found.setdefault(group.group_name, []) if group is not None else []
            if name not in words:
                words.append(name)
    return {group: "/".join(words) for group, words in found.items()}
