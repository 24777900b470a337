"""Why a step cannot be traced, in words for the user."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from . import compat, source, symbols, world
from .errors import CaptureError


class AsksForValues(CaptureError):
    """The step branches on the value of a tensor; fake tensors have none."""


@contextmanager
def explained(settle: bool) -> Iterator[None]:
    """Raises what the tracer raises as CaptureErrors that say what of the step is the reason. settle: the example's
    numbers are already in place of those of the data, so that no further way to ask for values is left."""
    try:
        yield
    except compat.data_dependent_errors() as error:
        if "linalg_lstsq" in str(error):
            raise CaptureError(_because(_LEAST_SQUARES, error)) from error
        raise AsksForValues(_because(_BY_VALUE, error)) from error
    except compat.unsupported_errors() as error:
        why = _NESTED if "_nested_tensor" in str(error) else f"it calls {_unsupported(str(error))}"
        raise CaptureError(_because(why, error)) from error
    except (TypeError, AttributeError) as error:
        if compat.asks_about_nan(error):
            raise CaptureError(_because(_BY_NAN, error)) from error
        if compat.takes_no_symbol(error):
            raise CaptureError(_because(_NO_SYMBOLS, error)) from error
        raise
    except AssertionError as error:
        if compat.meets_infinity(error):
            raise CaptureError(_because(_INFINITE, error)) from error
        raise
    except RuntimeError as error:
        if compat.is_mixed_up(error):
            raise CaptureError(_because(_FORWARD_OVER_REVERSE, error)) from error
        if compat.takes_no_symbol(error):
            raise CaptureError(_because(_NO_SYMBOLS, error)) from error
        if compat.is_about_nested_tensors(error):
            raise CaptureError(_because(_NESTED, error)) from error
        if compat.wants_numbers(error) and settle:
            raise CaptureError(_because(_PLAIN_SIZES, error)) from error
        if not compat.wants_numbers(error) and not compat.branches_in_script(error):
            raise
        raise AsksForValues(_because(_BY_VALUE, error)) from error


def _unsupported(words: str) -> str:
    if "c10d." in words:
        return world.IN_PLACE
    if "backward on CPU" in words:
        return "an op that PyTorch has no backward of on CPUs (freeze what comes before it, or capture on a GPU)"
    if "SparseTensorImpl" in words:
        return "an op on sparse tensors, which no graph holds: compute with dense ones (scatter, index_add)"
    if "nsupported dtype" in words:
        return "an op that does not take tensors of this type"
    if "sharding strategy" in words:
        return "an op that DTensor has no sharding strategy for on this device (call full_tensor() before, or another op)"
    return "an op that PyTorch has no fake of (torch.library.register_fake)"


_BY_VALUE = (
    "it decides by the value of a tensor (an `if`, int() or .item() of one), and the graph would hold only one way"
)

_LEAST_SQUARES = (
    "it calls torch.linalg.lstsq, whose way depends on the rank of the data: of matrices of full rank use q, r = "
    "torch.linalg.qr(a) and torch.linalg.solve_triangular(r, q.mT @ b, upper=True)"
)

_BY_NAN = (
    "it decides by the value of a tensor, which is NaN in the example: give values with which it is a number (a step "
    "that a scaler skips has gradients that are not: let it begin with a smaller init_scale)"
)

_NO_SYMBOLS = (
    "it hands a tensor, or a number read from one, to code that is none of PyTorch's and takes no stand-in for it: give "
    "a number as float(...) or int(...), and compute with tensors in PyTorch, not NumPy"
)

_INFINITE = (
    "PyTorch's tracer knows no bounds of what an infinite number and one read from a tensor give: take a large finite one"
)

_NESTED = (
    "it makes nested tensors of the strided layout, which PyTorch's tracer does not follow: make them with "
    "layout=torch.jagged, or compute with padded rows and a mask"
)

_PLAIN_SIZES = (
    "an op of PyTorch takes no size that depends on the data here: where a tensor of one element is spread over what a "
    "mask selects, spread it first (expand_as)"
)

_FORWARD_OVER_REVERSE = (
    "PyTorch's tracer loses the device of what vmap makes of derivatives of both modes (torch.func.hessian under vmap)"
    ": use jacrev of jacrev, or a loop"
)


@contextmanager
def of_tracing_alone() -> Iterator[None]:
    """Tells errors of a step that runs."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(_because(_TRACING_ALONE.format(type(error).__name__), error)) from error


_TRACING_ALONE = (
    "as it is traced it raises a {}, and run as it is it does not: it may go another way when traced, by is_tracing() or "
    "is_compiling(), or do what PyTorch's tracer does not follow"
)


def _because(reason: str, error: BaseException) -> str:
    place = source.raised_at(error)
    return f"the step cannot be captured{f' at {place}' if place else ''}: {reason} [{symbols.first_line(error)}]"
