#!/usr/bin/env python3
"""run_overlap.py --bin BIN [--only TEXT] [--all]: sg-overlap keeps results to the bit, is never worse than its input.

Captures  of several ranks with values: behind a pairwise cover of {clean, remat, chunk, isolate, bucket}, both
          strategies; all ranks run (with --chaos) and give what the graph before gave. With --strategy model the
          simulated step and the planned peak do not grow, and ranks of several programs agree (sg-check). Some go
          through sg-clean and sg-bucket afterwards.
Peer      what TorchTitan's scheduling pass made of its own graphs: chunk bodies stand in exactly its order.
          (That broken orders are found: tests/unit/overlap_test.cc.)
Says aloud when ../shared/traces is absent. Without --all each capture has some of the rows; --all: every row on
every capture, and mpi.
"""
import argparse
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import run_bucket  # noqa: E402
from harness import Failure, TRACES, Tally, run, skip  # noqa: E402

CHUNK = ('chunk', '--modules', 'layers.*.moe', '--chunks', '2', '--best-effort')
STAGES = [('clean',), ('remat',), CHUNK, ('overlap', '--isolate-only'), ('bucket',)]
# Any two stages stand together, alone, and apart in some row (1 = the stage is there).
COVER = ['11111', '10010', '01100', '00001', '11000', '00111']
AFTER = [[], [('clean',)], [('bucket',)]]
STRATEGIES = [('overlap', '--strategy', 'model'), ('overlap', '--strategy', 'reference')]
# Messages that last as long as some kernels: on fast links there is nothing to hide in graphs of this size.
MACHINE = """name: slow-links
base: h100-8
host: {launch_us: 0.5, sync_us: 1}
device: {kernel_us: 2}
network:
  ll: {base_us: 60}
  simple: {base_us: 60}
  exchange: {base_us: 60}
"""
BUCKETS = 'joint_transformer_block_bucketing_reordering'
PEERS = [('dsv3-ep4/graphchunk', f'11-{BUCKETS}', '12-ep_overlap_schedule'),
         ('dsv3-ep4-eagerchunk2/eagerchunk', f'10-{BUCKETS}', '11-ep_overlap_schedule')]


def body_order(text):
    """Nodes of chunk bodies by region and direction, as they stand."""
    out = {}
    for line in text.splitlines():
        found = re.match(r'    %(\S+?),? .* chunk (\d+) in (\S+) role body', line)
        if found:
            label = re.search(r' label (\S+)', line)
            backward = 'backward true' in line
            out.setdefault((found[3], backward), []).append(label[1] if label else found[1])
    return out


