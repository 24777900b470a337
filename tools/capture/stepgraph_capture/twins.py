"""Python versions, which accept symbols, of composite ops that take plain sizes in C++."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor


def _max_pool1d(rows: Tensor, *more: Any, **named: Any) -> Tensor:
    return torch.ops.aten.max_pool1d_with_indices.default(rows, *more, **named)[0]


def _cumprod_backward(grad: Tensor, rows: Tensor, dim: int, products: Tensor) -> Tensor:
    """Elements after the first zero of a line contribute only to the gradient of that zero, which is the sum over
    products of all other elements, up to the second zero."""
    zeros = (rows == 0).cumsum(dim)
    is_first = (rows == 0) & (zeros == 1)
    one = torch.ones((), dtype=rows.dtype, device=rows.device)
    before = _sum_from_here((products.conj() * grad), dim) / torch.where(zeros == 0, rows.conj(), one)
    of_others = torch.where(is_first, one, rows).cumprod(dim)
    at_first = _sum_from_here(torch.where(zeros == 1, of_others.conj() * grad, 0), dim)
    return torch.where(zeros == 0, before, torch.where(is_first, at_first, 0))


def _sum_from_here(rows: Tensor, dim: int) -> Tensor:
    return rows.flip(dim).cumsum(dim).flip(dim)


def _take_along_dim(rows: Tensor, indices: Tensor, dim: Optional[int] = None) -> Tensor:
    """Broadcasts both to each other, except along `dim`."""
    if dim is None:
        return rows.reshape(-1).gather(0, indices.reshape(-1))
    dim %= rows.dim()
    sizes = [list(tensor.shape) for tensor in (rows, indices)]
    lengths = [size[dim] for size in sizes]
    for size in sizes:
        size[dim] = 1
    common = torch.broadcast_shapes(*sizes)
    rows, indices = (t.expand(*common[:dim], n, *common[dim + 1 :]) for t, n in zip((rows, indices), lengths))
    return rows.gather(dim, indices)


def _masked_select_backward(grad: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    whole = rows.expand(torch.broadcast_shapes(rows.shape, mask.shape))
    return torch.zeros_like(whole).masked_scatter(mask, grad)


TWINS: Dict[Any, Callable[..., Any]] = {
    torch.ops.aten.max_pool1d.default: _max_pool1d,
    torch.ops.aten.cumprod_backward.default: _cumprod_backward,
    torch.ops.aten.take_along_dim.default: _take_along_dim,
    torch.ops.aten.masked_select_backward.default: _masked_select_backward,
}
