#!/usr/bin/env python3
"""run_all_reduce.py --bin BIN [--ranks 2] [--pairs 5]: all_reduce among our threads against Open MPI's own MPI_Allreduce.

Prints the machine, then per size the medians over alternating runs of both and their ratio (target 1.75 at 16 MiB on 2
ranks). Without MPI only our own figures.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys

from machine import machine


def figures(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {int(size): float(us) for size, us in (line.split() for line in output.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--ranks', type=int, default=2)
    parser.add_argument('--pairs', type=int, default=5)
    options = parser.parse_args()
    ours = [os.path.join(options.bin, 'bench_all_reduce'), str(options.ranks)]
    theirs = ['mpirun', '--oversubscribe', '-n', str(options.ranks), os.path.join(options.bin, 'bench_mpi_all_reduce')]
    if os.geteuid() == 0:
        theirs.insert(1, '--allow-run-as-root')
    has_mpi = shutil.which('mpirun') and os.path.exists(theirs[-1])
    print('machine:', machine())
    print(subprocess.run(['mpirun', '--version'], capture_output=True, text=True).stdout.splitlines()[0] if has_mpi
          else 'SKIPPED: no MPI, or built without it: our own figures only')
    pairs = [(figures(ours), figures(theirs) if has_mpi else {}) for _ in range(options.pairs)]
    print(f'{"bytes":>10} {"ours us":>12} {"MPI us":>12} {"ratio":>7}   medians of {options.pairs} pairs, {options.ranks} ranks')
    for size in pairs[0][0]:
        mine = statistics.median(p[0][size] for p in pairs)
        other = statistics.median(p[1][size] for p in pairs) if has_mpi else float('nan')
        ratio = statistics.median(p[1][size] / p[0][size] for p in pairs) if has_mpi else float('nan')
        print(f'{size:10} {mine:12.2f} {other:12.2f} {ratio:7.2f}{"   target 1.75" if size == 16 << 20 else ""}')


if __name__ == '__main__':
    sys.exit(main())
