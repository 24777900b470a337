"""The block masks of flex attention, and the biases of torch.nn.attention."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Sequence

import torch
from torch import Tensor

from .fakes import real


def is_block_mask(value: Any) -> bool:
    from torch.nn.attention.flex_attention import BlockMask

    return isinstance(value, BlockMask)


def split_block_mask(mask: Any, sizes: Sequence[int]) -> List[Any]:
    """Masks for consecutive parts of the batch. Each part's mask function gets indices into the whole batch."""
    parts, start = [], 0
    for size in sizes:
        part = copy.copy(mask)
        for name, value in vars(mask).items():
            if isinstance(value, Tensor) and value.dim() >= 2 and value.shape[0] != 1:  # size 1 applies to all
                setattr(part, name, value.narrow(0, start, size).contiguous())
        part.mask_mod = _moved(mask.mask_mod, start)
        parts.append(part)
        start += size
    return parts


def _moved(mask_mod: Callable[..., Tensor], start: int) -> Callable[..., Tensor]:
    def moved(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Tensor:
        return mask_mod(b + start, h, q_idx, kv_idx)

    return moved if start else mask_mod


@contextmanager
def causal_biases() -> Iterator[None]:
    """Lets a traced step make `torch.nn.attention.bias.causal_lower_right(rows, columns)`: a tensor that nobody reads,
    whose class is known, which PyTorch would make of a fake one."""
    from torch.nn.attention.bias import CausalBias

    def new(kind: Any, *_: Any, **__: Any) -> Any:
        return real(lambda: torch.Tensor._make_subclass(kind, torch.empty(0)))

    CausalBias.__new__ = new  # type: ignore[assignment]
    try:
        yield
    finally:
        del CausalBias.__new__
