"""What user code attaches to parameters, moved to the tensors that replace them during a step: hooks of gradients, and
dicts with parameters as keys (`momentum[p]`, `optimizers[p].step()`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from torch import Tensor

from . import compat


@contextmanager
def moved(pairs: List[Tuple[Tensor, Tensor]], dicts: Sequence[Dict[Any, Any]] = ()) -> Iterator[None]:
    """pairs: each parameter and its replacement, which takes over its hooks and its keys in `dicts`."""
    leaves = {id(parameter): leaf for parameter, leaf in pairs}
    parameters = {id(leaf): parameter for parameter, leaf in pairs}
    with ExitStack() as undo:
        for parameter, leaf in pairs:
            for hook in compat.gradient_hooks(parameter):
                undo.callback(leaf.register_hook(hook).remove)
            for hook in compat.accumulation_hooks(parameter):
                undo.callback(leaf.register_post_accumulate_grad_hook(hook).remove)
        for each in dicts:
            undo.callback(_exchange, each, parameters)
            _exchange(each, leaves)
        yield


def _exchange(kept: Dict[Any, Any], keys: Dict[int, Tensor]) -> None:
    items = [(keys.get(id(key), key), value) for key, value in kept.items()]
    kept.clear()
    kept.update(items)
