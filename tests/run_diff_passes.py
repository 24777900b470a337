#!/usr/bin/env python3
"""run_diff_passes.py --bin DIR: what sg-diff says of our own passes is what the passes say they did.

Each pass runs on captures under ../shared/traces and reports its plan (--explain --json); sg-diff, which reads only the two
graphs, is held against it: copies, offloaded values and bytes, buckets and their members. No edit is left without an
explanation. And what is no difference on real graphs: the text form, a second import, every name another one.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from harness import skip
from json_schema import check_schema

ROOT = Path(__file__).resolve().parent
TRACES = Path(harness.TRACES)
CAPTURES = ["single/gpt2-tiny/step.json", "single/gpt2-tiny-dynamic/step.json", "single/llama3-1rank/step.json",
            "multi/llama3-fsdp4/rank{r}/step.json", "multi/dsv3-ep4/rank{r}/step.json"]
SCHEMA_FILE = ROOT.parent / "schema" / "sg-diff.schema.json"


def schema():
    try:
        return json.loads(SCHEMA_FILE.read_text())
    except OSError as e:
        raise SystemExit(f"run_diff_passes.py: {SCHEMA_FILE}: {e.strerror}; it runs in a whole checkout") from None


class Tools:
    def __init__(self, bin_dir, folder):
        self.bin, self.folder, self.schema = Path(bin_dir).resolve(), folder, schema()

    def run(self, tool, *args, codes=(0,)):
        done = subprocess.run([self.bin / tool, *map(str, args)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode not in codes:
            raise SystemExit(f"{tool} {' '.join(map(str, args))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout + done.stderr

    def apply(self, tool, source, target, *args):
        """The plan of the pass."""
        return json.loads(self.run(tool, source, "--json", "--explain", "-o", target, *args))["passes"][0]["plan"]

    def diff(self, a, b):
        report = json.loads(self.run("sg-diff", "--json", "--no-cost", a, b, codes=(0, 1)))
        check_schema(report, self.schema)
        return report["programs"][0]["graphs"][0] if report["programs"] else None


def facts(graph, kind, key):
    return sum(e["facts"].get(key, 0) for e in graph["explanations"] if e["kind"] == kind)


def unexplained(graph):
    return len(graph["edits"]) - graph["counts"]["explained"]


def buckets_of(plan):
    """(direction, members) of every bucket with more than one."""
    found = [re.match(r"(\d+) \w+, (\w+),", d) for d in plan["decisions"]]
    return [(m[2], int(m[1])) for m in found if m and int(m[1]) > 1]


def no_difference(tools, capture, graph):
    """The same as check: 0 is what there should be."""
    text = tools.run("sg-print", graph)
    renamed = re.sub(r"%(?=[A-Za-z_])", "%zz_", text)
    renamed = re.sub(r" (label|remat_of|offload_of) (?=[A-Za-z_])", r" \1 zz_", renamed)
    for name, content in (("text.txt", text), ("renamed.txt", renamed)):
        (Path(tools.folder) / name).write_text(content)
    tools.run("sg-import", "-q", TRACES / capture, "-o", "again.sg")
    count = lambda *args: len(tools.run("sg-diff", "--name-only", *args, codes=(0, 1)).splitlines())
    return [("its text form: edits", 0, count(graph, "text.txt")),
            ("imported again: edits", 0, count("step.sg", "again.sg")),
            ("renamed: edits", 0, count("--ignore", "name", graph, "renamed.txt")),
            ("renamed, names not ignored: any edit", True, count(graph, "renamed.txt") > 0)]


def check(tools, capture):
    """Triples (what, said by the pass, said by sg-diff)."""
    tools.run("sg-import", "-q", TRACES / capture, "-o", "step.sg")
    clean = tools.apply("sg-clean", "step.sg", "clean.sg")
    remat = tools.apply("sg-remat", "clean.sg", "remat.sg", "--policy", "default")
    offload = tools.apply("sg-offload", "clean.sg", "offload.sg", "--budget", "1MiB")
    buckets = tools.apply("sg-bucket", "remat.sg", "bucket.sg", "--plan", "per-block")
    said = []
    graph = tools.diff("step.sg", "clean.sg")
    said.append(("clean: writes made functional", clean["functional"], facts(graph, "in_place", "nodes")))
    for a, b in (("clean", "remat"), ("clean", "offload"), ("offload", "clean"), ("remat", "bucket"),
                 ("bucket", "remat")):
        graph = tools.diff(f"{a}.sg", f"{b}.sg")
        if graph is None:
            continue
        said.append((f"{a} to {b}: edits without explanation", 0, unexplained(graph)))
        if b == "remat" and a == "clean":
            said.append(("remat: copies", remat["recomputed"], facts(graph, "recomputed", "copies")))
        if "offload" in (a, b):
            said.append((f"{a} to {b}: values on the host", offload["offloaded"], facts(graph, "offloaded", "values")))
            if "dynamic" not in capture:
                said.append((f"{a} to {b}: bytes", offload["host_bytes"], facts(graph, "offloaded", "bytes")))
        if "bucket" in (a, b):
            said.append((f"{a} to {b}: members of buckets", sum(n for _, n in buckets_of(buckets)),
                         facts(graph, "merged", "merged")))
    graph = tools.diff("clean.sg", "bucket.sg")
    if graph and buckets_of(buckets):
        again = [n for direction, n in buckets_of(buckets) if direction == "backward"]
        gathers = sum(again) - sum(e["facts"]["merged"] for e in graph["explanations"] if e["kind"] == "merged" and "reduce_scatter" in e["text"])
        said.append(("clean to bucket: gathers done again", gathers, facts(graph, "merged", "again")))
    return said + no_difference(tools, capture, "bucket.sg" if buckets_of(buckets) else "offload.sg")


def check_outlined(tools, capture):
    """Chunks as calls of a body: sg-chunk --auto."""
    tools.run("sg-import", "-q", TRACES / capture, "-o", "step.sg")
    tools.apply("sg-clean", "step.sg", "clean.sg")
    plan = tools.apply("sg-chunk", "clean.sg", "outlined.sg", "--auto", "--chunks", "3")
    graph = tools.diff("clean.sg", "outlined.sg")
    return [("outlined: chunks", sum(r["chunks"] for r in plan["regions"]), facts(graph, "chunked", "calls")),
            ("outlined: nodes gone", graph["counts"]["removed"], facts(graph, "chunked", "originals")),
            ("outlined: edits without explanation", 0, unexplained(graph))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    if not TRACES.is_dir():
        return skip("no captures at ../shared/traces")
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(args.bin, folder)
        cases = [(c, check) for c in CAPTURES] + [("shape/gpt2-124m-b4t64/step.json.gz", check_outlined)]
        for capture, checker in cases:
            for what, theirs, ours in checker(tools, capture):
                count, failed = count + 1, failed + (theirs != ours)
                print(f"{'ok  ' if theirs == ours else 'FAIL'} {capture}: {what}: the pass {theirs}, sg-diff {ours}")
    print(f"{count} counts, {failed} failures")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
