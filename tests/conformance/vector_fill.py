"""Calls for the pairs of overload and element type that OpInfo names and its samples do not reach: those of another type, of
another overload of the operator, or of its form in place or out of place, made over to the schema; kept where PyTorch takes them."""
import re

import torch
from vector_calls import DTYPES, Call, Freezer, Skip, full_name

TYPES = {name: dtype for dtype, name in DTYPES.items()}
# Where calls are taken from, the nearest first.
ORDER = [torch.float32, torch.float64, torch.complex64, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float16, torch.int16,
         torch.int8, torch.uint8, torch.complex128]
NEAREST = {torch.complex128: torch.complex64, torch.complex64: torch.complex128, torch.float64: torch.float32, torch.float16: torch.bfloat16,
           torch.bfloat16: torch.float16, torch.int32: torch.int64, torch.int16: torch.int32, torch.int8: torch.int32,
           torch.uint8: torch.int32, torch.int64: torch.int32, torch.bool: torch.uint8}
MOST_TRIED = 40               # calls made over for one pair


class Unfit(Exception):
    """The call says nothing of a parameter that the schema needs."""


def converted(t, dtype):
    """The same strides and offset in another element type; whole numbers are small, so that they fit and differ."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0
    flat = t.detach().as_strided((extent,), (1,), t.storage_offset())
    real = flat.real if flat.is_complex() and not dtype.is_complex else flat
    if dtype.is_complex:
        new = flat.to(dtype) if flat.is_complex() else torch.complex(flat.double(), flat.double().flip(0) / 2).to(dtype)
    elif dtype == torch.bool:
        new = real > 0
    elif dtype.is_floating_point or not real.is_floating_point():
        new = real.clamp(0, 99).to(dtype) if dtype == torch.uint8 and real.dtype != torch.bool else real.to(dtype)
    else:
        new = real.nan_to_num(1, 9, -9).clamp(0 if dtype == torch.uint8 else -9, 9).round().to(dtype)
    base = torch.zeros(t.storage_offset() + extent, dtype=dtype)
    base[t.storage_offset():] = new
    return base.as_strided(t.shape, t.stride(), t.storage_offset())


def number_of(v):
    """The first element of a tensor that is not 0."""
    flat = v.detach().flatten()
    if not flat.numel():
        raise Unfit
    return flat[int(flat.count_nonzero() > 0 and flat.ne(0).int().argmax())].item()


def fitted(parameter, value, dtype):
    """The value as the schema has it."""
    kind = str(parameter.type)
    if value is None and "Optional" not in kind:
        raise Unfit
    if isinstance(value, torch.Tensor) and any(k in kind for k in ("number", "float", "int", "bool")) and "List" not in kind:
        return number_of(value)
    if kind == "Tensor" and isinstance(value, (bool, int, float, complex)):
        return torch.tensor(value).to(dtype)
    if kind == "Tensor" and isinstance(value, (list, tuple)):
        if not value or not isinstance(value[0], torch.Tensor):
            raise Unfit
        return value[0]
    if kind == "List[Tensor]" and isinstance(value, torch.Tensor):
        return [value, value.clone()]
    if kind == "int" and isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
        return value[0]
    if kind == "List[int]" and isinstance(value, int):
        return [value]
    return value


def retyped(value, old, new):
    if isinstance(value, torch.Tensor):
        return converted(value, new) if value.dtype == old else value
    if isinstance(value, torch.dtype):
        return new if value == old else value
    if isinstance(value, (list, tuple)):
        return [retyped(v, old, new) for v in value]
    if isinstance(value, complex) and not new.is_complex:
        return value.real
    return value


def made_over(call, op, dtype):
    """The arguments of `call` for `op`, its tensors of the first one's type in `dtype`: (args, kwargs)."""
    given = {p.name: v for p, v in call.arguments()}
    positions = [v for p, v in zip(call.op._schema.arguments, call.args)]
    old, freeze = call.dtype(), Freezer()
    args, kwargs = [], {}
    for i, p in enumerate(op._schema.arguments):
        if p.name == "generator" or (p.name not in given and (p.kwarg_only or i >= len(positions))):
            if not p.has_default_value():
                raise Unfit
            if not p.kwarg_only:
                args.append(p.default_value)
            continue
        value = given[p.name] if p.name in given else positions[i]
        value = fitted(p, retyped(freeze(value), old, dtype), dtype)
        if p.kwarg_only:
            kwargs[p.name] = value
        else:
            args.append(value)
    return args, kwargs


def relatives(name):
    """How overloads are called from which calls can be made over: this one, then others of the operator, then its other form."""
    space, packet, _ = name.split(".")
    other = packet[:-1] if packet.endswith("_") else packet + "_"
    exact = re.compile(re.escape(name) + "$")
    return [exact, re.compile(rf"{space}\.{re.escape(packet)}\."), re.compile(rf"{space}\.{re.escape(other)}\.")]


def donors(book, name, dtype):
    order = sorted(ORDER, key=lambda d: d != NEAREST.get(dtype))
    for pattern in relatives(name):
        for old in [dtype, *order]:
            for (donor, which), calls in list(book.calls.items()):
                if which == DTYPES[old] and pattern.match(donor) and not (donor == name and old == dtype):
                    yield from calls


def fill(book, overload, pairs, failures):
    """Adds calls for each (overload name, type name) of `pairs` that has none; what PyTorch said, by pair, to calls that it refused."""
    said = {}
    for name, type_name in sorted(pairs):
        op = overload(name)
        if op is None:
            continue
        if calls := book.calls.get((name, type_name)):
            for call in calls:              # recorded before PyTorch refused them, perhaps
                try:
                    call.copied().run()
                except failures as e:
                    said.setdefault((name, type_name), []).append((str(e).splitlines() or [type(e).__name__])[0])
            continue
        dtype, tried = TYPES[type_name], 0
        for call in donors(book, name, dtype):
            if book.is_full(name, type_name) or tried == MOST_TRIED:
                break
            tried += 1
            try:
                args, kwargs = made_over(call, op, dtype)
                frozen = [Freezer()(a) for a in args], {k: Freezer()(v) for k, v in kwargs.items()}
                op(*args, **kwargs)
            except failures as e:
                if not isinstance(e, Unfit):
                    said.setdefault((name, type_name), []).append((str(e).splitlines() or [type(e).__name__])[0])
                continue
            except (Unfit, Skip):
                continue
            if Call(op, *frozen, "").dtype() == dtype:
                book.offer(op, *frozen, f"over_{full_name(call.op).split('.')[1]}")
    return {pair: max(set(texts), key=texts.count) for pair, texts in said.items()}
