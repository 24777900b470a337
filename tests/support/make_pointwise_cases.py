#!/usr/bin/env python3
"""Writes calls of pointwise ops with PyTorch's results, for tests/unit/pointwise_torch_test.cc.

    make_pointwise_cases.py [--elements N] [--seed N] > tests/data/pointwise_cases.txt

One case a line: op, then arguments `name=VALUE`, then results `=VALUE`, between semicolons. VALUE is
`t:DTYPE:SHAPE:HEX` (elements as little-endian bytes in hex), `i:N`, `f:X`, `b:0|1` or `s:TEXT`.
"""
import argparse
import math
import sys

import torch

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
         torch.bool: "bool", torch.complex64: "c64"}
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
BOOL, C64 = torch.bool, torch.complex64
FLOATS = (F32, BF16, F16, F64)
WHOLE = (I64, I32, I8, U8)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 2.5, 3.5, math.inf, -math.inf, math.nan, 1e-30, 80.0, -100.0, 1e30]


def sample(dtype, count, kind="any"):
    if dtype == BOOL:
        return torch.rand(count) < 0.5
    if dtype in WHOLE or dtype == I16:
        t = torch.randint(-20, 20, (count,)) if dtype != U8 else torch.randint(0, 255, (count,))
        info = torch.iinfo(dtype)
        t[:4] = torch.tensor([0, 1, info.max, info.min])
        if kind == "nonzero":
            t[t == 0] = 3
        if kind == "count":
            t = torch.randint(0, 9, (count,))
            if dtype != U8:
                t[:1] = -1
        return t.to(dtype)
    if dtype == C64:
        return torch.complex(torch.randn(count), torch.randn(count))
    t = torch.randn(count, dtype=F64) * 3
    if kind == "nonzero":
        t = t + torch.where(t < 0, -0.1, 0.1)
    elif kind == "unit":
        t = torch.rand(count, dtype=F64)
        t[:3] = torch.tensor([0.0, 1.0, 0.5])
    elif kind == "finite":
        pass
    else:
        special = SPECIAL[:count]
        t[torch.randperm(count)[:len(special)]] = torch.tensor(special, dtype=F64)
    return t.to(dtype)


def text(v):
    if isinstance(v, torch.Tensor):
        v = v.contiguous()
        raw = bytes(v.reshape(-1).view(torch.uint8).tolist()) if v.numel() else b""
        return f"t:{NAMES[v.dtype]}:{'x'.join(map(str, v.shape))}:{raw.hex()}"
    if isinstance(v, bool):
        return f"b:{int(v)}"
    if isinstance(v, int):
        return f"i:{v}"
    if isinstance(v, float):
        return f"f:{v!r}"
    return f"s:{v}"


class Writer:
    def __init__(self, out):
        self.out = out

    def case(writer, op, **args):
        packet, overload = op.split(".")[1:]
        fn = getattr(getattr(torch.ops.aten, packet), overload)
        given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
        names = [a.name for a in fn._schema.arguments]
        keyword = {a.name for a in fn._schema.arguments if a.kwarg_only}
        last = max((i for i, n in enumerate(names) if n in args and n not in keyword), default=-1)
        positional = [given.get(n) for n in names[:last + 1]]
        try:
            result = fn(*positional, **{k: v for k, v in given.items() if k in keyword})
        except (RuntimeError, TypeError) as e:
            print(f"{op}: {e}", file=sys.stderr)
            return
        shown = [f"{k}={text(v)}" for k, v in args.items() if v is not None]
        print(";".join([op] + shown + ["=" + text(result)]), file=writer.out)


