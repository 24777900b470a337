"""What user code knows parameters and buffers by, moved to the tensors that replace them during a step and back: the
class of a parameter, hooks of gradients, attributes (`p.momentum`), and dicts and sets with parameters or their ids as
keys (`momentum[p]`, `state[id(p)]`, `state[p, "average"]`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

from torch import Tensor

from . import compat


@contextmanager
def moved(
    pairs: List[Tuple[Tensor, Tensor]], dicts: Callable[[], Sequence[Any]], with_new_attributes: bool
) -> Iterator[None]:
    """pairs: each parameter or buffer and its replacement. dicts: finds the dicts and sets that may have parameters as
    keys; called on entry and on exit. with_new_attributes: those that the step sets on the replacements are moved back,
    too."""
    with ExitStack() as undo:
        for parameter, leaf in pairs:
            undo.callback(compat.becomes(leaf, parameter))
            for hook in compat.gradient_hooks(parameter):
                undo.callback(leaf.register_hook(hook).remove)
            for hook in compat.accumulation_hooks(parameter):
                undo.callback(leaf.register_post_accumulate_grad_hook(hook).remove)
        undo.callback(lambda: _exchange(dicts(), [(leaf, parameter) for parameter, leaf in pairs]))
        _exchange(dicts(), pairs)
        for parameter, leaf in pairs:
            own = {*vars(leaf), *_OF_SHARDED}
            if with_new_attributes:
                undo.callback(_give_attributes, leaf, parameter, own)
            _give_attributes(parameter, leaf, own)
        yield


_OF_SHARDED = ("_local_tensor", "_spec")  # the parts of a DTensor


def _give_attributes(giver: Tensor, taker: Tensor, but: Set[str]) -> None:
    """but: attributes that the replacement keeps as its own."""
    vars(taker).update({key: value for key, value in vars(giver).items() if key not in but})


def _exchange(dicts: Sequence[Any], pairs: List[Tuple[Tensor, Tensor]]) -> None:
    """In each pair, replaces the first by the second wherever the first, or its id, is a key."""
    seconds: Dict[int, Tensor] = {id(first): second for first, second in pairs}

    def exchanged(key: Any) -> Any:
        if type(key) is tuple:
            parts = tuple(map(exchanged, key))
            return key if all(part is was for part, was in zip(parts, key)) else parts
        if type(key) is int:
            return id(seconds[key]) if key in seconds else key
        return seconds.get(id(key), key)

    for each in dicts:
        keys = list(each)
        exchanged_keys = list(map(exchanged, keys))
        if all(new is key for new, key in zip(exchanged_keys, keys)):
            continue
        items = exchanged_keys if isinstance(each, set) else [(new, each[key]) for new, key in zip(exchanged_keys, keys)]
        each.clear()
        each.update(items)