class OverlapCase(run_bucket.BucketCase):
    def __init__(self, bin_dir, folder):
        super().__init__(bin_dir, folder)
        self.made = {}  # by stages: the graph behind them, or its results. Rows begin alike

    def prepare(self, graph, row):
        """The graph behind the stages of a row, and those of its stages that it has something for."""
        if 'has_moe' not in self.made:
            self.made['has_moe'] = 'all_to_all' in run(self.tool('sg-stat'), graph).stdout
        stages = [stage for stage, there in zip(STAGES, row) if there == '1']
        stages = tuple(stage for stage in stages if self.made['has_moe'] or stage[0] != 'chunk')
        for i, (name, *options) in enumerate(stages):
            if stages[:i + 1] not in self.made:
                behind = self.file(f'made{len(self.made)}.sg')
                run(self.tool(f'sg-{name}'), graph, *options, '-o', behind)
                self.made[stages[:i + 1]] = behind
            graph = self.made[stages[:i + 1]]
        return graph, stages

    def run_before_chunks(self, graph, stages, values):
        """What the step gives: chunks add in another order, all other stages keep every bit."""
        last = stages.index(CHUNK) + 1 if CHUNK in stages else 0
        if self.made.get('results') != stages[:last]:
            self.run_before(self.made[stages[:last]] if last else graph, values)
            self.made['results'] = stages[:last]

    def figures(self, graph):
        sim = json.loads(run(self.tool('sg-sim'), graph, '--machine', self.machine(), '--json').stdout)
        stat = json.loads(run(self.tool('sg-stat'), graph, '--json').stdout)
        return sim['makespan_us'], stat['memory']['peak_bytes']

    def machine(self):
        with open(self.file('machine.yaml'), 'w') as out:
            out.write(MACHINE)
        return self.file('machine.yaml')

    def hold_overlap(self, graph, values, strategy, after, label, comm='local', seed=1):
        """Whether nodes have moved."""
        options = ['--machine', self.machine()] if 'model' in strategy else []
        ordered = self.file('ordered.sg')
        said = self.apply_files(graph, [(*strategy, *options)], ordered)
        run(self.tool('sg-check'), '-q', ordered)
        if 'would not agree' in said:
            raise Failure(f'{label}: {said}')
        if 'model' in strategy:
            before, now = self.figures(graph), self.figures(ordered)
            if now[0] > before[0] or now[1] > before[1]:
                raise Failure(f'{label}: worse than its input: {before} -> {now}\n{said}')
        if after:
            self.apply_files(ordered, after, self.file('after.sg'))
            ordered = self.file('after.sg')
        command = [self.tool('sg-run'), ordered, *values, '--expect', self.file('before{r}.safetensors'), '--bitwise']
        if comm == 'mpi':
            mpirun = ('mpirun', '--oversubscribe', '--allow-run-as-root', '-n', '4')
            done = run(*mpirun, *command, '--comm', 'mpi', ok=(0, 1))
        else:
            done = run(*command, '--chaos', str(seed), ok=(0, 1))
        if done.returncode != 0:
            raise Failure(f'{label} ({comm}): results differ\n{done.stdout[-1500:]}{said}')
        return 'unchanged' not in said and 'nothing to order' not in said


def hold_captures(args, say):
    moved = held = 0
    for i, (name, make, values) in enumerate(run_bucket.real_cases(args.only)):
        with tempfile.TemporaryDirectory() as folder:
            case = OverlapCase(args.bin, folder)
            make(case)
            rows = [row for j, row in enumerate(COVER) if args.all or (i + j) % 3 == 0]
            for j, row in enumerate(rows):
                graph, stages = case.prepare(case.file('in.sg'), row)
                case.run_before_chunks(case.file('in.sg'), stages, values)
                for k, strategy in enumerate(STRATEGIES):
                    after = AFTER[(i + j + k) % 3]
                    label = f'{name} {row} {" ".join(strategy)} {after}'
                    try:
                        moved += case.hold_overlap(graph, values, strategy, after, label, seed=j + 1)
                        held += 1
                        if args.all and row == '11111' and run_bucket.has_mpi(args.bin):
                            case.hold_overlap(graph, values, strategy, [], label, comm='mpi')
                    except Failure as failure:
                        say(f'{label}: {failure}')
    return held, moved


def hold_peers(args, say):
    held = 0
    for graph, before, after in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            case = OverlapCase(args.bin, folder)
            texts = []
            for name in (before, after):
                shown, capture = case.file('peer.sg'), f'{TRACES}/peer/{graph}/{name}.json.gz'
                run(case.tool('sg-import'), '-q', capture, '--spmd', '-o', shown)
                if name == before:
                    ours = case.file('ours.sg')
                    run(case.tool('sg-overlap'), '-q', shown, '--strategy', 'reference', '-o', ours)
                    shown = ours
                texts.append(body_order(run(case.tool('sg-print'), shown).stdout))
            ours, theirs = texts
            if not theirs or sum(len(nodes) for nodes in theirs.values()) < 500:
                say(f'{graph}: the peer has no chunk bodies')
            for region, nodes in theirs.items():
                held += 1
                if ours.get(region) != nodes:
                    say(f'{graph} {region}: not in the order of the peer')
    return held


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--all', action='store_true')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        return skip('../shared/traces is absent')
    tally = Tally()
    held, moved = hold_captures(args, tally.fail)
    peers = hold_peers(args, tally.fail)
    tally.passed = held if args.only or moved * 3 >= held else 0
    return tally.finish(f'{held} orders held, {moved} of them new, {peers} regions held against the peer')


if __name__ == '__main__':
    sys.exit(main())
