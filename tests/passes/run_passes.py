#!/usr/bin/env python3
"""run_passes.py --bin BIN [--only TEXT] [--seeds N] [--first N] [--all | --sparse]: passes hold what their headers promise, on real and on random graphs.

For each shared capture with values and each random job that runs: the graph is run before and after each chain of passes, on the
same inputs and all its ranks. Results must be equal to the bit, planned peaks must not grow (where the pass promises it), and the
passes must have nothing to do the second time. Says aloud when ../shared/traces is absent.

Chains   Each pass alone as a tool, some pairs, and orders of all of them through sg-pipe: in these each pass stands directly
         behind each other one once (a row-complete Latin square). --all: every order of {clean, one remat, offload, concretize}.
         --sparse: three chains and one order for each random job, others for the next: thousands of jobs (--first: from that seed).
Once     A tool with the same options on the same bytes is run once, and so is what is asked of the same bytes: orders share
         what they have in common. One order of each graph also goes through sg-pipe, which has to give the same bytes.
"""
import argparse
import hashlib
import itertools
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, '..', 'numeric')]
import run_numbers  # noqa: E402  the list of captures
from harness import Failure, Tally, Workbench, run, skip  # noqa: E402

# Captures are small: what is moved is small too.
OFFLOAD = ('offload', '--all', '--least', '64')
# Chains of passes with their options, as tools. A chain is idempotent when its last pass is.
CHAINS = [[('clean',)], [('clean', '--drop-asserts')], [('clean', '--fold-casts')], [('clean', '--fold-losses')], [('concretize',)], [('remat', '--policy', 'full')],
          [('clean',), ('remat',)], [('remat',), ('clean',)], [('offload',)], [OFFLOAD], [('remat',), ('offload', '--least', '64')],
          [('remat', '--tag-only'), OFFLOAD, ('remat', '--policy', 'tags')], [('clean',), ('remat', '--budget', '0.4')], [('remat', '--budget', '0')]]
STAGES = [('clean',), ('remat', '--policy', 'full'), OFFLOAD, ('remat', '--policy', 'default'), ('concretize',), ('remat', '--budget', '0.5'),
          ('overlap', '--isolate-only'), ('bucket',)]


