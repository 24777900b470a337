"""Operators that a library has written in Python (`torch.library.custom_op`, `Library.impl`): the graph gets what they
compute in place of their names, which nothing but that library could run.
"""

from __future__ import annotations

from typing import Any, Dict, List

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat
from .errors import CaptureError

# PyTorch's own namespaces (that of flex attention has a rule for vmap), and those of which the op table has rows.
_KEPT_NAMESPACES = {
    "aten", "prim", "prims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "ao", "bucketing",
    "flex_lib", "torch_attn", "torchtitan", "torchvision",
}  # fmt: skip


class Bodies(TorchDispatchMode):
    """Runs an operator's Python in place of the operator. Where that cannot be traced, the graph holds the operator."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._as_they_are: Dict[str, str] = {}  # operator: why

    @property
    def notes(self) -> List[str]:
        return [_KEPT.format(name, why) for name, why in self._as_they_are.items()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(compat.is_wrapper, types)):
            return NotImplemented  # it comes back with the tensors that these hold
        kwargs = kwargs or {}
        is_known = not isinstance(func, torch._ops.OpOverload) or func.namespace in _KEPT_NAMESPACES
        body = None if is_known else compat.python_body(func)
        if body is None:
            return func(*args, **kwargs)
        try:
            with self, compat.composites_in_parts(), torch.no_grad():
                return body(*args, **kwargs)
        except (CaptureError, *compat.data_dependent_errors()):
            raise
        except Exception as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            if func._schema.is_mutable:
                raise CaptureError(_HALF_WRITTEN.format(func, why)) from error
            self._as_they_are[str(func)] = why
            return func(*args, **kwargs)


_KEPT = (
    "the Python of {} cannot be traced ({}): the graph holds the operator by its name, which sg-run cannot run. Write "
    "what it computes in PyTorch's own operators"
)
_HALF_WRITTEN = "the Python of {}, which writes into its arguments, cannot be traced: {}"
