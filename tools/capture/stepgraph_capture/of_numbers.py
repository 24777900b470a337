"""`torch.tensor(norm.item())`, `torch.tensor([rows, 2.0])`: PyTorch makes constants of symbolic numbers there. Here they
are ops, which stay valid for other data, other sizes and later steps.
"""

from __future__ import annotations

from typing import Any, List, Optional

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_FACTORIES = (torch.tensor, torch.as_tensor)


class TensorsOfNumbers(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FACTORIES and args and _holds_symbols(args[0]):
            return _made(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _holds_symbols(data: Any) -> bool:
    """Whether it is a symbolic number, or lists of numbers with one among them."""
    return any(isinstance(leaf, _SYMBOLIC) for leaf in _leaves(data)) and all(map(_is_number, _leaves(data)))


def _leaves(data: Any) -> List[Any]:
    return pytree.tree_leaves(data, is_leaf=lambda part: not isinstance(part, (list, tuple)))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, *_SYMBOLIC))


def _made(
    data: Any,
    dtype: Optional[torch.dtype] = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    if dtype is None:
        is_fraction = any(isinstance(leaf, (float, torch.SymFloat)) for leaf in _leaves(data))
        dtype = torch.get_default_dtype() if is_fraction else torch.int64
    return _filled(data, dtype, device).requires_grad_(requires_grad)


def _filled(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_filled(part, dtype, device) for part in data])
    return torch.full((), data, dtype=dtype, device=device)
