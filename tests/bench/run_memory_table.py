#!/usr/bin/env python3
"""run_memory_table.py --bin BIN [--only TEXT]: planned peaks of recomputed steps, ours beside TorchTitan's own stages of the same graphs.

Graphs are files of ../shared/traces; rank 0, `--spmd`. Peaks are what sg-run --plan says of each graph, flops what sg-stat counts. Memory
is planned and not measured, so a busy machine gives the same figures; pass times are left to make bench. Three tables: against TorchTitan's stage
behind recomputation; deep graphs against TorchTitan's graph after all of its passes; real sizes under each policy and budget.
"""
import argparse
import os
import tempfile

from tables import TRACES, Table, need_traces, run

CHOICES = [('default', ['--policy', 'default']), ('full', ['--policy', 'full']),
           *((f'budget {b}', ['--budget', b]) for b in ('0.75', '0.5', '0.25', '0.1', '0'))]


class MemoryTable(Table):
    def clean(self, source):
        graph = self.bring(source, 'clean.sg')
        run(self.tool('sg-clean'), '-q', graph, '--in-place')
        return graph

    def remat(self, graph, options, name='remat.sg'):
        run(self.tool('sg-remat'), '-q', graph, *options, '-o', self.file(name))
        return self.file(name)

    def measure(self, graph):
        return self.plan(graph)['peak_bytes'], self.stat(graph)['flops']


def against_stages(table, only):
    print(f'{"graph":14} {"policy":8} {"untouched":>12} {"peer":>12} {"ours":>12} {"ours/peer":>9} {"flops ours/peer":>15}')
    for graph in ('llama3-fsdp4', 'dsv3-ep4'):
        if only not in graph:
            continue
        before, _ = table.measure(table.bring(f'peer/{graph}/default/02-canonicalize_graph', 'untouched.sg'))
        clean = table.clean(f'peer/{graph}/default/02-canonicalize_graph')
        for policy in ('default', 'full'):
            peer = table.measure(table.bring(f'peer/{graph}/{policy}/06-selective_activation_remat', 'peer.sg'))
            ours = table.measure(table.remat(clean, ['--policy', policy]))
            print(f'{graph:14} {policy:8} {before:12} {peer[0]:12} {ours[0]:12} {ours[0] / peer[0]:9.3f} {ours[1] / peer[1]:15.3f}', flush=True)


def curves(table, title, graphs, only):
    """Each choice as peak, part of the untouched peak, and flops beside those of the untouched graph."""
    print(f'\n{title}\n{"graph":24} {"choice":12} {"peak":>15} {"of untouched":>12} {"flops":>7}')
    for name, source, peer in graphs:
        if only not in name:
            continue
        clean = table.clean(source)
        before = table.measure(clean)
        print(f'{name:24} {"none":12} {before[0]:15} {1:12.3f} {1:7.3f}', flush=True)
        rows = [(choice, table.measure(table.remat(clean, options))) for choice, options in CHOICES]
        if peer:
            rows.append(('TorchTitan', table.measure(table.bring(peer, 'peer.sg'))))
        for choice, (peak, flops) in rows:
            print(f'{"":24} {choice:12} {peak:15} {peak / before[0]:12.3f} {flops / before[1]:7.3f}', flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    need_traces()
    with tempfile.TemporaryDirectory() as folder:
        table = MemoryTable(args.bin, folder)
        against_stages(table, args.only)
        curves(table, 'deep graphs; TorchTitan: its default policy and all of its passes',
               [(name, f'deep/{name}/step', f'deep/{name}/after-all-default')
                for name in ('llama3-deep', 'dsv3-deep')], args.only)
        curves(table, 'real sizes', [(name, f'shape/{name}/step',
                                      f'shape/{name}/after-all-default' if name.startswith('dsv3') else None)
                                     for name in sorted(os.listdir(f'{TRACES}/shape'))], args.only)


if __name__ == '__main__':
    main()