def unary(w, n):
    both = ("neg sign trunc round floor ceil abs square relu relu6 hardtanh nan_to_num isnan isinf isfinite signbit "
            "logical_not positive")
    for name in both.split():
        for t in FLOATS + WHOLE + (BOOL,):
            if name in ("neg", "positive", "square", "relu6", "hardtanh") and t == BOOL:
                continue
            if name in ("relu6", "hardtanh") and t == U8:
                continue
            w.case(f"aten.{name}.default", self=sample(t, n))
    for name in ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh "
                 "tanh asinh acosh atanh sigmoid erf erfc lgamma digamma angle").split():
        for t in FLOATS + (I32, BOOL):
            w.case(f"aten.{name}.default", self=sample(t, n))
    for name in "asin acos atanh erfinv logit".split():
        for t in (F32, F64):
            w.case(f"aten.{name}.default", self=sample(t, n, "unit"))
    w.case("aten.logit.default", self=sample(F32, n, "unit"), eps=0.01)
    for name in "silu mish gelu hardswish hardsigmoid log_sigmoid selu elu leaky_relu softplus".split():
        for t in FLOATS:
            w.case(f"aten.{name}.default", self=sample(t, n, "finite" if name == "gelu" else "any"))
    for t in FLOATS:
        w.case("aten.gelu.default", self=sample(t, n, "finite"), approximate="tanh")
        w.case("aten.elu.default", self=sample(t, n), alpha=1.3, scale=0.7, input_scale=1.1)
        w.case("aten.softplus.default", self=sample(t, n), beta=2.0, threshold=3)
        w.case("aten.leaky_relu.default", self=sample(t, n), negative_slope=0.123)
        w.case("aten.hardtanh.default", self=sample(t, n), min_val=-0.7, max_val=2)
        w.case("aten.nan_to_num.default", self=sample(t, n), nan=1.5, posinf=2.0)
    for t in WHOLE + (BOOL,):
        w.case("aten.bitwise_not.default", self=sample(t, n))
    for name in "neg abs angle reciprocal exp log sqrt square isnan isfinite conj_physical".split():
        w.case(f"aten.{name}.default", self=sample(C64, n))


def gradients(w, n):
    for t in FLOATS:
        g = sample(t, n, "finite")
        for name, other in (("silu", "self"), ("gelu", "self"), ("tanh", "output"), ("sigmoid", "output"),
                            ("hardswish", "self"), ("hardsigmoid", "self")):
            if name == "hardsigmoid" and t == F64:
                continue   # PyTorch's sixth is that of float
            w.case(f"aten.{name}_backward.default", grad_output=g, **{other: sample(t, n, "finite")})
        x = sample(t, n, "finite")
        w.case("aten.gelu_backward.default", grad_output=g, self=x, approximate="tanh")
        w.case("aten.threshold_backward.default", grad_output=g, self=x, threshold=0.3)
        w.case("aten.leaky_relu_backward.default", grad_output=g, self=x, negative_slope=0.17, self_is_result=False)
        w.case("aten.hardtanh_backward.default", grad_output=g, self=x, min_val=-1.3, max_val=2.0)
        w.case("aten.softplus_backward.default", grad_output=g, self=x, beta=1.5, threshold=4.0)
        for of_result in (False, True):
            w.case("aten.elu_backward.default", grad_output=g, alpha=1.2, scale=0.9, input_scale=1.1,
                   is_result=of_result, self_or_result=x)
        w.case("aten.native_dropout_backward.default", grad_output=g, mask=sample(BOOL, n), scale=1.1111)


