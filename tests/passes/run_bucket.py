#!/usr/bin/env python3
"""run_bucket.py --bin BIN [--only TEXT] [--seeds N] [--all]: sg-bucket and sg-overlap --isolate-only keep results to the bit.

On the captures of several ranks with values, after each plan, isolation and compositions with sg-clean and sg-remat: all ranks run,
with random delays (--chaos), and give what the untouched graph gives. On random sharded models besides: blocks, shared and tied
weights, element types, uneven names, several groups, gradients in parts. Buckets are fewer than collectives, and a second run finds
nothing. Says aloud when ../shared/traces is absent. --all: every chain on every capture, and mpi.
"""
import argparse
import glob
import json
import os
import random
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import run_passes  # noqa: E402
from harness import Failure, TRACES, Tally, run, skip  # noqa: E402

CAPTURES = ['llama3-fsdp4', 'llama3-fsdp4-fp32', 'llama3-fsdp4-chunkedloss', 'llama3-fsdp2-tp2-fp32', 'dsv3-ep4',
            'dsv3-ep4-fp32', 'dsv3-ep4-eagerchunk2']
BLOCKS, SIZE, AUTO = ('bucket',), ('bucket', '--plan', 'by-size:64KiB', '--prefetch', '2'), ('bucket', '--plan', 'auto')
CLEAN, REMAT, ISOLATE, GATHERS = ('clean',), ('remat',), ('overlap', '--isolate-only'), ('overlap', '--isolate-only', '--gathers')
CHAINS = [[BLOCKS], [SIZE], [CLEAN, REMAT, BLOCKS], [CLEAN, REMAT, AUTO], [BLOCKS, CLEAN],
          [CLEAN, REMAT, BLOCKS, CLEAN],
          [CLEAN, ('bucket', '--prefetch', '0'), ('bucket', '--prefetch', '3')], [ISOLATE, BLOCKS],
          [CLEAN, REMAT, GATHERS, BLOCKS], [BLOCKS, ISOLATE]]


def has_mpi(bin_dir):
    """A build may be without it where there is an mpirun."""
    return shutil.which('mpirun') is not None and bool(glob.glob(os.path.join(bin_dir, '../lib/stepgraph/*mpi*')))


def collectives(case, graph):
    return len(re.findall(r'= _c10d_functional\.(?!wait)', run(case.tool('sg-print'), graph).stdout))


class BucketCase(run_passes.Case):
    def hold(self, graph, values, chain, comm='local', seed=1):
        label = ' | '.join(' '.join(step) for step in chain)
        after = self.file('after.sg')
        said = self.apply_files(graph, chain, after)
        command = [self.tool('sg-run'), after, *values, '--expect', self.file('before{r}.safetensors'), '--bitwise']
        command += ['--chaos', str(seed)]
        if comm == 'mpi':
            done = run('mpirun', '--oversubscribe', '--allow-run-as-root', '-n', '4', *command, '--comm', 'mpi',
                       ok=(0, 1))
        else:
            done = run(*command, ok=(0, 1))
        if done.returncode != 0:
            raise Failure(f'{label} ({comm}): results differ\n{done.stdout[-1500:]}{said}')
        if 'would not agree' in said:
            raise Failure(f'{label}: {said}')
        if chain[-1][0] in ('bucket', 'overlap'):
            again = self.apply_files(after, [chain[-1]], self.file('again.sg'))
            if 'nothing to' not in again:
                raise Failure(f'{label}: a second run changes something\n{again}')
        return after


    def exposed_us(self, graph):
        """What a simulated step waits for gathers and reductions, together."""
        exposed = json.loads(run(self.tool('sg-sim'), graph, '--json').stdout)['exposed_us']
        return sum(exposed.get(kind, 0) for kind in ('all_gather', 'reduce_scatter', 'all_reduce'))

    def hold_exposure(self, graph):
        """Buckets hide what the step waited for: with none ahead some of it, with one ahead most of it."""
        waits = [self.exposed_us(graph)]
        for prefetch in ('0', '1'):
            run(self.tool('sg-bucket'), '-q', graph, '--prefetch', prefetch, '-o', self.file('placed.sg'))
            waits.append(self.exposed_us(self.file('placed.sg')))
        if not waits[0] > waits[1] > waits[2]:
            raise Failure(f'simulated waits of {waits} us: before, merged, and one bucket ahead')


def real_cases(only):
    for name in CAPTURES:
        folder = f'{TRACES}/multi/{name}'
        if only in name:
            yield (name, lambda case, f=folder: run(case.tool('sg-import'), f + '/rank{r}/step.json', '-o',
                                                    case.file('in.sg')),
                   ['--inputs', folder + '/rank{r}/inputs.safetensors'])


