#!/usr/bin/env python3
"""run_passes.py --bin BIN [--only TEXT] [--seeds N] [--all]: passes hold what their headers promise, on real and on random graphs.

For each shared capture with values and each random job that runs: the graph is run before and after each chain of passes, on the
same inputs and all its ranks. Results must be equal to the bit, planned peaks must not grow (where the pass promises it), and the
passes must have nothing to do the second time. Says aloud when ../shared/traces is absent.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'numeric'))
import run_numbers  # noqa: E402  the list of captures

# Chains of (tool, options). A chain is idempotent when its last pass is.
CHAINS = [[('sg-clean',)], [('sg-clean', '--drop-asserts')], [('sg-concretize',)], [('sg-concretize',), ('sg-clean',)],
          [('sg-remat', '--policy', 'full')], [('sg-clean',), ('sg-remat',)], [('sg-remat',), ('sg-clean',)]]


class Failure(Exception):
    pass


def run(*command, ok=(0,)):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in ok:
        raise Failure(f'{" ".join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}{done.stdout[-1000:]}')
    return done


class Case:
    def __init__(self, bin_dir, folder):
        self.bin, self.folder = bin_dir, folder

    def tool(self, name):
        return os.path.join(self.bin, name)

    def file(self, name):
        return os.path.join(self.folder, name)

    def apply(self, source, chain, target):
        for i, (tool, *options) in enumerate(chain):
            result = target if i + 1 == len(chain) else self.file(f'stage{i}.sg')
            said = run(self.tool(tool), source, *options, '-o', result).stderr
            source = result
        return said

    def peak(self, graph):
        plans = json.loads(run(self.tool('sg-run'), graph, '--plan', '--json').stdout)['plans']
        return sum(plan['peak_bytes'] for plan in plans)

    def hold(self, graph, values, chain):
        """`values`: how sg-run gets its inputs, and the seed of random ops."""
        label = ' | '.join(' '.join(step) for step in chain)
        after = self.file('after.sg')
        said = self.apply(graph, chain, after)
        run(self.tool('sg-check'), after)
        done = run(self.tool('sg-run'), after, *values, '--expect', self.file('before{r}.safetensors'), '--bitwise', ok=(0, 1))
        if done.returncode != 0:
            raise Failure(f'{label}: results differ\n{done.stdout[-1500:]}{said}')
        before, now = self.peak(graph), self.peak(after)
        if now > before and 'unshard' not in said and not any(step[0] == 'sg-remat' for step in chain):
            raise Failure(f'{label}: the planned peak grows from {before} to {now}\n{said}')
        if chain[-1][0] == 'sg-remat':
            return                  # a second run may find what the first made possible
        again = self.apply(after, [chain[-1]], self.file('again.sg'))
        if 'nothing to' not in again:
            raise Failure(f'{label}: a second run changes something\n{again}')

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
    for seed in range(seeds):
        name = f'random/{seed}'
        if only not in name:
            continue

        def make(case, seed=seed):
            run(case.tool('make_job'), '--plain', '--bare', '--nodes', str(20 + seed % 60), '--seed', str(seed),
                '--inputs', case.file('in.safetensors'), '-o', case.file('in.sg'))
        yield name, make, ['--inputs', '{folder}/in.safetensors', '--seed', '7']


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--seeds', type=int, default=30)
    args = parser.parse_args()
    begin, failed, held, left = time.time(), 0, 0, 0
    cases = list(random_cases(args.bin, args.only, args.seeds))
    if os.path.isdir(run_numbers.TRACES):
        cases += [*real_cases(args.bin, args.only), *dropout_case(args.only)]
    else:
        print('SKIPPED: ../shared/traces is absent; real captures were not run')
    for name, make, values in cases:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(args.bin, folder)
            values = [v.replace('{folder}', folder) for v in values]
            try:
                make(case)
                try:
                    case.run_before(case.file('in.sg'), values)
                except Failure:
                    if not name.startswith('random/'):
                        raise
                    left += 1                       # a random job whose inputs --init cannot make, or whose data says no
                    continue
                for chain in CHAINS:
                    case.hold(case.file('in.sg'), values, chain)
                    held += 1
            except Failure as failure:
                failed += 1
                print(f'FAIL {name}: {failure}')
    print(f'{held} chains held on {len(cases) - left} graphs, {left} random ones do not run, {failed} failed, {time.time() - begin:.0f} s')
    if left > args.seeds * 3 // 4:
        print('FAIL: too few random graphs run to tell anything')
        failed += 1
    return 1 if failed or not held else 0


if __name__ == '__main__':
    sys.exit(main())