def binary(w, n):
    pairs = [(F32, F32), (BF16, BF16), (F16, F16), (F64, F64), (F32, BF16), (BF16, F16), (F32, I64), (BF16, I32),
             (I64, I64), (I32, I8), (I8, I8), (U8, U8), (U8, I8), (BOOL, I64), (BOOL, F32), (BOOL, BOOL)]
    for name in "add sub mul".split():
        for a, b in pairs + [(C64, C64), (C64, F32)]:   # 1 * (inf + 0i) has a NaN in PyTorch
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(b, n, "finite" if a == C64 else "any"))
    for name in "add sub rsub".split():
        for a, alpha in ((F32, 0.7), (BF16, 0.7), (I32, -3), (C64, 0.5)):
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(a, n), alpha=alpha)
    for a, b in pairs + [(C64, C64)]:
        w.case("aten.div.Tensor", self=sample(a, n), other=sample(b, n))
        for mode in ("floor", "trunc"):
            if C64 not in (a, b):
                w.case("aten.div.Tensor_mode", self=sample(a, n), other=sample(b, n, "nonzero"), rounding_mode=mode)
        for name in "remainder.Tensor fmod.Tensor floor_divide.default".split():
            if a != C64 and not (a == b == BOOL):
                w.case(f"aten.{name}", self=sample(a, n, "finite"), other=sample(b, n, "nonzero"))
    for name in "maximum minimum fmax fmin".split():
        for a, b in pairs:
            w.case(f"aten.{name}.default", self=sample(a, n), other=sample(b, n))
    for name in "eq ne lt le gt ge".split():
        for a, b in pairs + ([(C64, C64)] if name in ("eq", "ne") else []):
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(b, n))
    for name in "logical_and logical_or logical_xor".split():
        for a, b in ((F32, I32), (BOOL, BOOL), (BF16, BOOL), (C64, F32)):
            w.case(f"aten.{name}.default", self=sample(a, n), other=sample(b, n))
    for name in "bitwise_and bitwise_or bitwise_xor".split():
        for a, b in ((I64, I64), (I8, U8), (BOOL, BOOL), (BOOL, I32)):
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(b, n))
    for name in "bitwise_left_shift bitwise_right_shift".split():
        for a in WHOLE:
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(a, n, "count"))
            w.case(f"aten.{name}.Tensor_Scalar", self=sample(a, n), other=3)
    for t in (F32, F64, BF16):
        w.case("aten.pow.Tensor_Tensor", self=sample(t, n), exponent=sample(t, n))
        for name in "atan2.default hypot.default xlogy.Tensor".split():
            w.case(f"aten.{name}", self=sample(t, n), other=sample(t, n))
    w.case("aten.atan2.default", self=sample(I32, n), other=sample(F32, n))
    w.case("aten.xlogy.Tensor", self=sample(I32, n), other=sample(I32, n))
    w.case("aten.pow.Tensor_Tensor", self=sample(I64, n), exponent=sample(I64, n, "count").abs())
    w.case("aten.isclose.default", self=sample(F32, n), other=sample(F32, n), rtol=0.3, atol=0.5)
    w.case("aten.isclose.default", self=sample(F32, n), other=sample(F32, n), rtol=0.1, atol=0.1, equal_nan=True)
    w.case("aten.isclose.default", self=sample(I32, n), other=sample(I32, n), rtol=0.5, atol=0.0)
    w.case("aten.complex.default", real=sample(F32, n), imag=sample(F32, n))
    w.case("aten.polar.default", abs=sample(F32, n, "finite"), angle=sample(F32, n, "finite"))


def with_numbers(w, n):
    for t in FLOATS + WHOLE + (BOOL, C64):
        for name in "add sub mul div".split():
            for number in (3, 0.1234567, True):
                if name == "sub" and (t == BOOL or number is True):
                    continue
                w.case(f"aten.{name}.Scalar", self=sample(t, n), other=number)
                if t != C64:
                    w.case(f"aten.{name}.Tensor", self=sample(t, n), other=torch.tensor(0.1234567))
    for t in FLOATS + WHOLE:
        w.case("aten.rsub.Scalar", self=sample(t, n), other=2.3, alpha=2 if t in WHOLE else 0.3)
        for name in "remainder fmod".split():
            w.case(f"aten.{name}.Scalar", self=sample(t, n, "finite"), other=3)
            w.case(f"aten.{name}.Scalar", self=sample(t, n, "finite"), other=-1.7)
        for name in "eq ne lt le gt ge".split():
            w.case(f"aten.{name}.Scalar", self=sample(t, n), other=2)
            w.case(f"aten.{name}.Scalar", self=sample(t, n), other=0.1234567)
        w.case("aten.clamp.default", self=sample(t, n), min=-2, max=3)
        w.case("aten.clamp.default", self=sample(t, n), max=0.75)
        w.case("aten.clamp.default", self=sample(t, n), min=5, max=1)
        w.case("aten.clamp.Tensor", self=sample(t, n), min=sample(t, n), max=sample(t, n))
        w.case("aten.clamp_min.default", self=sample(t, n), min=1)
        w.case("aten.clamp_max.Tensor", self=sample(t, n), max=sample(t, n))
        w.case("aten.div.Scalar_mode", self=sample(t, n), other=3, rounding_mode="floor")
        w.case("aten.div.Tensor_mode", self=sample(t, n), other=torch.tensor(0.1234567), rounding_mode="trunc")
    for exponent in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5, 0.1234567):
        for t in (F32, BF16, F64, I32):
            if t != I32 or exponent >= 0:
                w.case("aten.pow.Tensor_Scalar", self=sample(t, n, "finite"), exponent=exponent)
    for t in (F32, BF16, I32):
        w.case("aten.pow.Scalar", self=2.5, exponent=sample(t, n))
        w.case("aten.bitwise_and.Scalar", self=sample(I32, n), other=12)
    for t in FLOATS:
        v = [sample(t, n, "finite") for _ in range(3)]
        w.case("aten.lerp.Scalar", self=v[0], end=v[1], weight=0.1234567)
        w.case("aten.lerp.Scalar", self=v[0], end=v[1], weight=0.8)
        w.case("aten.lerp.Tensor", self=v[0], end=v[1], weight=v[2])
        w.case("aten.addcmul.default", self=v[0], tensor1=v[1], tensor2=v[2], value=0.1234567)
        w.case("aten.addcdiv.default", self=v[0], tensor1=v[1], tensor2=v[2], value=0.1234567)
    w.case("aten.addcmul.default", self=sample(I32, n), tensor1=sample(I32, n), tensor2=sample(I32, n), value=-2)


