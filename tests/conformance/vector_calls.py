"""Calls of aten overloads for make_vectors.py: collected while PyTorch runs, kept apart from its memory, few of each kind."""
import collections
import math
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
          torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8e4m3fn", torch.float8_e5m2: "f8e5m2",
          torch.float8_e4m3fnuz: "f8e4m3fnuz", torch.float8_e5m2fnuz: "f8e5m2fnuz"}
EIGHTHS = [t for t, name in DTYPES.items() if name.startswith("f8")]
MOST_ELEMENTS = 4096          # of one tensor's memory


class Skip(Exception):
    """The call cannot be a vector, or needs to be none."""


def full_name(op):
    return f"{op._schema.name.replace('::', '.')}.{op._overloadname}"


def tensors_of(v):
    if isinstance(v, torch.Tensor):
        yield v
    elif isinstance(v, (list, tuple)):
        for x in v:
            yield from tensors_of(x)


def extent_of(t):
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0


class Freezer:
    """Copies with the same strides and offsets; what is one tensor stays one."""

    def __init__(self):
        self.seen = {}

    def __call__(self, v):
        if isinstance(v, torch.Tensor):
            return self.tensor(v)
        if isinstance(v, (list, tuple)):
            return [self(x) for x in v]
        if isinstance(v, torch.Generator):
            return None
        if isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Skip("symbolic")
        return v

    def tensor(self, t):
        if type(t) is not torch.Tensor and type(t) is not torch.nn.Parameter:
            raise Skip("a tensor subclass")
        if t.layout != torch.strided or t.device.type != "cpu" or t.dtype not in DTYPES or t.is_quantized:
            raise Skip("no plain tensor")
        key = (t.data_ptr(), tuple(t.shape), tuple(t.stride()), t.dtype) if t.numel() else id(t)
        if key not in self.seen:
            self.seen[key] = self.copy(t.detach())
        return self.seen[key]

    @staticmethod
    def copy(t):
        if t.is_conj() or t.is_neg():
            return t.resolve_conj().resolve_neg().clone()
        extent, offset = extent_of(t), t.storage_offset()
        if extent > MOST_ELEMENTS:
            raise Skip("large")
        offset = offset if offset < 64 else 7
        base = torch.zeros(offset + extent, dtype=t.dtype)
        if extent:
            base[offset:] = t.as_strided((extent,), (1,), t.storage_offset())
        return base.as_strided(t.shape, t.stride(), offset)


def plain(parameter, v):
    """An argument as a capture spells it: lists where the schema has lists, devices as such."""
    kind = str(parameter.type)
    if "Device" in kind and isinstance(v, str):
        return torch.device(v)
    if "List[int]" in kind and isinstance(v, int):
        return [v] * (parameter.N or 1)
    if kind == "int" and isinstance(v, torch.Tensor):
        return int(v)
    return v


class Call:
    def __init__(self, op, args, kwargs, origin):
        self.op, self.kwargs, self.origin = op, dict(kwargs), origin
        parameters = op._schema.arguments
        self.args = [plain(p, v) for p, v in zip(parameters, args)]
        for p in parameters:
            if p.name in self.kwargs:
                self.kwargs[p.name] = plain(p, self.kwargs[p.name])

    def draws(self):
        """Whether its results are random."""
        given = {p.name: v for p, v in self.arguments()}
        if any(p.name == "dropout_p" for p in self.op._schema.arguments):
            return bool(given.get("dropout_p", 0))
        is_idle = given.get("train") is False or any(isinstance(given.get(p), (int, float)) and given[p] == 0 for p in ("dropout", "p"))
        if is_idle and not full_name(self.op).startswith("aten.native_dropout"):      # which has a stream all the same
            return False
        return torch.Tag.nondeterministic_seeded in self.op.tags or full_name(self.op).startswith("prims.inductor_rand")

    def arguments(self):
        """(parameter, value) of what is given."""
        parameters = self.op._schema.arguments
        out = list(zip(parameters, self.args))
        return out + [(p, self.kwargs[p.name]) for p in parameters if p.name in self.kwargs]

    def written(self):
        return [v for p, v in self.arguments() if p.alias_info is not None and p.alias_info.is_write]

    def copied(self):
        """The call again, on memory of its own."""
        f = Freezer()
        return Call(self.op, [f(a) for a in self.args], {k: f(v) for k, v in self.kwargs.items()}, self.origin)

    def run(self):
        with torch.no_grad():
            out = self.op(*self.args, **self.kwargs)
        return [] if out is None else list(out) if isinstance(out, (list, tuple)) else [out]

    def map_tensors(self, change, origin):
        """The call with other tensors; `change(parameter, tensor)`."""
        def walk(p, v):
            if isinstance(v, torch.Tensor):
                return change(p, v)
            return [walk(p, x) for x in v] if isinstance(v, (list, tuple)) else v
        changed = {p.name: walk(p, v) for p, v in self.arguments()}
        args = [changed[p.name] for p, _ in zip(self.op._schema.arguments, self.args)]
        return Call(self.op, args, {k: changed[k] for k in self.kwargs}, origin)

    def dtype(self):
        """That of the first tensor which is no condition."""
        arguments = self.arguments()
        for t in tensors_of([v for p, v in arguments if p.name != "condition"] + [v for _, v in arguments]):
            return t.dtype
        return self.kwargs.get("dtype") or torch.get_default_dtype()


