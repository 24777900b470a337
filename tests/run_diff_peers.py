#!/usr/bin/env python3
"""run_diff_peers.py --bin DIR [--update]: sg-diff over every two neighbouring stages under ../shared/traces/peer.

What it says is held against what TorchTitan's own names and metadata tell (never read by sg-diff's matcher): which nodes are
new, gone and still there by their names, copies by their names, buckets and chunks by metadata, pure reorders by the stage.
Chunks are counted a second time from graphs whose metadata of chunks was taken out. The summaries are kept in tests/data/diff/.
"""
import argparse
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path

from harness import TRACES, run, skip
from json_schema import check_schema

ROOT = Path(__file__).resolve().parent
PEERS = Path(TRACES) / "peer"
GOLDEN = ROOT / "data" / "diff"


def nodes_of(path):
    with gzip.open(path) as f:
        return [n for n in json.load(f)["nodes"] if n["op"] != "python.getitem"]     # import folds those


def count(nodes, test):
    return sum(1 for n in nodes if test(n))


def is_recomputed(node):
    return "_recomputed" in node["name"]


def chunk(node, key):
    return (node.get("meta") or {}).get(key)


def facts(graph, kind, key):
    return sum(e["facts"].get(key, 0) for e in graph["explanations"] if e["kind"] == kind)


def edits_of(graph, kind):
    return [e for e in graph["edits"] if e["kind"] == kind]


def identities(before, after, graph):
    """Nodes keep their names through a pass: who is gone, new, or taken for another. Of two that were merged, either may be
    called the one that is left."""
    theirs, ours = {n["name"] for n in before}, {n["name"] for n in after}
    gone, new, wrong = {e["a"]["name"] for e in edits_of(graph, "removed")}, {e["b"]["name"] for e in edits_of(graph, "added")}, 0
    for e in edits_of(graph, "changed"):
        a, b = e["a"]["name"], e["b"]["name"]
        if a == b:
            continue
        kind = graph["explanations"][e["explanation"]]["kind"] if "explanation" in e else None
        if kind == "deduplicated" and b in gone:
            gone = gone - {b} | {a}
        elif kind == "recomputed":            # told as one node that moved to the backward
            gone.add(a), new.add(b)
        else:
            wrong += 1
    return [("nodes gone", len(theirs - ours), len(gone & (theirs - ours))),
            ("nodes gone, said", len(gone), len(theirs - ours)),
            ("nodes new", len(ours - theirs), len(new & (ours - theirs))),
            ("nodes new, said", len(new), len(ours - theirs)),
            ("nodes taken for another", 0, wrong)]


def tagged_by(graph):
    """Nodes that stayed, those that were put off to the backward left out: TorchTitan counts them as copies."""
    def was_put_off(e):
        return "explanation" in e and graph["explanations"][e["explanation"]]["kind"] == "recomputed" and e["a"]["name"] != e["b"]["name"]
    return sum(1 for e in edits_of(graph, "changed") if not was_put_off(e) and any(c["what"] == "recompute" for c in e["changes"]))


SIZES = {"float32": 4, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}


def traffic(graph_file, kind):
    """How many collectives of a kind there are, and what is handed in, from the capture alone; None with symbolic sizes."""
    with gzip.open(graph_file) as f:
        capture = json.load(f)
    types = {x["name"]: x.get("type") for x in capture["inputs"] + capture["nodes"]}
    count = total = 0
    for node in capture["nodes"]:
        if not node["op"].startswith("_c10d_functional." + kind):
            continue
        operand = types[node["args"][0]["ref"]]
        sizes = [operand["shape"]] if all(isinstance(n, int) for n in operand["shape"]) else []
        if not sizes:
            return None
        elements = 1
        for n in sizes[0]:
            elements *= n
        count, total = count + 1, total + elements * SIZES[operand["tensor"].removeprefix("torch.")]
    return count, total


def costs_of(report, kind):
    rows = [r for r in report["costs"] if r["key"].startswith(f"collective:{kind}:")]
    return tuple(sum(r["after"] - r["before"] for r in rows if r["key"].endswith(end)) for end in (":count", ":bytes"))


