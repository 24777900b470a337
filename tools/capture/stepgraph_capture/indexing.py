"""`rows[index.item()]` and `rows[:count]`: PyTorch takes numbers of the data as symbols only in functions, not in brackets.

In brackets such a number is the `select` of an axis here, and a tensor that bounds a slice the number that it holds: both
stay valid for other data. Numbers and tensors of one number in a list (`rows[list(first), list(second)]`) are a tensor,
made by ops. Beside tensors or masks, which change the place of the axes that they index, a row is refused as
data-dependent: the capture then goes by the example's.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from . import compat, of_numbers


class SelectsByData(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (Tensor.__getitem__, Tensor.__setitem__):
            return func(*args, **(kwargs or {}))
        entries = tuple(map(_entry, args[1])) if isinstance(args[1], tuple) else (_bounded(args[1]),)
        if any(map(_is_of_data, entries)):
            selected, rest = _selected(args[0], entries)
            return func(selected, tuple(rest), *args[2:])
        return func(args[0], entries if isinstance(args[1], tuple) else entries[0], *args[2:])


def _entry(entry: Any) -> Any:
    """A tensor of what a list holds, or any other entry."""
    if isinstance(entry, (list, tuple)) and of_numbers.holds_symbols(entry):
        return of_numbers.made(entry)
    return _bounded(entry)


def _bounded(entry: Any) -> Any:
    """A slice with the numbers that tensors hold as its bounds, or any other entry."""
    if not isinstance(entry, slice) or not any(isinstance(bound, Tensor) for bound in (entry.start, entry.stop)):
        return entry
    return slice(*(bound.item() if isinstance(bound, Tensor) else bound for bound in (entry.start, entry.stop, entry.step)))


def _is_of_data(entry: Any) -> bool:
    return isinstance(entry, torch.SymInt) and compat.is_of_data(entry)


def _takes_axis(entry: Any) -> bool:
    return entry is not None and entry is not Ellipsis


def _selected(tensor: Tensor, entries: Tuple[Any, ...]) -> Tuple[Tensor, List[Any]]:
    """The tensor with the numbers of the data selected, from the last on, and what of the index is left."""
    if any(isinstance(entry, (Tensor, list, bool)) for entry in entries):
        raise compat.data_dependent_errors()[0](torch.ops.aten._local_scalar_dense.default)
    rest: List[Any] = list(entries)
    for at in reversed(range(len(entries))):
        if not _is_of_data(entries[at]):
            continue
        axis = sum(map(_takes_axis, entries[:at]))
        if any(entry is Ellipsis for entry in entries[:at]):
            axis = tensor.dim() - sum(map(_takes_axis, rest[at:]))
        tensor = tensor.select(axis, entries[at])
        del rest[at]
    return tensor, rest or [Ellipsis]
