"""Where PyTorch's fake tensors and its kernels differ on how a result lies in memory: behind a batch of one.

The stride of a dimension of size 1 says nothing of memory, but operators decide by it whether an image lies channels
last, and the two kinds of tensors disagree on it. A draw of random numbers then gives each element another number.
"""

from __future__ import annotations

from typing import Any, List

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

_LARGEST = 1 << 25  # elements of a tensor that is allocated to find out
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def lay_as_kernels(mode: Any) -> None:
    """Has the mode give results the strides of kernels. (A class of its own would be unknown to higher-order ops.)"""
    theirs = mode.dispatch

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _as_kernels_lay(mode, func, args, kwargs or {}, theirs(func, types, args, kwargs or {}))

    mode.dispatch = dispatch


def _as_kernels_lay(mode: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The fake result `out` with the strides that kernels give it, if an operand is a batch of one that may lie either
    way. The kernel is asked, with zeros."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or func._schema.is_mutable:
        return out
    if torch.Tag.nondeterministic_seeded in func.tags:
        return out
    taken, made = _tensors((args, kwargs)), _tensors(out)
    if not made or not any(_is_undecided(t) for t in taken) or not all(_is_known(t) for t in (*taken, *made)):
        return out
    if any(isinstance(leaf, _SYMBOLIC) for leaf in pytree.tree_leaves((args, kwargs))):
        return out  # a kernel would settle it
    try:
        with _disable_current_modes():
            theirs = _tensors(func(*_zeros(args), **_zeros(kwargs)))
    except Exception:  # zeros are not what it takes
        return out
    strides = {id(fake): kernel.stride() for fake, kernel in zip(made, theirs) if fake.stride() != kernel.stride()}
    if not strides or [t.shape for t in made] != [t.shape for t in theirs]:
        return out
    with mode:
        return pytree.tree_map_only(Tensor, lambda t: _laid(func, t, strides[id(t)]) if id(t) in strides else t, out)


def _laid(func: Any, tensor: Tensor, strides: Any) -> Tensor:
    if any(r.alias_info for r in func._schema.returns):
        return tensor.as_strided(tensor.shape, strides, tensor.storage_offset())
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


def _tensors(tree: Any) -> List[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _zeros(tree: Any) -> Any:
    def zeros(t: Tensor) -> Tensor:
        return torch.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype).zero_()

    return pytree.tree_map_only(Tensor, zeros, tree)


def _is_known(tensor: Tensor) -> bool:
    """Whether a kernel can be asked: on the CPU, of sizes that are numbers, and not too large."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride())) and tensor.numel() <= _LARGEST


def _is_undecided(tensor: Tensor) -> bool:
    """A batch of one that lies neither row by row nor channels last, by all strides."""
    if tensor.ndim < 3 or tensor.layout is not torch.strided or type(tensor.shape[0]) is not int or tensor.shape[0] != 1:
        return False
    order = range(tensor.ndim)
    decided = [_strides(tensor, order)]
    if tensor.ndim > 3:
        decided.append(_strides(tensor, (0, *order[2:], 1)))
    return tensor.stride() not in decided


def _strides(tensor: Tensor, order: Any) -> Any:
    """Of a tensor that lies densely, the last of `order` innermost."""
    strides, step = [0] * tensor.ndim, 1
    for d in reversed(list(order)):
        strides[d], step = step, step * tensor.shape[d]
    return tuple(strides)