def sharded_model(rng):
    """A random model, its backward included, as FSDP would run it: text of a graph."""
    world = rng.choice([2, 3, 4])
    group, other = '@fsdp', '@fsdp2'
    cols = rng.choice([2, 3])
    size = world * cols                              # weights are size x size; a shard is cols x size
    head, body, tail = [], [], []
    names = {}
    blocks = rng.randrange(1, 4)
    dtype = rng.choice(['f32', 'f32', 'bf16'])       # of gathered weights
    grads = rng.choice(['f32', dtype])
    tied = None

    def parameter(block):
        key = f'w{len(names)}'
        kind = rng.choice(['matrix', 'matrix', 'vector'])
        where = f'layers.{block}.m{len(names)}' if block is not None else f'edge{len(names)}'
        names[key] = (kind, where, rng.choice([group, group, other]))
        rest = f', {size}]' if kind == 'matrix' else ']'
        head.append(f'  param %{key} : f32[{cols}{rest} "{where}.weight" shard [{size}{rest} fsdp S(0)')
        return key

    def emit(line):
        body.append('    ' + line)

    count = [0]

    def gather(key):
        count[0] += 1
        n, g = f'g{count[0]}', names[key][2]
        source = key
        if dtype != 'f32' and rng.random() < 0.9:
            emit(f'%{n}c = aten._to_copy(%{key}, dtype={dtype})')
            source = n + 'c'
        emit(f'%{n}a = _c10d_functional.all_gather_into_tensor(%{source}, {world}, {g})')
        emit(f'%{n} = _c10d_functional.wait_tensor(%{n}a)')
        if source == key and dtype != 'f32':
            emit(f'%{n}d = aten._to_copy(%{n}, dtype={dtype})')
            return n + 'd'
        return n

    def reduce(key, value, parts):
        results = []
        for p in range(parts):
            count[0] += 1
            n = f'r{count[0]}'
            source = value
            if grads != dtype:
                emit(f'%{n}c = aten._to_copy(%{value}, dtype={grads})')
                source = n + 'c'
            emit(f'%{n}a = _c10d_functional.reduce_scatter_tensor(%{source}, "sum", {world}, {names[key][2]})')
            emit(f'%{n} = _c10d_functional.wait_tensor(%{n}a)')
            results.append(n)
        total = results[0]
        for n in results[1:]:
            op = rng.choice(['aten.add.Tensor', 'aten.add_.Tensor'])
            emit(f'%{n}s = {op}(%{total}, %{n})')
            total = n + 's'
        if rng.random() < 0.3:
            emit(f'%{total}m = aten.div.Tensor(%{total}, {world})')
            total += 'm'
        return total

    saved, current = [], 'x'

    def forward(key):
        nonlocal current
        w = gather(key)
        out = f'f{len(saved)}'
        emit(f'%{out} = aten.mm(%{current}, %{w})' if names[key][0] == 'matrix' else f'%{out} = aten.mul.Tensor(%{current}, %{w})')
        saved.append((key, current, w))
        current = out

    for block in [None, *range(blocks), None]:
        body.append(f'  forward {"edge" if block is None else f"layers.{block}"}')
        for _ in range(rng.randrange(1, 4)):
            if tied is not None and rng.random() < 0.15:
                forward(tied)
            else:
                key = parameter(block)
                tied = tied or key
                forward(key)
    emit(f'%loss = aten.mean(%{current})')
    body.append('  backward edge')
    emit(f'%d = aten.full_like(%{current}, 0.01)')
    gradient = 'd'
    sums = {}
    again = rng.random() < 0.5
    for i, (key, before, w) in reversed(list(enumerate(saved))):
        body.append(f'  backward {names[key][1].rpartition(".")[0] or "edge"}')
        weight = gather(key) if again else w
        if names[key][0] == 'matrix':
            emit(f'%t{i} = aten.t(%{before})')
            emit(f'%gw{i} = aten.mm(%t{i}, %{gradient})')
            emit(f'%u{i} = aten.t(%{weight})')
            emit(f'%d{i} = aten.mm(%{gradient}, %u{i})')
        else:
            emit(f'%p{i} = aten.mul.Tensor(%{before}, %{gradient})')
            emit(f'%gw{i} = aten.sum.dim_IntList(%p{i}, [0])')
            emit(f'%d{i} = aten.mul.Tensor(%{gradient}, %{weight})')
        reduced = reduce(key, f'gw{i}', rng.choice([1, 1, 1, 2]))
        if key in sums:
            emit(f'%sum{i} = aten.add.Tensor(%{sums[key]}, %{reduced})')
            reduced = f'sum{i}'
        sums[key] = reduced
        gradient = f'd{i}'
    if rng.random() < 0.6:
        head += take_gradients(rng, {key: names[key][0] for key in names}, sums, cols, size, emit, body)
    tail.append('  loss %loss')
    tail += [f'  grad %{value} of %{key}' for key, value in sums.items()]
    ranks = ' '.join(str(r) for r in range(world))
    text = f'sg 1.0 job "random" world {world}\nmesh [fsdp {world}]\ngroup @fsdp [{ranks}] "0"\ngroup @fsdp2 [{ranks}] "1"\ngraph rank *\n'
    return text + '\n'.join([*head, f'  input %x : {dtype}[5, {size}]', *body, *tail]) + '\n'


