"""A call and what PyTorch makes of it, as a vector of the files under vectors/: README.md has the format."""
import json
import struct

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from vector_calls import DTYPES, Freezer, Skip, extent_of, full_name, tensors_of
from vector_linear import TURNED, has_own_vectors, is_sound, turned_to

ULP = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10,
       torch.complex64: 2.0**-23, torch.complex128: 2.0**-52}
UNDEFINED = ("aten.empty", "aten.new_empty", "prims.empty")
UNDEFINED_RESULTS = {("aten._ctc_loss.default", 1), ("aten._ctc_loss.Tensor", 1)}     # beyond the length of a sequence
# What PyTorch's backward wants of the bags: its kernels leave out or zero what they do not need.
UNDEFINED_RESULTS |= {(name, k) for name in ("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default", "aten.embedding_bag.default",
                                             "aten.embedding_bag.padding_idx") for k in (1, 2, 3)}
# Results that are positions: where elements are equal any of them will do. Result -> what it is held against.
POSITIONS = {"aten.topk.default": 1, "aten.sort.default": 1, "aten.sort.stable": 1, "aten.kthvalue.default": 1,
             "aten.mode.default": 1,
             "aten.median.dim": 1, "aten.nanmedian.dim": 1, "aten.argsort.default": 0, "aten.argsort.stable": 0}


def raw(t):
    """The memory of `t` from its first to its last element."""
    extent = extent_of(t)
    return bytes_of(t.as_strided((extent,), (1,), t.storage_offset())) if extent else b""


def bytes_of(t):
    flat = t.resolve_conj().resolve_neg().reshape(-1).contiguous()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def type_text(t):
    if t is None:
        return "none"
    if isinstance(t, bool):
        return "bool"
    if isinstance(t, int):
        return "int"
    if isinstance(t, float):
        return "float"
    if not isinstance(t, torch.Tensor) or t.dtype not in DTYPES or t.layout != torch.strided:
        raise Skip("a result without a type")
    stride = f" stride [{', '.join(map(str, t.stride()))}]" if t.dim() else ""
    offset = f" +{t.storage_offset()}" if t.storage_offset() else ""
    return f"{DTYPES[t.dtype]}[{', '.join(map(str, t.shape))}]{stride}{offset}"


class Text:
    """The graph of one node."""

    def __init__(self, call, results):
        self.inputs, self.tensors = [], []
        names = [f"%y{i}" for i in range(len(results))]
        call_text = ", ".join([self.value(a) for a in call.args] +
                              [f"{k}={self.value(v, True)}"
                               for k, v in call.kwargs.items() if not self.is_generator(call, k)])
        returns = call.op._schema.returns
        is_list = len(returns) == 1 and "List" in str(returns[0].type)
        left = (", ".join(names) or "%y") + ("," if is_list and len(names) < 2 else "")
        types = ", ".join(map(type_text, results)) or "()"
        random = " stream 1" if call.draws() else ""
        node = f"{left} = {full_name(call.op)}({call_text}) : {types}"
        self.outputs = [i for i, r in enumerate(results) if r is not None]
        self.text = "\n".join(['sg 1.0 job "vector" world 1', "graph rank *", *self.inputs, node + random,
                               *(f"output %y{i}" for i in self.outputs), ""])

    @staticmethod
    def is_generator(call, name):
        return name == "generator"

    def value(self, v, keyword=False):
        if isinstance(v, torch.Tensor):
            for i, t in enumerate(self.tensors):
                if t is v:
                    return f"%x{i}"
            self.tensors.append(v)
            self.inputs.append(f"input %x{len(self.tensors) - 1} : {type_text(v)}")
            return f"%x{len(self.tensors) - 1}"
        if v is None:
            return "none"
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, torch.dtype):
            if v not in DTYPES:
                raise Skip("a dtype of no row")
            return DTYPES[v]
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(self.value(x) for x in v) + "]"
        if isinstance(v, complex):
            return f"complex({v.real!r}, {v.imag!r})"
        if isinstance(v, str):
            return json.dumps(v)
        if isinstance(v, int):
            if not -2**63 <= v < 2**63:
                raise Skip("a number beyond 64 bits")
            return str(v)
        if isinstance(v, float):
            return repr(v)
        for kind, prefix in ((torch.device, "device:"), (torch.layout, "layout:"),
                             (torch.memory_format, "memory_format:")):
            if isinstance(v, kind):
                return ("" if keyword else prefix) + str(v).replace("torch.", "")
        raise Skip(f"an argument of type {type(v).__name__}")


