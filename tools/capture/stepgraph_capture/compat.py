"""All that is private to PyTorch, or differs between 2.6 and the newest, is called from here and nowhere else."""

from __future__ import annotations

import copy
import inspect
import logging
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental import proxy_tensor, symbolic_shapes

from . import flex
from .errors import CaptureError

_RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])

# Tracing


def new_fake_mode(allow_real_inputs: bool, here: Callable[[], Any], with_values: bool = False) -> Any:
    """A mode whose tensors have no memory; sizes may be symbols, also of data.

    here: what is being traced, asked when a symbol is found to be another or a number: `settled_at`.
    with_values: real tensors go beside the fake ones, and answer what Python asks of them.
    """
    from torch._functorch import config
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):
        def _maybe_infer_fake(self, func: Any, path: Any, fake: Any, real: Any) -> Any:
            if real is not None and not _same_sizes(fake, real):
                return super()._maybe_infer_fake(func, path, fake, real)
            # PyTorch compares all the same: a gradient that is not asked for, a view of what lies otherwise in memory.
            same, returns = (fake if real is not None else None), FakeTensorMode._maybe_infer_fake
            if same is not None and same.dtype != real.dtype:  # statistics of norms under autocast
                with self:
                    same = torch.empty_strided(fake.shape, fake.stride(), dtype=real.dtype, device=fake.device)
            is_pair = "tuple" in str(inspect.signature(returns).return_annotation).lower()
            return (same, same is None) if is_pair else same

    class Sizes(symbolic_shapes.ShapeEnv):
        def _set_replacement(self, a: Any, tgt: Any, *more: Any) -> None:
            vars(self).setdefault("settled_here", {}).setdefault(a, (tgt, here()))
            super()._set_replacement(a, tgt, *more)

    shape_env = Sizes(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    with config.patch(fake_tensor_propagate_real_tensors=with_values):
        return (Mode if with_values else FakeTensorMode)(shape_env=shape_env, allow_non_fake_inputs=allow_real_inputs)


def _same_sizes(fake: Any, real: Any) -> bool:
    """Of the same sizes, by the example's numbers. PyTorch asks symbols for theirs, and settles them: an offset that is
    one (a column of nonzero()), all sizes of what it takes for a mistake."""
    if not isinstance(fake, Tensor) or not isinstance(real, Tensor):
        return False
    known = [_example(size) for size in (*fake.shape, fake.storage_offset())]
    return None not in known and tuple(known[:-1]) == tuple(real.shape)


@contextmanager
def fakes_of(functions: Dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Within it, fake tensors answer these ops by these functions, where PyTorch refuses or has it wrong."""
    from torch._subclasses import fake_impls

    def implementation(function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            with fake_mode:
                return function(*args, **kwargs)

        return answer

    table = fake_impls.op_implementations_dict
    before = {op: table[op] for op in functions if op in table}
    table.update({op: implementation(function) for op, function in functions.items()})
    try:
        yield
    finally:
        for op in functions:
            table.pop(op, None)
        table.update(before)


@contextmanager
def python_twins(functions: Dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Within it, these functions stand for composite ops of C++, where tracing asks Python first: with symbols."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined]
    functions = {op: function for op, function in functions.items() if key not in op.py_kernels}
    for op, function in functions.items():
        op.py_impl(key)(function)
    try:
        yield
    finally:
        for op in functions:
            del op.py_kernels[key]
            op._dispatch_cache.clear()


def real(make: Callable[[], Any]) -> Any:
    """What `make` gives outside of all modes: a tensor with memory, which C++ may read."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return make()


def value_beside(fake: Tensor) -> Tensor:
    """The real tensor of a fake one, where a mode with values made it."""
    return fake.real_tensor  # type: ignore[attr-defined]


def values_in(arguments: Any) -> Any:
    """The same arguments with the real tensors of fake ones, and numbers for symbols."""
    from torch.utils import _pytree as pytree

    found = pytree.tree_map_only(torch.Tensor, lambda t: value_beside(t) if is_fake(t) else t, arguments)
    return pytree.tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), _number, found)


def _number(symbolic: Any) -> Any:
    """The example's, by what the tracing knows of symbols: to ask the number itself leaves a guard that it is that."""
    return symbolic.node.pytype(_with_examples(symbolic))


