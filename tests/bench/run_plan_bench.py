#!/usr/bin/env python3
"""run_plan_bench.py --bin BIN [--runs K] [--nodes N] [--traces DIR]: how good memory plans are, and how long they take.

Prints the machine, then a row a graph: planned / live at once (target 1.02) and the median milliseconds of K runs for
liveness and for the plan (target 500 together for 20,000 nodes). The graphs: a generated one of N nodes, and the shared
captures where that folder is present; all that reach the bound at once are summed up in one line.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

from machine import machine


def plans(tool, graph, runs):
    """A list of (nodes, ratio, liveness ms, plan ms), one a program."""
    out = subprocess.run([tool('plan_job'), '--runs', str(runs), graph], check=True, capture_output=True,
                         text=True).stdout
    rows = [line.split('\t') for line in out.splitlines()]
    return [(int(r[1].split()[0]), float(r[5]), float(r[6].split()[0]), float(r[7].split()[0])) for r in rows]


def show(name, row, note=''):
    nodes, ratio, liveness_ms, plan_ms = row
    print(f'{name:76} {nodes:6} nodes  {ratio:.5f}  {liveness_ms:7.1f} + {plan_ms:6.1f} ms {note}', flush=True)


def captures(tool, traces, folder):
    for source in sorted(glob.glob(os.path.join(traces, '**/*.json*'), recursive=True)):
        if 'scalars' in source:
            continue
        graph = os.path.join(folder, 'step.sg')
        for options in (['--spmd'], []):
            if subprocess.run([tool('sg-import'), '-q', *options, source, '-o', graph],
                              capture_output=True).returncode == 0:
                yield os.path.relpath(source, traces), graph
                break
        else:
            sys.exit(f'{source}: no import')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--nodes', type=int, default=20000)
    parser.add_argument('--traces', default='../shared/traces')
    options = parser.parse_args()
    print('machine:', machine())
    with tempfile.TemporaryDirectory() as folder:
        tool = lambda name: os.path.join(options.bin, name)
        made = os.path.join(folder, 'made.sg')
        subprocess.run([tool('make_job'), '--nodes', str(options.nodes), '--seed', '1', '--plain', '-o', made],
                       check=True)
        show('generated', plans(tool, made, options.runs)[0], 'target 500 ms for 20,000 nodes')
        if not os.path.isdir(options.traces):
            print(f'SKIPPED: the shared captures ({options.traces}) are absent')
            return
        rows = [(name, row) for name, graph in captures(tool, options.traces, folder)
                for row in plans(tool, graph, options.runs)]
        perfect = [r for r in rows if r[1][1] <= 1.0005 and r[1][3] < 100]
        for name, row in rows:
            if (name, row) not in perfect:
                show(name, row)
        print(f'{len(perfect)} more of {len(rows)}: within 1.0005 of the bound, each in less than 100 ms')
        worst = max(rows, key=lambda r: r[1][1])
        print(f'largest planned / live at once: {worst[1][1]:.5f} ({worst[0]}), target 1.02')


if __name__ == '__main__':
    main()
