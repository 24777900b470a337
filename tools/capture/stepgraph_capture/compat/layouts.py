"""Where the strides of PyTorch's fake tensors and of its kernels differ.

For a batch of one: the stride of a dimension of size 1 does not affect the layout, but operators decide by it whether an
image is channels-last, and fake and real tensors disagree on it. Random ops then give elements other numbers.

For permuted operands of some kernels (batch norms): a view of the result is possible by the strides of one alone.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

_LARGEST = 1 << 25  # elements of a tensor that is allocated for this
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def lay_as_kernels(mode: Any) -> None:
    """Makes the mode give results the strides of kernels. (Higher-order ops would not know a subclass of the mode.)"""
    theirs = mode.dispatch

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _as_kernels_lay(mode, func, args, kwargs or {}, theirs(func, types, args, kwargs or {}))

    mode.dispatch = dispatch


def lay_reals_as_fakes(func: Any, out: Any, example: Callable[[Any], Optional[int]]) -> None:
    """Gives the real tensors beside the fake results of `func` the strides of these, which the graph will have.

    example: the number of a size in the example, None if it is not known yet.
    """
    if not isinstance(func, torch._ops.OpOverload) or any(r.alias_info for r in func._schema.returns):
        return
    for fake in _tensors(out):
        real = getattr(fake, "real_tensor", None)
        if real is None or real.layout is not torch.strided:
            continue
        strides = [example(stride) for stride in fake.stride()]
        steps = [(n, ours, theirs) for n, ours, theirs in zip(real.shape, strides, real.stride()) if n > 1]
        if any(ours != theirs for _, ours, theirs in steps) and all(ours for _, ours, _ in steps):
            with _disable_current_modes(), torch.no_grad():
                laid = torch.empty_strided(real.shape, strides, dtype=real.dtype, device=real.device)
                fake.real_tensor = laid.copy_(real)  # type: ignore[attr-defined]


def _as_kernels_lay(mode: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The fake result `out` with the strides that kernels give it. Runs the kernel on zeros, if an operand is a batch
    of one with an ambiguous layout."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or func._schema.is_mutable:
        return out
    if torch.Tag.nondeterministic_seeded in func.tags:
        return out
    taken = _tensors((*args, *kwargs.values()))
    if not any(map(_is_undecided, taken)):
        return out
    made = _tensors(out)
    if not made or not all(map(_is_known, (*taken, *made))):
        return out
    if any(isinstance(leaf, _SYMBOLIC) for leaf in pytree.tree_leaves((args, kwargs))):
        return out  # running a kernel would turn it into a constant
    try:
        with _disable_current_modes():
            theirs = _tensors(func(*_zeros(args), **_zeros(kwargs)))
    except Exception:  # the op does not accept zeros
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
    """The tensors among arguments or results of an op, in order. Called for each op: pytree would be slow."""
    if isinstance(tree, (tuple, list)):
        return [tensor for element in tree for tensor in _tensors(element)]
    return [tree] if isinstance(tree, Tensor) else []


def _zeros(tree: Any) -> Any:
    def zeros(t: Tensor) -> Tensor:
        return torch.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype).zero_()

    return pytree.tree_map_only(Tensor, zeros, tree)


def _is_known(tensor: Tensor) -> bool:
    """Whether a kernel can be run on it: on the CPU, with sizes that are numbers, and not too large."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride())) and tensor.numel() <= _LARGEST


def _is_undecided(tensor: Tensor) -> bool:
    """Whether it is a batch of one whose strides are neither row-major nor channels-last."""
    if tensor.ndim < 3 or tensor.layout is not torch.strided or type(tensor.shape[0]) is not int or tensor.shape[0] != 1:
        return False
    order = range(tensor.ndim)
    decided = [_strides(tensor, order)]
    if tensor.ndim > 3:
        decided.append(_strides(tensor, (0, *order[2:], 1)))
    return tensor.stride() not in decided


def _strides(tensor: Tensor, order: Any) -> Any:
    """Dense strides in which the last of `order` is innermost."""
    strides, step = [0] * tensor.ndim, 1
    for d in reversed(list(order)):
        strides[d], step = step, step * tensor.shape[d]
    return tuple(strides)