def _example(size: Any) -> Optional[int]:
    """The size in the example; None where it has a symbol that nobody knows yet."""
    if isinstance(size, int):
        return size
    expr = _with_examples(size)
    return None if expr.free_symbols else int(expr)


def _with_examples(symbolic: Any) -> Any:
    node = symbolic.node
    names = ("var_to_val", "backed_var_to_val", "unbacked_var_to_val", "real_tensor_prop_unbacked_vals")
    known = [vars(node.shape_env).get(name, {}) for name in names]  # by PyTorch's version
    values = {s: numbers[s] for numbers in known for s in node.expr.free_symbols if s in numbers}
    return node.expr.xreplace(values)


def fake_with_value(fake_mode: Any, tensor: Tensor) -> Tensor:
    """A fake twin that keeps the tensor beside it, and writes to it where the step does."""
    return fake_mode.from_tensor(tensor, static_shapes=True)


def is_fake(tensor: Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def trace(function: Callable[..., Any], arguments: Sequence[Tensor], fake_mode: Any, symbolic: bool) -> fx.GraphModule:
    """The ATen calls that `function` makes below autograd, as one graph. In-place ops stay as they are."""
    from torch._dispatch.python import enable_python_dispatcher

    tracer = proxy_tensor.make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)
    # Some ops that are made of others are so in C++, for plain sizes; their twins in Python know symbols.
    from torch._functorch import config

    asks_python = symbolic or _RELEASE == (2, 8)  # whose C++ takes no index of a size that the data decides
    with fake_mode, eager_everywhere(), without_onednn(), casts_keep_strides(), (
        enable_python_dispatcher() if asks_python else nullcontext()
    ):
        # Where real tensors are beside the fake ones.
        with config.patch(generate_fake_kernels_from_real_mismatches=True):
            return tracer(*arguments)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Recurrent layers that the CPU's library would run whole are made of plain ops without it."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def casts_keep_strides() -> Iterator[None]:
    """Of narrow floats PyTorch computes a result's strides in Python, from operands that it has made wide. By that an
    expanded one is written out, and the result lies otherwise than an eager op lays it."""
    from torch._prims_common import wrappers

    convert = wrappers._maybe_convert_to_dtype

    def keeping(a: Any, dtype: torch.dtype) -> Any:
        if not isinstance(a, Tensor) or a.dtype == dtype:
            return convert(a, dtype)
        once = a
        for axis, (size, stride) in enumerate(zip(a.shape, a.stride())):
            if isinstance(stride, int) and stride == 0 and not is_of_data(size) and size != 0:
                once = once.narrow(axis, 0, 1)
        return convert(a, dtype) if once is a else convert(once, dtype).expand(a.shape)

    wrappers._maybe_convert_to_dtype = keeping
    try:
        yield
    finally:
        wrappers._maybe_convert_to_dtype = convert


@contextmanager
def eager_everywhere() -> Iterator[None]:
    """torch.compile'd parts run as plain Python, and backward on this thread: modes are per thread."""
    from torch._dynamo import config

    with torch.compiler.set_stance("force_eager"), config.patch(
        error_on_nested_fx_trace=False
    ), torch.autograd.set_multithreading_enabled(False), _conditions_as_python(), flex.with_operands():
        yield


