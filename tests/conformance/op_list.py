#!/usr/bin/env python3
"""op_list.py [--check]: docs/ops.md from libgraph/op.def and the kernel tables of librun. With --check: is it up to date?"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = """# Every op of the table

Written by `tests/conformance/op_list.py` from `libgraph/op.def` and the tables of `librun`. *Runs* says how `sg-run` executes it: by a
`kernel`, `in place` (the kernel of the form that is not), as a `view` (nothing is computed), on the `host`, by the `runtime`
(collectives, calls), or `no`: the op imports, is checked and counted, and a run refuses it by name.

"""

COMPOSITES = """{} overloads that PyTorch defines by others (`libgraph/composite/composites.def`): `sg-import` puts their parts in their place;
[import.md](import.md#composite-operators) says when it cannot."""


def rows():
    section = ""
    for line in (ROOT / "libgraph/op.def").read_text().splitlines():
        if line.startswith("// --- "):
            section = line[7:].rstrip(" -")
        found = re.match(r'SG_OP\("([^"]+)", "[^"]*", ([^,]+), (\w+), (\w+), (\w+),', line)
        if found:
            yield section, *found.groups()


def composites():
    text = (ROOT / "libgraph/composite/composites.def").read_text()
    whole, others = [], []      # a line of each section of the file
    for title, rows_of_it in re.findall(r"^// --- (.+?) ---$(.*?)(?=^// --- |\Z)", text, re.M | re.S):
        names = re.findall(r'^SG_COMPOSITE\("([^"]+)"', rows_of_it, re.M)
        aliases = re.findall(r'^SG_SAME_AS\("([^"]+)", "([^"]+)"', rows_of_it, re.M)
        if names:
            whole.append((len(names), f"- {title}: " + ", ".join(f"`{n}`" for n in names)))
        others += [f"| `{a}` | `{b}` |" for a, b in aliases]
    return ["", "## Taken apart when they are imported", "", COMPOSITES.format(sum(n for n, _ in whole)), "",
            *(line for _, line in whole), "",
            "## Other names", "", "| name | row |", "|---|---|", *others]


def kernels():
    names = set()
    for path in (ROOT / "librun").rglob("*.cc"):
        names |= set(re.findall(r'\{"([a-z_0-9]+\.[A-Za-z_0-9.]+)"', path.read_text()))
    return names


def how(name, traits, known):
    functional = re.sub(r"_(\.[A-Za-z_]+)$", r"\1", name)
    if "kView" in traits:
        return "view"
    if "kCollective" in traits or "kWait" in traits or name == "sg.call":
        return "runtime"
    if "kSize" in traits or name.startswith("aten.sym_"):
        return "host"
    if name in known:
        return "kernel"
    return "in place" if functional != name and functional in known else "no"


def page():
    known, lines, last, counts = kernels(), [], None, {}
    for section, name, traits, infer, _cost, chunk in rows():
        if section != last:
            lines += ["", f"## {section[:1].upper()}{section[1:]}", "", "| op | runs | type rule | chunking |",
                      "|---|---|---|---|"]
            last = section
        runs = how(name, traits, known)
        counts[runs] = counts.get(runs, 0) + 1
        lines.append(f"| `{name}` | {runs} | {infer} | {chunk} |")
    total = sum(counts.values())
    summary = f"{total} overloads: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items(), key=lambda c: (-c[1], c[0]))) + ".\n"
    return HEAD + summary + "\n".join(lines + composites()) + "\n"


def main():
    path, text = ROOT / "docs/ops.md", page()
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
        return 0
    if path.exists() and path.read_text() == text:
        return 0
    print("docs/ops.md is not what op.def says: run tests/conformance/op_list.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
