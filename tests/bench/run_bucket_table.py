#!/usr/bin/env python3
"""run_bucket_table.py --bin BIN [--md]: sg-bucket beside TorchTitan's bucketing of the same graphs: collectives, copies, bytes, simulated exposure.

Each row takes the graph that went into TorchTitan's pass (rank 0, `--spmd`), lets sg-bucket work on it, and holds the result against the graph that came out of theirs.
Rows marked + are steps of which only the end of their pipeline is known: ours are cleaned, recomputed, isolated and bucketed, and what is gathered again is another choice
than theirs. Nothing is timed: counts and simulated times. Fails when ours has more collectives or copies, or, from the same graph, sends or copies more.

  collectives  gathers and reductions, by sg-stat; those for tokens are the same on both sides
  copies       nodes that copy: casts, clones, cats, packing and cutting apart, of the whole graph
  copied       what they read and write (sg-stat); of TorchTitan's packing only the rank's own part of the gathered buffer
  exposed      share of the step that waits for gathers and reductions on `h100-8` (sg-sim), before, theirs, ours
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))
COPIES = ('aten._to_copy.default', 'aten.clone.default', 'aten.cat.default', 'aten.copy_.default', 'aten.copy.default',
          'aten.split_with_sizes_copy.default',
          'aten.split_with_sizes_copy.out', 'bucketing._pre_bucket_all_gather.default',
          'bucketing._pre_bucket_reduce_scatter.default', 'sg.pack')
KINDS = ('all_gather', 'reduce_scatter', 'all_reduce')
ROWS = [('llama3-fsdp4', 'default', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('llama3-fsdp4', 'full', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'default', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'full', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'graphchunk', '09-isolate_ep_process_group', '11-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4-eagerchunk2', 'eagerchunk', '08-isolate_ep_process_group',
         '10-joint_transformer_block_bucketing_reordering')]
FINALS = ['deep/llama3-deep', 'deep/dsv3-deep', 'shape/dsv3-16b-ep32']


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done.stdout


class Table:
    def __init__(self, bin_dir, folder):
        self.bin, self.folder = bin_dir, folder

    def tool(self, name):
        return os.path.join(self.bin, name)

    def file(self, name):
        return os.path.join(self.folder, name)

    def bring(self, source, name):
        run(self.tool('sg-import'), '-q', f'{TRACES}/{source}.json.gz', '--spmd', '-o', self.file(name))
        return self.file(name)

    def measure(self, graph):
        stat = json.loads(run(self.tool('sg-stat'), graph, '--json', '--by', 'op', '--rows', '1000'))
        moved = [c for c in stat['collectives'] if c['kind'] in KINDS]
        ops = stat['by_op']
        copied = sum(ops[op]['bytes'] for op in COPIES if op in ops)
        if 'bucketing._pre_bucket_all_gather.default' in ops:
            # the other ranks' parts, which it leaves alone
            copied -= sum(c['wire_bytes'] for c in moved if c['kind'] == 'all_gather')
        exposed = self.exposed(graph)
        return {'collectives': sum(c['count'] for c in moved), 'payload': sum(c['bytes'] for c in moved),
                'nodes': stat['nodes'],
                'copies': sum(ops[op]['nodes'] for op in COPIES if op in ops), 'copied': copied,
                'peak': stat['memory']['peak_bytes'],
                'exposed': exposed}

    def exposed(self, graph):
        """As text; none where nothing bounds the sizes that only the data decides."""
        done = subprocess.run([self.tool('sg-sim'), graph, '--json'], capture_output=True, text=True)
        if done.returncode != 0:
            return '-'
        sim = json.loads(done.stdout)
        return f'{100 * sum(sim["exposed_us"].get(kind, 0) for kind in KINDS) / sim["makespan_us"]:.1f} %'



def size(n):
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if n < 1024 or unit == 'GiB':
            return f'{n:.4g} {unit}'
        n /= 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--md', action='store_true', help='as the table of docs/results/bucketing.md')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        raise SystemExit('SKIPPED: ../shared/traces is absent')
    head = ('graph', 'collectives: before', 'theirs', 'ours', 'sent: theirs', 'ours', 'copies: theirs', 'ours',
            'copied: theirs', 'ours', 'exposed: before', 'theirs', 'ours')
    lines, worse = [head], []
    with tempfile.TemporaryDirectory() as folder:
        table = Table(args.bin, folder)
        for graph, policy, before, after in ROWS:
            source = table.bring(f'peer/{graph}/{policy}/{before}', 'before.sg')
            theirs = table.measure(table.bring(f'peer/{graph}/{policy}/{after}', 'theirs.sg'))
            run(table.tool('sg-bucket'), '-q', source, '-o', table.file('ours.sg'))
            lines.append(row(f'{graph} {policy}', table.measure(source), theirs, table.measure(table.file('ours.sg')),
                             worse))
        for graph in FINALS:
            source = table.bring(f'{graph}/step', 'step.sg')
            theirs = table.measure(table.bring(f'{graph}/after-all-default', 'theirs.sg'))
            run(table.tool('sg-clean'), '-q', source, '-o', table.file('clean.sg'))
            run(table.tool('sg-remat'), '-q', table.file('clean.sg'), '-o', table.file('remat.sg'))
            run(table.tool('sg-overlap'), '-q', table.file('remat.sg'), '--isolate-only', '-o',
                table.file('isolated.sg'))
            run(table.tool('sg-bucket'), '-q', table.file('isolated.sg'), '-o', table.file('ours.sg'))
            lines.append(row(f'{graph} +', table.measure(table.file('remat.sg')), theirs,
                             table.measure(table.file('ours.sg')), worse))
    if args.md:
        print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
        for line in lines[1:]:
            print('| ' + ' | '.join(line) + ' |')
    else:
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        for line in lines:
            print('  '.join(cell.ljust(width) if i == 0 else cell.rjust(width)
                            for i, (cell, width) in enumerate(zip(line, widths))))
    for line in worse:
        print(f'WORSE THAN THEIRS: {line}')
    return 1 if worse else 0


def row(name, before, theirs, ours, worse):
    for key in ('collectives', 'payload', 'copies', 'copied', *(('peak',) if name.endswith('+') else ())):
        if ours[key] > theirs[key]:
            worse.append(f'{name}: {key} {ours[key]} and {theirs[key]}')
    return (name, str(before['collectives']), str(theirs['collectives']), str(ours['collectives']),
            size(theirs['payload']), size(ours['payload']),
            str(theirs['copies']), str(ours['copies']), size(theirs['copied']), size(ours['copied']),
            before['exposed'], theirs['exposed'], ours['exposed'])


if __name__ == '__main__':
    sys.exit(main())
