"""State outside the model's parameters and buffers that a step writes: a teacher that follows the model, an average of
its weights, a queue of recent samples, a scaler's scale. Like the model's buffers it becomes inputs of the graph that
the step writes.

The search covers the attributes of the model's modules and parameters. For a train_step it also covers whatever the
function can reach: its closure, the globals it names, the object it is a method of (or the callable object itself), its
default arguments, and the user's functions that it calls. Within these it looks into modules (their tensors, and their
attributes as those of the model's), lists, deques, tuples and dicts.
Hooks of optimizers and of parameters are searched in the same way.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.weak import WeakIdKeyDictionary

from . import compat, scalers, sharding
from .containers import LONGEST, CellContents, Elements, SlotAttributes, TupleElements, is_rebuilt
from .places import Place, is_strided

_DEEPEST = 4  # levels of nested objects
_DEEPEST_OF_MODEL = 2  # the same for the model's attributes: its trainer, and the data the trainer holds, are not state
_DICTS = (dict, WeakKeyDictionary, WeakIdKeyDictionary)


@dataclass
class Found:
    """What the search found."""

    places: Dict[str, Place] = field(default_factory=dict)  # plain tensors by name, one per memory
    tensors: Dict[str, Place] = field(default_factory=dict)  # all tensors by name
    others: Dict[str, Tuple[Place, Any]] = field(default_factory=dict)  # everything else by name
    dicts: List[Any] = field(default_factory=list)  # the user's dicts and sets, which may have parameters as keys
    lists: List[Any] = field(default_factory=list)  # and lists and deques, long ones too
    by_parameter: Set[str] = field(default_factory=set)  # names of places that belong to a single parameter
    schedulers: List[LRScheduler] = field(default_factory=list)
    modules: List[Tuple[str, nn.Module]] = field(default_factory=list)  # those beside the model, and their parts


def search(
    functions: Iterable[Callable[..., Any]], known: List[Tensor], model: nn.Module, elsewhere: Iterable[Any]
) -> Found:
    """Searches from these functions, or the model alone if there are none. Leaves out tensors that share memory with
    `known`, and does not look into the dicts and lists of `elsewhere`."""
    return _found(_Search(known, model, elsewhere), functions)


def add_settings(found: Found, settings: Mapping[str, Place], known: List[Tensor]) -> None:
    """Makes tensors among the settings of optimizers (a learning rate) state, so that each run may have another one. If
    a variable holds the same tensor, it is the place."""
    memory = {compat.memory_of(tensor) for tensor in known if is_strided(tensor)}
    there = {compat.memory_of(sharding.local(place.tensor)): place for place in found.places.values()}
    for name, place in settings.items():
        at = compat.memory_of(place.tensor)
        if at in there:
            there[at].is_surely_state = True
        elif at not in memory:
            there[at] = found.tensors[name] = found.places[name] = place


def dicts(functions: Iterable[Callable[..., Any]], model: nn.Module) -> List[Any]:
    """Same as search().dicts. Reads no tensor, so it may run while the step is traced."""
    return _found(_Search(None, model, ()), functions).dicts


def _found(search: _Search, functions: Iterable[Callable[..., Any]]) -> Found:
    for function in functions:
        search.function(function, "", 0)
    return search.all


class _Search:
    def __init__(self, known: Optional[List[Tensor]], model: nn.Module, elsewhere: Iterable[Any]) -> None:
        """known: None leaves out all tensors."""
        self.all = Found()
        self._parameters = {id(parameter): name for name, parameter in compat.named_parameters(model)}
        self._memory = None if known is None else {compat.memory_of(tensor) for tensor in known if is_strided(tensor)}
        self._seen = {id(thing) for thing in (*model.modules(), *elsewhere)}
        self._first: Dict[int, Place] = {}  # of `places`, by the id of the tensor
        self._device = known[0].device if known else None  # for state that scalers create on first use
        self._attribute = ""  # the attribute of a module that is being searched
        for path, part in model.named_modules():
            self._attributes(part, path)
            self._entries(part._buffers, part._buffers, path)  # even those that are still None
        for name, parameter in compat.named_parameters(model):
            for key, thing in list(vars(parameter).items()):
                self._thing(thing, f"{name}.{key}", (vars(parameter), key), 0, is_by_parameter=True)

    def _attributes(self, part: nn.Module, path: str) -> None:
        """Searches the attributes of a module that every module does not have."""
        self._entries(vars(part), {key: thing for key, thing in vars(part).items() if key not in OF_MODULES}, path)

    def _entries(self, kept: Any, there: Mapping[str, Any], path: str) -> None:
        """Searches what a module keeps under these names."""
        for key, thing in list(there.items()):
            self._attribute = ".".join(filter(None, (path, key)))
            self._thing(thing, self._attribute, (kept, key), 0)
        self._attribute = ""

    def function(self, function: Any, name: str, depth: int) -> None:
        """Searches the closure of a function, its attributes, the globals it names, and the object it is bound to."""
        if inspect.ismethod(function):
            self._object(function.__self__, name, depth)
            function = function.__func__
        function = inspect.unwrap(function)
        if isinstance(function, functools.partial):
            for i, given in enumerate([*function.args, *function.keywords.values()]):
                self._thing(given, f"{name or 'argument'}{i}", _NOWHERE, depth)
            return self.function(function.func, name, depth)
        if not inspect.isroutine(function) and _is_the_users(type(function)):  # a callable object
            self._object(function, name, depth)
            function = inspect.unwrap(type(function).__call__)
        if not inspect.isfunction(function) or id(function) in self._seen:
            return None
        self._seen.add(id(function))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self._thing(cell.cell_contents, variable, (CellContents(cell), None), depth)
            except ValueError:  # not set yet
                continue
        for key, thing in list(vars(function).items()):
            self._thing(thing, f"{function.__name__}.{key}", (vars(function), key), depth)
        for variable, given in _defaults_of(function).items():
            self._thing(given, variable, _NOWHERE, depth)
        for variable in function.__code__.co_names:
            if variable in function.__globals__:
                self._thing(function.__globals__[variable], variable, (function.__globals__, variable), depth)
        return None

    def _thing(
        self, thing: Any, name: str, at: Tuple[Any, Any], depth: int, is_by_parameter: bool = False
    ) -> None:
        if isinstance(thing, Tensor):
            self._tensor(thing, name, at, is_by_parameter)
            return
        if at is not _NOWHERE:
            self.all.others.setdefault(name, (Place(name, *at), frozenset(thing) if type(thing) is set else thing))
        if depth > (_DEEPEST_OF_MODEL if self._attribute else _DEEPEST) or id(thing) in self._seen:
            return
        elif isinstance(thing, nn.Module):
            self._module(thing, name, depth)
        elif scalers.is_on(thing):
            self._scaler(thing, name)
        elif isinstance(thing, LRScheduler):
            self._scheduler(thing, name, depth)
        elif type(thing) is set:
            self.all.dicts.append(thing)
        elif isinstance(thing, (*_DICTS, list, deque, tuple)):
            self._seen.add(id(thing))
            if isinstance(thing, (list, deque)):
                self.all.lists.append(thing)
            if entries(thing) > LONGEST:
                return
            if isinstance(thing, _DICTS):
                self.all.dicts.append(thing)
            kept: Any = thing if at is _NOWHERE else Elements(*at)
            if isinstance(thing, tuple):
                kept = None if at is _NOWHERE or not is_rebuilt(thing) else TupleElements(*at)
            for key, one in list(thing.items() if isinstance(thing, _DICTS) else enumerate(thing)):
                inside = _NOWHERE if kept is None else (kept, key)
                is_of_parameter = is_by_parameter or self._is_of_parameter(key)
                self._thing(one, f"{name}.{self._part(key)}", inside, depth + 1, is_of_parameter)
        elif inspect.isfunction(thing) or inspect.ismethod(thing) or isinstance(thing, functools.partial):
            if isinstance(getattr(thing, "__self__", None), LRScheduler):
                self._thing(thing.__self__, name, _NOWHERE, depth)
            if _is_the_users(thing) and not self._attribute:
                self.function(thing, name, depth + 1)
        elif _is_the_users(type(thing)):
            self._object(thing, name, depth)

    def _part(self, key: Any) -> str:
        """The part of a name that stands for a key. Tensors are not printed, as they may be fake."""
        if isinstance(key, tuple):
            return ".".join(map(self._part, key))
        if self._is_of_parameter(key):
            return self._parameters[key if type(key) is int else id(key)]
        return "tensor" if isinstance(key, Tensor) else str(key)

    def _is_of_parameter(self, key: Any) -> bool:
        """Whether the key is a parameter, the id of one, or a tuple that contains either."""
        if isinstance(key, tuple):
            return any(map(self._is_of_parameter, key))
        return (key if type(key) is int else id(key)) in self._parameters

    def _tensor(self, tensor: Tensor, name: str, at: Tuple[Any, Any], is_by_parameter: bool = False) -> None:
        if self._memory is None or at is _NOWHERE:
            return
        name = _free(name, self.all.tensors)
        place = self.all.tensors[name] = Place(name, *at, attribute=self._attribute)
        if is_by_parameter:
            self.all.by_parameter.add(name)
        is_plain = type(tensor) in (Tensor, nn.Parameter) or sharding.is_sharded(tensor)
        if not is_plain or not is_strided(sharding.local(tensor)):
            return
        memory = compat.memory_of(sharding.local(tensor))
        if memory not in self._memory:
            self._memory.add(memory)
            self.all.places[name] = self._first[id(tensor)] = place
        elif id(tensor) in self._first:
            self._first[id(tensor)].tied.append(place)

    def _module(self, module: nn.Module, name: str, depth: int) -> None:
        for path, part in module.named_modules():
            if id(part) in self._seen:  # of the model, which the module may wrap
                continue
            self._seen.add(id(part))
            prefix = ".".join(filter(None, (name, path)))
            self.all.modules.append((prefix, part))
            for kept in (part._parameters, part._buffers):
                for key, tensor in kept.items() if isinstance(kept, dict) else ():
                    if tensor is not None:
                        self._tensor(tensor, f"{prefix}.{key}", (kept, key))
            if not self._attribute:  # a module among the model's attributes: deep enough
                self._attributes(part, prefix)

    def _scaler(self, scaler: Any, name: str) -> None:
        if self._memory is None:
            return
        self._seen.add(id(scaler))
        scalers.begun(scaler, self._device)
        for what, key in scalers.NAMES.items():
            of_it = _free(f"{name}.{what}", self.all.tensors)
            place = Place(of_it, vars(scaler), key, is_surely_state=True)
            self.all.tensors[of_it] = self.all.places[of_it] = place

    def _scheduler(self, scheduler: LRScheduler, name: str, depth: int) -> None:
        """Its numbers, and those of schedulers in it. What it keeps of learning rates is no state: copies."""
        self._seen.add(id(scheduler))
        self.all.schedulers.append(scheduler)
        for key, one in vars(scheduler).items():
            if isinstance(one, (int, float)):
                self.all.others.setdefault(f"{name}.{key}", (Place(f"{name}.{key}", vars(scheduler), key), one))
        for i, one in enumerate(vars(scheduler).get("_schedulers", ())):
            self._thing(one, f"{name}.{i}", _NOWHERE, depth + 1)

    def _object(self, thing: Any, name: str, depth: int) -> None:
        if id(thing) in self._seen or isinstance(thing, type):
            return
        if isinstance(thing, nn.Module):
            return self._module(thing, name, depth)
        self._seen.add(id(thing))
        for kept in (getattr(thing, "__dict__", {}), SlotAttributes(thing)):
            for key, one in list(kept.items()):
                self._thing(one, ".".join(filter(None, (name, key))), (kept, key), depth + 1)
        return None


OF_MODULES = set(vars(nn.Module()))  # the attributes that every module has

_NOWHERE: Tuple[Any, Any] = (None, None)  # a bound argument: no run can replace it


def _defaults_of(function: Any) -> Dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def entries(thing: Any) -> int:
    """How many a list, a tuple or a dict has. A subclass of tuple may refuse to say."""
    return tuple.__len__(thing) if isinstance(thing, tuple) else len(thing)


def _is_the_users(thing: Any) -> bool:
    module = getattr(inspect.unwrap(getattr(thing, "func", thing)), "__module__", None) or "builtins"
    return module.split(".")[0] not in ("torch", "builtins", __package__.split(".")[0])


def _free(name: str, taken: Mapping[str, Any]) -> str:
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}#{count}"
    return found