def take_gradients(rng, kinds, sums, cols, size, emit, body):
    """Clipped by their norm, of all ranks or of this one, and parameters updated by them; what they end as goes into
    `sums`. Gives the buffers of the update."""
    body.append('  optimizer -')
    clips, updates, buffers = rng.random() < 0.8, rng.random() < 0.6, []
    if clips:
        for key, value in sums.items():
            emit(f'%n{key} = aten.linalg_vector_norm(%{value}, 2.0, dtype=f32)')
        emit(f'%stack = aten.stack([{", ".join("%n" + key for key in sums)}])')
        norms = 'stack'
        if rng.random() < 0.5:
            emit('%square = aten.pow.Tensor_Scalar(%stack, 2)')
            emit(f'%over = _c10d_functional.all_reduce(%square, "sum", {rng.choice(["@fsdp", "@fsdp2"])})')
            emit('%everywhere = _c10d_functional.wait_tensor(%over)')
            norms = 'everywhere'
        emit(f'%norm = aten.linalg_vector_norm(%{norms}, 2.0)')
        emit('%inverse = aten.reciprocal(%norm)')
        emit('%scale = aten.clamp(%inverse, none, 1.0)')
        for key, value in list(sums.items()):
            if rng.random() < 0.5:
                emit(f'%clip{key} = aten.mul_.Tensor(%{value}, %scale)')
                sums[key] = rng.choice([value, f'clip{key}'])
            else:
                emit(f'%clip{key} = aten.mul.Tensor(%{value}, %scale)')
                sums[key] = f'clip{key}'
    for key, value in sums.items() if updates else ():
        rows = f'[{cols}, {size}]' if kinds[key] == 'matrix' else f'[{cols}]'
        buffers.append(f'  buffer %b{key} : f32{rows} "momentum.{key}"')
        emit(f'%old{key} = aten.mul_.Tensor(%b{key}, 0.9)')
        emit(f'%new{key} = aten.add_.Tensor(%old{key}, %{value})')
        emit(f'%by{key} = aten.mul.Tensor(%new{key}, 0.5)')
        emit(f'%up{key} = aten.add_.Tensor(%{key}, %{rng.choice(["by", "new"])}{key}, alpha=-0.01)')
    return buffers


def random_cases(only, seeds):
    for seed in range(seeds):
        if only not in f'random/{seed}':
            continue

        def make(case, seed=seed):
            text = case.file('in.sg.txt')
            with open(text, 'w') as out:
                out.write(sharded_model(random.Random(seed)))
            run(case.tool('sg-parse'), '-q', text, '-o', case.file('in.sg'))
        yield f'random/{seed}', make, ['--init', 'seed:3']


RANDOM_CHAINS = [[BLOCKS], [('bucket', '--plan', 'by-size:200', '--prefetch', '2')], [CLEAN, REMAT, GATHERS, BLOCKS]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--all', action='store_true')
    args = parser.parse_args()
    tally, held, fewer = Tally(), 0, 0
    cases = [(c, RANDOM_CHAINS) for c in random_cases(args.only, args.seeds)]
    if os.path.isdir(TRACES):
        # Without --all each chain runs on some of the captures, each capture in some of the chains.
        for i, case in enumerate(real_cases(args.only)):
            cases.append((case, [c for j, c in enumerate(CHAINS) if args.all or args.only or (i + j) % 3 == 0]))
    else:
        skip('../shared/traces is absent; real captures were not run')
    for (name, make, values), chains in cases:
        with tempfile.TemporaryDirectory() as folder:
            case = BucketCase(args.bin, folder)
            try:
                make(case)
                case.run_before(case.file('in.sg'), values)
                before = collectives(case, case.file('in.sg'))
                for i, chain in enumerate(chains):
                    after = case.hold(case.file('in.sg'), values, chain, seed=i + 1)
                    fewer += collectives(case, after) < before
                    held += 1
                if name == 'llama3-fsdp4':
                    case.hold_exposure(case.file('in.sg'))
                if args.all and name == 'dsv3-ep4' and has_mpi(args.bin):
                    case.hold(case.file('in.sg'), values, [CLEAN, REMAT, ISOLATE, BLOCKS], comm='mpi')
            except Failure as failure:
                tally.fail(f'{name}: {failure}')
    tally.passed = held if fewer * 2 >= held else 0
    return tally.finish(f'{held} chains held on {len(cases)} graphs, {fewer} with fewer collectives')


if __name__ == '__main__':
    sys.exit(main())
