"""Tensors by their bits."""

from __future__ import annotations

import torch
from torch import Tensor


def changed(before: Tensor, after: Tensor) -> bool:
    """Whether any bit differs; a NaN equals itself."""
    return not torch.equal(_bits(before), _bits(after))


def _bits(tensor: Tensor) -> Tensor:
    row = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return row.as_strided(row.shape, (1,)).view(torch.uint8)  # a tensor of one element may have any stride
