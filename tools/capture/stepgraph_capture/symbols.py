"""Symbolic sizes: those the user asks for, and PyTorch's conclusions as text."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import sympy
import torch
from sympy.printing.str import StrPrinter
from torch import Tensor

from . import compat
from .errors import CaptureError

Wish = Union[None, bool, str, Tuple[Any, ...], Any]
Dynamic = Union[None, bool, Mapping[str, Union[Mapping[int, Wish], Sequence[Wish]]]]

_RELATIONS = {
    "Equality": "Eq",
    "Unequality": "Ne",
    "StrictLessThan": "Lt",
    "LessThan": "Le",
    "StrictGreaterThan": "Gt",
    "GreaterThan": "Ge",
}
_FUNCTIONS = {"FloorDiv": None, "CleanDiv": None, "Mod": "Mod", "PythonMod": "Mod", "Max": "Max", "Min": "Min"}


# A symbol in an expression of the format, as opposed to a function's name.
_NAME = re.compile(r"(?!(?:Eq|Ne|Lt|Le|Gt|Ge|Mod|Max|Min)\b)\b[A-Za-z_][A-Za-z0-9_]*\b")


class _Printer(StrPrinter):
    """Prints expressions in the syntax of the capture format."""

    def _print_Relational(self, expr: Any) -> str:
        return f"{_RELATIONS[type(expr).__name__]}({self._print(expr.lhs)},{self._print(expr.rhs)})"

    _print_Equality = _print_Unequality = _print_LessThan = _print_Relational
    _print_StrictLessThan = _print_StrictGreaterThan = _print_GreaterThan = _print_Relational

    def _print_PythonMod(self, expr: Any) -> str:
        return f"Mod({','.join(self._print(arg) for arg in expr.args)})"


def _writable(expr: sympy.Basic) -> bool:
    """Whether the format can express it."""
    if isinstance(expr, (sympy.Symbol, sympy.Integer)) or expr in (sympy.true, sympy.false):
        return True
    known = isinstance(expr, (sympy.Add, sympy.Mul, sympy.Pow)) or type(expr).__name__ in {**_RELATIONS, **_FUNCTIONS}
    return known and all(_writable(arg) for arg in expr.args)


def text(expr: Any) -> Optional[str]:
    """The expression in the capture format; None if the format cannot express it."""
    expr = sympy.sympify(expr)
    return _Printer().doprint(expr).replace(" ", "") if _writable(expr) else None


_in_words: Callable[[Any], Any] = lambda expr: expr  # noqa: E731


@contextmanager
def words(in_words: Callable[[Any], Any]) -> Iterator[None]:
    """Lets `number` rewrite expressions by this function first."""
    global _in_words
    before, _in_words = _in_words, in_words
    try:
        yield
    finally:
        _in_words = before


def number(value: Any) -> Any:
    """A size as JSON: an integer, or {"sym": expression}."""
    if isinstance(value, int):
        return int(value)
    expr = _in_words(compat.expression(value))
    if expr.is_Integer:
        return int(expr)
    written = text(expr)
    if written is None:
        raise CaptureError(f"the size {expr} has no form in the capture format")
    return {"sym": written}


@dataclass
class DimensionWish:
    """A dimension that the user wants symbolic; equal names are one symbol."""

    name: Optional[str] = None
    low: Optional[int] = None
    high: Optional[int] = None
    if_possible: bool = False  # of dynamic=True: a constant where the code makes it one


def _checked(name: Any, where: str) -> Optional[str]:
    if name is None or (isinstance(name, str) and _NAME.fullmatch(name)):
        return name
    raise CaptureError(
        f"dynamic: {where} is called {name!r}; a name is of letters, digits and _, and none of Eq, Ne, Lt, Le, Gt, Ge, "
        "Mod, Max and Min. How sizes depend on each other, the code tells"
    )


def _wish(value: Wish, where: str) -> Optional[DimensionWish]:
    if value is None or value is False:
        return None
    if value is True:
        return DimensionWish()
    if isinstance(value, str):
        return DimensionWish(_checked(value, where))
    if isinstance(value, tuple) and len(value) in (2, 3):
        name, low, high = value if len(value) == 3 else (None, *value)
        return DimensionWish(_checked(name, where), low, high)
    if isinstance(getattr(value, "__name__", None), str):  # torch.export.Dim
        high = getattr(value, "max", None)
        return DimensionWish(value.__name__, getattr(value, "min", None), high if isinstance(high, int) else None)
    raise CaptureError(f"dynamic: {where} is {value!r}; give a name, (low, high), (name, low, high), True or None")


def wishes(dynamic: Dynamic, tensors: Mapping[str, Tensor]) -> Dict[str, Dict[int, DimensionWish]]:
    """The wishes by input name and axis."""
    if not dynamic:
        return {}
    if dynamic is True:
        return {
            name: {axis: DimensionWish(if_possible=True) for axis in range(tensor.dim()) if tensor.shape[axis] > 1}
            for name, tensor in tensors.items()
        }
    found: Dict[str, Dict[int, DimensionWish]] = {}
    names = ", ".join(tensors) or "none"
    if not isinstance(dynamic, Mapping):
        raise CaptureError(f"dynamic: {dynamic!r} says nothing by input; give {{name: {{axis: ...}}}}; there are {names}")
    for name, per_axis in dynamic.items():
        if name not in tensors:
            raise CaptureError(f"dynamic: no input tensor is called {name!r}; there are {names}")
        if per_axis and (isinstance(per_axis, str) or not isinstance(per_axis, (Mapping, Sequence))):
            raise CaptureError(f"dynamic: {name} is {per_axis!r}; give {{axis: ...}}, or a list with an entry an axis")
        pairs = per_axis.items() if isinstance(per_axis, Mapping) else enumerate(per_axis or ())
        for axis, value in pairs:
            _check_axis(name, axis, tensors[name])
            wish = _wish(value, f"{name}[{axis}]")
            if wish:
                found.setdefault(name, {})[axis % tensors[name].dim()] = wish
    return found


def _check_axis(name: str, axis: Any, tensor: Tensor) -> None:
    if not isinstance(axis, int) or not -tensor.dim() <= axis < tensor.dim():
        plural = "" if tensor.dim() == 1 else "s"
        raise CaptureError(f"dynamic: {name} has {tensor.dim()} dimension{plural}; there is no dimension {axis!r}")
    if tensor.shape[axis] < 2:
        raise CaptureError(
            f"dynamic: dimension {axis} of {name} is {tensor.shape[axis]} here; PyTorch treats 0 and 1 as "
            "constants, so give an example of 2 or more"
        )


def fake_inputs(
    fake_mode: Any, tensors: Mapping[str, Tensor], wanted: Dict[str, Dict[int, DimensionWish]]
) -> Dict[str, Tensor]:
    """Fake twins of the tensors with wishes; dimensions of one name are made equal."""
    fakes: Dict[str, Tensor] = {}
    named: Dict[str, Tuple[str, Any]] = {}
    for name, axes in wanted.items():
        dimensions = {axis: compat.Dimension(wish.low, wish.high) for axis, wish in axes.items()}
        try:
            fakes[name] = compat.fake_with_symbols(fake_mode, tensors[name], name, dimensions)
        except Exception as error:
            raise CaptureError(f"dynamic: {name} of size {tuple(tensors[name].shape)}: {first_line(error)}") from error
        for axis, wish in axes.items():
            if wish.name is None:
                continue
            size = fakes[name].shape[axis]
            first_place, first = named.setdefault(wish.name, (f"{name}[{axis}]", size))
            example = tensors[name].shape[axis]
            if compat.hint(first) != example:
                raise CaptureError(
                    f"dynamic: {wish.name!r} is {compat.hint(first)} in {first_place} "
                    f"and {example} in {name}[{axis}]"
                )
            torch._check(first == size)
    return fakes


def _fixed_at(
    size: int, but: str, tensors: Mapping[str, Tensor], wanted: Dict[str, Dict[int, DimensionWish]]
) -> List[str]:
    """Dimensions of this size of other inputs, which nobody wanted to vary."""
    return [
        f"{name}[{axis}]"
        for name, tensor in tensors.items()
        for axis, found in enumerate(tensor.shape)
        if found == size and name != but and axis not in wanted.get(name, {})
    ]


def check_still_dynamic(
    fakes: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    wanted: Dict[str, Dict[int, DimensionWish]],
    place_of: Callable[[Any], Optional[str]],
) -> List[str]:
    """Refuses sizes that the code has turned into constants, or tells of them where only what is possible was asked for.
    place_of: finds the line that did."""
    notes = []
    for name, axes in wanted.items():
        for axis, wish in axes.items():
            size = fakes[name].shape[axis]
            if not isinstance(size, int) and not compat.expression(size).is_Integer:
                continue
            place = place_of(size) or "the model's code"
            if wish.if_possible:
                notes.append(f"{name}[{axis}] is {size} in the graph: {place} takes it for a constant")
                continue
            twins = _fixed_at(int(size), name, tensors, wanted)
            if twins:
                raise CaptureError(
                    f"dynamic: the model works only with {name}[{axis}] == {size}: {twins[0]} is {size} too, and "
                    f"dynamic= does not have it. If it is the same size, give both one name, as in {{{axis}: 'n'}}; "
                    f"else {place}, or what it calls there, takes that size for a constant"
                )
            raise CaptureError(
                f"dynamic: the model works only with {name}[{axis}] == {size}: {place}, or what it calls there, takes "
                f"that size for a constant, as int(), range() and shape.numel() do ({name}.shape[{axis}] is a "
                "size). Leave it out of dynamic=, or change the code"
            )
    return notes


def names_of(fakes: Mapping[str, Tensor], wanted: Dict[str, Dict[int, DimensionWish]]) -> Dict[str, str]:
    """Maps PyTorch's symbol names to the user's, or to the input and axis that had it first (`tokens_1`), if the format
    allows that name."""
    found: Dict[str, str] = {}
    by_place: Dict[str, str] = {}
    for name, axes in wanted.items():
        for axis, wish in axes.items():
            expr = compat.expression(fakes[name].shape[axis])
            if not expr.is_Symbol:
                continue
            if not wish.name or not _NAME.fullmatch(wish.name):  # a Dim may be called 12*n
                by_place.setdefault(str(expr), re.sub(r"\W", "_", f"{name}_{axis}"))
            elif wish.name not in found.values():
                found.setdefault(str(expr), wish.name)
    for symbol, name in by_place.items():
        if symbol not in found and _NAME.fullmatch(name) and name not in found.values():
            found[symbol] = name
    return found


def rename(document: Dict[str, Any], names: Mapping[str, str]) -> None:
    """Renames symbols throughout a capture, unless another symbol already has the name."""
    taken = {symbol["name"] for symbol in document["symbols"]}
    names = {old: new for old, new in names.items() if old in taken and new not in taken}

    def renamed(expression: str) -> str:
        return _NAME.sub(lambda word: names.get(word[0], word[0]), expression)

    def visit(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                visit(item)
        elif isinstance(value, dict):
            if isinstance(value.get("sym"), str):
                value["sym"] = renamed(value["sym"])
            if isinstance(value.get("binds"), list):
                value["binds"] = [names.get(name, name) for name in value["binds"]]
            for item in value.values():
                visit(item)

    if not names:
        return
    for part in ("inputs", "nodes", "outputs", "graphs"):
        visit(document.get(part, []))
    for symbol in document["symbols"]:
        symbol["name"] = names.get(symbol["name"], symbol["name"])
    for guard in document["guards"]:
        guard["expr"] = renamed(guard["expr"])
    if "note" in document:
        document["note"] = renamed(document["note"])


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def used_symbols(expressions: Iterable[Any]) -> List[Any]:
    """Every symbol of these expressions, in order of first use."""
    found: Dict[Any, None] = {}
    for expr in expressions:
        for symbol in sorted(expr.free_symbols, key=str):
            found.setdefault(symbol)
    return list(found)


def describe(shape_env: Any, symbol: Any) -> Dict[str, Any]:
    """One entry of `symbols`."""
    facts = compat.symbol_facts(shape_env, symbol)

    def bound(value: Any) -> Optional[int]:
        return (
            int(value)
            if value is not None and getattr(value, "is_Integer", False) and abs(int(value)) < 2**62
            else None
        )

    made_by_data = facts.hint is None
    entry: Dict[str, Any] = {
        "name": str(symbol),
        "kind": "data" if made_by_data else "input",
        "min": bound(facts.low),
        "max": bound(facts.high),
        "hint": None if made_by_data else int(facts.hint),
    }
    if facts.source:
        entry["source"] = facts.source
    return entry
