"""What the tables of our figures beside other systems' share: traces, tools in a scratch folder, and how a table looks."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import TRACES, Workbench, skip  # noqa: E402

# Nodes that copy: casts, clones, cats, packing and cutting apart.
COPIES = ('aten._to_copy.default', 'aten.clone.default', 'aten.cat.default', 'aten.copy_.default', 'aten.copy.default',
          'aten.split_with_sizes_copy.default',
          'aten.split_with_sizes_copy.out', 'bucketing._pre_bucket_all_gather.default',
          'bucketing._pre_bucket_reduce_scatter.default', 'sg.pack')


def run(*command, **more):
    """The finished process. Where it fails, so does the script, with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done


def need_traces():
    """Ends the script, as skipped, where they are not here."""
    if not os.path.isdir(TRACES):
        raise SystemExit(skip('../shared/traces is absent'))


class Table(Workbench):
    """Graphs of ../shared/traces, rank 0 for all (--spmd), and what the tools say of them."""

    def bring(self, source, name, ending='.json.gz'):
        run(self.tool('sg-import'), '-q', f'{TRACES}/{source}{ending}', '--spmd', '-o', self.file(name))
        return self.file(name)

    def stat(self, graph, *options):
        return json.loads(run(self.tool('sg-stat'), '-q', graph, '--json', *options).stdout)

    def stat_by_op(self, graph):
        return self.stat(graph, '--by', 'op', '--rows', '1000')

    def plan(self, graph):
        return json.loads(run(self.tool('sg-run'), '-q', graph, '--plan', '--json').stdout)['plans'][0]


def copy_count(stat):
    return sum(stat['by_op'][op]['nodes'] for op in COPIES if op in stat['by_op'])


def copied_bytes(stat, moved):
    """What the nodes that copy read and write; of `moved`, collectives, packing for a gather leaves the others' parts alone."""
    ops = stat['by_op']
    copied = sum(ops[op]['bytes'] for op in COPIES if op in ops)
    if 'bucketing._pre_bucket_all_gather.default' in ops:
        copied -= sum(c['wire_bytes'] for c in moved if c['kind'] == 'all_gather')
    return copied


def size(n):
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if n < 1024 or unit == 'GiB':
            return f'{n:.4g} {unit}'
        n /= 1024


def print_table(head, rows, markdown=False):
    """Columns of words; the first to the left, the others to the right."""
    if markdown:
        print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
        for row in rows:
            print('| ' + ' | '.join(row) + ' |')
        return
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    for line in [head, *rows]:
        print('  '.join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths))))
