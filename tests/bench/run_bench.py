#!/usr/bin/env python3
"""run_bench.py --bin BIN [--nodes N] [--runs K]: how fast the file forms and the tools are, on this machine.

Prints the machine, then one row a figure: median (min..max) of K runs, the processor time of the process (which a
loaded machine changes less), the target of the issue, and the peak resident memory. The 1,000,000-node graph is
generated. Import is timed on the deep captures of ../shared/traces where that folder is present, beside Python's
json.load of the same file in the same minutes (ratio = ours / Python's).
"""
import argparse
import glob
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from machine import machine


def timed(command, runs, stdout=subprocess.DEVNULL):
    """Median, min and max wall seconds, the median processor seconds, and the peak resident MiB of the last run."""
    seconds, processor, peak_kib = [], [], 0
    for _ in range(runs):
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(time.monotonic() - start)
        processor.append(usage.ru_utime + usage.ru_stime)
        peak_kib = usage.ru_maxrss
        if status != 0:
            sys.exit(f'{" ".join(command)}: status {status}')
    return statistics.median(seconds), min(seconds), max(seconds), statistics.median(processor), peak_kib / 1024


def row(name, result, target, note=''):
    median, low, high, processor, mib = result
    print(f'{name:44} {median:8.3f} s ({low:.3f}..{high:.3f})  processor {processor:6.3f} s  target {target:>8}  '
          f'{mib:5.0f} MiB  {note}'.rstrip(), flush=True)


def python_json_seconds(path, runs):
    seconds = []
    for _ in range(runs):
        start = time.monotonic()
        with (gzip.open(path) if path.endswith('.gz') else open(path, 'rb')) as f:
            json.load(f)
        seconds.append(time.monotonic() - start)
    return statistics.median(seconds)


def bench_large(tool, nodes, runs, folder):
    binary, text, again = (os.path.join(folder, n) for n in ('big.sg', 'big.sg.txt', 'again.sg'))
    subprocess.run([tool('make_job'), '--nodes', str(nodes), '--seed', '1', '-o', binary], check=True)
    million = nodes / 1e6
    result = timed([tool('sg-check'), '-q', binary], runs)
    row(f'{nodes} nodes: read and verify binary', result, f'{2 * million:.2f} s')
    resident = timed([tool('make_job'), '--read', binary], runs)
    file_bytes = os.path.getsize(binary)
    row(f'{nodes} nodes: read binary', resident, '',
        f'{(resident[4] * 2**20 - file_bytes) / nodes:.0f} bytes resident a node beyond the mapped file (target 1200)')
    row(f'{nodes} nodes: print', timed([tool('sg-print'), binary, '-o', text], runs), f'{3 * million:.2f} s')
    row(f'{nodes} nodes: parse text', timed([tool('sg-parse'), text, '-o', again], runs), f'{6 * million:.2f} s')
    same = open(binary, 'rb').read() == open(again, 'rb').read()
    print(f'{"binary -> text -> binary byte-identical":44} {"yes" if same else "NO"}   '
          f'({file_bytes / 2**20:.0f} MiB binary, {os.path.getsize(text) / 2**20:.0f} MiB text)')


def bench_import(tool, traces, runs, folder):
    captures = sorted(glob.glob(os.path.join(traces, 'deep/*/step*.json.gz')))
    if not captures:
        print(f'SKIPPED: import of deep/*, {traces} is absent')
    for path in captures:
        size = len(gzip.open(path).read())
        result = timed([tool('sg-import'), '-q', '--spmd', path, '-o', os.path.join(folder, 'deep.sg')], runs)
        ratio = result[0] / python_json_seconds(path, runs)
        row('import ' + os.path.relpath(path, traces), result, '0.2 s',
            f'{size / 1e6 / result[0]:.0f} MB/s of JSON (target 100); {ratio:.2f}x Python json.load')


def bench_start(tool, runs, folder):
    small = os.path.join(folder, 'small.sg')
    subprocess.run([tool('make_job'), '--nodes', '20', '--seed', '1', '-o', small], check=True)
    for name, args in (('sg-print', []), ('sg-check', []), ('sg-stat', []), ('sg-stat', ['--json'])):
        row(f'start of {" ".join([name, *args])}', timed([tool(name), *args, small], max(runs, 11)), '0.02 s')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--nodes', type=int, default=1000000)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--traces', default='../shared/traces')
    options = parser.parse_args()
    print('machine:', machine())
    with tempfile.TemporaryDirectory() as folder:
        tool = lambda name: os.path.join(options.bin, name)
        bench_start(tool, options.runs, folder)
        bench_import(tool, options.traces, options.runs, folder)
        bench_large(tool, options.nodes, options.runs, folder)


if __name__ == '__main__':
    main()
