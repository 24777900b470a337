#!/usr/bin/env python3
"""run_offload_table.py --bin BIN: planned peaks of steps whose values wait on the host, under budgets, and the seconds of the pass.

Captures of ../shared/traces/shape (sizes without data). Peaks are what sg-run --plan says, without inputs; the host's beside them. The
pass's seconds are its own, in process, as sg-offload -v says.
"""
import argparse
import os
import re
import tempfile

from tables import TRACES, Table, need_traces, run

RUNS = [('none', None, None), ('1GiB', 'none', ['--budget', '1GiB']), ('4GiB', 'none', ['--budget', '4GiB']),
        ('all', 'none', []),
        ('prefetch 0', 'none', ['--prefetch', '0', '--defer', '0']), ('prefetch 2', 'none', ['--prefetch', '2']),
        ('remat', 'remat', None), ('remat, all', 'remat', [])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    args = parser.parse_args()
    need_traces()
    print(f'{"step":28} {"offloaded":12} {"device GiB":>10} {"host GiB":>9} {"seconds":>8}')
    with tempfile.TemporaryDirectory() as folder:
        table = Table(args.bin, folder)
        for step in sorted(os.listdir(f'{TRACES}/shape')):
            if not os.path.exists(f'{TRACES}/shape/{step}/step.json.gz'):
                continue
            run(table.tool('sg-remat'), '-q', table.bring(f'shape/{step}/step', 'none.sg'), '-o', table.file('remat.sg'))
            for label, before, options in RUNS:
                graph, seconds = table.file(f'{before or label}.sg'), ''
                if options is not None:
                    said = run(table.tool('sg-offload'), '-v', graph, *options, '-o', table.file('after.sg')).stderr
                    seconds = re.search(r'offload: .*, ([0-9.]+) s$', said, re.M).group(1)
                    graph = table.file('after.sg')
                plan = table.plan(graph)
                print(f'{step:28} {label:12} {plan["peak_bytes"] / 2**30:10.2f} {plan["host_bytes"] / 2**30:9.2f} {seconds:>8}', flush=True)


if __name__ == '__main__':
    main()
