#!/usr/bin/env python3
"""run_peaks.py --bin BIN [--only TEXT] [--quick]: sg-remat --peak on the shared captures, from below the bound to above the peak.

For each capture (rank 0 of jobs): the peak as it is, the lowest that --budget 0 finds, and the lower bound. A peak from the lowest
found upwards must be met, as sg-run --plan plans it where the data decides no size; one below the bound must end with exit code 4,
the bound and what is alive there; between the two either is right, but a peak that is met is the new lowest, and none may take
longer than a minute. Prints a row a capture. --quick: three peaks in place of nine, and no graph above 5000 nodes.
Says aloud when ../shared/traces is absent.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from harness import Failure, TRACES, Tally, run, skip  # noqa: E402
LONGEST_S = 60
FOUND = re.compile(r'the lowest that was found is [^(,]*(?:\((\d+) bytes\))?, the lower bound [^(\n]*(?:\((\d+) bytes\))?')


def sources():
    for path in sorted(glob.glob(f'{TRACES}/*/*/step*.json*') + glob.glob(f'{TRACES}/*/*/rank0/step.json*')):
        yield os.path.relpath(path, TRACES), path


class Sweep:
    def __init__(self, bin_dir, folder):
        self.bin, self.graph, self.lean = bin_dir, os.path.join(folder, 'step.sg'), os.path.join(folder, 'lean.sg')

    def run(self, name, *words, ok=(0,)):
        begin = time.time()
        done = run(os.path.join(self.bin, name), *words, ok=ok, timeout=LONGEST_S)
        self.seconds = time.time() - begin
        return done

    def planned(self, graph):
        return json.loads(self.run('sg-stat', graph, '--json').stdout)['memory']['peak_bytes']

    def remat(self, *words, ok=(0,)):
        """The exit code, and the peak that is then planned."""
        done = self.run('sg-remat', self.graph, *words, '-o', self.lean, '--json', ok=ok)
        report = json.loads(done.stdout) if done.stdout else {}
        return done, report

    def hold(self, source, points):
        self.run('sg-import', '-q', source, '--spmd', '-o', self.graph)
        nodes = json.loads(self.run('sg-stat', self.graph, '--json').stdout)['nodes']
        if points < 9 and nodes > 5000:
            return None
        refused, _ = self.remat('--peak', '1', ok=(4,))
        numbers = FOUND.search(refused.stderr)
        if numbers is None or 'alive at once' not in refused.stderr:
            raise Failure(f'no bound, or nothing that forms it: {refused.stderr}')
        least, bound = (int(n or 0) for n in numbers.groups())
        self.remat('--budget', '0')
        most, lowest = self.planned(self.graph), self.planned(self.lean)
        if not bound <= least <= most:
            raise Failure(f'bound {bound}, lowest {least}, as it is {most}')
        met, slowest = 0, self.seconds
        for i in range(points):
            wanted = bound + (most - bound) * i // (points - 1) if points > 1 else least
            done, _ = self.remat('--peak', str(wanted), ok=(0, 4))
            slowest = max(slowest, self.seconds)
            if done.returncode == 4:
                if wanted >= lowest:
                    raise Failure(f'{wanted} is not met, though {lowest} is: {done.stderr}')
                continue
            met += 1
            got = self.planned(self.lean)
            if got > wanted:
                raise Failure(f'{wanted} was asked for, {got} is planned')
        return nodes, bound, lowest, most, met, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--quick', action='store_true')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        return skip('../shared/traces is absent')
    points, tally, held = 3 if args.quick else 9, Tally(subprocess.TimeoutExpired), 0
    print(f'{"capture":52} {"nodes":>6} {"bound":>14} {"lowest":>14} {"as it is":>14} {"met":>6} {"slowest":>8}')
    for name, source in sources():
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = tally.hold(name, Sweep(args.bin, folder).hold, source, points)
        if row is None:
            continue
        held += 1
        nodes, bound, lowest, most, met, slowest = row
        print(f'{name:52} {nodes:6} {bound:14} {lowest:14} {most:14} {met:3}/{points} {slowest:6.1f} s', flush=True)
    return tally.finish(f'{held} captures held')


if __name__ == '__main__':
    sys.exit(main())
