#!/usr/bin/env python3
"""check_rules.py SG_CHECK [--ops REGEX] [--rounds N] [--seed N]: the type rules of op.def against PyTorch.

Needs PyTorch; not part of `make test`. Every call of kernel_cases.py is made on fake tensors, as a capture makes it, and
becomes a node of one text graph with the types that PyTorch gave: sg-check must find nothing. Calls that PyTorch refuses
on fake tensors because sizes depend on data are passed over; their number is printed.
"""
import argparse
import collections
import logging
import random
import re
import subprocess
import sys
import warnings

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from kernel_cases import CASES

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
         torch.complex64: "c64", torch.complex128: "c128"}


class Skip(Exception):
    pass


def type_text(t):
    if t is None:
        return "none"
    if not isinstance(t, torch.Tensor):
        raise Skip("a result that is not a tensor")
    if t.dtype not in NAMES:
        raise Skip("a dtype of no row")
    stride = f" stride [{', '.join(map(str, t.stride()))}]" if t.dim() else ""
    offset = f" +{t.storage_offset()}" if t.storage_offset() else ""
    return f"{NAMES[t.dtype]}[{', '.join(map(str, t.shape))}]{stride}{offset}"


class Writer:
    def __init__(self):
        self.inputs, self.nodes, self.calls, self.names = [], [], {}, 0

    def new(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def value(self, v):
        if isinstance(v, torch.Tensor):
            name = self.new("x")
            self.inputs.append(f"  input %{name} : {type_text(v)}")
            return f"%{name}"
        if v is None:
            return "none"
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, torch.dtype):
            return NAMES[v]
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(self.value(x) for x in v) + "]"
        if isinstance(v, complex):
            return f"complex({v.real!r}, {v.imag!r})"
        if isinstance(v, str):
            return '"' + v + '"'
        return repr(v)

    def call(self, op, args, kwargs, results):
        texts = [type_text(r) for r in results]
        arguments = [self.value(a) for a in args] + [f"{k}={self.value(v)}" for k, v in kwargs.items()]
        names = [self.new("y") for _ in texts]
        left = ", ".join("%" + n for n in names)
        self.nodes.append(f"    {left} = {op}({', '.join(arguments)}) : {', '.join(texts)}")
        self.calls[names[0]] = len(self.nodes) - 1

    def text(self):
        return "\n".join(["sg 1.0 job \"rules\" world 1", "", "graph rank *", *self.inputs, "", "  forward -",
                          *self.nodes, ""])


def fake(mode, v):
    if isinstance(v, torch.Tensor):
        return mode.from_tensor(v.detach())
    if isinstance(v, (list, tuple)):
        return [fake(mode, x) for x in v]
    return v


def overload(name):
    return eval(f"torch.ops.{name}", {"torch": torch})


def results_of(name, case):
    """What PyTorch says the results are, by fake tensors."""
    op = overload(name)
    schema = op._schema
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        args, kwargs = [fake(mode, a) for a in case.args], {k: fake(mode, v) for k, v in case.kwargs.items()}
        before = [(a, a.clone()) for a in args if isinstance(a, torch.Tensor)]
        try:
            out = op(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise Skip("sizes depend on data") from e
        except NotImplementedError as e:
            raise Skip("no fake kernel") from e
    del before, schema
    return [] if out is None else list(out) if isinstance(out, (list, tuple)) else [out]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ops", default=".")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="write the graph to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)      # fake tensors report every call that they refuse
    writer, skipped = Writer(), collections.Counter()
    for name, make in CASES.items():
        if not re.search(options.ops, name) or not overload(name)._schema.returns:
            continue
        for round_number in range(options.rounds):
            rng = random.Random(f"{options.seed} {name} {round_number}")
            torch.manual_seed(rng.randrange(1 << 30))
            case = make(rng)
            if case.fails:
                continue
            try:
                writer.call(name, case.args, case.kwargs, results_of(name, case))
            except Skip as e:
                skipped[f"{name}: {e}"] += 1
            except (RuntimeError, IndexError, TypeError, ValueError, AssertionError, ZeroDivisionError) as e:
                skipped[f"{name}: PyTorch refused: {str(e).splitlines()[0][:70]}"] += 1
    text = writer.text()
    if options.keep:
        with open(options.keep, "w") as f:
            f.write(text)
    done = subprocess.run([options.program, "-q", "--max-findings", "100000", "-"], input=text, capture_output=True,
                          text=True)
    output = (done.stdout + done.stderr).splitlines()
    shown = collections.Counter()
    lines = text.splitlines()
    for i, line in enumerate(output):
        found = re.match(r"sg-check: <stdin>:(\d+):", line)
        if not found:
            continue
        node = lines[int(found.group(1)) - 1]
        op = re.search(r" = ([a-z_0-9A-Z.]+)\(", node)
        key = op.group(1) if op else "?"
        shown[key] += 1
        if shown[key] <= 3:
            print(f"FAIL {line.split(': error: ')[-1]}\n    {node.strip()}")
            for x in dict.fromkeys(re.findall(r"%x\d+", node)):
                print("       " + next(i.strip() for i in writer.inputs if i.startswith(f"  input {x} :")))
    print(f"{len(writer.calls)} calls, {sum(shown.values())} findings; sg-check said {done.returncode}")
    for k, v in sorted(shown.items()):
        print(f"  {k}: {v}")
    for k, v in sorted(skipped.items()):
        print(f"  skipped {v} of {k}")
    return 1 if shown or done.returncode not in (0,) else 0


if __name__ == "__main__":
    sys.exit(main())
