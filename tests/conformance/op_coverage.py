#!/usr/bin/env python3
"""op_coverage.py [--check]: docs/op-coverage.md from the vectors, listed.txt and libgraph/op.def. With --check: is it up to date?"""
import collections
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from vector_files import head, read_vectors  # noqa: E402

DTYPES = ["f64", "f32", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128", "f8"]
HEAD = """# Ops beside PyTorch

Written by `tests/conformance/op_coverage.py` from the vectors of `tests/conformance` and `listed.txt`; [its README](../tests/conformance/README.md)
says how they are made and compared. A row is an overload of `libgraph/op.def` or `composites.def` (of other names those of PyTorch's primitives), a column the element type of the first tensor.

| sign | what the vectors of this overload and type say |
|---|---|
| `=` | equal to PyTorch to the bit: whole numbers, bools, and what only moves or picks numbers |
| `~` | floats within the bound: at most twice as far from the double result as PyTorch's own, and one unit in the last place of the largest value |
| `r` | random or undefined values: types, ranges and finiteness only |
| `!` | some vectors are not as PyTorch has them: below, with the reason |
| `-` | OpInfo names this type, and there can be no vector of it: below, with the reason |
| `?` | PyTorch's OpInfo names this type for its CPU kernels, and no vector here is of it: not held |
| empty | no vector, and no OpInfo names the type for this op (or none is about the overload: `opinfo_dtypes.py` says which are) |

"""


def listed():
    out = collections.OrderedDict()
    for line in (HERE / "listed.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            op, dtype, kind, reason = line.split(None, 3)
            out[op, dtype, kind] = reason
    return out


def absent():
    """(overload, type) -> why there can be no vector of it."""
    lines = (HERE / "absent.txt").read_text().splitlines()
    return {tuple(line.split(None, 2)[:2]): line.split(None, 2)[2] for line in lines if line.strip() and not line.startswith("#")}


def rows():
    texts = "".join((ROOT / "libgraph" / name).read_text() for name in ("op.def", "composite/composites.def"))
    return re.findall(r'^SG_(?:(?:OP|COMPOSITE)\("(?=aten\.|prims\.|torchvision\.|torch_nn\.)|SAME_AS\("(?=prims\.))([^"]+)"', texts, re.M)


def sign(vectors, faults):
    if faults:
        return "!"
    rules = {check.split()[1] for v in vectors for check in head(v)[3]}
    if "close" in rules:
        return "~"
    return "=" if rules & {"exact", "number"} or not rules else "r"


def opinfo_types():
    """Overload -> the types that PyTorch's OpInfo has of it on CPUs."""
    lines = (HERE / "opinfo_dtypes.txt").read_text().splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if not line.startswith("#")}


def merged(reasons):
    """(overload, ..., reason) -> types, from (overload, type, ...) -> reason, in the order of the types."""
    out = collections.OrderedDict()
    for (op, dtype, *more), reason in reasons.items():
        out.setdefault((op, *more, reason), []).append(dtype)
    return out


def table(by_name, faults, told, impossible):
    lines = ["| op | " + " | ".join(DTYPES) + " | vectors |", "|---|" + "---|" * (len(DTYPES) + 1)]
    for name in sorted(by_name):
        groups = collections.defaultdict(list)
        for v in by_name[name]:
            dtype = head(v)[1]
            groups["f8" if dtype.startswith("f8") else dtype].append(v)      # of all four formats
        signs = [sign(groups[d], faults.get((name, d))) if d in groups else "" if d not in told.get(name, ()) else
                 "-" if (name, d) in impossible else "?" for d in DTYPES]
        lines.append(f"| `{name}` | " + " | ".join(signs) + f" | {len(by_name[name])} |")
    return lines


def text():
    by_name, reasons, names = read_vectors(HERE / "vectors"), listed(), rows()
    by_name = {n: v for n, v in by_name.items() if n in set(names)}
    faults = {(op, dtype) for op, dtype, _ in reasons}
    count = sum(map(len, by_name.values()))
    told = {n: types for n, types in opinfo_types().items() if n in set(names)}
    cells = {(n, d) for n, types in told.items() for d in types}
    held = {(n, head(v)[1]) for n, vectors in by_name.items() for v in vectors}
    impossible = absent()
    for pair in sorted(set(impossible) - (cells - held)):
        sys.exit(f"absent.txt: {' '.join(pair)}: there is a vector, or OpInfo does not name it: take the line out")
    lines = [f"{count} vectors of {len(by_name)} of the {len(names)} overloads of aten and prims. OpInfo is about {len(told)} of them and "
             f"names {len(cells)} pairs of overload and type: vectors hold {len(cells & held)} of these (and {len(held - cells)} others), "
             f"of {len(impossible)} there can be none, {len(cells - held - set(impossible))} are not held.", ""]
    lines += table({**{n: [] for n in told}, **by_name}, {f: True for f in faults}, told, impossible)
    lines += ["", "## Not as PyTorch has it", "", "Some of the op's vectors of these types differ, in the way and for the reason that is said; the rest are equal.", "",
              "| op | types | what | why |", "|---|---|---|---|"]
    what = {"type": "type", "value": "values", "refused": "refused"}
    lines += [f"| `{op}` | {' '.join(dtypes)} | {what[kind]} | {reason} |" for (op, kind, reason), dtypes in merged(reasons).items()]
    lines += ["", "## No vector can be", "", "`PyTorch:` is its answer to every call that was tried.", "", "| op | types | why |", "|---|---|---|"]
    lines += [f"| `{op}` | {' '.join(dtypes)} | {reason} |" for (op, reason), dtypes in merged(impossible).items()]
    missing = [n for n in names if n not in by_name]
    lines += ["", "## Untested here", "", f"{len(missing)} rows that no sample reaches; their kernels have tests of their own in `tests/unit` and `tests/numeric`, or none.", ""]
    lines += [f"- `{n}`" for n in missing]
    return HEAD + "\n".join(lines) + "\n"


def main():
    path = ROOT / "docs" / "op-coverage.md"
    wanted = text()
    if "--check" not in sys.argv[1:]:
        return path.write_text(wanted) and 0
    if path.exists() and path.read_text() == wanted:
        return 0
    print("docs/op-coverage.md is out of date: run tests/conformance/op_coverage.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
