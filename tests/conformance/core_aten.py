#!/usr/bin/env python3
"""core_aten.py [--refresh]: is every overload of PyTorch's Core ATen opset a row of libgraph/op.def?

core_aten.txt holds the opset: the overloads that PyTorch tags `core`, with their schemas. core_aten_excluded.txt holds
those that have no row, each with its reason. The check fails on an overload in neither file's sense (no row, no reason), on
a reason for something that has a row, on a row whose parameters are not those of the schema, on a row that sg-run does not
execute, and on one without vectors that ELSEWHERE names no test for. It needs no PyTorch;
`--refresh` does: it writes core_aten.txt anew from the PyTorch that runs it.
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from op_list import how, kernels  # noqa: E402
from vector_files import read_vectors  # noqa: E402

# Random ones have no vectors to the bit, questions about types no data: what tests them.
ELSEWHERE = {
    "aten.sym_numel.default": "tests/unit/expect_test.cc",
    "aten.sym_size.int": "tests/golden/export/one_step.txt",
    "aten.sym_storage_offset.default": "tests/run/number_cases.py",
    "aten.sym_stride.int": "tests/golden/chunk/chunk_seq_preserves_split_view_stride_scalar_live_in.txt",
}
TABLE = HERE.parents[1] / "libgraph" / "op.def"


def refresh():
    import torch
    lines = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if not full.startswith("aten::"):
            continue
        name, _, overload = full[6:].partition(".")
        try:
            op = getattr(getattr(torch.ops.aten, name), overload or "default")
        except AttributeError:
            continue
        if torch.Tag.core in op.tags:
            schema = str(op._schema)
            lines.append(f"aten.{name}.{overload or 'default'} {schema[schema.index('('):]}")
    (HERE / "core_aten.txt").write_text(f"# Core ATen of PyTorch {torch.__version__.split('+')[0]}: core_aten.py --refresh\n" + "\n".join(lines) + "\n")
    print(f"{len(lines)} overloads")


def entries(path):
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def parameters(schema):
    """The names of a schema's parameters, in order."""
    inside = schema[1:schema.rindex(") ->")]
    inside = re.sub(r"\([a-z!|>\- ]*\)|\[[^\]]*\]", "", inside)
    return [p.split("=")[0].split()[-1] for p in inside.split(", ") if p and p != "*"]


def untested(names):
    """Of rows: those that nothing executes or holds against PyTorch."""
    traits = dict(re.findall(r'^SG_OP\("([^"]+)", "[^"]+", ([^,]+),', TABLE.read_text(), re.M))
    known, vectors = kernels(), read_vectors(HERE / "vectors")
    for name in names:
        if how(name, traits[name], known) == "no":
            yield f"{name}: sg-run does not execute it"
        test = ELSEWHERE.get(name)
        if name not in vectors and not (test and name.removesuffix(".default") in (HERE.parents[1] / test).read_text()):
            yield f"{name}: no vectors, and no test is named in ELSEWHERE that has it"
        if name in vectors and test:
            yield f"{name}: has vectors, and a line in ELSEWHERE"


def main():
    if "--refresh" in sys.argv[1:]:
        return refresh()
    rows = dict(re.findall(r'^SG_OP\("([^"]+)", "([^"]+)"', TABLE.read_text(), re.M))
    excluded = dict(entries(HERE / "core_aten_excluded.txt"))
    core = dict(entries(HERE / "core_aten.txt"))
    faults = []
    for name, schema in core.items():
        if name in rows:
            if parameters(rows[name]) != parameters(schema):
                faults.append(f"{name}: the row's parameters are {parameters(rows[name])}, PyTorch's {parameters(schema)}")
            if name in excluded:
                faults.append(f"{name}: has a row, and a reason for having none")
        elif not excluded.get(name):
            faults.append(f"{name}: no row in libgraph/op.def, and no reason in core_aten_excluded.txt")
    faults += untested([name for name in core if name in rows])
    faults += [f"{name}: a reason for what is not in core_aten.txt" for name in excluded if name not in core]
    for fault in faults:
        print(fault)
    print(f"Core ATen: {sum(name in rows for name in core)} of {len(core)} overloads have a row, {len(excluded)} are excluded by name")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
