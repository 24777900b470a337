"""`torch.tensor(norm.item())`, `torch.tensor([rows, 2.0])`: PyTorch makes constants of symbolic numbers there, and fails on
tensors among them (`torch.tensor([largest.max() + 1, 0])`). Here they are ops, which stay valid for other data, other
sizes and later steps. So is `torch.arange(0, end.item())` of a float, the length of which PyTorch does not know by it.
The mean of `ctc_loss` divides by lengths of which PyTorch makes a tensor where no trace can see it.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .compat import is_fake

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_FACTORIES = (torch.tensor, torch.as_tensor)


class TensorsOfNumbers(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FACTORIES and args and holds_symbols(args[0]):
            return made(*args, **(kwargs or {}))
        if func is Tensor.new_tensor and len(args) > 1 and holds_symbols(args[1]):
            like, data = args
            return made(data, **{"dtype": like.dtype, "device": like.device, **(kwargs or {})})
        if func is torch.arange and any(isinstance(x, torch.SymFloat) for x in _bounds(args, kwargs or {}).values()):
            return _ranged(**{**(kwargs or {}), **_bounds(args, kwargs or {})})
        if func is F.ctc_loss:
            return _ctc_loss(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _bounds(args: Any, kwargs: Any) -> Dict[str, Any]:
    """Of a call of arange(): start, end and step, as far as they are given."""
    names = ("end",) if len(args) == 1 and "end" not in kwargs else ("start", "end", "step")
    return {**dict(zip(names, args)), **{name: kwargs[name] for name in ("start", "end", "step") if name in kwargs}}


def _ranged(
    end: Any,
    start: Any = 0,
    step: Any = 1,
    dtype: Optional[torch.dtype] = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """arange() of floats, by its length: start + i * step, in double as PyTorch computes it."""
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point or "out" in options:
        return torch.arange(start, end, step, dtype=dtype, requires_grad=requires_grad, **options)
    length = ((_filled(end, torch.float64, "cpu") - start) / step).ceil().long().item()
    numbers = torch.arange(length, dtype=torch.float64, **options) * step + start
    return numbers.to(dtype).requires_grad_(requires_grad)


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    if reduction != "mean" or not isinstance(target_lengths, (list, tuple)):
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    losses = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, "none", zero_infinity)
    divisors = torch.tensor([max(length, 1) for length in target_lengths], dtype=losses.dtype, device=losses.device)
    return (losses / divisors).mean()


def holds_symbols(data: Any) -> bool:
    """Whether it is a symbolic number, or lists of numbers with one, or a traced tensor of one, among them."""
    if isinstance(data, Tensor):
        return False
    is_traced = any(isinstance(leaf, _SYMBOLIC) or isinstance(leaf, Tensor) and is_fake(leaf) for leaf in _leaves(data))
    return is_traced and all(map(_is_number, _leaves(data)))


def _leaves(data: Any) -> List[Any]:
    return pytree.tree_leaves(data, is_leaf=lambda part: not isinstance(part, (list, tuple)))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, *_SYMBOLIC)) or isinstance(leaf, Tensor) and leaf.dim() == 0


def made(
    data: Any,
    dtype: Optional[torch.dtype] = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    if dtype is None:
        dtype = reduce(torch.promote_types, map(_type_of, _leaves(data)))
    return _filled(data, dtype, device).requires_grad_(requires_grad)


def _type_of(leaf: Any) -> torch.dtype:
    if isinstance(leaf, Tensor):
        return leaf.dtype
    if isinstance(leaf, bool):
        return torch.bool
    return torch.get_default_dtype() if isinstance(leaf, (float, torch.SymFloat)) else torch.int64


def _filled(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_filled(part, dtype, device) for part in data])
    if isinstance(data, Tensor):
        return data.detach().to(device=device or torch.get_default_device(), dtype=dtype)
    return torch.full((), data, dtype=dtype, device=device)
