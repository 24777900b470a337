#!/usr/bin/env python3
"""make_vectors.py [--ops REGEX] [--samples REGEX] [--cap N] [--missing]: vectors of the conformance tests, from PyTorch's OpInfo database.

Needs PyTorch. Every sample of every OpInfo runs, forward and backward, in every dtype that we have; the aten overloads
that it comes down to are kept with their real arguments, a few of each overload and dtype. Rows of libgraph/op.def that
no sample reaches that way are called with the samples of their OpInfo directly (in-place ones, composite ones), then with
the random calls of tests/numeric/kernel_cases.py; PyTorch's primitives (prims.*) with those of prim_calls.py, others with those of
more_calls.py. What OpInfo
names and nothing reached has calls of other types made over (vector_fill.py). Each kind gets variants: other strides,
nothing in it, special values.

Written to vectors/*.sgv.gz; with --ops only the vectors of those overloads are made anew, with --missing only pairs of
overload and element type that have none. README.md has the format.
"""
import argparse
import collections
import gzip
import itertools
import logging
import os
import pickle
import random
import re
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "numeric")]
from op_coverage import opinfo_types  # noqa: E402
from vector_calls import DTYPES, EIGHTHS, Book, Recorder, Skip, full_name, tensors_of, variants  # noqa: E402
from vector_files import head, read_vectors, write_absent, write_vectors  # noqa: E402
from vector_fill import fill  # noqa: E402
from vector_text import Vector  # noqa: E402

OURS = [torch.float32, torch.int64, torch.bfloat16, torch.float64, torch.float16, torch.int32, torch.bool, torch.complex64,
        torch.uint8, torch.int16, torch.int8, torch.complex128]
FAILURES = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError, KeyError, AttributeError,
            ZeroDivisionError, OverflowError)
MOST_BYTES = 24000            # of one vector's data
# No variants: what reads memory by lengths or indices that it does not look at; primitives, which have few calls each.
TRUSTING = ("aten._ctc_loss", "aten._unsafe_masked_index", "prims.", "aten._flash_attention_", "torch_attn.")


def table():
    """The overloads that we know: name -> traits; composites, which are taken apart, have none."""
    folder = HERE.parents[1] / "libgraph"
    rows = {m[0]: m[1] for m in re.findall(r'^SG_OP\("((?:aten|torchvision)\.[^"]+)", "[^"]+", ([^,]+),', (folder / "op.def").read_text(), re.M)}
    composites = (folder / "composite" / "composites.def").read_text()
    rows.update({name: "" for name in re.findall(r'^SG_COMPOSITE\("((?:aten|prims|torch_nn|torch_attn)\.[^"]+)"', composites, re.M)})
    rows.update({name: "" for name in re.findall(r'^SG_SAME_AS\("(prims\.[^"]+)"', composites, re.M)})
    return rows


def overload(name):
    space, packet, which = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), which)
    except AttributeError:
        return None