def widened(v):
    """The same in double."""
    if isinstance(v, torch.Tensor):
        if v.dtype.is_complex:
            return v.to(torch.complex128)
        return v.double() if v.dtype.is_floating_point else v
    if isinstance(v, torch.dtype):
        return torch.float64 if v.is_floating_point else torch.complex128 if v.is_complex else v
    if isinstance(v, (list, tuple)):
        return [widened(x) for x in v]
    return v


def traced(call, results):
    """The results as tracing sees them, which is what captures record: strides differ from an eager run's here and there.

    Where tracing cannot say, or speaks of what the call does not give at all, the results themselves.
    """
    def fake(v):
        if isinstance(v, torch.Tensor):
            return mode.from_tensor(v)
        return [fake(x) for x in v] if isinstance(v, (list, tuple)) else v
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            seen = type(call)(call.op, [fake(a) for a in call.args], {k: fake(v) for k, v in call.kwargs.items()}, "").run()
            if len(seen) != len(results):
                return results
            same = all(isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor) and
                       (not isinstance(a, torch.Tensor) or a.dim() == b.dim() and all(isinstance(n, int) and n == m for n, m in zip(a.shape, b.shape)))
                       for a, b in zip(seen, results))
            return seen if same else results
    except Exception:      # noqa: BLE001 (fake kernels fail in every way there is)
        return results


def outcome(call):
    """Results and, behind them, arguments that were written and are no result."""
    results = call.run()
    written = [t for w in call.written() for t in tensors_of(w)]
    return results, [t for t in written if not any(t is r for r in results)]


def scaled_product(self, mat2, scale_a, scale_b, bias=None, scale_result=None, **_):
    product = (self * scale_a) @ (mat2 * scale_b)
    product = product if bias is None else product + bias
    return product if scale_result is None else product * scale_result


IN_DOUBLE = {"aten._scaled_mm.default": scaled_product}      # ops that take no doubles


def reference(call):
    """What the call gives in double, or None."""
    if full_name(call.op) in IN_DOUBLE:
        return [IN_DOUBLE[full_name(call.op)](**{p.name: widened(v) for p, v in call.arguments()})]
    kwargs = {k: widened(v) for k, v in call.kwargs.items()}
    wide = type(call)(call.op, [widened(a) for a in call.args], kwargs, "")
    torch.set_default_dtype(torch.float64)
    try:
        results, written = outcome(wide.copied())
        return [*results, *written]
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def as_double(t):
    t = t.resolve_conj().resolve_neg()
    return torch.view_as_real(t.to(torch.complex128)).reshape(-1) if t.dtype.is_complex else t.double().reshape(-1)


def closeness(call, expected, exact):
    """(bound, difference): how far from `expected + difference` a right answer may be; no difference where it is 0."""
    value = as_double(expected)
    right = value if exact is None or exact.shape != expected.shape or exact.dtype.is_complex != expected.dtype.is_complex else as_double(exact)
    right = torch.where(torch.isfinite(value) & torch.isfinite(right), right, value)
    finite = torch.isfinite(value)
    error = (value - right).abs()[finite].max().item() if finite.any() else 0.0
    scale = right.abs()[finite].max().item() if finite.any() else 0.0
    if expected.dtype in (torch.float64, torch.complex128):      # PyTorch is its own measure: rounding differs
        for t in tensors_of([v for _, v in call.arguments()]):
            if t.dtype in ULP and t.numel():
                a = as_double(t)
                a = a[torch.isfinite(a)]
                scale = max(scale, a.abs().max().item() if a.numel() else 0.0)
        return 1e-12 * scale + 1e-300, None
    bound = 2 * error + ULP[expected.dtype] * scale + {torch.float16: 2.0**-24}.get(expected.dtype, 1e-40)
    delta = torch.where(finite, right - value, torch.zeros_like(value)).to(torch.bfloat16)
    return bound, delta if delta.count_nonzero().item() else None


def random_check(name, call, expected):
    """What can be said of random numbers: a range, or that they are finite."""
    named = {p.name: v for p, v in call.arguments()}
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex and expected.numel() == 0:
        return "any"
    if name.startswith(("aten.rand.", "aten.rand_like", "aten.bernoulli")):
        return "range 0 1"
    if name.startswith("prims.inductor_seed"):
        return f"range 0 {2**63 - 1}"
    if name.startswith("prims.inductor_random"):
        return "range 0 1" if named["mode"] == "rand" else "finite"
    if name.startswith(("aten.randint", "prims.inductor_randint")):
        return f"range {named.get('low', 0)} {named['high'] - 1}"
    if name.startswith("aten.randperm"):
        return f"range 0 {max(named['n'] - 1, 0)}"
    if name.startswith("aten.multinomial"):
        return f"range 0 {named['self'].shape[-1] - 1}"
    return "finite" if all(torch.isfinite(t).all()
                           for t in tensors_of([v for _, v in call.arguments()]) if t.is_floating_point()) else "any"


