"""Everything that is private to PyTorch, or differs between 2.6 and the newest, is called from here and nowhere else."""
from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental import proxy_tensor, symbolic_shapes

from .errors import CaptureError

OLDEST = (2, 6)


def check_version() -> None:
    """Older releases lack parts of the tracer; better to say so than to fail inside of it."""
    numbers = torch.__version__.split("+")[0].split(".")
    if tuple(int(part) for part in numbers[:2]) < OLDEST:
        raise CaptureError(f"PyTorch {torch.__version__} is too old: stepgraph_capture needs 2.6 or newer")


# Tracing


def new_fake_mode(allow_real_inputs: bool) -> Any:
    """A mode whose tensors have no memory; sizes may be symbols, also of data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    shape_env = symbolic_shapes.ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    return FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=allow_real_inputs)


def is_fake(tensor: Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def trace(function: Callable[..., Any], arguments: Sequence[Tensor], fake_mode: Any, symbolic: bool) -> fx.GraphModule:
    """The ATen calls that `function` makes below autograd, as one graph. In-place ops stay as they are."""
    from torch._dispatch.python import enable_python_dispatcher

    tracer = proxy_tensor.make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)
    # Some ops that are made of others are so in C++, for plain sizes; their twins in Python know symbols.
    with fake_mode, _eager_everywhere(), enable_python_dispatcher() if symbolic else nullcontext():
        return tracer(*arguments)


@contextmanager
def _eager_everywhere() -> Iterator[None]:
    """torch.compile'd parts run as plain Python, and backward on this thread: modes are per thread."""
    with ExitStack() as stack:
        if hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield


@contextmanager
def observe_nodes(callback: Callable[[fx.Node], None]) -> Iterator[None]:
    """Calls `callback` with each FX node at its birth: the only moment when its module and line are on the stack."""
    original = fx.Graph.create_node

    def create_node(self: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        node = original(self, *args, **kwargs)
        callback(node)
        return node

    fx.Graph.create_node = create_node  # type: ignore[method-assign]
    try:
        yield
    finally:
        fx.Graph.create_node = original  # type: ignore[method-assign]


@contextmanager
def torch_annotations() -> Iterator[None]:
    """Lets torch.fx.traceback.annotate(), where this PyTorch has it, reach Node.meta['custom']."""
    from torch.fx import traceback

    with traceback.preserve_node_meta() if hasattr(traceback, "annotate") else nullcontext():
        yield


def swapped(module: nn.Module, tensors: Dict[str, Tensor]) -> Any:
    """A context in which `tensors` are the module's parameters and buffers, tied ones included.

    At its end `tensors` holds what the module has under these names then: another object where it was assigned anew.
    """
    from torch.nn.utils import stateless

    return stateless._reparametrize_module(module, tensors, tie_weights=True, strict=False)


# Autograd


def sequence_number() -> int:
    """The number of the last autograd node made: that of the op which is being traced."""
    return torch.autograd._get_sequence_nr() - 1


def node_sequence_number(node: Any) -> int:
    return node._sequence_nr()


# Symbols


class Dimension:
    """How one dimension of an input may vary: the lowest and highest size, None where open."""

    def __init__(self, low: Optional[int], high: Optional[int]) -> None:
        self.low, self.high = low, high


def fake_with_symbols(fake_mode: Any, tensor: Tensor, name: str, dimensions: Dict[int, Dimension]) -> Tensor:
    """A fake twin of `tensor` with a symbol for each of `dimensions`."""
    from torch._dynamo.source import ConstantSource
    from torch.utils._sympy.value_ranges import ValueRanges

    sizes, constraints = [], []
    for axis in range(tensor.dim()):
        dimension = dimensions.get(axis)
        sizes.append(symbolic_shapes.DimDynamic.DYNAMIC if dimension else symbolic_shapes.DimDynamic.STATIC)
        if dimension is None:
            constraints.append(None)
            continue
        low = dimension.low if dimension.low is not None else 2
        high = dimension.high if dimension.high is not None else symbolic_shapes.int_oo
        constraints.append(symbolic_shapes.StrictMinMaxConstraint(vr=ValueRanges(low, high), warn_only=False))
    context = symbolic_shapes.StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=constraints)
    return fake_mode.from_tensor(tensor, source=ConstantSource(name), symbolic_context=context)


class SymbolFacts:
    """What PyTorch knows of one symbol."""

    def __init__(self, low: Any, high: Any, hint: Any, source: Optional[str]) -> None:
        self.low, self.high, self.hint, self.source = low, high, hint, source


def symbol_facts(shape_env: Any, symbol: Any) -> SymbolFacts:
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val  # its name until 2.9
    bounds = shape_env.var_to_range.get(symbol)
    sources = shape_env.var_to_sources.get(symbol) or []
    return SymbolFacts(
        bounds.lower if bounds else None,
        bounds.upper if bounds else None,
        values.get(symbol),
        sources[0].name if sources and isinstance(sources[0].name, str) else sources[0].name() if sources else None,
    )


def guards(shape_env: Any) -> List[Any]:
    """What tracing took for granted about sizes, as sympy expressions: guards, then checks left for the run."""
    found = [guard.expr for guard in shape_env.guards]
    for checks in shape_env.deferred_runtime_asserts.values():
        found += [check.expr for check in checks]
    return [shape_env.replace(expr) for expr in found]


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic number."""
    return value.node.expr


def hint(size: Any) -> int:
    """The size of the example, whatever symbol it has."""
    return size if isinstance(size, int) else int(size.node.hint)


def bound_symbols(node: fx.Node) -> List[str]:
    """The symbols whose values come from what this node computes."""
    return [str(symbol) for symbol in (node.meta.get("unbacked_bindings") or {})]


# Failures of the tracer that have a cause in the user's code


def data_dependent_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    names = ("DataDependentOutputException", "DynamicOutputShapeException")
    errors = [getattr(fake_tensor, name) for name in names if hasattr(fake_tensor, name)]
    return tuple(errors) + (symbolic_shapes.GuardOnDataDependentSymNode,)


def unsupported_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    return (fake_tensor.UnsupportedOperatorException, NotImplementedError)


# Distributed


def group_ranks(name: str) -> List[int]:
    """The ranks of a process group, by the name that functional collectives give it."""
    from torch.distributed import distributed_c10d

    return list(torch.distributed.get_process_group_ranks(distributed_c10d._resolve_process_group(name)))
