#!/usr/bin/env python3
"""run_chunk_table.py --bin BIN [--md] [--runs K] [--large]: sg-chunk beside TorchTitan's graph chunking: counts of the same graph, and times.

counts  sg-chunk works on the graph that went into TorchTitan's chunk pass (rank 0, --spmd), and the result is held against the graph that came
        out of theirs. Rows marked + are steps of which only the end of their pipeline is known: of those the exchanges are compared. Fails where
        ours has more of anything that is counted.
times   all MoE layers of the deep and the real-size step, and the numbers put for the symbols behind it: what `-v` says of the pass itself (the
        verification of what it wrote included) and of all phases (reading, verifying, writing), median of K runs, beside TorchTitan's Python pass. --large: the deep step
        with its layers again and again, to 200,000 nodes, for how the time grows; with symbols for its sizes, so that they can be made numbers.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

from tables import Table, need_traces, print_table, run

MODULES = 'layers.*.moe'
COUNTED = {'exchanges': ['_c10d_functional.all_to_all_single.default'],
           'gathers': ['_c10d_functional.all_gather_into_tensor.default'],
           'reduce-scatters': ['_c10d_functional.reduce_scatter_tensor.default'],
           'splits': ['aten.split_with_sizes.default', 'aten.split.Tensor'],
           'cats': ['aten.cat.default'], 'adds': ['aten.add.Tensor'], 'clones': ['aten.clone.default']}
SAME = [('peer/dsv3-ep4/graphchunk/07-populate_chunk_dim_metadata', 'peer/dsv3-ep4/graphchunk/08-ep_overlap_chunk')]
FINALS = [('deep/dsv3-deep/step-dynamic', 'deep/dsv3-deep/after-all-graphchunk'),
          ('shape/dsv3-16b-ep32/step-dynamic', 'shape/dsv3-16b-ep32/after-all-graphchunk-mathattention')]
# wall seconds of the Python passes on a machine of this class: peer/torchtitan-pass-times.tsv
TIMED = [('deep/dsv3-deep', 'u0=128', 25.7, 17.4), ('shape/dsv3-16b-ep32', 'u0=16384', 97.7, 58.1)]


class ChunkTable(Table):
    def __init__(self, bin_dir, folder, markdown):
        super().__init__(bin_dir, folder)
        self.markdown, self.worse = markdown, []

    def counts(self, graph):
        ops = self.stat_by_op(graph)['by_op']
        return {what: sum(ops.get(op, {}).get('nodes', 0) for op in names) for what, names in COUNTED.items()}

    def print(self, head, rows):
        print_table(head, rows, self.markdown)
        print()

    def hold(self, graph, ours, theirs, whats):
        for what in whats:
            if ours[what] > theirs[what]:
                self.worse.append(f'{graph}: {ours[what]} {what}, theirs {theirs[what]}')

    def compare(self):
        rows = []
        for before, after in SAME:
            source = self.bring(before, 'before.sg')
            run(self.tool('sg-chunk'), '-q', source, '--modules', MODULES, '-o', self.file('ours.sg'))
            was, theirs, ours = self.counts(source), self.counts(self.bring(after, 'theirs.sg')), self.counts(self.file('ours.sg'))
            self.hold(before, ours, theirs, COUNTED)
            rows += [(before.split('/')[1], what, str(was[what]), str(theirs[what]), str(ours[what]))
                     for what in COUNTED]
        for before, after in FINALS:
            source = self.bring(before, 'before.sg')
            for tool, words in (('sg-clean', []), ('sg-remat', []), ('sg-chunk', ['--modules', MODULES])):
                run(self.tool(tool), '-q', source, *words, '-o', self.file('next.sg'))
                os.replace(self.file('next.sg'), self.file('before.sg'))
            theirs, ours = self.counts(self.bring(after, 'theirs.sg')), self.counts(self.file('before.sg'))
            self.hold(before, ours, theirs, ['exchanges'])
            rows.append((before.split('/')[1] + ' +', 'exchanges', '-', str(theirs['exchanges']),
                         str(ours['exchanges'])))
        self.print(('graph', 'count', 'before', 'theirs', 'ours'), rows)

    def seconds(self, runs, tool, *command):
        """Of the pass alone, of everything that the process says it did, and of the processor, which a loaded machine changes less."""
        alone, all_of_it, processor = [], [], []
        for _ in range(runs):
            with open(self.file('said'), 'w+') as log:
                process = subprocess.Popen([self.tool(tool), '-v', *command], stdout=log, stderr=log)
                _, status, usage = os.wait4(process.pid, 0)
                log.seek(0)
                text = log.read()
            if status != 0:
                raise SystemExit(text)
            said = re.findall(r'^sg-\w+: (\w+): .* ([0-9.]+) s$', text, re.M)
            alone.append(sum(float(s) for phase, s in said if f'sg-{phase}' == tool))
            all_of_it.append(sum(float(s) for _, s in said))
            processor.append(usage.ru_utime + usage.ru_stime)
        return statistics.median(alone), statistics.median(all_of_it), statistics.median(processor)

    def time(self, runs):
        rows = []
        for graph, bound, chunk_theirs, concrete_theirs in TIMED:
            source, chunked = self.bring(f'{graph}/step-dynamic', 'step.sg'), self.file('chunked.sg')
            for what, tool, theirs, target, words in (('chunk', 'sg-chunk', chunk_theirs, 0.2,
                                                       [source, '--modules', MODULES, '-o', chunked]),
                                                      ('concretize', 'sg-concretize', concrete_theirs, 0.1,
                                                       [chunked, '--bind', bound, '-o', self.file('numbers.sg')])):
                alone, everything, processor = self.seconds(runs, tool, *words)
                rows.append((graph, what, f'{alone:.3f} s', f'{everything:.3f} s', f'{processor:.3f} s', f'{target} s',
                             f'{theirs} s'))
        self.print(('graph', 'what', 'the pass', 'all phases', 'processor', 'target', 'TorchTitan'), rows)

    def grow(self, runs):
        text = run(self.tool('sg-print'), '-q', self.bring('deep/dsv3-deep/step-dynamic', 'step.sg')).stdout
        rows = []
        for times in (1, 2, 4, 8, 14):
            graph, chunked = self.file('large.sg'), self.file('chunked.sg')
            with open(self.file('large.txt'), 'w') as file:
                file.write(repeated(text, times))
            run(self.tool('sg-parse'), '-q', self.file('large.txt'), '-o', graph)
            sizes = [word for k in range(times) for word in ('--bind', f'u{k}_0=128')]
            for what, tool, words in (('chunk', 'sg-chunk', [graph, '--modules', MODULES, '-o', chunked]),
                                      ('concretize', 'sg-concretize', [chunked, *sizes, '-o', self.file('numbers.sg')])):
                nodes = self.stat(words[0])['nodes']
                alone, everything, processor = self.seconds(runs, tool, *words)
                rows.append((what, str(nodes), f'{alone:.3f} s', f'{everything:.3f} s', f'{processor:.3f} s',
                             f'{1e6 * alone / nodes:.1f} us'))
        self.print(('what', 'nodes', 'the pass', 'all phases', 'processor', 'a node'), rows)


def repeated(text, times):
    """The step several times, one behind the other, with names, symbols, modules and inputs of their own."""
    lines = text.split('\n')
    begin = next(i for i, line in enumerate(lines) if line.startswith('graph rank'))
    first = next(i for i, line in enumerate(lines) if re.match(r'  (forward|backward) ', line))
    last = next(i for i in range(first, len(lines)) if re.match(r'  (loss|grad|output|buffer|none|opaque)\b', lines[i]))
    own = lambda line, k: re.sub(r'\blayers\.', f'layers.{k}_', re.sub(r'\bu(\d+)\b', rf'u{k}_\1', re.sub(r'(%|\blabel )([A-Za-z_])', rf'\1r{k}_\2', line)))
    parts = [lines[:begin + 1]]
    for block in (lines[begin + 1:first], lines[first:last], lines[last:]):
        for k in range(times):
            parts.append([own(line, k) for line in block if times == 1 or not line.startswith('  loss') or k == 0])
    return '\n'.join(line for part in parts for line in part) + '\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--md', action='store_true')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--large', action='store_true')
    args = parser.parse_args()
    need_traces()
    with tempfile.TemporaryDirectory() as folder:
        table = ChunkTable(args.bin, folder, args.md)
        table.compare()
        if args.runs:
            table.time(args.runs)
        if args.large:
            table.grow(args.runs)
    for line in table.worse:
        print(f'MORE THAN THEIRS: {line}')
    return 1 if table.worse else 0


if __name__ == '__main__':
    sys.exit(main())
