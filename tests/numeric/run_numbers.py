#!/usr/bin/env python3
"""run_numbers.py --bin BIN [--only TEXT] [--backend OPTIONS]: each shared capture with values, held against PyTorch.

For each case: import; sg-run on the recorded inputs with --expect (the tolerance of the narrowest float on the way;
integers and booleans exact); the same in double (--numerics f64). Then our error against the double run may be at most
twice PyTorch's own, plus one unit in the last place at the tensor's scale. Says aloud when ../shared/traces is absent.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import Failure, TRACES, Tally, skip  # noqa: E402

# PyTorch's own random numbers cannot be reproduced by another generator: structure is checked elsewhere.
RANDOM = {'single/gpt2-tiny-dropout'}


def cases():
    """(name, graph source, inputs pattern, expected pattern)"""
    for step in sorted(glob.glob(f'{TRACES}/single/*/step.json*')):
        folder = os.path.dirname(step)
        name = os.path.relpath(folder, TRACES)
        if name not in RANDOM and os.path.exists(f'{folder}/inputs.safetensors'):
            yield name, step, f'{folder}/inputs.safetensors', f'{folder}/expected.safetensors'
    for folder in sorted(glob.glob(f'{TRACES}/multi/*')):
        ending = os.path.basename(glob.glob(f'{folder}/rank0/step.json*')[0])
        yield (os.path.relpath(folder, TRACES), f'{folder}/rank{{r}}/{ending}',
               f'{folder}/rank{{r}}/inputs.safetensors',
               f'{folder}/rank{{r}}/expected.safetensors')
    for folder in sorted(glob.glob(f'{TRACES}/peer/*/*')):
        finals = glob.glob(f'{folder}/rank0/final.json*')
        if finals:
            ending = os.path.basename(finals[0])
            yield (os.path.relpath(folder, TRACES), f'{folder}/rank{{r}}/{ending}',
                   f'{folder}/rank{{r}}/inputs.safetensors',
                   f'{folder}/rank{{r}}/expected.safetensors')
        traced = f'{folder}/00-traced.json.gz'
        if os.path.exists(traced) and os.path.exists(f'{folder}/rank0/expected_traced.safetensors'):
            yield (os.path.relpath(folder, TRACES) + '/traced', traced, f'{folder}/rank{{r}}/inputs.safetensors',
                   f'{folder}/rank{{r}}/expected_traced.safetensors')


class Skipped(Exception):
    """A case cannot run on the backend that was asked for, and why."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def oracle_rows(text):
    """name -> (our error, PyTorch's, one unit in the last place) of a compare_oracle table; what is no such row is a
    problem."""
    rows, problems = {}, []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 8 and words[0] in ('ok', 'FAIL'):
            ours, torch, allowed = float(words[3]), float(words[4]), float(words[5])
            rows[words[1]] = (ours, torch, allowed - 2 * torch)
        elif words and words[0] == 'FAIL':
            problems.append(line)
    return rows, problems


def check_oracle(tool, ours, expected, oracle):
    """An output's error is its largest over the ranks, ours as PyTorch's: the loss of one rank alone is one draw of the
    roundings, and a draw may come out at nothing."""
    ranks = len(glob.glob(expected.replace('{r}', '*'))) if '{r}' in expected else 1
    worst = {}
    for r in range(ranks):
        files = [p.replace('{r}', str(r)) for p in (ours, expected, oracle)]
        status, text = run([tool('compare_oracle'), *files, '--all'])
        rows, problems = oracle_rows(text)
        if status not in (0, 1) or problems or not rows:
            raise Failure(f'compare_oracle {" ".join(files)}\n{text[-3000:]}')
        for name, row in rows.items():
            worst[name] = tuple(map(max, row, worst.get(name, row)))
    beyond = [f'{n}: ours {o:.3g}, PyTorch {t:.3g}' for n, (o, t, ulp) in worst.items() if not o <= 2 * t + ulp]
    if beyond:
        raise Failure('\n'.join(beyond))


def failures(text):
    """Lines of --expect that failed, by rank and output."""
    return {tuple(line.split('max abs')[0].split()) for line in text.splitlines() if ' FAIL ' in f' {line} '}


def check(tool, name, source, inputs, expected, folder, backend=()):
    """An output may be beyond the tolerance only where the double run is too: PyTorch's own
    error is larger than the tolerance there, and the oracle's rule (twice that error) is the one that counts."""
    graph = f'{folder}/step.sg'
    spmd = ['--spmd'] if name.endswith('/traced') else []
    ours, oracle = f'{folder}/ours{{r}}.safetensors', f'{folder}/f64-{{r}}.safetensors'
    status, text = run([tool('sg-import'), '-q', source, '-o', graph, *spmd])
    if status != 0:
        raise Failure(f'sg-import: exit {status}\n{text[-3000:]}')
    beyond = []
    for options in (['--outputs', ours], ['--outputs', oracle, '--numerics', 'f64']):
        chosen = [] if '--numerics' in options else backend      # the oracle runs on the processor
        command = [tool('sg-run'), '-q', graph, '--inputs', inputs, '--expect', expected, *options, *chosen]
        status, text = run(command)
        if status == 4 and chosen and 'no kernel for this backend' in text:
            raise Skipped(re.search('cannot run: (.*)', text).group(1))
        if status not in (0, 1):
            raise Failure(f'exit {status}: {" ".join(command)}\n{text[-3000:]}')
        beyond.append((failures(text), text))
    unexcused = beyond[0][0] - beyond[1][0]
    if unexcused:
        raise Failure(f'{len(unexcused)} outputs beyond the tolerance\n{beyond[0][1][-3000:]}')
    check_oracle(tool, ours, expected, oracle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--backend', default='', help='options of sg-run, as in "--backend cuda --comm nccl"')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        return skip('../shared/traces is absent, nothing is held against PyTorch')
    tally = Tally()
    for name, *files in cases():
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                tally.say_held(name, check, lambda t: os.path.join(args.bin, t), name, *files, folder,
                               args.backend.split())
            except Skipped as why:
                print(f'SKIPPED {name}: {why}', flush=True)
    return tally.finish()


if __name__ == '__main__':
    sys.exit(main())
