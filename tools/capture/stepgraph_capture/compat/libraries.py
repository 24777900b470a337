"""The Python behind an operator of a library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

import torch


def python_body(op: Any) -> Optional[Callable[..., Any]]:
    """The function that computes the operator on the CPU, if it is registered in Python."""
    from torch._library.custom_ops import OPDEFS

    made = OPDEFS.get(op._schema.name)
    if made is not None:
        return made._backend_fns.get("cpu", made._backend_fns.get(None))
    for key in "CPU", "CompositeExplicitAutograd":
        if f"{_full_name(op._schema)}/{key}" in torch.library._impls:
            keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
            return lambda *args, **kwargs: op.redispatch(keys, *args, **kwargs)
    return None


def _full_name(schema: Any) -> str:
    """As torch.library lists it: `namespace/name.overload`."""
    name = schema.name.replace("::", "/")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


@contextmanager
def composites_in_parts() -> Iterator[None]:
    """Modes get the parts of composite operators, as outside of an operator. Within one, where autograd's keys are
    excluded, they would get them whole (`is_nonzero` in place of a number read)."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in "AutogradFunctionality", "AutogradOther", "AutogradNestedTensor":
        excluded = excluded - torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        yield


def is_wrapper(kind: type) -> bool:
    """Whether tensors of this class hold others, to which they pass operators on (DTensor)."""
    from torch._subclasses import FakeTensor

    return issubclass(kind, torch.Tensor) and not issubclass(kind, FakeTensor) and hasattr(kind, "__tensor_flatten__")
