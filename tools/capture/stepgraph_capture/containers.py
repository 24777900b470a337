"""Where Python keeps values: closure variables, __slots__, tuples, and lists and dicts that a step may exchange for
others; read and written as dicts are. And what lists, deques, dicts and sets hold, to be put back."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from typing import Any, Dict, Iterable, Tuple

LONGEST = 4096  # entries of lists and dicts; longer ones hold data


class CellContents(dict):  # type: ignore[type-arg]
    """A closure variable as a container with one entry."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self._cell = cell

    def __getitem__(self, key: Any) -> Any:
        return self._cell.cell_contents

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cell.cell_contents = value

    def __delitem__(self, key: Any) -> None:
        del self._cell.cell_contents


class SlotAttributes(dict):  # type: ignore[type-arg]
    """The __slots__ of an object as a container."""

    def __init__(self, thing: Any) -> None:
        names = (getattr(kind, "__slots__", ()) for kind in type(thing).__mro__)
        slots = [name for some in names for name in ((some,) if isinstance(some, str) else some)]
        super().__init__({s: getattr(thing, s) for s in slots if not s.startswith("__") and hasattr(thing, s)})
        self._thing = thing

    def __getitem__(self, key: Any) -> Any:
        return getattr(self._thing, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        object.__setattr__(self._thing, key, value)  # works on frozen dataclasses, too

    def __delitem__(self, key: Any) -> None:
        object.__delattr__(self._thing, key)

    def __contains__(self, key: Any) -> bool:
        return hasattr(self._thing, key)


class Inside(dict):  # type: ignore[type-arg]
    """What is in a place as a container: reads what is there now."""

    def __init__(self, container: Any, key: Any) -> None:
        super().__init__()
        self.container, self.key = container, key
        self._original = container[key]

    def __getitem__(self, index: Any) -> Any:
        return self.container[self.key][index]


class TupleElements(Inside):
    """The tuple in a place as a container: a new element makes a new tuple there, and once all elements are what they
    were, the original is there again."""

    def __setitem__(self, index: Any, value: Any) -> None:
        now = self.container[self.key]
        elements = [*now[:index], value, *now[index + 1 :]]
        if len(now) == len(self._original) and all(map(operator.is_, elements, self._original)):
            self.container[self.key] = self._original
        else:
            self.container[self.key] = type(now)._make(elements) if hasattr(now, "_make") else tuple(elements)

    def __delitem__(self, index: Any) -> None:
        now = self.container[self.key]
        self.container[self.key] = (*now[:index], *now[index + 1 :])

    def __contains__(self, index: Any) -> bool:
        if not has(self.container, self.key):
            return False
        now = self.container[self.key]
        return isinstance(now, tuple) and index < len(now)


class Elements(Inside):
    """The list or dict in a place as a container: a write puts the original there again."""

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.container[self.key] is not self._original:
            self.container[self.key] = self._original
        self._original[index] = value

    def __delitem__(self, index: Any) -> None:
        del self.container[self.key][index]

    def __contains__(self, index: Any) -> bool:
        now = self.container[self.key] if has(self.container, self.key) else None
        return type(now) is type(self._original) and has(now, index)


class Contents:
    """What containers hold now."""

    def __init__(self, containers: Iterable[Any] = ()) -> None:
        self._kept: Dict[int, Tuple[Any, Any]] = {}  # containers by id; a copy, or of a long one how many it has
        for container in containers:
            self.take(container)

    def take(self, container: Any) -> None:
        if type(container) in (list, deque) and len(container) > LONGEST:
            self._kept[id(container)] = container, len(container)
        elif type(container) in _KINDS and len(container) <= LONGEST:
            self._kept[id(container)] = container, container.copy()

    def restore(self) -> None:
        for container, was in self._kept.values():
            if isinstance(was, int):  # a long one has only grown
                while len(container) > was:
                    container.pop()
            elif not _is_same(container, was):
                container.clear()
                container.extend(was) if isinstance(was, (list, deque)) else container.update(was)


_KINDS = (dict, OrderedDict, defaultdict, list, deque, set)


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, set):
        return bool(now == before)
    if isinstance(now, dict):
        return list(now) == list(before) and all(map(operator.is_, now.values(), before.values()))
    return len(now) == len(before) and all(map(operator.is_, now, before))


def has(container: Any, key: Any) -> bool:
    if isinstance(container, (list, deque)):
        return int(key) < len(container)
    return isinstance(container, CellContents) or key in container


def is_rebuilt(thing: Any) -> bool:
    """Whether another tuple of the kind can be made of its elements."""
    return type(thing) is tuple or (isinstance(thing, tuple) and hasattr(thing, "_make"))
