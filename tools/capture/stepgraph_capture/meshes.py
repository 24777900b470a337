"""The device meshes of a job, as the capture declares them: axes over all ranks of the world, row-major."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import compat, world


class _Ranks(NamedTuple):
    """A mesh as one rank sees it; for a submesh, the part of it that contains this rank."""

    axes: Tuple[str, ...]
    shape: Tuple[int, ...]
    ranks: Tuple[int, ...]


class _Axis(NamedTuple):
    name: str
    size: int
    step: int  # from one rank to the next along the axis


class Meshes:
    """The meshes that tensors of any rank are sharded over. The mesh with the most axes among those of all ranks comes
    first, and parts of it are not declared again. Any other is declared with further axes between its own, so that it
    covers all ranks. Axes with the same name but different ranks (`dp` of two meshes, or unnamed axes) get a numeric
    suffix. Construction is collective; all ranks declare the same."""

    def __init__(self, found: Sequence[Any]) -> None:
        mine = [_ranks_of(mesh) for mesh in [*found, *map(compat.root_mesh, found)]]
        of_all = dict.fromkeys(itertools.chain.from_iterable(world.of_each_rank(mine)))
        self._found = list(found)
        self._known: Dict[str, Tuple[int, int]] = {}  # (size, step) by axis name
        self._names: Dict[_Ranks, Tuple[str, ...]] = {}
        self._declared: List[List[_Axis]] = []
        everything = [mesh for mesh in of_all if mesh.ranks == tuple(range(world.size()))]
        main = max(everything, key=lambda mesh: len(mesh.axes), default=None)
        for mesh in ([] if main is None else [main]) + list(of_all):
            self._declare(mesh)

    def axes(self, mesh: Any) -> List[str]:
        return list(self._names[_ranks_of(mesh)])

    def declared(self) -> Dict[str, Any]:
        """The first mesh as `mesh` of `world`, the others by name as `meshes`."""
        entries: List[Dict[str, Any]] = [
            {"axes": [axis.name for axis in axes], "shape": [axis.size for axis in axes]} for axes in self._declared
        ]
        named = [{"name": "-".join(entry["axes"]), **entry} for entry in entries[1:]]
        return {**({"mesh": entries[0]} if entries else {}), **({"meshes": named} if named else {})}

    def axes_of_groups(self) -> Dict[str, str]:
        """The axes that each process group belongs to, by the group's name."""
        found: Dict[str, List[str]] = {}
        for mesh in self._found:
            for axis, name in enumerate(self.axes(mesh)):
                group: Optional[Any] = mesh.get_group(axis)
                words = found.setdefault(group.group_name, []) if group is not None else []
                if name not in words:
                    words.append(name)
        return {group: "/".join(words) for group, words in found.items()}

    def _declare(self, mesh: _Ranks) -> None:
        if mesh in self._names:
            return
        steps = _steps(mesh)
        meanings = [(size, step if size > 1 else 0) for size, step in zip(mesh.shape, steps or itertools.repeat(-1))]
        names = self._names[mesh] = tuple(map(self._named, mesh.axes, meanings))
        if steps is None or any(set(names) <= {axis.name for axis in axes} for axes in self._declared):
            return  # ranks that are not evenly spaced are given by their groups
        laid_out = self._between(list(map(_Axis, names, mesh.shape, steps)))
        if laid_out is not None:
            self._declared.append(laid_out)

    def _named(self, name: str, meaning: Tuple[int, int]) -> str:
        words = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(1)))
        return next(word for word in words if self._known.setdefault(word, meaning) == meaning)

    def _between(self, own: List[_Axis]) -> Optional[List[_Axis]]:
        """The axes of a mesh, and the missing ones between them, outermost first; None if they do not fit."""
        out: List[_Axis] = []
        span = world.size()
        for axis in sorted(own, key=lambda axis: -axis.step):
            within = axis.size * axis.step
            if span % within != 0:
                return None
            out += self._filling(span, within, own) + [axis]
            span = axis.step
        return out + self._filling(span, 1, own)

    def _filling(self, span: int, within: int, own: List[_Axis]) -> List[_Axis]:
        """The axes from `within` ranks up to `span` ranks: those of the first mesh if they fit, otherwise a new one."""
        if span == within:
            return []
        main = self._declared[0] if self._declared else []
        fitting = [axis for axis in main if axis.step >= within and axis.size * axis.step <= span]
        if math.prod(axis.size for axis in fitting) == span // within and not set(fitting) & set(own):
            return fitting
        name = "-".join(axis.name for axis in own) + "-beside"
        return [_Axis(self._named(name, (span // within, within)), span // within, within)]


def _ranks_of(mesh: Any) -> _Ranks:
    axes = mesh.mesh_dim_names or (f"axis{i}" for i in range(mesh.ndim))
    return _Ranks(tuple(axes), tuple(mesh.shape), tuple(mesh.mesh.flatten().tolist()))


def _steps(mesh: _Ranks) -> Optional[List[int]]:
    """The distance between neighbouring ranks along each axis; None if it is not constant, or if the mesh does not
    start on a block boundary. An axis of one rank gets the extent of the axes within it."""
    steps, apart = [0] * len(mesh.shape), 1
    for axis in reversed(range(len(mesh.shape))):
        within = steps[axis + 1] * mesh.shape[axis + 1] if axis + 1 < len(mesh.shape) else 1
        steps[axis] = mesh.ranks[apart] - mesh.ranks[0] if mesh.shape[axis] > 1 else within
        apart *= mesh.shape[axis]
    places = itertools.product(*map(range, mesh.shape))
    is_even = all(rank - mesh.ranks[0] == _dot(place, steps) for rank, place in zip(mesh.ranks, places))
    begins = all(size == 1 or (step > 0 and mesh.ranks[0] // step % size == 0) for size, step in zip(mesh.shape, steps))
    return steps if is_even and begins else None


def _dot(place: Iterable[int], steps: Iterable[int]) -> int:
    return sum(i * step for i, step in zip(place, steps))
