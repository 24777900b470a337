"""DTensors: tensors that are sharded over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from torch import Tensor

if TYPE_CHECKING:
    from .meshes import Meshes

try:
    from torch.distributed.tensor import DTensor, Partial
except ImportError:  # a PyTorch without distributed
    DTensor = None  # type: ignore[assignment,misc]


def is_sharded(tensor: Any) -> bool:
    return DTensor is not None and isinstance(tensor, DTensor)


def local(tensor: Tensor) -> Tensor:
    """This rank's part; the tensor itself when it is not sharded."""
    return tensor.detach().to_local() if is_sharded(tensor) else tensor.detach()


def rebind(tensor: Tensor, mine: Tensor) -> None:
    """Makes `mine` this rank's part, without autograd."""
    if is_sharded(tensor):
        tensor._local_tensor = mine  # type: ignore[attr-defined]
    else:
        tensor.data = mine


def part(tensor: Tensor) -> Tensor:
    """Same as local(), within a step, followed by autograd and the tracer."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole(mine: Tensor, like: Tensor) -> Tensor:
    """The sharded tensor whose local part is `mine`, laid out like `like`. Gradients come back to `mine` in this
    layout, whatever layout the model gave them."""
    if not is_sharded(like):
        return mine
    return DTensor.from_local(
        mine, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def leaf(mine: Tensor, like: Tensor) -> Tensor:
    """Same as whole(), as an autograd leaf if `mine` is one: a sharded tensor has a `.grad` of its own."""
    if not is_sharded(like):
        return mine
    return whole(mine.detach(), like).requires_grad_(mine.requires_grad)


def as_laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part of the tensor, redistributed like `like`."""
    if not is_sharded(tensor):
        return tensor
    return tensor.redistribute(like.device_mesh, like.placements).to_local()


def accumulate(leaf: Tensor, mine: Optional[Tensor]) -> None:
    """Adds this rank's part of a gradient to the leaf's."""
    if mine is None:
        return
    gradient = whole(mine, leaf)
    leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def plain(tensor: Tensor) -> Tensor:
    """The full value of a tensor that may be sharded."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def largest(mine: Tensor, like: Tensor) -> Tensor:
    """The maximum over the ranks that `like` is sharded over."""
    if not is_sharded(like):
        return mine
    placements = [placement if placement.is_replicate() else Partial("max") for placement in like.placements]
    return DTensor.from_local(mine, like.device_mesh, placements, run_check=False).full_tensor()


def describe(tensor: Any, meshes: Meshes) -> Dict[str, Any]:
    """The capture's description of a sharded tensor; empty for others."""
    if not is_sharded(tensor):
        return {}
    return {
        "global_shape": [int(size) for size in tensor.shape],
        "placements": [_placement(placement) for placement in tensor.placements],
        "mesh_axes": meshes.axes(tensor.device_mesh),
    }


def _placement(placement: Any) -> str:
    """S(dim), R, P, or _S(dim, split factor): as newer releases of PyTorch print them."""
    if hasattr(placement, "split_factor"):
        return f"_S({placement.dim}, {placement.split_factor})"
    if placement.is_shard():
        return f"S({placement.dim})"
    return "R" if placement.is_replicate() else f"P({placement.reduce_op})"
