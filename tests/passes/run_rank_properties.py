#!/usr/bin/env python3
"""run_rank_properties.py --bin BIN [--seeds N] [--first S] [--keep DIR]: random jobs whose ranks run graphs of their
own, through chains of passes: the job stays one that runs, and gives the same bits.

Ranks are in several groups, whole or in parts, and call their collectives in one order, as they must; what else they
compute, where they wait, and in which order the backward uses what the forward has made differs from rank to rank.
What a pass moves, copies or merges on one rank can so part it from the others. A pass may refuse (exit 4) or leave
the job as it is; an invalid graph, a run that hangs or fails, and other bits are findings.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from harness import Failure, Tally, run  # noqa: E402

SIDE = 12  # of each value: rows that 1, 2, 3, 4 and 6 ranks share evenly
UNARY = ['aten.tanh', 'aten.sin', 'aten.neg', 'aten.relu', 'aten.exp']
BINARY = ['aten.add.Tensor', 'aten.sub.Tensor', 'aten.mul.Tensor', 'aten.maximum']
PASSES = [['clean'], ['remat'], ['remat', '--policy', 'full'], ['remat', '--policy', 'all'], ['remat', '--budget', '0'],
          ['remat', '--budget', '0.5'], ['bucket'], ['bucket', '--plan', 'by-size:1KiB', '--prefetch', '2'],
          ['bucket', '--prefetch', 'auto', '--peak', '1MiB'], ['overlap'], ['overlap', '--gathers'],
          ['overlap', '--isolate-only'], ['overlap', '--peak', '1MiB'], ['offload', '--least', '0B', '--all'],
          ['chunk', '--auto', '--chunks', '2', '--best-effort']]


class Rank:
    """The graph of one rank while it is written."""

    def __init__(self, number, rng):
        self.number, self.rng, self.lines, self.values, self.count = number, rng, [], [], 0
        self.inputs, self.open, self.phase = [], [], None

    def input(self, kind, shape):
        name = f'%in{len(self.inputs)}'
        self.inputs.append(f'  {kind} {name} : f32{shape} "in{len(self.inputs)}"')
        return name

    def emit(self, op, args):
        self.count += 1
        self.lines.append(f'    %v{self.count} = {op}({args})')
        return f'%v{self.count}'

    def begin(self, phase, layer):
        if self.phase != (phase, layer):
            self.phase = (phase, layer)
            self.lines.append(f'  {phase} layers.{layer}')

    def compute(self, steps):
        for _ in range(steps):
            a, b = self.rng.choice(self.values), self.rng.choice(self.values)
            kind = self.rng.random()
            if kind < 0.4:
                self.values.append(self.emit(self.rng.choice(UNARY), a))
            elif kind < 0.8:
                self.values.append(self.emit(self.rng.choice(BINARY), f'{a}, {b}'))
            else:
                self.values.append(self.emit('aten.tanh', self.emit('aten.mm', f'{a}, {b}')))

    def launch(self, kind, group, size):
        """Of a value, or of what a parameter's shard gives; waited for at once, or later."""
        source = self.rng.choice(self.values)
        if kind == 'gather':
            shard = self.input('param', [SIDE // size, SIDE])
            made = self.emit('_c10d_functional.all_gather_into_tensor', f'{shard}, {size}, @{group}')
        elif kind == 'scatter':
            made = self.emit('_c10d_functional.reduce_scatter_tensor', f'{source}, "sum", {size}, @{group}')
        elif kind == 'exchange':
            parts = [SIDE // size] * size
            made = self.emit('_c10d_functional.all_to_all_single', f'{source}, {parts}, {parts}, @{group}')
        else:
            made = self.emit('_c10d_functional.all_reduce', f'{source}, "sum", @{group}')
        self.open.append((made, kind, size))
        if self.rng.random() < 0.6:
            self.wait()

    def wait(self):
        if not self.open:
            return
        made, kind, size = self.open.pop(self.rng.randrange(len(self.open)))
        done = self.emit('_c10d_functional.wait_tensor', made)
        if kind == 'scatter' and size > 1:
            done = self.emit('aten.cat', '[' + ', '.join([done] * size) + ']')
        self.values.append(self.emit('aten.tanh', done))

    def text(self):
        out = [f'  output {v}' for v in self.rng.sample(self.values[-6:], 3)]
        return '\n'.join([f'graph rank {self.number}', *self.inputs, *self.lines, *out])


def groups_of(rng, world):
    """Names, with the parts that rank apart and talk to each other."""
    groups = {'all': [list(range(world))]}
    for name in 'ab'[:rng.randint(1, 2)]:
        ranks = rng.sample(range(world), rng.randint(2, world))
        size = rng.choice([s for s in (2, 3, 4, 6) if s <= len(ranks)])
        groups[name] = sorted(sorted(ranks[i:i + size]) for i in range(0, len(ranks) - size + 1, size))
    return groups


def job(seed):
    rng = random.Random(seed)
    world = rng.choice([2, 2, 3, 4, 6])
    groups = groups_of(rng, world)
    apart = rng.random() < 0.8  # else the ranks differ by the groups that they are in alone
    ranks = [Rank(r, random.Random(seed * 64 + (r if apart else 0))) for r in range(world)]
    for rank in ranks:
        rank.values = [rank.input('input', [SIDE, SIDE]), rank.input('param', [SIDE, SIDE])]
    layers = rng.randint(1, 3)
    for phase, order in (('forward', range(layers)), ('backward', reversed(range(layers)))):
        for layer in order:
            for rank in ranks:
                rank.begin(phase, layer)
            for _ in range(rng.randint(1, 4)):
                name = rng.choice(list(groups))
                kind = rng.choice(['gather', 'gather', 'reduce', 'scatter', 'exchange'])
                for members in groups[name]:
                    for r in members:
                        ranks[r].compute(ranks[r].rng.randint(0, 3))
                        ranks[r].launch(kind, name, len(members))
            for rank in ranks:
                rank.compute(rank.rng.randint(1, 4))
    for rank in ranks:
        while rank.open:
            rank.wait()
        rank.compute(3)
    head = [f'sg 1.0 job "seed {seed}" world {world}']
    head += [f'group @{n} ' + ' '.join(str(p).replace(',', '') for p in parts) for n, parts in groups.items()]
    return '\n'.join(head + [r.text() for r in ranks]) + '\n'


class Checker:
    def __init__(self, tools):
        self.tools, self.changed, self.refused = tools, 0, 0

    def tool(self, name, *words, ok=(0,)):
        return run(os.path.join(self.tools, f'sg-{name}'), *words, ok=ok, cwd=self.folder, timeout=60)

    def check(self, seed):
        with tempfile.TemporaryDirectory() as self.folder:
            self.check_job(seed, job(seed))

    def check_job(self, seed, text):
        with open(os.path.join(self.folder, 'job.txt'), 'w', encoding='utf-8') as f:
            f.write(text)
        self.tool('parse', 'job.txt', '-o', 'step.sg')
        self.tool('run', 'step.sg', '-q', '--init', f'seed:{seed}', '--outputs', 'out{r}.safetensors')
        rng = random.Random(seed)
        for _ in range(4):
            self.chain(seed, [rng.choice(PASSES) for _ in range(rng.randint(1, 3))])

    def chain(self, seed, passes):
        at, words = 'step.sg', ' | '.join('sg-' + ' '.join(p) for p in passes)
        try:
            for i, (name, *options) in enumerate(passes):
                done = self.tool(name, at, *options, '-o', f'pass{i}.sg', ok=(0, 4))
                if done.returncode == 4:
                    self.refused += 1
                    return
                self.changed += ': nothing to' not in done.stderr
                at = f'pass{i}.sg'
            self.tool('run', at, '-q', '--init', f'seed:{seed}', '--expect', 'out{r}.safetensors', '--bitwise')
        except (Failure, subprocess.TimeoutExpired) as failure:
            raise Failure(f'{words}: {failure}') from failure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--seeds', type=int, default=60)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--keep', help='a folder for the jobs that fail')
    args = parser.parse_args()
    tally = Tally()
    checker = Checker(os.path.abspath(args.bin))
    for seed in range(args.first, args.first + args.seeds):
        failed = tally.failed
        tally.hold(f'seed {seed}', checker.check, seed)
        if tally.failed > failed and args.keep:
            os.makedirs(args.keep, exist_ok=True)
            with open(os.path.join(args.keep, f'job{seed}.txt'), 'w', encoding='utf-8') as f:
                f.write(job(seed))
    if checker.changed < args.seeds:
        tally.fail(f'only {checker.changed} passes changed anything')
    return tally.finish(f'{tally.passed} jobs passed: {checker.changed} passes changed something, {checker.refused} refused')


if __name__ == '__main__':
    sys.exit(main())
