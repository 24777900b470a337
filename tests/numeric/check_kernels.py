#!/usr/bin/env python3
"""check_kernels.py KERNEL_PROBE [--ops REGEX] [--rounds N] [--seed N]: the CPU kernels against PyTorch, on random calls.

Needs PyTorch; not part of `make test`. Every op is called with random shapes, strides, dtypes and arguments. Integers and
bools have to be equal; floats may be wrong by twice what PyTorch itself is, held against the same op in double, plus one
unit in the last place of the tensor's largest value. Each call runs with 1, 2 and 4 threads: the bits have to be equal.
"""
import argparse
import collections
import random
import re
import sys

import warnings
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))
from kernel_cases import CASES
from kernel_probe import KernelError, Probe
from vector_linear import turned_to

ULP = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10,
       torch.complex64: 2.0**-23, torch.complex128: 2.0**-52}


def to_double(v):
    if isinstance(v, torch.Tensor):
        if v.dtype.is_complex:
            return v.to(torch.complex128)
        return v.double() if v.dtype.is_floating_point else v.clone()
    if isinstance(v, torch.dtype):
        return torch.float64 if v.is_floating_point else v
    if isinstance(v, (list, tuple)):
        return [to_double(x) for x in v]
    return v


def copied(v):
    if isinstance(v, torch.Tensor):
        out = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype)
        if any(s == 0 and n > 1 for n, s in zip(v.shape, v.stride())):
            return v.clone(memory_format=torch.contiguous_format).as_strided(v.shape, v.clone(memory_format=torch.contiguous_format).stride())
        return out.copy_(v)
    if isinstance(v, (list, tuple)):
        return [copied(x) for x in v]
    return v


def flat(result):
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


def error_of(a, exact):
    """The largest difference; 0 where both are the same infinity or NaN, infinite where only one is."""
    a, exact = (x.to(torch.complex128) if x.dtype.is_complex else x.double() for x in (a, exact))
    same = (a == exact) | (torch.isnan(a) & torch.isnan(exact))
    difference = torch.where(same, torch.zeros_like(a.abs()), (a - exact).abs())
    difference = torch.nan_to_num(difference, nan=float("inf"), posinf=float("inf"))
    return difference.max().item() if a.numel() else 0.0


def bits(t):
    return t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