def pairwise(count):
    """Orders of 0..count-1 (count even) in which each stands directly behind each other one exactly once."""
    first = [0] + [(i + 1) // 2 if i % 2 else count - i // 2 for i in range(1, count)]
    rows = [[(value + shift) % count for value in first] for shift in range(count)]
    assert len({pair for row in rows for pair in zip(row, row[1:])}) == count * (count - 1)
    return rows


def orders(bin_dir, symbolic, every):
    """The chains of sg-pipe; what this build or this graph has no use for is left out of each."""
    has_budget = '--budget' in run(os.path.join(bin_dir, 'sg-remat'), '--help').stdout
    useful = [stage for stage in STAGES if (symbolic or stage[0] != 'concretize') and (has_budget or '--budget' not in stage)]
    if not every:
        return [[STAGES[i] for i in row if STAGES[i] in useful] for row in pairwise(len(STAGES))]
    remats = [stage for stage in useful if stage[0] == 'remat']
    others = [stage for stage in useful if stage[0] not in ('remat', 'overlap', 'bucket')]    # these: run_bucket.py
    return [list(order) for remat in remats for order in itertools.permutations([*others, remat])]


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.sha256(file.read()).hexdigest()


class Case(Workbench):
    """One graph and what came of it; what was found is kept by the bytes that it was found of."""

    def __init__(self, bin_dir, folder):
        super().__init__(bin_dir, folder)
        self.files, self.applied, self.facts = {}, {}, {}

    def kept(self, path):
        """`path` moved to where the file of its bytes is, and these."""
        key = digest(path)
        if key not in self.files:
            self.files[key] = self.file(f'graph{len(self.files)}.sg')
            os.rename(path, self.files[key])
        return key

    def apply_one(self, key, step):
        if (key, step) not in self.applied:
            name, *options = step
            said = run(self.tool(f'sg-{name}'), self.files[key], *options, '-o', self.file('new.sg')).stderr
            self.applied[key, step] = self.kept(self.file('new.sg')), said
        return self.applied[key, step]

    def apply(self, key, chain):
        said = ''
        for step in chain:
            key, words = self.apply_one(key, step)
            said += words
        return key, said

    def apply_files(self, source, chain, target):
        """The same from a file to a file, nothing kept."""
        said = ''
        for i, (name, *options) in enumerate(chain):
            result = target if i + 1 == len(chain) else self.file(f'stage{i}.sg')
            said += run(self.tool(f'sg-{name}'), source, *options, '-o', result).stderr
            source = result
        return said

    def pipe(self, key, chain):
        stages = [word for step in chain for word in ('--pass', ' '.join(step))]
        said = run(self.tool('sg-pipe'), self.files[key], *stages, '-o', self.file('new.sg')).stderr
        return self.kept(self.file('new.sg')), said

    def stat(self, key):
        if ('stat', key) not in self.facts:
            self.facts['stat', key] = json.loads(run(self.tool('sg-stat'), self.files[key], '--json').stdout)
        return self.facts['stat', key]

    def peak(self, key):
        return self.stat(key)['memory']['peak_bytes']

    def differs(self, key, values):
        """Of a valid graph: what its run says where it does not give what `before` gave, else nothing."""
        if ('differs', key) not in self.facts:
            run(self.tool('sg-check'), self.files[key])
            done = run(self.tool('sg-run'), self.files[key], *values, '--expect', self.file('before{r}.safetensors'), '--bitwise', ok=(0, 1))
            self.facts['differs', key] = done.stdout[-1500:] if done.returncode != 0 else ''
        return self.facts['differs', key]

    def hold(self, graph, values, chain, apply):
        """`values`: how sg-run gets its inputs, and the seed of random ops."""
        label = ' | '.join(' '.join(step) for step in chain)
        after, said = apply(graph, chain)
        if differs := self.differs(after, values):
            raise Failure(f'{label}: results differ\n{differs}{said}')
        # A bucket brings parameters together; a merged unshard lives longer; a policy of sg-remat says it when it raises the peak,
        # but not for what comes behind it.
        may_grow = any(step[0] == 'bucket' or (step[0] == 'remat' and '--budget' not in step and step != chain[-1]) for step in chain)
        before, now = self.peak(graph), self.peak(after)
        if any('--fold-losses' in step for step in chain):
            now -= 1024  # a folded loss keeps a number a row; these captures have 128 rows at most
        if now > before and not may_grow and 'unshard' not in said and 'higher than before' not in said:
            raise Failure(f'{label}: the planned peak grows from {before} to {now}\n{said}')
        if chain[-1][0] == 'remat' and '--budget' in chain[-1]:
            return                  # a second run has another peak to begin with
        _, again = self.apply_one(after, chain[-1])
        if 'nothing to' not in again:
            raise Failure(f'{label}: a second run changes something\n{again}')

    def hold_same_bytes(self, graph, chain):
        """One process gives what the tools give."""
        if self.apply(graph, chain)[0] != self.pipe(graph, chain)[0]:
            raise Failure(f'{chain}: sg-pipe gives other bytes than the tools')

    def run_before(self, graph, values):
        run(self.tool('sg-run'), graph, *values, '--outputs', self.file('before{r}.safetensors'))


def real_cases(bin_dir, only):
    for name, graph, inputs, _ in run_numbers.cases():
        if only in name:
            yield name, lambda case, g=graph, s=['--spmd'] * name.endswith('/traced'): run(case.tool('sg-import'), g, *s, '-o', case.file('in.sg')), ['--inputs', inputs]


def dropout_case(only):
    """Draws from our own generator: equal before and after, though not PyTorch's."""
    folder = f'{run_numbers.TRACES}/single/gpt2-tiny-dropout'
    if only in 'single/gpt2-tiny-dropout':
        yield ('single/gpt2-tiny-dropout', lambda case: run(case.tool('sg-import'), f'{folder}/step.json', '-o', case.file('in.sg')),
               ['--inputs', f'{folder}/inputs.safetensors', '--seed', '3'])


def random_cases(bin_dir, only, seeds):
    for seed in seeds:
        name = f'random/{seed}'
        if only not in name:
            continue

        def make(case, seed=seed):
            run(case.tool('make_job'), '--plain', '--bare', '--nodes', str(20 + seed % 60), '--seed', str(seed),
                '--inputs', case.file('in.safetensors'), '-o', case.file('in.sg'))
        yield name, make, ['--inputs', '{folder}/in.safetensors', '--seed', '7']


def part_of(chains, name, count):
    """`count` of the chains, others for each name."""
    first = int(name.rpartition('/')[2]) * count
    return [chains[(first + i) % len(chains)] for i in range(count)]


def hold_case(bin_dir, every, sparse, name, make, values):
    """How many chains held; None for a random job whose inputs --init cannot make, or whose data says no."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(bin_dir, folder)
        values = [v.replace('{folder}', folder) for v in values]
        make(case)
        try:
            case.run_before(case.file('in.sg'), values)
        except Failure:
            if not name.startswith('random/'):
                raise
            return None
        graph = case.kept(case.file('in.sg'))
        of_all, chains = orders(bin_dir, case.stat(graph)['symbols']['count'] > 0, every), CHAINS
        if sparse and name.startswith('random/'):
            of_all, chains = part_of(of_all, name, 1), part_of(CHAINS, name, 3)
        for chain in chains:
            case.hold(graph, values, chain, case.apply)
        for chain in of_all:
            case.hold(graph, values, chain, case.apply if every else case.pipe)
        if not sparse:
            case.hold_same_bytes(graph, of_all[0])
        return len(chains) + len(of_all)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--seeds', type=int, default=30)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--sparse', action='store_true')
    args = parser.parse_args()
    tally, held, left = Tally(), 0, 0
    cases = list(random_cases(args.bin, args.only, range(args.first, args.first + args.seeds)))
    if os.path.isdir(run_numbers.TRACES):
        cases += [*real_cases(args.bin, args.only), *dropout_case(args.only)]
    else:
        skip('../shared/traces is absent; real captures were not run')
    with ThreadPoolExecutor(max_workers=max((os.cpu_count() or 2) // 2, 2)) as pool:
        runs = [(name, pool.submit(hold_case, args.bin, args.all, args.sparse, name, make, values)) for name, make, values in cases]
        for name, done in runs:
            before = tally.failed
            chains = tally.hold(name, done.result)
            held += chains or 0
            left += chains is None and tally.failed == before
    if left > args.seeds * 3 // 4:
        tally.fail('too few random graphs run to tell anything')
    if not held:
        tally.fail('no chain was held')
    return tally.finish(f'{held} chains held on {len(cases) - left} graphs, {left} random ones do not run')


if __name__ == '__main__':
    sys.exit(main())
