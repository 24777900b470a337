"""eager_chunk(): modules that process their batch, or their tokens, in parts. It is the baseline for graph chunking:
the same parts, in the same order, computed by PyTorch itself.

A call x -> y of a wrapped module becomes

    x0, x1 = split(x)         annotated  split_boundary
    y0 = forward(x0)          annotated  body, chunk 0
    y1 = forward(x1)          annotated  body, chunk 1
    y  = cat(y0, y1)          annotated  materialization
"""

from __future__ import annotations

import inspect
import types
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from . import compat
from .annotate import annotate
from .errors import CaptureError, OutputTypeError

_PLAN = "_stepgraph_chunks"  # attribute of a wrapped module


class _Plan:
    """How one module is chunked; `original` is its forward as a function of self."""

    def __init__(
        self, fqn: str, chunks: int, dim: int, contract: str, split: Sequence[str], whole: Sequence[str]
    ) -> None:
        self.fqn, self.chunks, self.dim, self.contract = fqn, chunks, dim, contract
        self.split, self.whole = frozenset(split), frozenset(whole)
        self.original: Callable[..., Any]

    def settings(self) -> Tuple[Any, ...]:
        return self.chunks, self.dim, self.contract, self.split, self.whole


def eager_chunk(
    model: nn.Module,
    pattern: str,
    chunks: int = 2,
    dim: int = 0,
    *,
    contract: str = "block",
    containing: Optional[str] = None,
    split: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> nn.Module:
    """Wraps the forward of every module whose name matches `pattern`, and returns the model.

    pattern     a name of as many components, each literal or with * and ?: "layers.*.moe"
    chunks      how many, at least 2; a remainder is spread over the first ones
    dim         of the first argument and of the outputs: 0 is the batch (or flat tokens), 1 the sequence
    contract    "block": beside the activation, positions and block masks are split, sizes of 1 are kept whole and other
                tensors are refused; "moe": exactly one positional tensor is allowed
    containing  only those with a module of this (relative) name or pattern inside: "moe"
    split       names of further arguments whose tensors are split like the activation
    whole       names of arguments whose tensors go to each chunk whole

    Wrapping again with the same settings does nothing. Raises CaptureError (a ValueError), when the module runs too.
    """
    if not isinstance(chunks, int) or chunks < 2:
        raise CaptureError(f"eager_chunk: {chunks!r} chunks; give 2 or more")
    if contract not in ("block", "moe"):
        raise CaptureError(f"eager_chunk: the contract is 'block' or 'moe', and not {contract!r}")
    found = [(name, module) for name, module in model.named_modules() if name and _matches(pattern, name)]
    chosen = [(name, module) for name, module in found if containing is None or _contains(module, containing)]
    if not chosen:
        inside = f" with {containing!r} inside" if found else ""
        raise CaptureError(f"eager_chunk: no module{inside} matches {pattern!r}")
    for name, module in chosen:
        _wrap(module, _Plan(name, chunks, dim, contract, split, whole))
    return model


def _matches(pattern: str, name: str) -> bool:
    wanted, parts = pattern.split("."), name.split(".")
    return len(wanted) == len(parts) and all(fnmatchcase(part, want) for part, want in zip(parts, wanted))


def _contains(module: nn.Module, pattern: str) -> bool:
    return any(_matches(pattern, name) for name, _ in module.named_modules() if name)


def _wrap(module: nn.Module, plan: _Plan) -> None:
    known = getattr(module, _PLAN, None)
    if known is not None:
        if known.settings() != plan.settings():
            raise CaptureError(
                f"eager_chunk: {plan.fqn} is already chunked, into {known.chunks} along dimension {known.dim}"
            )
        return
    own = module.__dict__.get("forward")
    plan.original = type(module).forward if own is None else lambda self, *args, **kwargs: own(*args, **kwargs)
    setattr(module, _PLAN, plan)
    # A bound method, so that a deep copy of the model runs on its own modules.
    forward = types.MethodType(_chunked_forward, module)
    module.forward = forward  # type: ignore[method-assign]


def _chunked_forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    plan: _Plan = getattr(self, _PLAN)
    calls = _split_call(self, plan, args, kwargs)
    outputs = []
    for i, (part_args, part_kwargs) in enumerate(calls):
        with annotate(chunked_region_fqn=plan.fqn, chunked_region_role="body", chunk_id=i):
            outputs.append(plan.original(self, *part_args, **part_kwargs))
    with annotate(chunked_region_fqn=plan.fqn, chunked_region_role="materialization"):
        return _concatenated(outputs, plan, "its output")


# Inputs


def _split_call(
    module: nn.Module, plan: _Plan, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> List[Tuple[Tuple[Any, ...], Dict[str, Any]]]:
    """The arguments of each chunk's call."""
    _check_contract(plan, args, kwargs)
    activation = args[0]
    sizes = _sizes(activation, plan)
    names = _argument_names(plan, len(args))
    with annotate(chunked_region_fqn=plan.fqn, chunked_region_role="split_boundary"):
        parts = [_parts_of_tensor(activation, sizes, plan)]
        parts += [_parts(value, names[i + 1], activation, sizes, plan) for i, value in enumerate(args[1:])]
        keyword_parts = {key: _parts(value, key, activation, sizes, plan) for key, value in kwargs.items()}
    return [
        (tuple(part[i] for part in parts), {key: part[i] for key, part in keyword_parts.items()})
        for i in range(len(sizes))
    ]


def _check_contract(plan: _Plan, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    seen = ", ".join([_kind(value) for value in args] + [f"{key}={_kind(value)}" for key, value in kwargs.items()])
    if not args or not isinstance(args[0], Tensor):
        raise CaptureError(
            f"eager_chunk: {plan.fqn} was called with ({seen}); its first positional argument has to be the "
            "tensor that is split"
        )
    if plan.contract == "moe" and (len(args) != 1 or kwargs):
        raise CaptureError(
            f"eager_chunk: {plan.fqn} was called with ({seen}); the contract 'moe' allows one positional tensor and "
            "nothing else"
        )


def _kind(value: Any) -> str:
    return f"tensor{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _argument_names(plan: _Plan, count: int) -> List[str]:
    """The names of forward's positional arguments."""
    parameters = [
        name
        for name, parameter in inspect.signature(plan.original).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ][1:]
    return parameters[:count] + [f"#{i}" for i in range(len(parameters), count)]


def _sizes(activation: Tensor, plan: _Plan) -> List[Any]:
    """Rows of each chunk: a remainder goes to the first ones, one each."""
    if not -activation.dim() <= plan.dim < activation.dim():
        raise CaptureError(f"eager_chunk: {plan.fqn} got a {_kind(activation)}, which has no dimension {plan.dim}")
    extent = activation.shape[plan.dim]
    if isinstance(extent, int) and extent < plan.chunks:
        raise CaptureError(
            f"eager_chunk: dimension {plan.dim} of the {_kind(activation)} that {plan.fqn} got is too short for "
            f"{plan.chunks} chunks"
        )
    return [(extent + plan.chunks - 1 - i) // plan.chunks for i in range(plan.chunks)]


def _parts_of_tensor(tensor: Tensor, sizes: List[Any], plan: _Plan) -> List[Tensor]:
    return [part.contiguous() for part in torch.split(tensor, sizes, plan.dim)]


def _parts(value: Any, name: str, activation: Tensor, sizes: List[Any], plan: _Plan) -> List[Any]:
    """Each chunk's part of an argument that is not the activation."""
    if compat.is_block_mask(value):
        if plan.dim not in (0, -activation.dim()):
            raise CaptureError(
                f"eager_chunk: {plan.fqn} got the block mask {name}, which can be split along the batch only"
            )
        return compat.split_block_mask(value, sizes)
    if isinstance(value, Tensor):
        return _parts_of_argument(value, name, activation, sizes, plan)
    if isinstance(value, dict):
        split = {key: _parts(element, f"{name}[{key!r}]", activation, sizes, plan) for key, element in value.items()}
        return [{key: parts[i] for key, parts in split.items()} for i in range(len(sizes))]
    if isinstance(value, (tuple, list)):
        columns = [_parts(element, f"{name}[{i}]", activation, sizes, plan) for i, element in enumerate(value)]
        return [_like(value, [column[i] for column in columns]) for i in range(len(sizes))]
    return [value] * len(sizes)


def _parts_of_argument(tensor: Tensor, name: str, activation: Tensor, sizes: List[Any], plan: _Plan) -> List[Tensor]:
    root = name.partition("[")[0]
    whole = [tensor] * len(sizes)
    if root in plan.whole:
        return whole
    rows = tensor.shape[plan.dim] if -tensor.dim() <= plan.dim < tensor.dim() else 1
    if root in plan.split or "position" in root:
        # Positions may lack the feature dimension; if they lack more, they lack the batch.
        missing = tensor.dim() < activation.dim() - 1
        if not missing and rows == activation.shape[plan.dim]:
            return _parts_of_tensor(tensor, sizes, plan)
        if missing or rows == 1:
            return whole
    elif rows == 1:
        return whole
    raise CaptureError(
        f"eager_chunk: {plan.fqn} got {name}, a {_kind(tensor)}, beside an activation {list(activation.shape)}; if "
        f"its dimension {plan.dim} goes with the activation's is not known: name it in split= or whole=, or use a "
        "block mask"
    )


# Outputs


def _like(value: Any, elements: List[Any]) -> Any:
    """A tuple, named tuple or list like `value`, of these elements."""
    if hasattr(value, "_fields"):
        return type(value)(*elements)
    return tuple(elements) if isinstance(value, tuple) else elements


def _concatenated(outputs: List[Any], plan: _Plan, what: str) -> Any:
    first = outputs[0]
    if any(type(output) is not type(first) for output in outputs[1:]):
        raise OutputTypeError(
            f"eager_chunk: {what} of {plan.fqn} is {', '.join(_kind(output) for output in outputs)} in its chunks"
        )
    if first is None:
        return None
    if isinstance(first, Tensor) and first.dim() > plan.dim:
        return torch.cat(outputs, plan.dim)
    if isinstance(first, (tuple, list)) and all(len(output) == len(first) for output in outputs):
        return _like(
            first, [_concatenated([output[i] for output in outputs], plan, f"{what}[{i}]") for i in range(len(first))]
        )
    raise OutputTypeError(
        f"eager_chunk: {what} of {plan.fqn} is {_kind(first)}; only tensors with a dimension {plan.dim}, and "
        "tuples and lists of them, can be put together again"
    )
