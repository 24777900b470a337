#!/usr/bin/env python3
"""run_rebuild_bench.py [--build build] [--runs 3] [--test]: how long one edited file takes to be built, and `make test` after a build.

A file is touched and ninja builds all that depends on it, without the compiler cache, which knows a touched file: what an edit
costs. Printed: median, least and most of the runs by the clock, and the processor time of the median, which a busy machine
changes least; beside the targets. The build folder has to be a developer's (no SG_UNITY) and is brought up to date first.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

from machine import machine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# One of each place that people work at: libraries, a kernel, a tool, a test.
FILES = ['libgraph/facts/alias.cc', 'libgraph/diff/diff_nodes.cc', 'libpasses/remat/remat.cc', 'librun/session.cc', 'librun/cpu/softmax.cc',
         'tools/sg_stat.cc', 'tests/unit/graph_test.cc']
ONE_FILE_SECONDS, TEST_SECONDS = 10, 300


def timed(*command, **more):
    """Seconds by the clock, and of processor time, of a command that has to succeed."""
    before, began = os.times(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    seconds, after = time.monotonic() - began, os.times()
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}')
    return seconds, after.children_user + after.children_system - before.children_user - before.children_system


def row(name, runs, target):
    runs = sorted(runs)
    seconds = [run[0] for run in runs]
    print(f'{name:36} {statistics.median(seconds):7.1f} s ({seconds[0]:.1f}..{seconds[-1]:.1f})  '
          f'processor {runs[len(runs) // 2][1]:7.1f} s  target {target} s', flush=True)


def is_in_batches(build):
    with open(os.path.join(build, 'CMakeCache.txt')) as cache:
        return any(line.startswith('SG_UNITY') and line.strip().endswith('=ON') for line in cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--test', action='store_true', help='`make test` as well, once: some five minutes')
    args = parser.parse_args()
    build = os.path.join(ROOT, args.build)
    if is_in_batches(build):
        sys.exit(f'{build} compiles files in batches (SG_UNITY): an edit there costs its batch')
    print(machine())
    ninja = ('cmake', '--build', build, '-j', str(os.cpu_count()))
    timed(*ninja)
    no_cache = {**os.environ, 'CCACHE_DISABLE': '1'}
    for file in FILES:
        runs = []
        for _ in range(args.runs):
            os.utime(os.path.join(ROOT, file))
            runs.append(timed(*ninja, env=no_cache))
        row(f'touch {file}', runs, ONE_FILE_SECONDS)
    if args.test:
        row('make test', [timed('make', 'test', f'BUILD={args.build}', cwd=ROOT)], TEST_SECONDS)


if __name__ == '__main__':
    main()
