"""What a model caches for its next call outside of parameters and buffers: positions, masks, indices.

While a step is traced these caches fill with fake tensors, unusable in later runs, so they are removed afterwards.
"""

from __future__ import annotations

import functools
import gc
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import compat

_OF_TORCH = set(vars(nn.Module()))


@contextmanager
def removed(model: nn.Module) -> Iterator[None]:
    """On exit attributes that hold fake tensors are restored or removed. All else stays: hooks, counters, marks.
    What .lru_cache has taken in since, of functions outside of torch, is forgotten."""
    modules = list(model.modules())
    before = [{name: _copied(value) for name, value in _own(module).items()} for module in modules]
    filled = {id(cache): cache.cache_info().currsize for cache in _caches()}
    try:
        yield
    finally:
        for module, known in zip(modules, before):
            _restore(module, known)
        for cache in _caches():
            if cache.cache_info().currsize > filled.get(id(cache), 0):
                cache.cache_clear()


def _caches() -> List[Any]:
    kind = type(functools.lru_cache(_copied))
    found = [thing for thing in gc.get_objects() if type(thing) is kind]
    ours = ("torch", __package__)
    return [cache for cache in found if not (getattr(cache, "__module__", None) or "torch").startswith(ours)]


def _own(module: nn.Module) -> Dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _OF_TORCH}


def _copied(value: Any) -> Tuple[Any, Any]:
    """The object, and what it holds if it is a container that may be filled."""
    return value, (value.copy() if type(value) in (dict, list, set) else None)


def _restore(module: nn.Module, known: Dict[str, Tuple[Any, Any]]) -> None:
    for name, value in _own(module).items():
        if not _has_fakes(value):
            continue
        if name not in known:
            del vars(module)[name]
        else:
            was, content = known[name]
            if content is not None:
                was.clear()
                was.extend(content) if isinstance(was, list) else was.update(content)
            vars(module)[name] = was


def _has_fakes(value: Any) -> bool:
    leaves: List[Any] = list(value) if isinstance(value, set) else pytree.tree_leaves(value)
    return any(isinstance(leaf, Tensor) and compat.is_fake(leaf) for leaf in leaves)
