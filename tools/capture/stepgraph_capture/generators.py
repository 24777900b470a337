"""Generators that the step draws from, as in `torch.randn(size, generator=g)`.

In a graph each random op has a stream of its own, and no generator. So while the step is run and traced, what it draws
from a generator is drawn from PyTorch's own, which is seeded for each run; the user's generators are left as they were.
A generator that the step makes itself is refused: it gives the same numbers in every step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Dict

import torch
from torch.overrides import TorchFunctionMode

from . import source
from .errors import CaptureError


class Generators:
    """Those that runs of the step have drawn from."""

    def __init__(self) -> None:
        self._met: Dict[int, torch.Generator] = {}  # by id; what is kept here keeps its id
        self._has_run = False

    def set_aside(self) -> TorchFunctionMode:
        """For a run."""
        self._has_run = True
        return _WithoutGenerators(self._met, is_traced=False)

    def set_aside_while_traced(self) -> Any:
        """For the trace, behind the runs. If these drew from none, it does not either."""
        if self._has_run and not self._met:
            return nullcontext()
        return _WithoutGenerators(self._met, is_traced=self._has_run)


class _WithoutGenerators(TorchFunctionMode):
    def __init__(self, met: Dict[int, torch.Generator], is_traced: bool) -> None:
        super().__init__()
        self._met, self._is_traced = met, is_traced

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        generator = kwargs.get("generator")
        if isinstance(generator, torch.Generator):
            self._see(function, generator)
            del kwargs["generator"]
        return function(*args, **kwargs)

    def _see(self, function: Any, generator: torch.Generator) -> None:
        if not self._is_traced:
            self._met[id(generator)] = generator
        elif id(generator) not in self._met:
            line = source.user_line()
            place = f" at {line['file']}:{line['line']}" if line else ""
            raise CaptureError(
                f"the step makes the torch.Generator that {getattr(function, '__name__', function)}() draws from{place}: "
                "PyTorch draws the same numbers in every step, and the graph would draw new ones. Make the generator "
                "outside the step, or the numbers an input"
            )
