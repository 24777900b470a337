#!/usr/bin/env python3
"""run_memory_table.py --bin BIN [--only TEXT]: planned peaks of recomputed steps, ours beside TorchTitan's own stages of the same graphs.

Graphs are files of ../shared/traces; rank 0, `--spmd`. Peaks are what sg-run --plan says of each graph, flops what sg-stat counts. Memory
is planned and not measured, so a busy machine gives the same figures; pass times are left to make bench. Three tables: against TorchTitan's stage
behind recomputation; deep graphs against TorchTitan's graph after all of its passes; real sizes under each policy and budget.
"""
import argparse
import json
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))
CHOICES = [('default', ['--policy', 'default']), ('full', ['--policy', 'full']),
           *((f'budget {b}', ['--budget', b]) for b in ('0.75', '0.5', '0.25', '0.1', '0'))]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done.stdout


class Bench:
    def __init__(self, bin_dir, folder):
        self.bin, self.folder = bin_dir, folder

    def tool(self, name):
        return os.path.join(self.bin, name)

    def file(self, name):
        return os.path.join(self.folder, name)

    def load(self, source, name, clean=False):
        run(self.tool('sg-import'), '-q', f'{TRACES}/{source}', '--spmd', '-o', self.file(name))
        if clean:
            run(self.tool('sg-clean'), '-q', self.file(name), '--in-place')
        return self.file(name)

    def remat(self, graph, options, name='remat.sg'):
        run(self.tool('sg-remat'), '-q', graph, *options, '-o', self.file(name))
        return self.file(name)

    def measure(self, graph):
        peak = json.loads(run(self.tool('sg-run'), '-q', graph, '--plan', '--json'))['plans'][0]['peak_bytes']
        return peak, json.loads(run(self.tool('sg-stat'), '-q', graph, '--json'))['flops']


def against_stages(bench, only):
    print(f'{"graph":14} {"policy":8} {"untouched":>12} {"peer":>12} {"ours":>12} {"ours/peer":>9} {"flops ours/peer":>15}')
    for graph in ('llama3-fsdp4', 'dsv3-ep4'):
        if only not in graph:
            continue
        before, _ = bench.measure(bench.load(f'peer/{graph}/default/02-canonicalize_graph.json.gz', 'untouched.sg'))
        clean = bench.load(f'peer/{graph}/default/02-canonicalize_graph.json.gz', 'clean.sg', clean=True)
        for policy in ('default', 'full'):
            peer = bench.measure(bench.load(f'peer/{graph}/{policy}/06-selective_activation_remat.json.gz', 'peer.sg'))
            ours = bench.measure(bench.remat(clean, ['--policy', policy]))
            print(f'{graph:14} {policy:8} {before:12} {peer[0]:12} {ours[0]:12} {ours[0] / peer[0]:9.3f} {ours[1] / peer[1]:15.3f}', flush=True)


def curves(bench, title, graphs, only):
    """Each choice as peak, part of the untouched peak, and flops beside those of the untouched graph."""
    print(f'\n{title}\n{"graph":24} {"choice":12} {"peak":>15} {"of untouched":>12} {"flops":>7}')
    for name, source, peer in graphs:
        if only not in name:
            continue
        clean = bench.load(source, 'clean.sg', clean=True)
        before = bench.measure(clean)
        print(f'{name:24} {"none":12} {before[0]:15} {1:12.3f} {1:7.3f}', flush=True)
        rows = [(choice, bench.measure(bench.remat(clean, options))) for choice, options in CHOICES]
        if peer:
            rows.append(('TorchTitan', bench.measure(bench.load(peer, 'peer.sg'))))
        for choice, (peak, flops) in rows:
            print(f'{"":24} {choice:12} {peak:15} {peak / before[0]:12.3f} {flops / before[1]:7.3f}', flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        raise SystemExit('SKIPPED: ../shared/traces is absent')
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.bin, folder)
        against_stages(bench, args.only)
        curves(bench, 'deep graphs; TorchTitan: its default policy and all of its passes',
               [(name, f'deep/{name}/step.json.gz', f'deep/{name}/after-all-default.json.gz')
                for name in ('llama3-deep', 'dsv3-deep')], args.only)
        curves(bench, 'real sizes', [(name, f'shape/{name}/step.json.gz',
                                      f'shape/{name}/after-all-default.json.gz' if name.startswith('dsv3') else None)
                                     for name in sorted(os.listdir(f'{TRACES}/shape'))], args.only)


if __name__ == '__main__':
    main()
