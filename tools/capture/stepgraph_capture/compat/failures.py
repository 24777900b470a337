"""Recognises failures of the tracer that are caused by the user's code."""

from __future__ import annotations

from typing import Optional, Tuple

from torch.fx.experimental import symbolic_shapes


def data_dependent_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    names = ("DataDependentOutputException", "DynamicOutputShapeException")
    errors = [getattr(fake_tensor, name) for name in names if hasattr(fake_tensor, name)]
    return tuple(errors) + (symbolic_shapes.GuardOnDataDependentSymNode,)


def branches_in_script(error: BaseException) -> bool:
    """Whether a function of torch.jit.script branches on a value: its interpreter repeats the tracer's error as text."""
    names = "GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"
    return "TorchScript interpreter" in str(error) and any(name in str(error) for name in names)


def is_about_nested_tensors(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "nested_tensor" in str(error)


def is_mixed_up(error: BaseException) -> bool:
    """Whether PyTorch took a fake tensor for one on "meta", as autograd does below vmap and forward-over-reverse."""
    words = "two devices, meta and ", "two different devices meta, "  # by version
    return isinstance(error, RuntimeError) and any(text in str(error) for text in words)


def wants_numbers(error: BaseException) -> bool:
    """Whether C++ refused a symbol where it takes plain sizes only."""
    words = "SymInt", "Expected IntList but got GenericList"  # of a size, of a list of sizes
    return isinstance(error, RuntimeError) and any(text in str(error) for text in words)


def asks_about_nan(error: BaseException) -> bool:
    """Whether an example number that is NaN was compared: sympy, which PyTorch asks, refuses."""
    return isinstance(error, TypeError) and "Invalid NaN comparison" in str(error)


def asks_whether_averaged(error: Optional[BaseException]) -> bool:
    """Whether AveragedModel.update_parameters() asked for its count."""
    from torch.optim import swa_utils

    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_frame.f_code is not swa_utils.AveragedModel.update_parameters.__code__:
        trace = trace.tb_next
    return trace is not None


def meets_infinity(error: BaseException) -> bool:
    """Whether PyTorch's bounds of numbers met infinity times zero, or minus infinity."""
    return isinstance(error, AssertionError) and "sympy expression is NaN" in str(error)


def takes_no_symbol(error: BaseException) -> bool:
    """Whether code outside PyTorch (json, numpy) refused a symbolic number or a fake tensor, or numpy() of the latter."""
    if isinstance(error, (TypeError, AttributeError)):
        return any(text in str(error) for text in ("SymFloat", "SymInt", "SymBool", "FakeTensor"))
    return isinstance(error, RuntimeError) and ".numpy() is not supported for tensor subclasses" in str(error)


def unsupported_errors() -> Tuple[type, ...]:
    from torch._subclasses import fake_tensor

    return (fake_tensor.UnsupportedOperatorException, NotImplementedError)