class Checker:
    def __init__(self, probe, strict):
        self.probe, self.strict = probe, strict
        self.counts, self.failures = collections.Counter(), collections.Counter()

    def fail(self, op, message, args, kwargs):
        self.failures[op] += 1
        if self.failures[op] > 3:
            return
        print(f"FAIL {op}: {message}")
        for v in (*args, *kwargs.values()):
            if isinstance(v, torch.Tensor):
                print(f"    {v.dtype} {tuple(v.shape)} {v.stride()} {v.flatten()[:8].tolist()}")
            else:
                print(f"    {str(v)[:150]}")

    def check(self, name, case):
        op = eval(f"torch.ops.{name}", {"torch": torch})
        args, kwargs = case.args, case.kwargs
        schema = op._schema
        try:
            expected = flat(op(*copied(args), **{k: copied(v) for k, v in kwargs.items()}))
        except (RuntimeError, IndexError, TypeError, ValueError) as e:
            if not case.fails:
                self.counts["torch: " + str(e).split("\n")[0][:60]] += 1
            expected = None
        exact = None
        if expected is not None and not case.fails:
            try:
                exact = flat(op(*[to_double(copied(a)) for a in args], **{k: to_double(v) for k, v in kwargs.items()}))
            except RuntimeError:
                exact = expected
        if expected is None and not case.fails:
            return
        arguments = [(p.name, a, self.kind(p)) for p, a in zip(schema.arguments, args)]
        arguments += [(p.name, kwargs[p.name], self.kind(p)) for p in schema.arguments if p.name in kwargs]
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        write = [next((a.name for a in written if r.alias_info is not None and a.alias_info.before_set == r.alias_info.before_set), None)
                 for r in schema.returns]
        likes = case.results(expected) if expected is not None else case.likes
        self.run(name, case, arguments, likes, write, expected, exact, args, kwargs)

    @staticmethod
    def kind(parameter):
        return "int[]" if "List[int]" in str(parameter.type) else ""

    def run(self, name, case, arguments, likes, write, expected, exact, args, kwargs):
        self.counts[name] += 1
        first = None
        for threads in (1, 2, 4):
            try:
                got = self.probe.call(name, arguments, likes, threads, "fast", write)
            except KernelError as e:
                if not case.fails:
                    self.fail(name, f"refused: {e}", args, kwargs)
                elif case.fails is not True and not re.search(case.fails, str(e)):
                    self.fail(name, f"another message: {e}", args, kwargs)
                return
            if case.fails:
                return self.fail(name, "ran, but has to fail", args, kwargs)
            if first is None:
                first = got
                self.compare(name, case, got, expected, exact, args, kwargs)
            elif any(isinstance(a, torch.Tensor) and not torch.equal(bits(a), bits(b)) for a, b in zip(first, got)):
                return self.fail(name, f"other bits with {threads} threads", args, kwargs)

    def compare(self, name, case, got, expected, exact, args, kwargs):
        for i, (mine, theirs, right) in enumerate(zip(got, expected, exact)):
            if not isinstance(theirs, torch.Tensor):
                if theirs is not None and float(got[-1]) != float(theirs) and theirs == theirs:
                    self.fail(name, f"result {i}: {got[-1]}, PyTorch {theirs}", args, kwargs)
                continue
            if i in case.positions:      # any of equal elements will do
                axis = case.args[1] if len(case.args) > 1 else case.kwargs["dim"]
                shape = (lambda t: t if t.dim() == args[0].dim() else t.unsqueeze(axis))
                mine, theirs = (args[0].gather(axis, shape(x)) for x in (mine, theirs))
                right = theirs
            if mine is None:
                continue
            if i in case.turned and mine.shape == theirs.shape and theirs.numel():
                right = theirs if right.shape != theirs.shape else turned_to(right, theirs, case.turned[i])
                mine = turned_to(mine, theirs, case.turned[i])
            if mine.shape != theirs.shape:
                self.fail(name, f"result {i}: shape {tuple(mine.shape)}, PyTorch {tuple(theirs.shape)}", args, kwargs)
            elif theirs.dtype in ULP:
                self.compare_floats(name, i, mine, theirs, right, args, kwargs)
            elif not torch.equal(mine, theirs):
                self.fail(name, f"result {i}: {mine.flatten()[:8].tolist()}, PyTorch {theirs.flatten()[:8].tolist()}",
                          args, kwargs)

    def compare_floats(self, name, i, mine, theirs, right, args, kwargs):
        if mine.numel() == 0 or right.shape != mine.shape:
            return
        ours, theirs_error = error_of(mine, right), error_of(theirs, right)
        finite = right.abs().double()[torch.isfinite(right)] if not right.dtype.is_complex else right.abs()[torch.isfinite(right.abs())]
        scale = finite.max().item() if finite.numel() else 0.0
        ulp = ULP[theirs.dtype] * scale
        if theirs.dtype in (torch.float64, torch.complex128):    # PyTorch is its own measure: rounding differs
            ulp = 1e-12 * max(scale, max((a.abs().nan_to_num(posinf=0).max().item() for a in args
                                          if isinstance(a, torch.Tensor) and a.numel() and a.dtype in ULP), default=0))
        # overflow or a special value: then PyTorch's own answer is the measure, too
        if theirs_error == float("inf"):
            theirs_error, ours = 0.0, min(ours, error_of(mine, theirs))
        if not ours <= 2 * theirs_error + ulp + 1e-300:
            self.fail(name, f"result {i}: error {ours:.3g}, PyTorch's {theirs_error:.3g}, ulp {ulp:.3g}", args, kwargs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ops", default=".")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    checker = Checker(Probe(options.program), True)
    missing = []
    for name, make in CASES.items():
        if not re.search(options.ops, name):
            continue
        for round_number in range(options.rounds):
            rng = random.Random(f"{options.seed} {name} {round_number}")
            torch.manual_seed(rng.randrange(1 << 30))
            try:
                checker.check(name, make(rng))
            except NotImplementedError:
                missing.append(name)
                break
    run = {k: v for k, v in checker.counts.items() if not k.startswith("torch: ")}
    print(f"{sum(run.values())} calls of {len(run)} ops, {sum(checker.failures.values())} failures")
    for k, v in sorted(checker.failures.items()):
        print(f"  {k}: {v} of {checker.counts[k]}")
    for k, v in checker.counts.items():
        if k.startswith("torch: "):
            print(f"  {v} calls that PyTorch refused, {k}")
    for name in missing:
        print(f"  no kernel: {name}")
    return 1 if checker.failures or missing else 0


if __name__ == "__main__":
    sys.exit(main())