def signature(v):
    if isinstance(v, torch.Tensor):
        order = sorted(range(v.dim()), key=lambda i: -v.stride(i))
        dense = extent_of(v) == v.numel()
        return (v.dtype, tuple(min(n, 2) for n in v.shape), tuple(order) if not v.is_contiguous() else 0, dense,
                0 in v.stride())
    if isinstance(v, bool) or v is None or isinstance(v, (str, torch.dtype, torch.memory_format)):
        return str(v)
    if isinstance(v, (int, float)):
        return (type(v).__name__, (v > 0) - (v < 0), v == 1, math.isinf(v))
    if isinstance(v, (list, tuple)):
        return (len(v), tuple(signature(x) for x in v[:4]))
    return type(v).__name__


class Book:
    """What was called, at most `cap` calls of a kind: overload and dtype."""

    def __init__(self, rows, cap, only):
        self.rows, self.cap, self.only = rows, cap, only
        self.calls = collections.defaultdict(list)
        self.seen = set()
        self.tries = collections.Counter()
        self.values_count = False   # whether calls that differ in numbers alone are of two kinds

    def wants(self, name):
        return name in self.rows and self.only.search(name)

    def is_full(self, name, dtype, cap=None):
        return len(self.calls[name, dtype]) >= (cap or self.cap)

    def offer(self, op, args, kwargs, origin):
        """Keeps the call where it is of a new kind; whether it did."""
        name = full_name(op)
        if not self.wants(name):
            return False
        call = Call(op, args, kwargs, origin)
        if any(isinstance(v, torch.Tensor) and str(p.type) == "List[int]" for p, v in call.arguments()):
            # PyTorch takes a tensor for a list of numbers; a graph has none there
            return False
        dtype = DTYPES.get(call.dtype())
        if dtype is None or self.is_full(name, dtype):
            return False
        kind = (name, tuple((p.name, signature(v)) for p, v in call.arguments()))
        if kind in self.seen and not self.values_count:
            return False
        self.tries[name, dtype] += 1
        written = {t.untyped_storage().data_ptr() for w in call.written() for t in tensors_of(w)}
        others = [t for p, v in call.arguments() for t in tensors_of(v)]
        if written and len({(t.data_ptr(), tuple(t.shape)) for t in others if t.untyped_storage().data_ptr() in written}) > len(written):
            return False
        try:
            frozen = call.copied()
        except Skip:
            return False
        self.seen.add(kind)
        self.calls[name, dtype].append(frozen)
        return True


class Recorder(TorchDispatchMode):
    def __init__(self, book, origin):
        super().__init__()
        self.book, self.origin = book, origin

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload):
            self.book.offer(func, args, kwargs, self.origin)
        return func(*args, **kwargs)


# --- variants: the same call on other strides and sizes ---

def transposed(p, t):
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t


def sliced(p, t):
    if t.dim() == 0 or t.numel() == 0:
        return t
    wide = torch.zeros([*t.shape[:-1], 2 * t.shape[-1] + 1], dtype=t.dtype)
    view = wide[..., 1::2]
    view.copy_(t)
    return view


def channels_last(p, t):
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def expanded(p, t):
    if p.alias_info is not None or t.dim() == 0 or t.numel() == 0:
        return t
    return t.narrow(0, 0, 1).expand(t.shape)


def emptied(size):
    def change(p, t):
        return t.narrow(0, 0, 0).clone() if t.dim() and t.shape[0] == size else t
    return change


def special(p, t):
    if not (t.dtype.is_floating_point or t.dtype.is_complex) or t.numel() == 0:
        return t
    r = random.Random(t.numel())
    flat = t.contiguous().flatten().clone()
    for x in (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 0.5, -1.5, 2.5, 1e-5, 65500.0):
        if r.random() < 0.7:
            flat[r.randrange(flat.numel())] = x
    return flat.reshape(t.shape)


def variants(calls, pointwise):
    """Of the calls of one overload and dtype: those on other memory."""
    def size(c):
        return max((t.dim() * 100000 + t.numel() for t in tensors_of([v for _, v in c.arguments()])), default=0)
    if not calls:
        return
    best = max(calls, key=size)
    dims = [t for t in tensors_of([v for _, v in best.arguments()]) if t.dim()]
    if not dims:
        return
    yield best, transposed, "transposed"
    yield best, sliced, "sliced"
    yield best, expanded, "expanded"
    if any(t.dim() == 4 for t in dims):
        yield best, channels_last, "channels_last"
    yield best, emptied(dims[0].shape[0]), "empty"
    if pointwise:
        yield best, special, "special"
