#!/usr/bin/env python3
"""run_offload_table.py --bin BIN: planned peaks of steps whose values wait on the host, under budgets, and the seconds of the pass.

Captures of ../shared/traces/shape (sizes without data). Peaks are what sg-run --plan says, without inputs; the host's beside them. The
pass's seconds are its own, in process, as sg-offload -v says.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces', 'shape'))
RUNS = [('none', None, None), ('1GiB', 'none', ['--budget', '1GiB']), ('4GiB', 'none', ['--budget', '4GiB']),
        ('all', 'none', []),
        ('prefetch 0', 'none', ['--prefetch', '0', '--defer', '0']), ('prefetch 2', 'none', ['--prefetch', '2']),
        ('remat', 'remat', None), ('remat, all', 'remat', [])]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    args = parser.parse_args()
    tool = lambda name: os.path.join(args.bin, name)  # noqa: E731
    if not os.path.isdir(TRACES):
        raise SystemExit('SKIPPED: ../shared/traces is absent')
    print(f'{"step":28} {"offloaded":12} {"device GiB":>10} {"host GiB":>9} {"seconds":>8}')
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)  # noqa: E731
        for step in sorted(os.listdir(TRACES)):
            source = f'{TRACES}/{step}/step.json.gz'
            if not os.path.exists(source):
                continue
            run(tool('sg-import'), '-q', source, '--spmd', '-o', file('none.sg'))
            run(tool('sg-remat'), '-q', file('none.sg'), '-o', file('remat.sg'))
            for label, before, options in RUNS:
                graph, seconds = file(f'{before or label}.sg'), ''
                if options is not None:
                    said = run(tool('sg-offload'), '-v', graph, *options, '-o', file('after.sg')).stderr
                    seconds = re.search(r'offload: .*, ([0-9.]+) s$', said, re.M).group(1)
                    graph = file('after.sg')
                plan = json.loads(run(tool('sg-run'), graph, '--plan', '--json').stdout)['plans'][0]
                print(f'{step:28} {label:12} {plan["peak_bytes"] / 2**30:10.2f} {plan["host_bytes"] / 2**30:9.2f} {seconds:>8}', flush=True)


if __name__ == '__main__':
    main()
