"""Attention over rows whose number the data decides (`torch.split(x, lengths.tolist())`). PyTorch takes its fused kernel
for all numbers but that of a symbol that it cannot look at, for which it multiplies matrices: another step than the one
that runs, with all scores in memory. Here the choice is that of other numbers.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from . import compat

_FLASH = 1  # of torch.nn.attention.SDPBackend
_ANY = 8  # in place of symbols, as good as any other


class ChosenByOtherSizes(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            found = fused(*args, **(kwargs or {}))
            if found is not None:
                return found
        return func(*args, **(kwargs or {}))


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Optional[Tensor]:
    """The fused kernel's result; None if PyTorch chooses rightly, or would choose otherwise."""
    three = (query, key, value)
    if query.device.type != "cpu" or not any(map(_is_of_data, three)):
        return None
    if any(tensor.dim() == 0 or tensor.stride(-1) != 1 for tensor in three):
        return None
    if attn_mask is not None and not compat.is_fake(attn_mask):  # a class of its own, which decides itself
        return None
    like = _like(attn_mask) if attn_mask is not None else None
    settings = (like, dropout_p, is_causal)
    chosen = lambda: torch._fused_sdp_choice(*map(_like, three), *settings, scale=scale, enable_gqa=enable_gqa)  # noqa: E731
    if compat.real(chosen) != _FLASH:
        return None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -math.inf).to(query.dtype)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def _like(tensor: Tensor) -> Tensor:
    """A real tensor with numbers in place of symbols."""
    sizes = [_ANY if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    make = lambda: torch.empty(sizes, dtype=tensor.dtype, requires_grad=tensor.requires_grad)  # noqa: E731
    return compat.real(make)


def _is_of_data(tensor: Tensor) -> bool:
    return any(map(compat.is_of_data, tensor.shape))
