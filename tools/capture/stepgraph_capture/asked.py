"""Questions that a step is answered otherwise while it is traced: what may be the reason where its graph differs.

What PyTorch is asked (`torch.compiler.is_compiling()`, `torch.jit.is_tracing()`) it answers as in a run. But
`is_tracing(tensor)` of transformers looks at the tensor, and `isinstance(number, int)` is asked of a stand-in.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Iterator, List, Sequence

import torch
from torch import fx

from . import recorder, source


@contextmanager
def noted() -> Iterator[List[str]]:
    """Yields the lines that ask transformers whether a tensor is fake, and hear that it is."""
    asks: List[str] = []
    utils = sys.modules.get("transformers.utils.import_utils")
    before = getattr(utils, "is_fake_tensor", None)

    def is_fake(tensor: Any) -> bool:
        answer = bool(before(tensor))
        line = source.user_line(behind=before.__code__.co_filename) if answer else None
        place = f"{line['file']}:{line['line']} in {line['function']}" if line else None
        if place is not None and place not in asks:
            asks.append(place)
        return answer

    if before is not None:
        utils.is_fake_tensor = is_fake
    try:
        yield asks
    finally:
        if before is not None:
            utils.is_fake_tensor = before


def reasons(asked: Sequence[str], graph: fx.Graph) -> List[str]:
    """What of these is in the step. asked: as noted."""
    found = []
    if asked:
        found.append(_IS_TRACING.format(asked[0] + (f" and {len(asked) - 1} more" if len(asked) > 1 else "")))
    reads = [node for node in graph.nodes if node.target is torch.ops.aten._local_scalar_dense.default]
    place = recorder.place(recorder.origin_of(reads[0]), graph) if reads else None
    if place is not None:
        found.append(_NO_INT.format(place))
    return found


_IS_TRACING = (
    "It may go another way when it is traced: is_tracing() of transformers says so of the tensors there ({}), and not of "
    "those of a run. Give the step what it would make up otherwise (a mask, token types)"
)
_NO_INT = (
    "A number read from a tensor ({}) is no int for isinstance() while it is traced: if the step asks, compute with it as "
    "it is, or give it to the step as a number"
)
