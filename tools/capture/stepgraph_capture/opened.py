"""Objects among the inputs that hold tensors: dataclasses, namespaces, dicts and mappings of other kinds than dict (a
UserDict, a tokenizer's BatchEncoding). Their tensors are inputs of the graph like those in dicts, and each run of the
step gets a copy of the object with the run's tensors. So are those that hold the memory of nested tensors.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from itertools import islice
from types import SimpleNamespace
from typing import Any, Dict, Hashable, Iterable, List, Optional, Tuple

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import jagged
from .errors import CaptureError

_DEEPEST = 3  # levels of objects in which tensors are looked for
_MOST = 4096  # parts of each that are looked at


class _Opened:
    """An object, and its parts by key."""

    def __init__(self, original: Any, parts: Dict[Any, Any]) -> None:
        self.original, self.parts = original, parts


def opened(tree: Any) -> Any:
    """The tree, with objects that hold tensors as nodes of it."""
    return _opened_tree(tree, {})


def _opened_tree(tree: Any, known: Dict[int, jagged.Shared]) -> Any:
    return pytree.tree_map(lambda leaf: _opened(leaf, known), tree)


def _opened(leaf: Any, known: Dict[int, jagged.Shared]) -> Any:
    if isinstance(leaf, Tensor) and leaf.is_nested:
        nested = jagged.Input(leaf, known)
        return _Opened(nested, nested.parts)
    parts = _parts(leaf)
    if parts is None or not any(True for _ in _tensors(leaf, _DEEPEST)):
        return leaf
    return _Opened(leaf, {key: _opened_tree(part, known) for key, part in parts.items()})


def check(names: Iterable[str], leaves: Iterable[Any], known: Iterable[Tensor]) -> None:
    """Refuses objects of other kinds that hold tensors, which would become constants. known: what the model and the
    step hold themselves."""
    ids = {id(tensor) for tensor in known}
    for name, leaf in zip(names, leaves):
        if any(id(tensor) not in ids for tensor in _tensors(leaf, _DEEPEST)):
            raise CaptureError(
                f"the input {name} is a {type(leaf).__name__} that holds tensors, which would be constants of the graph: "
                "give them in a dict, a tuple or a dataclass"
            )


def _parts(thing: Any) -> Optional[Dict[Any, Any]]:
    """The parts of an object of a kind that can be copied with others."""
    if isinstance(thing, (dict, UserDict)):
        return dict(thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, (type, nn.Module)):
        fields = {field.name for field in dataclasses.fields(thing)} | set(getattr(thing, "__dict__", {}))
        return {name: getattr(thing, name) for name in sorted(fields) if hasattr(thing, name)}
    return dict(vars(thing)) if isinstance(thing, SimpleNamespace) else None


def _tensors(thing: Any, depth: int) -> Iterable[Tensor]:
    """The tensors that an object of the user's holds."""
    if isinstance(thing, Tensor):
        yield thing
        return
    if depth == 0 or isinstance(thing, (type, nn.Module)) or callable(thing):
        return
    parts: Iterable[Any] = ()
    if isinstance(thing, (dict, UserDict)):
        parts = list(thing.values())
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif not type(thing).__module__.startswith("torch."):
        parts = (_parts(thing) or getattr(thing, "__dict__", {})).values()
    for part in islice(parts, _MOST):
        yield from _tensors(part, depth - 1)


def _flatten(node: _Opened) -> Tuple[List[Any], Tuple[Any, List[Any]]]:
    return list(node.parts.values()), (node.original, list(node.parts))


def _flatten_with_keys(node: _Opened) -> Tuple[List[Tuple[Any, Any]], Tuple[Any, List[Any]]]:
    return [(pytree.MappingKey(key), part) for key, part in node.parts.items()], _flatten(node)[1]


def _closed(parts: Iterable[Any], context: Tuple[Any, List[Hashable]]) -> Any:
    """A copy of the object with these parts."""
    original, keys = context
    if isinstance(original, jagged.Input):
        return original.of(dict(zip(keys, parts)))
    found = copy.copy(original)
    for key, part in zip(keys, parts):
        if isinstance(found, (dict, UserDict)):
            found[key] = part
        else:
            object.__setattr__(found, key, part)  # of frozen dataclasses, too
    return found


pytree.register_pytree_node(_Opened, _flatten, _closed, flatten_with_keys_fn=_flatten_with_keys)


def step_of(key: Any) -> str:
    """The part of a name that stands for a key in a path of pytree."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
