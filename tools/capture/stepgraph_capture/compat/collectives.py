"""Process groups, meshes, and the functional collectives that graphs contain."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor


def group_ranks(name: str) -> List[int]:
    """The ranks of a process group, given its name in functional collectives."""
    from torch.distributed import distributed_c10d

    return list(torch.distributed.get_process_group_ranks(distributed_c10d._resolve_process_group(name)))


def wait(launched: Tensor) -> Tensor:
    return torch.ops._c10d_functional.wait_tensor(launched)


def launch_all_gather(tensor: Tensor, group: Any) -> Tensor:
    return torch.ops._c10d_functional.all_gather_into_tensor(tensor.contiguous(), group.size(), group.group_name)


def launch_reduce_scatter(tensor: Tensor, group: Any, reduction: str) -> Tensor:
    return torch.ops._c10d_functional.reduce_scatter_tensor(tensor, reduction, group.size(), group.group_name)


def launch_all_reduce(tensor: Tensor, group: Any, reduction: str) -> Tensor:
    return torch.ops._c10d_functional.all_reduce(tensor, reduction, group.group_name)


def launch_broadcast(tensor: Tensor, group: Any, source: int) -> Tensor:
    return torch.ops._c10d_functional.broadcast(tensor.contiguous(), source, group.group_name)


def launch_all_to_all(tensor: Tensor, received: Sequence[Any], sent: Sequence[Any], name: str) -> Tensor:
    """Exchanges rows: `received` and `sent` are counts per rank, the group is given by name."""
    ops = torch.ops._c10d_functional
    return ops.all_to_all_single(tensor.contiguous(), list(received), list(sent), name)


def all_gather(tensor: Tensor, group: Any) -> Tensor:
    return wait(launch_all_gather(tensor, group))


def reduce_scatter(tensor: Tensor, group: Any, reduction: str = "sum") -> Tensor:
    return wait(launch_reduce_scatter(tensor, group, reduction))


def all_reduce(tensor: Tensor, group: Any, reduction: str = "sum") -> Tensor:
    return wait(launch_all_reduce(tensor, group, reduction))


def broadcast(tensor: Tensor, group: Any, source: int = 0) -> Tensor:
    """Broadcasts from the group's first rank, or another."""
    return wait(launch_broadcast(tensor, group, source))


def groups_of_this_rank() -> List[Tuple[str, List[int]]]:
    """The process groups that hold this rank, by name, with their ranks; in the order in which they were made, which is
    the same on all ranks of each."""
    from torch.distributed import distributed_c10d

    groups = [group for group in distributed_c10d._world.pg_map if group.rank() >= 0]
    return [(group.group_name, list(torch.distributed.get_process_group_ranks(group))) for group in groups]


def root_mesh(mesh: Any) -> Any:
    """The mesh that this one is a part of, or itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources  # until 2.9

    return _mesh_resources.get_root_mesh(mesh)


def new_group(ranks: List[int]) -> Any:
    """Must be called by all ranks of the world, in the same order."""
    return torch.distributed.new_group(ranks)


def name_group(name: str, group: Any) -> None:
    """Makes functional collectives find the group by this name, too."""
    torch._C._distributed_c10d._register_process_group(name, group)


def forget_group(name: str) -> None:
    torch._C._distributed_c10d._unregister_process_group(name)
