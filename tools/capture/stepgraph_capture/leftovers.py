"""What modules cache for their next call in attributes or buffers while it runs: positions, masks, indices. During
tracing these caches fill with fake tensors, unusable in later runs, so they are removed afterwards.
"""

from __future__ import annotations

import functools
import gc
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import compat
from .beside import OF_MODULES, entries
from .containers import LONGEST


_DEEP = 3  # objects within objects


@contextmanager
def removed(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[List[Tuple[str, Tensor]]]:
    """modules: with their names. On exit, restores or removes attributes that hold fake tensors; other changes stay.
    Clears caches of .lru_cache that have grown meanwhile, except those of torch and this package.

    Yields a list that has, after exit, the names and tensors of attributes that fake tensors had replaced."""
    kept = [(path, each) for path, module in modules for each in (vars(module), module._buffers)]
    before = [{name: _copied(value) for name, value in _own(each).items()} for _, each in kept]
    filled = {id(cache): cache.cache_info().currsize for cache in _caches()}
    replaced: List[Tuple[str, Tensor]] = []
    try:
        yield replaced
    finally:
        for (path, each), known in zip(kept, before):
            for name, tensor in _restore(each, known):
                replaced.append((".".join(filter(None, (path, name))), tensor))
        for cache in _caches():
            if cache.cache_info().currsize > filled.get(id(cache), 0):
                cache.cache_clear()


def _caches() -> List[Any]:
    kind = type(functools.lru_cache(_copied))
    found = [thing for thing in gc.get_objects() if type(thing) is kind]
    ours = ("torch", __package__)
    return [cache for cache in found if not (getattr(cache, "__module__", None) or "torch").startswith(ours)]


def _own(attributes: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in OF_MODULES}


def _copied(value: Any) -> Tuple[Any, Any]:
    """The object, and a copy of its content if it is a container."""
    return value, (value.copy() if type(value) in (dict, list, set) else None)


def _restore(attributes: Dict[str, Any], known: Dict[str, Tuple[Any, Any]]) -> Iterator[Tuple[str, Tensor]]:
    """Restores what holds fake tensors. Yields the tensors that had been replaced, with their attribute."""
    for name, value in _own(attributes).items():
        now = _tensors(value)
        if not any(map(compat.is_fake, now)):
            continue
        if name not in known:
            del attributes[name]
            continue
        was, content = known[name]
        before = _tensors(was if content is None else content)
        if content is not None:
            was.clear()
            was.extend(content) if isinstance(was, list) else was.update(content)
        attributes[name] = was
        yield from ((name, tensor) for tensor in before if all(tensor is not one for one in now))


def _tensors(value: Any, deep: int = _DEEP) -> List[Tensor]:
    """Those in containers, and in the attributes of objects that are no modules (a distribution in a cache)."""
    if isinstance(value, (list, tuple, dict, set)) and entries(value) > LONGEST and deep < _DEEP:
        return []
    leaves: List[Any] = list(value) if isinstance(value, set) else pytree.tree_leaves(value)
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    for leaf in leaves if deep else ():
        if not isinstance(leaf, (Tensor, nn.Module, type, ModuleType)) and not callable(leaf):
            for attribute in getattr(leaf, "__dict__", {}).values():
                found += _tensors(attribute, deep - 1)
    return found
