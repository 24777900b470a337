"""An FX graph as the `nodes`, `graphs` and captured constants of a capture."""

from __future__ import annotations

import enum
import math
import operator
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor, fx

from . import compat, draws
from .errors import CaptureError
from .recorder import origin_of
from .symbols import number

_PYTHON = {
    operator.getitem: "getitem",
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.mod: "mod",
    operator.pow: "pow",
    operator.truediv: "truediv",
    operator.neg: "neg",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.not_: "not_",
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.lshift: "lshift",
    operator.rshift: "rshift",
    operator.pos: "pos",
    operator.abs: "abs",
    math.trunc: "trunc",
    math.floor: "floor",
    math.ceil: "ceil",
    round: "round",
    max: "max",
    min: "min",
}
for _name in ("max", "min", "float", "int", "not", "ite", "sum"):
    if hasattr(torch, f"sym_{_name}"):  # sym_sum came after 2.6
        _PYTHON[getattr(torch, f"sym_{_name}")] = f"sym_{_name}"
for _name in ("sqrt", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"):
    if hasattr(torch, f"_sym_{_name}"):
        _PYTHON[getattr(torch, f"_sym_{_name}")] = f"sym_{_name}"


# Zeros that forward-mode derivatives skip; their values are plain zeros.
_PLAIN = {torch.ops.aten._efficientzerotensor.default: torch.ops.aten.zeros.default}


def tensor_type(tensor: Tensor) -> Dict[str, Any]:
    """The device is the one that the tensor would have if it were not fake. Sizes may be symbolic."""
    entry: Dict[str, Any] = {
        "tensor": str(tensor.dtype).replace("torch.", ""),
        "shape": [number(size) for size in tensor.shape],
        "stride": [number(stride) for stride in tensor.stride()],
    }
    offset = number(tensor.storage_offset())
    if offset != 0:
        entry["offset"] = offset
    entry["device"] = str(tensor.device)
    return entry


def type_of(value: Any) -> Any:
    """The type of what a node computes, from its fake value."""
    if isinstance(value, Tensor):
        return tensor_type(value)
    if isinstance(value, (list, tuple)):
        return [type_of(element) for element in value]
    if value is None:
        return None
    if isinstance(value, bool):
        return {"scalar": "bool", "value": value}
    if isinstance(value, int):
        return {"scalar": "int", "value": value}
    if isinstance(value, float):
        return {"scalar": "float", "value": _literal(value)}
    if isinstance(value, torch.SymInt):
        return {"scalar": "int", "value": number(value)}
    if isinstance(value, torch.SymFloat):
        return {"scalar": "float"}
    if isinstance(value, torch.SymBool):
        return {"scalar": "bool"}
    return {"opaque": type(value).__name__}


def _is_nothing(node: fx.Node) -> bool:
    """Whether it is a missing element of a list: the gradient of a tensor that requires none."""
    return node.target is operator.getitem and node.meta.get("val") is None


def _literal(value: Any) -> Any:
    """The encoding of numbers and strings; None for anything else."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, complex):
        return {"complex": [_literal(value.real), _literal(value.imag)]}
    return value


def _is_conjugate(node: fx.Node) -> bool:
    """Whether it is the conjugate of a number in the code (`1j * x`), as its gradient needs: that is a number, too."""
    return node.target is torch.ops.aten._conj.default and isinstance(node.args[0], complex)


class Encoder:
    """Encodes a graph module and the ones nested in it. Tensors that it holds become `constants`."""

    def __init__(self, module: fx.GraphModule, prefix: str = "") -> None:
        self.module = module
        self._prefix = prefix  # prefix for names of nested graphs, which share one list over all levels
        self.constants: Dict[str, Tensor] = {}  # by the name of their input
        self.graphs: Dict[str, Any] = {}
        self._values: Dict[fx.Node, Any] = {}  # get_attr nodes, as arguments
        self._attributes: Dict[str, Any] = {}

    def nodes(self, computed: Callable[[fx.Node], List[str]] = lambda node: []) -> List[Dict[str, Any]]:
        """computed: the symbols, beyond PyTorch's own, whose values come from what a node computes."""
        self._computed = computed
        found = []
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                self._values[node] = self._attribute(node)
            elif node.op == "call_function" and compat.is_answered(node):
                continue
            elif node.op == "call_function" and _is_conjugate(node):
                self._values[node] = _literal(complex(node.args[0]).conjugate())
            elif node.op == "call_function" and _is_nothing(node):
                self._values[node] = None
            elif node.op == "call_function":
                found.append(self._node(node))
            elif node.op not in ("placeholder", "output"):
                raise CaptureError(f"the traced graph has a {node.op} node, {node.name}, which is none of ATen")
        return found

    def reference(self, node: Optional[fx.Node]) -> Any:
        """The reference by which other nodes name this one; None stays None."""
        if node is None:
            return None
        return self._values.get(node, {"ref": node.name})

    def _node(self, node: fx.Node) -> Dict[str, Any]:
        entry: Dict[str, Any] = {
            "name": node.name,
            "op": self._op(node),
            "args": [self.argument(arg) for arg in node.args],
        }
        if node.kwargs:
            entry["kwargs"] = {key: self.argument(arg) for key, arg in node.kwargs.items()}
        if first := draws.first(node):
            entry["draws_as"] = first
        entry["type"] = type_of(compat.results(node))
        for axis, symbol in compat.bound_lengths(node).items():
            entry["type"]["shape"][axis] = {"sym": symbol}
        origin = origin_of(node)
        if origin is None:
            entry["phase"] = "forward"
        else:
            if origin.module:
                entry["module"] = origin.module
            entry["phase"] = origin.phase
            if origin.seq is not None and origin.seq >= 0:
                entry["seq"] = origin.seq
            if origin.source:
                entry["source"] = origin.source
            if origin.custom:
                entry["custom"] = origin.custom
        binds = compat.bound_symbols(node) + self._computed(node)
        if binds:
            entry["binds"] = binds
        return entry

    def _op(self, node: fx.Node) -> str:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            return str(_PLAIN.get(target, target))
        if isinstance(target, torch._ops.HigherOrderOperator):
            return f"higher_order.{target.name()}"
        if target in _PYTHON:
            return f"python.{_PYTHON[target]}"
        raise CaptureError(
            f"node {node.name} calls {getattr(target, '__name__', target)}, which the capture format has no name for"
        )

    def _attribute(self, node: fx.Node) -> Any:
        """A constant that the code made or closed over, or a nested graph; each is stored once."""
        target = str(node.target)
        if target not in self._attributes:
            value: Any = self.module
            for part in target.split("."):
                value = getattr(value, part)
            if isinstance(value, fx.GraphModule):
                name = self._prefix + target
                self.graphs[name] = self._nested(name, value)
                self._attributes[target] = {"graph": name}
            elif isinstance(value, Tensor):
                self.constants[node.name] = value
                self._attributes[target] = {"ref": node.name}
            else:
                self._attributes[target] = {"opaque": type(value).__name__}
        return self._attributes[target]

    def _nested(self, name: str, module: fx.GraphModule) -> Dict[str, Any]:
        inner = Encoder(module, name + ".")
        nodes = inner.nodes(self._computed)
        if inner.constants:
            raise CaptureError(
                f"the nested graph {name} holds the constant {next(iter(inner.constants))}: pass it as an argument"
            )
        self.graphs.update(inner.graphs)
        inputs = [
            {"name": node.name, "type": type_of(node.meta.get("val"))}
            for node in module.graph.nodes
            if node.op == "placeholder"
        ]
        output = next(node for node in module.graph.nodes if node.op == "output").args[0]
        values = output if isinstance(output, (list, tuple)) else [output]
        return {"inputs": inputs, "nodes": nodes, "outputs": [inner.argument(value) for value in values]}

    def argument(self, value: Any) -> Any:
        """One argument, as the capture format writes it."""
        if isinstance(value, fx.Node):
            return self.reference(value)
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, complex)):
            return _literal(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(element) for element in value]
        if isinstance(value, dict):
            return {"dict": {str(key): self.argument(element) for key, element in value.items()}}
        if isinstance(value, slice):
            return {"slice": [self.argument(part) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, torch.SymInt):
            written = number(value)
            return written
        return _named(value)


def _named(value: Any) -> Dict[str, Any]:
    """The encoding of dtypes, devices and other things that PyTorch names."""
    for kind, key in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "memory_format")):
        if isinstance(value, kind):
            return {key: str(value).replace("torch.", "")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch._ops.OpOverload):
        return {"op": str(value)}
    if isinstance(value, enum.Enum):
        return {"enum": str(value)}
    return {"opaque": type(value).__name__}
