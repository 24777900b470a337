"""The parameters of a module, and the class of one, for the tensor that replaces it during a step."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, Tuple

from torch import Tensor, nn

from .fakes import is_fake


def named_parameters(module: nn.Module, **options: Any) -> Iterator[Tuple[str, nn.Parameter]]:
    """By the names that its class gives them (PyTorch's checkpoint wrapper leaves its own out). A class may override the
    method with PyTorch's older arguments: then all of them, by their own names."""
    try:
        return module.named_parameters(**options)
    except TypeError:
        return nn.Module.named_parameters(module, **options)


def named_buffers(module: nn.Module, **options: Any) -> Iterator[Tuple[str, Tensor]]:
    try:
        return module.named_buffers(**options)
    except TypeError:
        return nn.Module.named_buffers(module, **options)


def becomes(tensor: Tensor, parameter: Tensor) -> Callable[[], None]:
    """Makes the tensor one of the parameter's class, as isinstance() and its methods have it; returns what undoes that.
    A sharded parameter is known as one by an attribute, which moves with the others."""
    was, kind = type(tensor), type(parameter)
    if not issubclass(kind, nn.Parameter) or not (was is Tensor or is_fake(tensor)):
        return lambda: None
    tensor.__class__ = kind if was is Tensor else _fake_kind(was, kind)
    if was is not Tensor:
        tensor._is_param = True  # type: ignore[attr-defined]

    def undo() -> None:
        tensor.__class__ = was
        vars(tensor).pop("_is_param", None)

    return undo


@functools.lru_cache(maxsize=None)
def _fake_kind(fake: Any, kind: Any) -> Any:
    return fake if kind is nn.Parameter else type(kind.__name__, (fake, kind), {"__module__": kind.__module__})