def spread(items, n):
    items = list(itertools.islice(items, 80))
    return items if len(items) <= n else [items[i * len(items) // n] for i in range(n)]


# --- the three ways to calls ---

def run_sample(info, sample, book, backward):
    origin = re.sub(r"\W+", "_", info.name + ("_" + info.variant_test_name if info.variant_test_name else ""))
    with Recorder(book, origin):
        out = info.op(sample.input, *sample.args, **sample.kwargs)
        if backward:
            roots = [t for t in tensors_of(out if isinstance(out, (list, tuple)) else [out])
                     if isinstance(t, torch.Tensor) and t.requires_grad]
            leaves = [t for t in tensors_of([sample.input, *sample.args, *sample.kwargs.values()]) if t.requires_grad]
            if roots and leaves:
                torch.autograd.grad(roots, leaves, [torch.randn_like(r) for r in roots], allow_unused=True)
    if not backward and info.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
        copy = sample.input.clone()
        with Recorder(book, origin):
            info.inplace_variant(copy, *sample.args, **sample.kwargs)


def run_direct(info, sample, book, packets):
    names = {info.name.split(".")[-1], info.aten_name} | {info.aten_name + "_"} | {alias.name.split(".")[-1] for alias in info.aliases}
    for name in names:
        for op in packets.get(name, ()):
            arguments = (sample.input, *sample.args)
            try:
                op(*[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments], **sample.kwargs)
            except FAILURES:
                continue
            book.offer(op, arguments, sample.kwargs, "direct")


def collect(book, which, per_dtype):
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import ReductionOpInfo  # noqa: F401 (fails early on a PyTorch without it)
    packets = collections.defaultdict(list)
    for name in book.rows:
        if book.only.search(name) and overload(name) is not None:
            packets[name.split(".")[1]].append(overload(name))
    refused = collections.Counter()
    for info in op_db:
        if not which.search(info.name):
            continue
        begin = time.time()
        supported = info.supported_dtypes("cpu")
        for dtype in OURS:
            if dtype not in supported:
                continue
            grad = (dtype.is_floating_point or dtype.is_complex) and info.supports_autograd
            for backward in (False, True) if grad else (False,):
                torch.manual_seed(len(info.name) + OURS.index(dtype))
                random.seed(1)
                try:
                    samples = spread(info.sample_inputs("cpu", dtype, requires_grad=backward), per_dtype)
                except FAILURES as e:
                    refused[f"{info.name} samples: {str(e).splitlines()[0][:60] if str(e) else type(e).__name__}"] += 1
                    continue
                for sample in samples:
                    if sum(t.numel() for t in tensors_of([sample.input, *sample.args, *sample.kwargs.values()])) > 20000:
                        continue
                    try:
                        run_sample(info, sample, book, backward)
                    except FAILURES as e:
                        refused[f"{info.name}: {str(e).splitlines()[0][:60] if str(e) else type(e).__name__}"] += 1
                    if not backward:
                        run_direct(info, sample, book, packets)
        if time.time() - begin > 5:
            print(f"{info.name}: {time.time() - begin:.0f} s", flush=True)
    return refused


def add_cases(book, rounds):
    """The random calls, where samples gave too few."""
    from kernel_cases import CASES
    for name, make in CASES.items():
        op = overload(name) if name in book.rows and book.only.search(name) else None
        if op is None:
            continue
        for n in range(rounds):
            torch.manual_seed(n)
            case = make(random.Random(f"{name} {n}"))
            kwargs = case.kwargs
            if not case.fails and not book.is_full(name, DTYPES.get(book_dtype(op, case)), 2):
                book.offer(op, case.args, kwargs, "case")


def add_primitives(book):
    """In every element type that PyTorch takes; no variants."""
    from prim_calls import calls_of
    names = [name for name in book.rows if name.startswith("prims.") and book.only.search(name)]
    for name in names:
        op = overload(name)
        for dtype in OURS if op is not None else ():
            torch.manual_seed(len(name))
            for args, kwargs in calls_of(name, op, dtype):
                try:
                    op(*copied(args), **kwargs)
                except FAILURES:
                    continue
                book.offer(op, args, kwargs, "primitive")


def add_more(book):
    """What no sample reaches, in every element type that PyTorch takes."""
    import edge_calls
    import float8_calls
    import more_calls
    import quantized_calls
    import region_calls
    import varlen_calls
    add_calls(book, more_calls.CALLS, OURS)
    book.cap = max(book.cap, 40)      # whatever these are, each is there for something
    add_calls(book, float8_calls.CALLS, EIGHTHS)
    book.values_count = True
    add_calls(book, quantized_calls.CALLS, OURS)
    add_calls(book, region_calls.CALLS, OURS)
    add_calls(book, varlen_calls.CALLS, OURS)
    add_calls(book, edge_calls.CALLS, OURS)


def add_calls(book, calls_of, dtypes):
    for name, make in calls_of.items():
        op = overload(name) if book.wants(name) else None
        for dtype in dtypes if op is not None else ():
            torch.manual_seed(len(name))
            try:
                calls = make(dtype)
            except FAILURES:
                continue
            for args, kwargs in calls:
                try:
                    op(*copied(args), **{k: copied(v) for k, v in kwargs.items()})
                except FAILURES:
                    continue
                book.offer(op, args, kwargs, "more")


def copied(v):
    if isinstance(v, torch.Tensor):
        return v.clone()
    return [copied(x) for x in v] if isinstance(v, (list, tuple)) else v


def book_dtype(op, case):
    from vector_calls import Call
    return Call(op, case.args, case.kwargs, "").dtype()


# --- from calls to vectors ---

def vector_of(call):
    vector = Vector(call)
    if len(vector.data) > MOST_BYTES:
        raise Skip("large")
    return vector


def realise(name, groups, pointwise, with_variants):
    made = []
    for calls in groups:
        derived = []
        for base, change, origin in variants(calls, pointwise) if with_variants else ():
            try:
                call = base.map_tensors(change, origin).copied()
                derived.append((call, base))
            except (*FAILURES, Skip):
                pass
        for call in calls + [d[0] for d in derived]:
            signal.alarm(20)
            try:
                made.append(vector_of(call))
            except (*FAILURES, Skip) as e:
                if os.environ.get("SG_SHOW_SKIPPED"):
                    print(f"{name} {call.origin}: {type(e).__name__} {e}", flush=True)
    floats = [v for v in made if v.floats]
    moved = bool(floats) and all(v.moved for v in floats) and sum(v.floats for v in floats) > 20
    seen, out = set(), []
    for v in made:
        code = v.encode(moved)
        if code not in seen:
            seen.add(code)
            out.append(code)
    return out


def realise_apart(name, groups, pointwise):
    """In a process of its own: odd strides make PyTorch itself crash here and there."""
    for with_variants in (True, False) if not name.startswith(TRUSTING) else (False,):
        with tempfile.NamedTemporaryFile() as file:
            pid = os.fork()
            if pid == 0:
                try:
                    out = realise(name, groups, pointwise, with_variants)
                    Path(file.name).write_bytes(pickle.dumps(out))
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            data = Path(file.name).read_bytes()
            if data:
                return pickle.loads(data)
        print(f"{name}: PyTorch did not survive{' its variants' if with_variants else ''}", flush=True)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=".", help="overloads to make vectors of")
    parser.add_argument("--samples", default=".", help="names of OpInfos to take samples of")
    parser.add_argument("--cap", type=int, default=4, help="calls of an overload and dtype, variants not counted")
    parser.add_argument("--per-dtype", type=int, default=12, help="samples of an OpInfo and dtype")
    parser.add_argument("--missing", action="store_true", help="keep the vectors that there are, and add the pairs that have none")
    parser.add_argument("--out", default=str(HERE / "vectors"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    rows = table()
    book = Book(rows, options.cap, re.compile(options.ops))
    refused = collect(book, re.compile(options.samples), options.per_dtype)
    print(f"{sum(map(len, book.calls.values()))} calls of {len({k[0] for k in book.calls})} overloads from samples", flush=True)
    add_cases(book, 40)
    add_primitives(book)
    add_more(book)
    told = {(n, d) for n, types in opinfo_types().items() if n in rows for d in types}
    said = fill(book, overload, {pair for pair in told if book.wants(pair[0])}, FAILURES)
    vectors = {n: v for n, v in read_vectors(options.out).items() if n in rows and (options.missing or not book.only.search(n))}
    held = {(n, head(v)[1]) for n, list_ in vectors.items() for v in list_}
    by_name = collections.defaultdict(list)
    for (name, dtype), calls in sorted(book.calls.items()):
        if (name, dtype) not in held:
            by_name[name].append(calls)
    for name, groups in by_name.items():
        vectors.setdefault(name, []).extend(realise_apart(name, groups, "kPointwise" in rows[name]))
    total = write_vectors(options.out, vectors)
    write_absent(HERE / "absent.txt", said, told - {(n, head(v)[1]) for n, list_ in vectors.items() for v in list_})
    reached = {n for n, v in vectors.items() if v}
    print(f"{sum(map(len, vectors.values()))} vectors of {len(reached)} overloads, {total} bytes; {len(rows) - len(reached)} rows without:")
    print("  " + " ".join(sorted(set(rows) - reached)))
    for what, count in refused.most_common(40):
        print(f"  refused {count} of {what}")


if __name__ == "__main__":
    main()
