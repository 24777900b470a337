#!/usr/bin/env python3
"""run_diff_bench.py [--bin DIR] [--runs N]: how long sg-diff takes, by the size of the graphs.

Graphs of repeated layers with 1 % of their nodes edited, from 2,000 to 200,000 nodes; and every two neighbouring stages of a
mixture-of-experts job of 4 ranks, where ../shared/traces is there. Wall seconds, median of N runs, reading, verifying,
comparing and printing included; `compare` is the comparison alone.
"""
import argparse
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from machine import machine

ROOT = Path(__file__).resolve().parent.parent.parent


def measure(command, runs):
    walls, phases = [], []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        walls.append(time.perf_counter() - start)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr)
        phases.append(float(re.search(r"compare: ([0-9.]+) s", done.stderr).group(1)))
    return statistics.median(walls), statistics.median(phases), len(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    tools = Path(args.bin).resolve()
    print(f"{machine()}; median of {args.runs}")
    print(f"{'nodes':>8} {'compare':>9} {'us/node':>8} {'all':>9} {'with costs':>11}")
    with tempfile.TemporaryDirectory() as folder:
        a, b = f"{folder}/a.sg", f"{folder}/b.sg"
        for nodes in (2_000, 5_000, 20_000, 50_000, 200_000):
            subprocess.run([tools.parent / "tests" / "edit_job", str(nodes), "1", "1", a, b], check=True)
            wall, compare, _ = measure([tools / "sg-diff", "-v", "--no-cost", a, b], args.runs)
            costs, _, _ = measure([tools / "sg-diff", "-v", a, b], args.runs)
            print(f"{nodes:>8} {compare:>8.3f}s {1e6 * compare / nodes:>8.2f} {wall:>8.3f}s {costs:>10.3f}s")
        for root in (ROOT.parent / "shared", ROOT.parent.parent / "shared"):
            stages = root / "traces" / "peer" / "dsv3-ep4"
            if not stages.exists():
                continue
            pairs = [(root / "traces" / "multi" / "dsv3-ep4" / "rank{r}" / "step.json.gz", stages / p / "rank{r}" / "final.json.gz") for p in ("default", "full", "graphchunk")]
            for before, after in pairs:
                for source, target in ((before, a), (after, b)):
                    pattern = str(source) if Path(str(source).replace("{r}", "0")).exists() else str(source)[:-3]
                    subprocess.run([tools / "sg-import", "-q", pattern, "-o", target], check=True)
                wall, compare, _ = measure([tools / "sg-diff", "-v", "--no-cost", a, b], args.runs)
                costs, _, _ = measure([tools / "sg-diff", "-v", a, b], args.runs)
                print(f"4 ranks, step to {after.parent.parent.name} final: compare {compare:.3f} s, all {wall:.3f} s, with costs {costs:.3f} s")


if __name__ == "__main__":
    main()
