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
import subprocess
import sys
import tempfile

from tables import Table, copied_bytes, copy_count, need_traces, print_table, run, size

KINDS = ('all_gather', 'reduce_scatter', 'all_reduce')
ROWS = [('llama3-fsdp4', 'default', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('llama3-fsdp4', 'full', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'default', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'full', '06-selective_activation_remat', '07-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4', 'graphchunk', '09-isolate_ep_process_group', '11-joint_transformer_block_bucketing_reordering'),
        ('dsv3-ep4-eagerchunk2', 'eagerchunk', '08-isolate_ep_process_group',
         '10-joint_transformer_block_bucketing_reordering')]
FINALS = ['deep/llama3-deep', 'deep/dsv3-deep', 'shape/dsv3-16b-ep32']


class BucketTable(Table):
    def measure(self, graph):
        stat = self.stat_by_op(graph)
        moved = [c for c in stat['collectives'] if c['kind'] in KINDS]
        return {'collectives': sum(c['count'] for c in moved), 'payload': sum(c['bytes'] for c in moved),
                'copies': copy_count(stat), 'copied': copied_bytes(stat, moved),
                'peak': stat['memory']['peak_bytes'],
                'exposed': self.exposed(graph)}

    def exposed(self, graph):
        """As text; none where nothing bounds the sizes that only the data decides."""
        done = subprocess.run([self.tool('sg-sim'), graph, '--json'], capture_output=True, text=True)
        if done.returncode != 0:
            return '-'
        sim = json.loads(done.stdout)
        return f'{100 * sum(sim["exposed_us"].get(kind, 0) for kind in KINDS) / sim["makespan_us"]:.1f} %'



def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--md', action='store_true', help='as the table of docs/results/bucketing.md')
    args = parser.parse_args()
    need_traces()
    head = ('graph', 'collectives: before', 'theirs', 'ours', 'sent: theirs', 'ours', 'copies: theirs', 'ours',
            'copied: theirs', 'ours', 'exposed: before', 'theirs', 'ours')
    lines, worse = [], []
    with tempfile.TemporaryDirectory() as folder:
        table = BucketTable(args.bin, folder)
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
    print_table(head, lines, args.md)
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