def chunk_counts(after):
    copies = [n for n in after if chunk(n, "chunk_id") is not None and chunk(n, "chunked_original_name")]
    keys = {(chunk(n, "chunked_region_fqn"), chunk(n, "chunked_region_is_backward"), chunk(n, "chunked_original_name"))
            for n in copies}
    return len(copies), len(keys)


def check(a, b, report, without_chunks):
    """Triples (what, said by TorchTitan, said by sg-diff)."""
    graph = report["programs"][0]["graphs"][0]
    before, after = nodes_of(a), nodes_of(b)
    said = [] if "ep_overlap_chunk" in b.name else identities(before, after, graph)
    if "schedule" not in b.name:          # a pass does a few things, and each has its sentence
        said.append(("edits without explanation", 0, len(graph["edits"]) - graph["counts"]["explained"]))
    new_copies = count(after, is_recomputed) - count(before, is_recomputed)
    if "remat" in b.name:
        ours = facts(graph, "recomputed", "copies") + facts(graph, "recomputed", "relocated")
        said.append(("recomputed nodes", new_copies, ours))
    if "remat" in b.name or "tag" in b.name:
        tagged = {n["name"] for n in before if n.get("recompute")}
        said.append(("nodes tagged",
                     count(after, lambda n: n.get("recompute") and not is_recomputed(n) and n["name"] not in tagged),
                     tagged_by(graph)))
    said.append(("nodes", len(after) - len(before),
                 sum(r["after"] - r["before"] for r in report["costs"] if r["key"] == "nodes")))
    for kind in ("all_gather", "reduce_scatter"):
        then, now = traffic(a, kind), traffic(b, kind)
        if then and now and "bucketing" not in b.name:      # buckets hand in padding, too
            said.append((f"{kind}: more of them, and bytes", (now[0] - then[0], now[1] - then[1]),
                         costs_of(report, kind)))
    if "canonicalize" in b.name:
        ops = {n["name"]: n["op"] for n in before}
        other = count(after, lambda n: n["op"] != ops[n["name"]])
        said.append(("views made reshapes", other, facts(graph, "respelled", "nodes")))
        said.append(("nodes dropped", len(before) - len(after), sum(facts(graph, k, f) for k, f in (
            ("dead", "removed"), ("passed_on", "nodes"), ("deduplicated", "copies")))))
    collective = lambda n: "all_gather" in n["op"].split(".")[1] or "reduce_scatter" in n["op"].split(".")[1]
    real = lambda n: n["op"].startswith("_c10d") and collective(n)
    if "bucketing" in b.name:
        buckets = count(after, lambda n: real(n) and chunk(n, "fsdp_bucket") is not None)
        outside = count(after, lambda n: real(n) and chunk(n, "fsdp_bucket") is None)
        said.append(("buckets", buckets, sum(1 for e in graph["explanations"] if e["kind"] == "merged")))
        said.append(("collectives in buckets", count(before, real) - outside, facts(graph, "merged", "merged")))
    if "ep_overlap_chunk" in b.name:
        copies, originals = chunk_counts(after)
        structure = without_chunks()["programs"][0]["graphs"][0]
        for how, g in (("by metadata", graph), ("by structure", structure)):
            said.append((f"chunk copies {how}", copies, facts(g, "chunked", "copies")))
            said.append((f"chunked nodes {how}", originals, facts(g, "chunked", "originals")))
            said.append((f"edits without explanation, {how}", 0, len(g["edits"]) - g["counts"]["explained"]))
    if "schedule" in b.name or "populate" in b.name or "isolate" in b.name:
        structural = [c for e in graph["edits"] for c in e["changes"] if c["aspect"] in ("op", "operand", "attribute", "type")]
        moves = sum(1 for e in graph["edits"] for c in e["changes"] if c["aspect"] == "order")
        said.append(("added and removed", 0, graph["counts"]["added"] + graph["counts"]["removed"]))
        if "isolate" in b.name:
            said.append(("exchanges in another group", count(after, lambda n: "all_to_all" in n["op"]),
                         facts(graph, "regrouped", "nodes")))
            said.append(("changed ops, operands, literals, types", len(structural), facts(graph, "regrouped", "nodes")))
        else:
            said.append(("changed ops, operands, literals, types", 0, len(structural)))
        said.append(("moved", least_moves(before, after) if "schedule" in b.name else 0, moves))
    return said