@contextmanager
def _conditions_as_python() -> Iterator[None]:
    """torch.cond is the `if` that it means. Uncompiled it gives no gradient to what its branches close over."""
    from torch._higher_order_ops.cond import CondOp

    def call(self: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        return (true_fn if pred else false_fn)(*operands)

    original = CondOp.__call__
    CondOp.__call__ = call
    try:
        yield
    finally:
        CondOp.__call__ = original


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


@contextmanager
def casts_in_forward() -> Iterator[None]:
    """Within it, a module that casts itself (`self.router.to(dtype)`) gets other tensors under its names: what PyTorch
    does, to exchange the memory of parameters, cannot be done to those that stand for them. Gradients go by the cast,
    also where a reentrant checkpoint runs forward without autograd: when it runs again the module has been cast."""
    original = nn.Module._apply

    def apply(self: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(function)
        for tensors in (self._parameters, self._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    with torch.enable_grad():
                        tensors[name] = function(tensor)  # type: ignore[assignment]
        return self

    nn.Module._apply = apply  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def memory_of(tensor: Tensor) -> int:
    """Equal for tensors that share memory, also on "meta", where there is none to have an address."""
    return tensor.untyped_storage()._cdata


@contextmanager
def as_compiled() -> Iterator[None]:
    """Within it PyTorch's optimizers take every device for one that their capturable form runs on."""
    original = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compiler.is_compiling = original  # type: ignore[assignment]


@contextmanager
def without_scalers(refuse: Callable[[], None]) -> Iterator[None]:
    """Within it, who scales a loss by torch.amp.GradScaler is refused."""
    original = torch.amp.GradScaler.scale

    def scale(self: Any, outputs: Any) -> Any:
        if self.is_enabled():
            refuse()
        return original(self, outputs)

    torch.amp.GradScaler.scale = scale  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.amp.GradScaler.scale = original  # type: ignore[method-assign]


# Autograd


def sequence_number() -> int:
    """The number of the last autograd node made: that of the op which is being traced."""
    return torch.autograd._get_sequence_nr() - 1


def has_hooks(tensor: Tensor) -> bool:
    """Does register_hook() or register_post_accumulate_grad_hook() look at its gradient?"""
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def node_sequence_number(node: Any) -> int:
    return node._sequence_nr()


@contextmanager
def backward_within(around: Callable[[Sequence[Any]], Any]) -> Iterator[None]:
    """Within it each backward() that the user's code calls, and each grad() of no further derivative, runs within
    `around` of what it starts from."""
    original = torch.autograd._engine_run_backward

    def run(roots: Sequence[Any], grads: Any, retain_graph: bool, create_graph: bool, *args: Any, **kwargs: Any) -> Any:
        with nullcontext() if create_graph else around(roots):
            return original(roots, grads, retain_graph, create_graph, *args, **kwargs)

    torch.autograd._engine_run_backward = run
    try:
        yield
    finally:
        torch.autograd._engine_run_backward = original


def autograd_nodes(*roots: Any) -> Iterator[Any]:
    """The nodes that these lead to, each once; leaves, which run nothing, are none of them."""
    seen, waiting = set(), list(roots)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or hasattr(node, "variable"):
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def leaves(root: Any) -> Iterator[Tensor]:
    """The tensors whose gradients a backward from `root` makes, each once."""
    seen: Set[int] = set()
    for node in autograd_nodes(root):
        for following, _ in node.next_functions:
            leaf = getattr(following, "variable", None)
            if leaf is not None and id(leaf) not in seen:
                seen.add(id(leaf))
                yield leaf


def has_reentrant_checkpoint(loss: Tensor) -> bool:
    """Has a part of the model been run by checkpoint(use_reentrant=True)?"""
    from torch.utils.checkpoint import CheckpointFunction

    kind = getattr(CheckpointFunction, "_backward_cls", None)
    return kind is not None and any(isinstance(node, kind) for node in autograd_nodes(loss.grad_fn))


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


def bounds(shape_env: Any, expr: Any) -> Tuple[Optional[int], Optional[int]]:
    """The least and the greatest that a whole number can be, None where open."""
    found = shape_env.bound_sympy(expr)
    low, high = (
        int(end) if getattr(end, "is_Integer", False) and abs(int(end)) < 2**62 else None
        for end in (found.lower, found.upper)
    )
    return low, high


def settled(shape_env: Any, graph: fx.Graph) -> Dict[Any, int]:
    """Symbols of this graph's data that tracing took for numbers, as the values beside it said."""
    import sympy

    bound = {symbol for node in graph.nodes for symbol in (node.meta.get("unbacked_bindings") or {})}
    numbers = {symbol: shape_env.replace(symbol) for symbol in bound}
    return {symbol: int(number) for symbol, number in numbers.items() if isinstance(number, sympy.Integer)}


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic number."""
    return value.node.expr


def settled_at(size: Any) -> Any:
    """What was being traced when a size that was a symbol became a number; None where nobody knows."""
    if isinstance(size, int):
        return None
    known = vars(size.node.shape_env).get("settled_here", {})
    symbol, found = size.node._expr, None
    while symbol in known:
        symbol, found = known[symbol]
    return found if symbol.is_Integer else None


def is_of_data(value: Any) -> bool:
    """Does the symbolic number depend on what tensors hold?"""
    return bool(symbolic_shapes.free_unbacked_symbols(value))


def hint(size: Any) -> int:
    """The size of the example, whatever symbol it has."""
    return size if isinstance(size, int) else int(size.node.hint)


def results(node: fx.Node) -> Any:
    """What the node gives, as far as tracing knows. FlexAttention of older versions gave no maxima of the scores, which
    are as many as their logarithms."""
    found = node.meta.get("val")
    is_flex = getattr(node.target, "name", lambda: "")() == "flex_attention"
    return (*found, found[1]) if is_flex and isinstance(found, tuple) and len(found) == 2 else found


def is_answered(node: fx.Node) -> bool:
    """A question about tensors (`is_same_size`) whose answer Python had while tracing, and that no node asks for."""
    schema = getattr(node.target, "_schema", None)
    return not node.users and schema is not None and [str(r.type) for r in schema.returns] == ["bool"]


def bound_symbols(node: fx.Node) -> List[str]:
    """The symbols whose values come from what this node computes. A number with a fraction is no size: its node is its
    name."""
    return [str(symbol) for symbol in (node.meta.get("unbacked_bindings") or {}) if symbol.is_integer]


def is_collective(target: Any) -> bool:
    """One that the graph waits for, or the wait."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "_c10d_functional"


def is_launch(target: Any) -> bool:
    """Waits, and what wraps a tensor for autograd, talk to nobody."""
    return is_collective(target) and any(argument.name == "group_name" for argument in target._schema.arguments)


def is_random(node: fx.Node) -> bool:
    """Does it draw numbers? Attention and dropout do not when their probability is 0."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in ("dropout_p", "p"):
            given = (
                node.args[position]
                if position < len(node.args)
                else node.kwargs.get(argument.name, argument.default_value)
            )
            return given != 0
    return True


# Failures of the tracer that have a cause in the user's code


def data_dependent_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    names = ("DataDependentOutputException", "DynamicOutputShapeException")
    errors = [getattr(fake_tensor, name) for name in names if hasattr(fake_tensor, name)]
    return tuple(errors) + (symbolic_shapes.GuardOnDataDependentSymNode,)


def is_mixed_up(error: BaseException) -> bool:
    """Does PyTorch hold a fake tensor for one on "meta"? Below vmap and derivatives of both modes autograd does."""
    words = "two devices, meta and ", "two different devices meta, "  # by version
    return isinstance(error, RuntimeError) and any(text in str(error) for text in words)


def wants_numbers(error: BaseException) -> bool:
    """Did C++ refuse a symbol where it takes plain sizes only?"""
    return isinstance(error, RuntimeError) and "SymInt" in str(error)


_UNHEARD = {
    "torch.fx.experimental.symbolic_shapes": logging.ERROR,  # each answer of real tensors beside fake ones: a guard
    "torch.fx.experimental.recording": logging.CRITICAL,  # each question that fake tensors cannot answer
    "torch._subclasses.fake_tensor": logging.CRITICAL,  # each op that fails, with a traceback, before it raises
}


@contextmanager
def without_notices() -> Iterator[None]:
    """What PyTorch logs meanwhile is in the capture, or in the one line of an error."""
    loggers = {logging.getLogger(name): level for name, level in _UNHEARD.items()}
    before = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


@contextmanager
def without_batch_limits() -> Iterator[None]:
    """A convolution asks whether NNPACK suits it, which it does below a batch of 16: a guard on a choice of kernels
    that is not in the graph."""
    with torch.backends.nnpack.flags(enabled=False):
        yield


@contextmanager
def with_eager_checkpoints() -> Iterator[None]:
    """Within a tracer, selective checkpoints (`create_selective_checkpoint_contexts`) keep every result for a compiler
    to choose from, and fail where an op in place has written to one; so they compute again what they do in eager mode."""
    from torch.utils import checkpoint

    before = checkpoint._is_compiling
    checkpoint._is_compiling = lambda *_: False
    try:
        yield
    finally:
        checkpoint._is_compiling = before


def unsupported_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    return (fake_tensor.UnsupportedOperatorException, NotImplementedError)


# Distributed


def group_ranks(name: str) -> List[int]:
    """The ranks of a process group, by the name that functional collectives give it."""
    from torch.distributed import distributed_c10d

    return list(torch.distributed.get_process_group_ranks(distributed_c10d._resolve_process_group(name)))


# Flex attention


def is_block_mask(value: Any) -> bool:
    from torch.nn.attention.flex_attention import BlockMask

    return isinstance(value, BlockMask)


def split_block_mask(mask: Any, sizes: Sequence[int]) -> List[Any]:
    """Masks for consecutive parts of the batch; each part's mask function is asked about its entries in the whole."""
    parts, start = [], 0
    for size in sizes:
        part = copy.copy(mask)
        for name, value in vars(mask).items():
            if isinstance(value, Tensor) and value.dim() >= 2 and value.shape[0] != 1:  # of one entry: of all
                setattr(part, name, value.narrow(0, start, size).contiguous())
        part.mask_mod = _moved(mask.mask_mod, start)
        parts.append(part)
        start += size
    return parts


def _moved(mask_mod: Callable[..., Tensor], start: int) -> Callable[..., Tensor]:
    def moved(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Tensor:
        return mask_mod(b + start, h, q_idx, kv_idx)

    return moved if start else mask_mod


def wait(launched: Tensor) -> Tensor:
    return torch.ops._c10d_functional.wait_tensor(launched)


def launch_all_gather(tensor: Tensor, group: Any) -> Tensor:
    return torch.ops._c10d_functional.all_gather_into_tensor(tensor.contiguous(), group.size(), group.group_name)


def launch_reduce_scatter(tensor: Tensor, group: Any, reduction: str) -> Tensor:
    return torch.ops._c10d_functional.reduce_scatter_tensor(tensor, reduction, group.size(), group.group_name)


def launch_all_reduce(tensor: Tensor, group: Any, reduction: str) -> Tensor:
    return torch.ops._c10d_functional.all_reduce(tensor, reduction, group.group_name)


def launch_broadcast(tensor: Tensor, group: Any, source: int) -> Tensor:
    return torch.ops._c10d_functional.broadcast(tensor.contiguous(), source, group.group_name)


def launch_all_to_all(tensor: Tensor, received: Sequence[Any], sent: Sequence[Any], name: str) -> Tensor:
    """Rows: how many come from each rank, and go to it. The group by its name."""
    ops = torch.ops._c10d_functional
    return ops.all_to_all_single(tensor.contiguous(), list(received), list(sent), name)


def all_gather(tensor: Tensor, group: Any) -> Tensor:
    return wait(launch_all_gather(tensor, group))


def reduce_scatter(tensor: Tensor, group: Any, reduction: str = "sum") -> Tensor:
    return wait(launch_reduce_scatter(tensor, group, reduction))


def all_reduce(tensor: Tensor, group: Any, reduction: str = "sum") -> Tensor:
    return wait(launch_all_reduce(tensor, group, reduction))


def broadcast(tensor: Tensor, group: Any, source: int = 0) -> Tensor:
    """What the group's first rank has, or another."""
    return wait(launch_broadcast(tensor, group, source))


def is_exchange(target: Any) -> bool:
    return is_collective(target) and target is torch.ops._c10d_functional.all_to_all_single.default


def groups_of_this_rank() -> List[Tuple[str, List[int]]]:
    """The process groups that hold this rank, by name, with their ranks; in the order in which they were made, which is
    the same on all ranks of each."""
    from torch.distributed import distributed_c10d

    groups = [group for group in distributed_c10d._world.pg_map if group.rank() >= 0]
    return [(group.group_name, list(torch.distributed.get_process_group_ranks(group))) for group in groups]


def root_mesh(mesh: Any) -> Any:
    """The mesh of which this one is a part, or itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources  # until 2.9

    return _mesh_resources.get_root_mesh(mesh)


def new_group(ranks: List[int]) -> Any:
    """All ranks of the world have to ask, in the same order."""
    return torch.distributed.new_group(ranks)


def name_group(name: str, group: Any) -> None:
    """Functional collectives find the group by this name, too."""
    torch._C._distributed_c10d._register_process_group(name, group)


def forget_group(name: str) -> None:
    torch._C._distributed_c10d._unregister_process_group(name)


def can_box_work() -> bool:
    """Can a collective be answered with a handle that was made here? Not in torch 2.6."""
    return hasattr(torch.distributed.ProcessGroup, "unbox") and hasattr(torch._C._distributed_c10d, "FakeWork")


if torch.distributed.is_available():

    class Handle(torch._C._distributed_c10d.Work):
        """What an asynchronous call gives: `finish` is done once, at the first wait, or where it is asked for more."""

        def __init__(self, finish: Callable[[], None]) -> None:
            super().__init__()
            self._finish: Optional[Callable[[], None]] = finish

        def wait(self, timeout: Any = None) -> bool:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()
            return True

        synchronize = block_current_stream = is_completed = is_success = wait

        def exception(self) -> None:
            return None

        def get_future(self) -> Any:
            self.wait()
            future: Any = torch.futures.Future()
            future.set_result(None)
            return future


def unboxed_group(handle: Any) -> Any:
    return torch.distributed.ProcessGroup.unbox(handle)


class Reductions:
    """How a collective reduces, by the handle that its op is given. torch 2.11 has no way to read one: there it is what
    the call's options say, which torch.distributed makes right before."""

    def __init__(self) -> None:
        self._options: Any = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within it, options that torch.distributed makes are known."""
        from torch.distributed import distributed_c10d

        kinds = {name: kind for name, kind in vars(distributed_c10d).items() if name in _OPTIONS_OF_REDUCTIONS}
        for name, kind in kinds.items():
            setattr(distributed_c10d, name, lambda kind=kind: self._note(kind()))
        try:
            yield
        finally:
            for name, kind in kinds.items():
                setattr(distributed_c10d, name, kind)

    def _note(self, options: Any) -> Any:
        self._options = options
        return options

    def name(self, handle: Any) -> Optional[str]:
        """As functional collectives call it; None of one that they lack."""
        from torch.distributed._functional_collectives import REDUCE_OP_TO_STR

        unbox = getattr(torch.distributed.ReduceOp, "unbox", None)
        options, self._options = self._options, None  # of one call: the next may have made its own elsewhere
        if unbox is None and options is None:
            return None
        kind = (unbox(handle) if unbox is not None else options.reduceOp).op
        return next((name for op, name in REDUCE_OP_TO_STR.items() if op == kind), None)


_OPTIONS_OF_REDUCTIONS = {"AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions"}


@contextmanager
def version_kept(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Within it, what is written autograd does not hold against those who saved these tensors."""
    with ExitStack() as each:
        for tensor in tensors:  # several at once only since 2.7
            each.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
        yield


def syncs_buffers(parallel: Any) -> bool:
    """Does this DistributedDataParallel broadcast buffers before its forward?"""
    newer = getattr(parallel, "forward_sync_buffers", None)
    return bool(parallel.broadcast_buffers if newer is None else newer)


def unknown_wrapper(module: nn.Module) -> Optional[str]:
    """The name of a data parallel wrapper other than DistributedDataParallel and fully_shard."""
    try:
        from torch.distributed._composable.contract import _get_registry
        from torch.distributed.fsdp import FullyShardedDataParallel
    except ImportError:  # a PyTorch without distributed
        return None
    if isinstance(module, FullyShardedDataParallel):
        return "FSDP1 (FullyShardedDataParallel)"
    return "replicate" if "replicate" in (_get_registry(module) or {}) else None


def fsdp_groups(model: nn.Module) -> List[Tuple[nn.Module, Any]]:
    """PyTorch's own objects for what fully_shard manages, each with its first module."""
    found: Dict[int, Tuple[nn.Module, Any]] = {}
    for module in model.modules():
        state = _fsdp_state(module)
        for group in _groups_of(state) if state is not None else ():
            found.setdefault(id(group), (module, group))
    return list(found.values())


def _groups_of(state: Any) -> List[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is not None:
        return groups
    return [state._fsdp_param_group] if state._fsdp_param_group else []  # one at most, until 2.9


def _fsdp_state(module: nn.Module) -> Any:
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_state import _get_module_fsdp_state
    except ImportError:  # a PyTorch without distributed
        return None
    return _get_module_fsdp_state(module)


def fsdp_units(model: nn.Module) -> List[Any]:
    """What each call of fully_shard in this model manages, in the words of shards.py."""
    from .shards import Settings, Shard, Unit

    names = {id(parameter): name for name, parameter in model.named_parameters()}
    states: Dict[int, Any] = {}
    for module in model.modules():
        state = _fsdp_state(module)
        if state is not None:
            states.setdefault(id(state), state)
    units = []
    for state in states.values():
        policy = state._mp_policy
        shards = [
            _shard_of(param, names, group, policy, Shard, Settings(group))
            for group in _groups_of(state)
            for param in group.fsdp_params
        ]
        input_dtype = policy.param_dtype if policy.cast_forward_inputs else None
        units.append(Unit(tuple(state._modules), shards, input_dtype, policy.output_dtype, _stays(state, states.values())))
    return units


def _stays(state: Any, all_of_them: Iterable[Any]) -> bool:
    """Are its parameters whole between forward and backward? Those of the outermost are, unless told otherwise."""
    others = [inner for one in all_of_them if one is not state for top in one._modules for inner in top.modules()]
    is_outermost = not any(module is other for module in state._modules for other in others)
    if is_outermost and getattr(state, "_auto_reshard_after_forward", True):
        return True
    return all(group.post_forward_mesh_info is None for group in _groups_of(state))


def _shard_of(param: Any, names: Dict[int, str], group: Any, policy: Any, make: Any, settings: Any) -> Any:
    info, sharded = param._module_info, param.sharded_param
    if id(sharded) not in names:
        raise CaptureError("a fully_shard module has its parameters gathered: call reshard() on it before capturing")
    mesh_info = param.mesh_info
    replicas = getattr(mesh_info, "replicate_process_group", None)
    copies = mesh_info.shard_process_group.size() * (replicas.size() if replicas is not None else 1)
    factor = getattr(group, "gradient_divide_factor", None) or getattr(group, "reduce_scatter_divide_factor", None)
    spec = getattr(param, "_unsharded_dtensor_spec", None) or getattr(param, "_tp_spec", None)
    reduce_dtype = policy.reduce_dtype
    if reduce_dtype is None and _RELEASE >= (2, 15):
        reduce_dtype = sharded.dtype  # as documented for MixedPrecisionPolicy; param_dtype before
    return make(
        fqn=names[id(sharded)],
        places=[(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names)],
        size=param._orig_size,
        dim=param.fsdp_placement.dim,
        shards=mesh_info.shard_process_group,
        replicas=replicas,
        param_dtype=policy.param_dtype,
        reduce_dtype=reduce_dtype,
        divisor=float(factor or copies),
        settings=settings,
        layout=(
            (spec.mesh, spec.placements, spec.tensor_meta.shape, spec.tensor_meta.stride) if param.is_dtensor else None
        ),
    )


def fsdp_methods(module: nn.Module) -> List[Tuple[str, Callable[..., Any]]]:
    """Of a fully_shard module the methods of register_fsdp_forward_method, as they were before."""
    found = []
    for name, value in vars(module).items():
        plain = value
        while _is_fsdp_method(plain):
            plain = plain.__wrapped__
        if plain is not value:
            found.append((name, plain))
    return found


def _is_fsdp_method(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and code.co_name == "wrapped_method" and "_fully_shard" in code.co_filename


@contextmanager
def fsdp_hooks_at_rest(model: nn.Module, finalize: Callable[[], None]) -> Iterator[None]:
    """Takes the hooks of fully_shard off the modules for a while. Of its methods those that a hook would call do nothing
    then, and what ends a backward by hand is `finalize`."""
    taken: List[Tuple[Any, Any]] = []
    for module in model.modules():
        if _fsdp_state(module) is None:
            continue
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            taken.append((hooks, hooks.copy()))
            for key, hook in list(hooks.items()):
                if "_fully_shard" in (getattr(hook, "__module__", None) or ""):
                    del hooks[key]
    try:
        with _fsdp_methods_at_rest(finalize) if taken else nullcontext():
            yield
    finally:
        for hooks, all_of_them in taken:
            hooks.clear()
            hooks.update(all_of_them)


class _Done:
    """What an asynchronous call of fully_shard gives, with nothing to wait for."""

    def wait(self) -> None:
        pass


@contextmanager
def _fsdp_methods_at_rest(finalize: Callable[[], None]) -> Iterator[None]:
    from torch.distributed.fsdp import FSDPModule

    def rest(self: Any, *_: Any, **__: Any) -> _Done:
        return _Done()

    def finalize_backward(self: Any, *_: Any, **__: Any) -> _Done:
        finalize()
        return _Done()

    ours = {"unshard": rest, "reshard": rest, "set_manual_backward_finalization": rest}
    ours["finalize_backward"] = finalize_backward
    before = {name: getattr(FSDPModule, name) for name in ours if hasattr(FSDPModule, name)}
    try:
        for name in before:
            setattr(FSDPModule, name, ours[name])
        yield
    finally:
        for name, method in before.items():
            setattr(FSDPModule, name, method)
