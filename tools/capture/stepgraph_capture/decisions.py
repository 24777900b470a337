"""Steps that branch on tensor values are traced with real tensors alongside the fake ones.

`if mask.all()`, `int(length)` and the like get the answer of the example. The graph then holds only the branch taken,
and records that: the number asked for is a data-dependent symbol, and a guard states its value, which sg-run checks.

Most data-dependent numbers may stay symbols even then. If a step cannot be traced so (a row chosen by int(index), an op
that does not accept symbols), it is traced again, with each such number replaced by the example's where an op takes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat


@contextmanager
def asking() -> Iterator[None]:
    """In this context, formatting an integer tensor (`self.experts[f"expert_{i}"]`), or by a format also one of a float
    (`f"{loss:.4f}"`), fails as data-dependent."""
    with _Texts():
        yield


class _Texts(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__format__ and (_is_whole(args[0]) or _has_fraction(args[0]) and args[1]):
            raise compat.data_dependent_errors()[0](torch.ops.aten._local_scalar_dense.default)
        return func(*args, **(kwargs or {}))


def _is_whole(tensor: Tensor) -> bool:
    return tensor.dim() == 0 and not tensor.is_floating_point() and not tensor.is_complex()


def _has_fraction(tensor: Tensor) -> bool:
    return tensor.dim() == 0 and tensor.is_floating_point()


@contextmanager
def answering(answers: Dict[Any, int], settle: bool) -> Iterator[None]:
    """In this context, ops that read values internally are replaced by ones that read them one by one. Answers to
    conditions go into `answers`, by symbol. settle: replaces data-dependent symbols in ops' arguments by numbers."""
    with _Functions(settle), _Ops(answers, settle):
        yield


def _settled(arguments: Any) -> Any:
    """The same arguments, with the example's numbers for data-dependent symbols; tracing adds a guard for each."""
    return pytree.tree_map_only(torch.SymInt, lambda n: int(n) if compat.is_of_data(n) else n, arguments)


def _sizes_as_numbers(arguments: Any) -> Any:
    """Replaces one-element tensors in lists of sizes by the numbers they hold."""

    def plain(value: Any) -> Any:
        tensors = [v for v in value if isinstance(v, Tensor)] if isinstance(value, (list, tuple)) else []
        if not tensors or any(tensor.dim() for tensor in tensors):
            return value
        return [int(v) if isinstance(v, Tensor) else v for v in value]

    args, kwargs = arguments
    return tuple(plain(value) for value in args), {name: plain(value) for name, value in kwargs.items()}


class _Functions(TorchFunctionMode):
    def __init__(self, settle: bool) -> None:
        super().__init__()
        self._settle = settle

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__format__ and _is_whole(args[0]):
            return format(int(args[0]), args[1])
        if func is Tensor.__format__ and _has_fraction(args[0]) and args[1]:
            return format(args[0].detach().item(), args[1])
        if func is Tensor.__int__ and args[0].is_floating_point():
            return int(args[0].item())  # PyTorch would take the whole number, and so the graph assert it
        answer = _pad if getattr(func, "__name__", "") == "_pad_packed_sequence" else func
        args, kwargs = _settled((args, kwargs or {})) if self._settle else (args, kwargs or {})
        if getattr(func, "__module__", "") in ("torch._C._nn", "torch.nn.functional"):
            args, kwargs = _sizes_as_numbers((args, kwargs))  # interpolate(x, size=(height, width)) of tensors
        return answer(*args, **kwargs)


