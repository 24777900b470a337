"""Addresses of tensors that have no memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator

import torch
from torch import Tensor

from .fakes import is_fake
from .sizes import hint
from .training import memory_of

_NOWHERE = 1 << 62  # no program has memory there
_ALIGNED = 64  # as PyTorch's own


@contextmanager
def addresses_of_fakes() -> Iterator[None]:
    """Gives fake tensors addresses: each memory its own, and views of it those of their first elements. PyTorch says 0 of
    all, and an optimizer that knows parameters by `data_ptr()` would take one for another. (To copy.deepcopy() 0 says that
    there is no storage to copy.)"""
    tensors, storages, deep_copies = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr, torch.Tensor.__deepcopy__
    copied = 0  # how many are being copied

    def of_tensor(self: Tensor) -> int:
        if not is_fake(self) or copied:
            return tensors(self)
        return _NOWHERE + memory_of(self) * _ALIGNED + hint(self.storage_offset()) * self.element_size()

    def of_storage(self: torch.UntypedStorage) -> int:
        return _NOWHERE + self._cdata * _ALIGNED if self.device.type == "meta" else storages(self)

    def deep_copy(self: Tensor, memo: Dict[int, Any]) -> Tensor:
        nonlocal copied
        copied += 1
        try:
            return deep_copies(self, memo)  # type: ignore[no-any-return]
        finally:
            copied -= 1

    torch.Tensor.__deepcopy__ = deep_copy  # type: ignore[method-assign]
    torch.Tensor.data_ptr = of_tensor  # type: ignore[method-assign]
    torch.UntypedStorage.data_ptr = of_storage  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.__deepcopy__ = deep_copies  # type: ignore[method-assign]
        del torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr
