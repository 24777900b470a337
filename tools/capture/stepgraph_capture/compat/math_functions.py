"""Functions of Python's math module, which make a plain number of a symbolic one or of a tensor, max and min, which ask
which of two is larger, and len, which wants a plain number. Of what depends on the data they keep it symbolic here.
"""

from __future__ import annotations

import builtins
import functools
import math
import sys
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List

import torch
from torch import Tensor

from .fakes import is_fake
from .sizes import is_of_data


def _kept(name: str, symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """The function of math with this name; `symbolic` in its place, given symbolic floats, where one is symbolic."""
    plain = getattr(math, name)

    def function(*given: Any) -> Any:
        numbers = [x.detach().item() if isinstance(x, Tensor) and is_fake(x) and x.numel() == 1 else x for x in given]
        return symbolic(*map(torch.sym_float, numbers)) if any(map(_is_symbolic, numbers)) else plain(*given)

    return function


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, (torch.SymInt, torch.SymFloat)) and is_of_data(x)


def _logarithm(x: Any, base: Any = math.e) -> Any:
    return torch._sym_log2(x) / (torch._sym_log2(base) if _is_symbolic(base) else math.log2(base))


_OF_ONE = ("sqrt", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **{name: _kept(name, getattr(torch, f"_sym_{name}")) for name in _OF_ONE if hasattr(torch, f"_sym_{name}")},
    "pow": _kept("pow", lambda base, exponent: base**exponent),
    "exp": _kept("exp", lambda x: math.e**x),
    "log": _kept("log", _logarithm),
}


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def _undecided(name: str, symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """Python's max or min; `symbolic` in its place for numbers of which one was computed from the data and has a
    fraction. (A whole one may be a size, of which a step shall know on which side it is.)"""
    plain = getattr(builtins, name)

    def function(*given: Any, **options: Any) -> Any:
        numbers = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
        is_open = any(isinstance(x, torch.SymFloat) and _is_symbolic(x) for x in numbers)
        if options or not is_open or not all(isinstance(x, _NUMBERS) for x in numbers):
            return plain(*given, **options)
        return functools.reduce(symbolic, numbers)

    return function


def _length(thing: Any) -> Any:
    """Python's len; of a tensor its first size, which may be a symbol."""
    if isinstance(thing, Tensor) and is_fake(thing) and thing.dim() > 0 and not thing.is_nested:
        return thing.shape[0]
    return len(thing)


_EXTREMES = {"max": _undecided("max", torch.sym_max), "min": _undecided("min", torch.sym_min)}


@contextmanager
def math_keeps_symbols(modules: Iterable[str]) -> Iterator[None]:
    """In this context they do so: math's everywhere, also where one of these modules has imported them (`from math import
    sqrt`), max and min in these modules, and len in all that are neither Python's nor PyTorch's."""
    namespaces = [vars(sys.modules[name]) for name in sorted(sys.modules.keys() & set(modules))]
    ours = {id(getattr(math, name)): function for name, function in _FUNCTIONS.items()}
    with ExitStack() as undo:
        for namespace in [vars(math), *namespaces]:
            for name, value in [item for item in namespace.items() if id(item[1]) in ours]:
                undo.callback(namespace.__setitem__, name, value)
                namespace[name] = ours[id(value)]
        for namespace in namespaces:
            for name in _EXTREMES.keys() - namespace.keys():
                undo.callback(namespace.pop, name, None)
                namespace[name] = _EXTREMES[name]
        for namespace in _of_users():
            if "len" not in namespace:
                undo.callback(namespace.pop, "len", None)
                namespace["len"] = _length
        yield


def _of_users() -> List[Dict[str, Any]]:
    """The names of modules that may have code of a step."""
    others = {*sys.builtin_module_names, *getattr(sys, "stdlib_module_names", ())} - {"__main__"}
    others |= {"torch", "torchgen", "sympy", "mpmath", "numpy", __name__.partition(".")[0]}
    return [vars(module) for name, module in [*sys.modules.items()] if name.partition(".")[0] not in others]