def selections(w, n):
    for t in (F32, BF16, I64, U8, BOOL, C64):
        m = sample(BOOL, n)
        w.case("aten.where.self", condition=m, self=sample(t, n), other=sample(t, n))
        w.case("aten.where.ScalarOther", condition=m, self=sample(t, n), other=1)
        w.case("aten.masked_fill.Scalar", self=sample(t, n), mask=m, value=1)
        w.case("aten.masked_fill.Tensor", self=sample(t, n), mask=m, value=torch.tensor(1).to(t))
    w.case("aten.where.self", condition=sample(BOOL, n), self=sample(F32, n), other=sample(I64, n))
    w.case("aten.where.Scalar", condition=sample(BOOL, n), self=1.5, other=2)
    for a in FLOATS + WHOLE + (I16, BOOL):
        for b in FLOATS + WHOLE + (I16, BOOL, C64):
            kind = "finite" if b in WHOLE + (I16,) else "any"
            source = sample(a, n, kind)
            w.case("aten.copy.default", self=torch.zeros(n, dtype=b), src=source if a == BOOL else source.abs())


def in_place(w, n):
    for a, b in ((BF16, F32), (F32, BF16), (F32, I64), (I32, I64)):
        for name in "add_ sub_ mul_".split():
            w.case(f"aten.{name}.Tensor", self=sample(a, n), other=sample(b, n))
    w.case("aten.div_.Tensor", self=sample(BF16, n), other=sample(F32, n))
    w.case("aten.add_.Scalar", self=sample(I64, n), other=1)
    w.case("aten.eq_.Tensor", self=sample(F32, n), other=sample(F32, n))
    w.case("aten.lt_.Scalar", self=sample(BF16, n), other=0.1234567)
    w.case("aten.masked_fill_.Scalar", self=sample(BF16, n), mask=sample(BOOL, n), value=0.3)
    w.case("aten.copy_.default", self=sample(BF16, n), src=sample(F32, n))
    w.case("aten.pow_.Scalar", self=sample(F32, n), exponent=2)
    w.case("aten.logical_and_.default", self=sample(F32, n), other=sample(I32, n))
    w.case("aten.fill_.Scalar", self=sample(BF16, n), value=0.1234567)
    w.case("aten.zero_.default", self=sample(U8, n))
    w.case("aten.exp_.default", self=sample(BF16, n))
    w.case("aten.clamp_.default", self=sample(F32, n), min=-1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    w = Writer(sys.stdout)
    for family in (unary, gradients, binary, with_numbers, selections, in_place):
        family(w, options.elements)


main()