def least_moves(before, after):
    """By name: nodes outside of the longest run in one order."""
    import bisect
    place = {n["name"]: i for i, n in enumerate(after)}
    run = [place[n["name"]] for n in before if n["name"] in place]
    tails = []
    for p in run:
        at = bisect.bisect_left(tails, p)
        tails[at:at + 1] = [p]
    return len(run) - len(tails)


def strip_chunks(text):
    return re.sub(r" chunk (all|\d+) in \S+ role \S+ from \S+( original \S+)?( backward (true|false))?( chunks \[[^\]]*\])?", "", text)


def diff_without_chunks(bin_dir, folder):
    for side in "ab":
        text = run(bin_dir / "sg-print", f"{folder}/{side}.sg").stdout
        Path(f"{folder}/{side}.txt").write_text(strip_chunks(text))
        run(bin_dir / "sg-parse", "-q", f"{folder}/{side}.txt", "-o", f"{folder}/{side}-bare.sg")
    graphs = [f"{folder}/a-bare.sg", f"{folder}/b-bare.sg"]
    return json.loads(run(bin_dir / "sg-diff", "--json", "--no-cost", *graphs, ok=(0, 1)).stdout)


def summary(text):
    """Up to the first hunk, and the costs but for the simulated time, which is not the diff's to keep."""
    head, _, rest = text.partition("\n@@ ")
    costs = rest[rest.rfind("\n\n"):] if rest else ""
    return head.rstrip("\n") + "\n" + (costs if "before" in costs else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if not PEERS.exists():
        return skip(f"no captures of other systems' passes at {PEERS}")
    schema = json.loads((ROOT.parent / "schema" / "sg-diff.schema.json").read_text())
    bin_dir, failed, pairs = Path(args.bin).resolve(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for policy in sorted({p.parent for p in PEERS.glob("*/*/[0-9][0-9]-*.json.gz")}):
            stages = sorted(policy.glob("[0-9][0-9]-*.json.gz"))
            if policy.name == "full":       # its first stages are those of `default`
                stages = sorted((policy.parent / "default").glob("02-*.json.gz")) + stages
            for a, b in zip(stages, stages[1:]):
                name = f"{policy.parent.name}-{policy.name}-{a.name[:2]}-{b.name[:2]}"
                for source, target in ((a, "a.sg"), (b, "b.sg")):
                    run(bin_dir / "sg-import", "-q", source, "-o", f"{folder}/{target}")
                report = json.loads(run(bin_dir / "sg-diff", "--json", f"{folder}/a.sg", f"{folder}/b.sg",
                                        ok=(0, 1)).stdout)
                text = run("sh", "-c", f"cd {folder} && {bin_dir}/sg-diff --machine none a.sg b.sg", ok=(0, 1)).stdout
                check_schema(report, schema)
                pairs += 1
                for what, theirs, ours in check(a, b, report, lambda: diff_without_chunks(bin_dir, folder)):
                    ok = theirs == ours
                    failed += not ok
                    print(f"{'ok  ' if ok else 'FAIL'} {name}: {what}: TorchTitan {theirs}, sg-diff {ours}")
                golden = GOLDEN / f"{name}.txt"
                if args.update:
                    GOLDEN.mkdir(parents=True, exist_ok=True)
                    golden.write_text(summary(text))
                elif not golden.exists() or golden.read_text() != summary(text):
                    failed += 1
                    print(f"FAIL {name}: the summary is not {golden}; --update writes it")
    print(f"{pairs} pairs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
