#!/usr/bin/env python3
"""run_memory_table.py --bin BIN: planned peaks of recomputed steps, ours beside TorchTitan's own stages of the same graphs.

TorchTitan's stages are files of ../shared/traces/peer; rank 0, `--spmd`. Peaks are what sg-run --plan says of each graph, flops what sg-stat counts.
"""
import argparse
import json
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done.stdout


def measure(tool, graph):
    peak = json.loads(run(tool('sg-run'), graph, '--plan', '--json'))['plans'][0]['peak_bytes']
    return peak, json.loads(run(tool('sg-stat'), graph, '--json'))['flops']


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    args = parser.parse_args()
    tool = lambda name: os.path.join(args.bin, name)  # noqa: E731
    if not os.path.isdir(TRACES):
        raise SystemExit('SKIPPED: ../shared/traces is absent')
    print(f'{"graph":14} {"policy":8} {"untouched":>12} {"peer":>12} {"ours":>12} {"ours/peer":>9} {"flops ours/peer":>15}')
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)  # noqa: E731
        for graph in ('llama3-fsdp4', 'dsv3-ep4'):
            run(tool('sg-import'), '-q', f'{TRACES}/peer/{graph}/default/02-canonicalize_graph.json.gz', '--spmd', '-o', file('clean.sg'))
            run(tool('sg-clean'), '-q', file('clean.sg'), '-o', file('ours.sg'))
            before, _ = measure(tool, file('clean.sg'))
            for policy in ('default', 'full'):
                run(tool('sg-import'), '-q', f'{TRACES}/peer/{graph}/{policy}/06-selective_activation_remat.json.gz', '--spmd', '-o', file('peer.sg'))
                run(tool('sg-remat'), '-q', file('ours.sg'), '--policy', policy, '-o', file('remat.sg'))
                peer, ours = measure(tool, file('peer.sg')), measure(tool, file('remat.sg'))
                print(f'{graph:14} {policy:8} {before:12} {peer[0]:12} {ours[0]:12} {ours[0] / peer[0]:9.3f} {ours[1] / peer[1]:15.3f}')


if __name__ == '__main__':
    main()