class _Ops(TorchDispatchMode):
    def __init__(self, answers: Dict[Any, int], settle: bool) -> None:
        super().__init__()
        self._answers = answers
        self._settle = settle

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _settled((args, kwargs or {})) if self._settle else (args, kwargs or {})
        with _written_once(func, args, kwargs):
            result = _ANSWERS.get(func, func)(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(result, torch.SymBool):
            return self._condition(compat.expression(result), bool(compat.real(compat.value_beside(args[0]).item)))
        return result

    def _condition(self, expression: Any, value: bool) -> bool:
        for symbol in expression.free_symbols:  # just one: that of the number read
            self._answers[symbol] = int(value)
        return value


# Random ops would draw again; `transpose_` and the like change the layout only.
_NOT_WRITTEN_AGAIN = {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view}


@contextmanager
def _written_once(func: Any, args: Any, kwargs: Any) -> Iterator[None]:
    """PyTorch decomposes some in-place ops, and then applies both the op and its parts to the real tensor. Restores the
    tensor and applies the op once."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable or _NOT_WRITTEN_AGAIN & set(func.tags):
        yield
        return
    reals = [compat.value_beside(value) for value in compat.written(func, args, kwargs) if compat.is_fake(value)]
    if any(real is None for real in reals):
        yield
        return
    before = compat.real(lambda: [real.clone() for real in reals])
    yield
    compat.real(lambda: [real.copy_(value) for real, value in zip(reals, before)])
    real_args, real_kwargs = compat.values_in((args, kwargs))
    compat.real(lambda: func(*real_args, **real_kwargs))


def _equal(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape:
        return False
    return bool(torch.ops.aten.eq.Tensor(left, right).all().item())


def _allclose(left: Tensor, right: Tensor, *tolerances: Any, **more: Any) -> bool:
    return bool(torch.ops.aten.isclose.default(left, right, *tolerances, **more).all().item())


def _numbers(lengths: Tensor) -> List[int]:
    return [int(length.item()) for length in lengths.reshape(-1).unbind()]


def _ctc_loss(
    scores: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int = 0, zero_infinity: bool = False
) -> Any:
    if targets.dim() == 2:
        return torch.ops.aten._ctc_loss.Tensor(scores, targets, inputs, lengths, blank, zero_infinity)
    numbers = _numbers(inputs), _numbers(lengths)
    return torch.ops.aten._ctc_loss.default(scores, targets, *numbers, blank, zero_infinity)


def _ctc_loss_backward(
    grad: Tensor, scores: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, *more: Any
) -> Any:
    if targets.dim() == 2:
        return torch.ops.aten._ctc_loss_backward.Tensor(grad, scores, targets, inputs, lengths, *more)
    numbers = _numbers(inputs), _numbers(lengths)
    return torch.ops.aten._ctc_loss_backward.default(grad, scores, targets, *numbers, *more)


def _pack(rows: Tensor, lengths: Tensor, batch_first: bool) -> Tuple[Tensor, Tensor]:
    """Concatenates, for each time step, the rows of the entries that are long enough; entries are sorted by length."""
    numbers = _numbers(lengths)
    if numbers != sorted(numbers, reverse=True) or not numbers or numbers[-1] <= 0:
        raise RuntimeError("`lengths` has to be sorted, longest first, and above 0")
    sizes = [sum(n > t for n in numbers) for t in range(numbers[0])]
    by_time = rows.transpose(0, 1) if batch_first else rows
    return torch.cat([by_time[t, :size] for t, size in enumerate(sizes)]), compat.real(lambda: torch.tensor(sizes))


def _pad(rows: Tensor, sizes: Tensor, batch_first: bool, padding: float, total: int) -> Tuple[Tensor, Tensor]:
    """The inverse of `_pack`; `sizes` is what that returned."""
    numbers: List[int] = compat.real(sizes.tolist)
    batch, steps = numbers[0], []
    for size, rest in zip(numbers, rows.split(numbers)):
        missing = rest.new_full((batch - size, *rest.shape[1:]), padding)
        steps.append(torch.cat([rest, missing]) if size < batch else rest)
    steps += [rows.new_full((batch, *rows.shape[1:]), padding)] * (total - len(numbers))
    lengths = [sum(size > entry for size in numbers) for entry in range(batch)]
    return torch.stack(steps, int(batch_first)), compat.real(lambda: torch.tensor(lengths))


_ANSWERS: Dict[Any, Callable[..., Any]] = {
    torch.ops.aten.equal.default: _equal,
    torch.ops.aten.allclose.default: _allclose,
    torch.ops.aten._ctc_loss.Tensor: _ctc_loss,
    torch.ops.aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    torch.ops.aten._pack_padded_sequence.default: _pack,
}


# Fake implementations of the same ops.


def _fake_ctc_loss(
    scores: Tensor, targets: Tensor, inputs: Any, lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> Tuple[Tensor, Tensor]:
    time, batch = scores.shape[0], scores.shape[1]
    return scores.new_empty(batch), scores.new_empty(batch, time, 2 * max(lengths, default=0) + 1)


def _fake_ctc_loss_of_any_lengths(
    scores: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int = 0, zero_infinity: bool = False
) -> Tuple[Tensor, Tensor]:
    """Has room for the longest row of targets, where PyTorch has as much as the longest of the lengths needs."""
    if targets.dim() != 2:
        raise compat.data_dependent_errors()[0](torch.ops.aten._ctc_loss.Tensor)
    time, batch = scores.shape[0], scores.shape[1]
    return scores.new_empty(batch), scores.new_empty(batch, time, 2 * targets.shape[1] + 1)


def _fake_ctc_loss_backward(grad: Tensor, scores: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


def _fake_pack(*_: Any) -> Any:
    raise compat.data_dependent_errors()[0](torch.ops.aten._pack_padded_sequence.default)


FAKES: Dict[Any, Callable[..., Any]] = {
    torch.ops.aten._ctc_loss.default: _fake_ctc_loss,
    torch.ops.aten._ctc_loss.Tensor: _fake_ctc_loss_of_any_lengths,
    torch.ops.aten._ctc_loss_backward.default: _fake_ctc_loss_backward,
    torch.ops.aten._ctc_loss_backward.Tensor: _fake_ctc_loss_backward,
    torch.ops.aten._pack_padded_sequence.default: _fake_pack,
}
