#!/usr/bin/env python3
"""run_numbers.py --bin BIN [--only TEXT] [--comm local|mpi]: every shared capture with values, run and held against PyTorch.

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
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))

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


class Skipped(str):
    """Why a case cannot run on the backend that was asked for."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def oracle_rows(text):
    """name -> (our error, PyTorch's, one unit in the last place) of a compare_oracle table; what is no such row: a problem."""
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
            return f'compare_oracle {" ".join(files)}\n{text}'
        for name, row in rows.items():
            worst[name] = tuple(map(max, row, worst.get(name, row)))
    beyond = [f'{n}: ours {o:.3g}, PyTorch {t:.3g}' for n, (o, t, ulp) in worst.items() if not o <= 2 * t + ulp]
    return '\n'.join(beyond) or None


def failures(text):
    """Lines of --expect that failed, by rank and output."""
    return {tuple(line.split('max abs')[0].split()) for line in text.splitlines() if ' FAIL ' in f' {line} '}


def check(tool, name, source, inputs, expected, folder, backend=()):
    """None, or what is wrong. An output may be beyond the tolerance only where the double run is too: PyTorch's own
    error is larger than the tolerance there, and the oracle's rule (twice that error) is the one that counts."""
    graph = f'{folder}/step.sg'
    spmd = ['--spmd'] if name.endswith('/traced') else []
    ours, oracle = f'{folder}/ours{{r}}.safetensors', f'{folder}/f64-{{r}}.safetensors'
    status, text = run([tool('sg-import'), '-q', source, '-o', graph, *spmd])
    if status != 0:
        return f'sg-import: exit {status}\n{text}'
    beyond = []
    for options in (['--outputs', ours], ['--outputs', oracle, '--numerics', 'f64']):
        chosen = [] if '--numerics' in options else backend      # the oracle runs on the processor
        command = [tool('sg-run'), '-q', graph, '--inputs', inputs, '--expect', expected, *options, *chosen]
        status, text = run(command)
        if status == 4 and chosen and 'no kernel for this backend' in text:
            return Skipped(re.search('cannot run: (.*)', text).group(1))
        if status not in (0, 1):
            return f'exit {status}: {" ".join(command)}\n{text}'
        beyond.append((failures(text), text))
    unexcused = beyond[0][0] - beyond[1][0]
    if unexcused:
        return f'{len(unexcused)} outputs beyond the tolerance\n{beyond[0][1]}'
    return check_oracle(tool, ours, expected, oracle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--backend', default='', help='options of sg-run, as in "--backend cuda --comm nccl"')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        print('run_numbers: ../shared/traces is absent, nothing is held against PyTorch')
        return 0
    failed = 0
    for name, source, inputs, expected in cases():
        if args.only not in name:
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            problem = check(lambda t: os.path.join(args.bin, t), name, source, inputs, expected, folder,
                            args.backend.split())
        if isinstance(problem, Skipped):
            print(f'SKIPPED {name}: {problem}', flush=True)
            continue
        print(f'{"FAILED" if problem else "ok    "} {name}  {time.monotonic() - begin:.1f} s', flush=True)
        if problem:
            failed += 1
            print('    ' + problem.strip().replace('\n', '\n    ')[-3000:])
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