class Vector:
    """One vector. `moved`: every float of a result is one of an argument, so that it can be held to the bit."""

    def __init__(self, call):
        frozen = call.copied()
        text_of = call.copied()                    # as it is before the call
        results, written = outcome(frozen)
        name = full_name(call.op)
        if any(isinstance(r, (list, tuple)) for r in results):
            raise Skip("lists in results")
        if not is_sound(name, list(tensors_of([v for _, v in text_of.arguments()]))):
            raise Skip("nearly singular")
        self.results = results
        by_id = {id(t): i for i, t in enumerate(tensors_of([v for _, v in frozen.arguments()]))}
        sources = list(tensors_of([v for _, v in text_of.arguments()]))
        # A result that is an argument has its text; the types are those of the arguments before the call.
        types = [t if isinstance(t, torch.Tensor) and t.dtype == r.dtype else r
                 for t, r in zip(traced(text_of.copied(), results), results)]
        self.text, eager = Text(text_of, types), Text(text_of, results)
        self.texts = [self.text.text] + ([eager.text] if eager.text != self.text.text else [])
        self.name, self.dtype, self.origin = name, DTYPES[call.dtype()], call.origin
        random = call.draws()
        exact = None if random else reference(call)
        data = [raw(t) for t in self.text.tensors]
        self.checks, self.moved, self.floats = [], True, 0
        values = {bits for t in sources for bits in self.patterns(t)}
        targets = [(f"o{self.text.outputs.index(i)}", r) for i, r in enumerate(results) if r is not None]
        targets += [(f"i{next(j for j, t in enumerate(self.text.tensors) if t is sources[by_id[id(w)]])}", w)
                    for w in written]
        rights = [r for i, r in enumerate(exact or []) if i >= len(results) or results[i] is not None] or [None] * len(targets)
        for k, (target, value) in enumerate(targets):
            self.check(call, target, value, rights[k], random, data, values, k)
        self.data = b"".join(data)

    @staticmethod
    def patterns(t):
        t = t.resolve_conj().resolve_neg()
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(t.dtype.itemsize)
        if t.dtype.is_complex:
            return Vector.patterns(torch.view_as_real(t.contiguous()))
        return set(t.contiguous().view(kind).flatten().tolist())

    def check(self, call, target, value, right, random, data, values, k):
        if not isinstance(value, torch.Tensor):
            self.checks.append(f"{target} number {float(value)!r}")
        elif self.name.startswith(UNDEFINED) or (self.name, k) in UNDEFINED_RESULTS:
            self.checks.append(f"{target} any")
        elif random:
            self.checks.append(f"{target} {random_check(self.name, call, value)}")
        elif value.dtype not in ULP:
            source = ""
            if POSITIONS.get(self.name) == k and self.text.tensors and value.numel():
                named = {p.name: v for p, v in call.arguments()}
                dim = named.get("dim", -1)
                rank = self.text.tensors[0].dim()
                source = f" of {dim % rank if rank else 0}"
            self.checks.append(f"{target} exact{source}")
            data.append(bytes_of(value))
        else:
            turned = ""
            if (self.name, k) in TURNED and value.numel():
                axis = TURNED[self.name, k]
                values_of = next(r for r in self.results if r.dim() == value.dim() - 1)
                if not has_own_vectors(values_of, value.shape[-3 - axis]):
                    self.checks.append(f"{target} finite")
                    return
                right = None if right is None or right.shape != value.shape else turned_to(right, value, axis)
                turned = f" turned {value.dim() + axis}"
            bound, delta = closeness(call, value, right)
            if self.moved and not self.patterns(value) <= values | {0}:
                self.moved = False
            self.floats += value.numel()
            self.checks.append(f"{target} close {bound!r} {int(delta is not None)}{turned}")
            data.append(bytes_of(value))
            if delta is not None:
                data.append(bytes_of(delta))

    def encode(self, moved):
        """`moved`: as it is of all vectors of this overload."""
        checks = self.checks
        if moved:
            checks = [c.split(" ")[0] + " exact" if " close " in c and c.endswith(" 0") else c for c in checks]
        texts = [t.encode() for t in self.texts]
        sizes = "+".join(str(len(t)) for t in texts)
        head = f"vector {self.name} {self.dtype} {self.origin} {sizes} {len(self.data)} {len(checks)}\n"
        return head.encode() + "".join(c + "\n" for c in checks).encode() + b"".join(texts) + self.data
