"""Fake tensors: the mode that creates them, corrections of its mistakes, and the real tensors alongside."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional

import sympy
import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes

from .layouts import lay_as_kernels, lay_reals_as_fakes
from .sizes import assumptions, count_of_assumptions, is_number_of_floats


def new_fake_mode(
    allow_real_inputs: bool,
    here: Callable[[], Any],
    with_values: bool = False,
    move: Callable[[int, Any], Any] = lambda _, number: number,
) -> Any:
    """A mode whose tensors have no memory; sizes may be symbols, data-dependent ones included.

    here: returns what is being traced; called when a symbol turns out to equal another or a number: see `settled_at`.
    with_values: keeps real tensors alongside the fake ones, to answer what Python asks of them.
    move: changes the numbers that Python takes out of float tensors: see `taken`.
    """
    from torch._functorch import config
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = super().dispatch(func, types, args, kwargs)
            lay_reals_as_fakes(func, out, _example)
            return out

        def _maybe_infer_fake_kernel_from_pytree_out(self, *args: Any) -> Any:
            real = args[-1]  # rows of nothing: PyTorch expects at least one result
            return [] if type(real) is list and not real else super()._maybe_infer_fake_kernel_from_pytree_out(*args)

        def _maybe_infer_fake(self, func: Any, path: Any, fake: Any, real: Any) -> Any:
            if real is not None and not _same_sizes(fake, real):
                return super()._maybe_infer_fake(func, path, fake, real)
            # PyTorch would reject differences that are fine: a gradient that is not requested, a view with another
            # layout.
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

        def evaluate_expr(self, orig_expr: Any, *more: Any, **named: Any) -> Any:
            # PyTorch would replace the number by the example's everywhere, without a guard.
            if not with_values or not is_number_of_floats(orig_expr):
                before, found = count_of_assumptions(self), super().evaluate_expr(orig_expr, *more, **named)
                if count_of_assumptions(self) > before:
                    places = vars(self).setdefault("assumed_here", {})
                    places.update({expr: here() for expr in assumptions(self) if expr not in places})
                return found
            known = vars(self).setdefault("taken", {})
            if orig_expr not in known:
                found = _known(self, orig_expr)
                known[orig_expr] = len(known), int(found) if orig_expr.is_integer else float(found), here()
            index, number, _ = known[orig_expr]
            return sympy.sympify(move(index, number))

    shape_env = Sizes(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    with config.patch(fake_tensor_propagate_real_tensors=with_values):
        mode = (Mode if with_values else FakeTensorMode)(shape_env=shape_env, allow_non_fake_inputs=allow_real_inputs)
    if not with_values:
        lay_as_kernels(mode)
    return mode


def _layer_norm(x: Tensor, shape: Any, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Any:
    """On CPUs under autocast, a layer norm of narrow floats with f32 weights has f32 statistics, which its second
    derivative casts; PyTorch's fake statistics are narrow."""
    result, *statistics = torch._refs.native_layer_norm(x, shape, weight, bias, eps)
    is_wide = any(given is not None and given.dtype == torch.float32 for given in (weight, bias))
    if x.device.type == "cpu" and x.dtype.itemsize < 4 and is_wide:
        statistics = [torch.empty_strided(t.shape, t.stride(), dtype=torch.float32, device=x.device) for t in statistics]
    return (result, *statistics)


CORRECTED = {torch.ops.aten.native_layer_norm.default: _layer_norm}  # in place of PyTorch's own fakes


def _same_sizes(fake: Any, real: Any) -> bool:
    """Whether both have the same sizes and offset, by the example's numbers. PyTorch's own comparison turns symbols
    into constants: an offset of one (a column of nonzero()), or all sizes if it suspects a mismatch."""
    if not isinstance(fake, Tensor) or not isinstance(real, Tensor):
        return False
    known = [_example(size) for size in (*fake.shape, fake.storage_offset())]
    return None not in known and tuple(known[:-1]) == tuple(real.shape)


@contextmanager
def fakes_of(functions: Dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Uses these functions for the fake results of ops that PyTorch refuses or gets wrong."""
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
    """Replaces composite C++ ops by these functions, which accept symbols."""
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
    """The result of `make` outside of all modes: a tensor with memory, which C++ may read."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return make()


def value_beside(fake: Tensor) -> Tensor:
    """The real tensor alongside a fake one, if a mode with values created it."""
    return fake.real_tensor  # type: ignore[attr-defined]


def values_in(arguments: Any) -> Any:
    """The same arguments with the real tensors of fake ones, and numbers for symbols."""
    from torch.utils import _pytree as pytree

    found = pytree.tree_map_only(torch.Tensor, lambda t: value_beside(t) if is_fake(t) else t, arguments)
    return pytree.tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), _number, found)


def _number(symbolic: Any) -> Any:
    """The example's value, without asking the symbolic number itself, which would add a guard."""
    return symbolic.node.pytype(_with_examples(symbolic))


def _example(size: Any) -> Optional[int]:
    """The size in the example; None if a symbol in it is not known yet."""
    if isinstance(size, int):
        return size
    expr = _with_examples(size)
    return None if expr.free_symbols else int(expr)


def _with_examples(symbolic: Any) -> Any:
    return _known(symbolic.node.shape_env, symbolic.node.expr)


def _known(shape_env: Any, expr: Any) -> Any:
    """The expression with the example's numbers."""
    names = ("var_to_val", "backed_var_to_val", "unbacked_var_to_val", "real_tensor_prop_unbacked_vals")
    known = [vars(shape_env).get(name, {}) for name in names]  # by PyTorch's version
    return expr.xreplace({s: numbers[s] for numbers in known for s in expr.free_symbols if s in numbers})


def fake_with_value(fake_mode: Any, tensor: Tensor) -> Tensor:
    """A fake twin with the real tensor alongside; the step's writes go to both."""
    return fake_mode.from_tensor(tensor, static_shapes=True)


def is_fake(tensor: Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def constant_of(tensor: Tensor) -> Tensor:
    """The values that PyTorch keeps with a fake tensor made from a constant, else the tensor itself."""
    kept = getattr(tensor, "constant", None) if is_fake(tensor) else None
    return tensor if kept is None else kept
