#!/usr/bin/env python3
"""run_mpi_tests.py --program PLAY_RANKS: the mpi communicator under mpirun: answers to the bit, and faults.

Every fault has to end within seconds, on all ranks, with the documented exit code and a message that names the rank.
Skipped, aloud, without mpirun (exit 77).
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
#        mode        arguments      ranks  exit  seconds  what has to be said
CASES = [
    ('script', ['1', '150'], 2, [0], 60, ['2 ranks agree with the definitions']),
    ('script', ['2', '150'], 4, [0], 60, ['4 ranks agree with the definitions']),
    ('script', ['3', '60'], 1, [0], 60, ['1 ranks agree with the definitions']),
    ('agree', [], 2, [6], 10, ['rank 1 calls broadcast %odd, rank 0 calls all_reduce %even']),
    ('fail', [], 3, [4], 10, ['rank 1: index 9 is out of range']),
    ('mismatch', [], 3, [6], 10, ['all_to_all %routed of group @all']),
    ('endless', [], 3, [6], 10, ['rank 1 is stuck since']),
    ('stop', [], 3, [6], 10, ['rank 1 does not run since']),
    ('deadlock', [], 3, [6], 10, ['in all_reduce %second of group @', 'did not come']),
    ('kill', [], 3, [137], 10, []),
]


def mpirun(ranks):
    command = ['mpirun', '--oversubscribe', '-n', str(ranks)]
    return command + (['--allow-run-as-root'] if os.geteuid() == 0 else [])


def alive(program):
    """Processes that still run the program, stopped ones included."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat') as f:
                zombie = f.read().rsplit(')', 1)[1].split()[0] == 'Z'
            if not zombie and os.readlink(f'/proc/{pid}/exe') == program:
                found.append(int(pid))
        except OSError:
            pass
    return found


def run(program, mode, arguments, ranks, codes, seconds, said):
    start = time.monotonic()
    process = subprocess.Popen([*mpirun(ranks), program, mode, *arguments], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    took = time.monotonic() - start
    problems = []
    if process.returncode not in codes:
        problems.append(f'exit {process.returncode} instead of {codes}')
    if took > seconds * float(os.environ.get('SG_TEST_PATIENCE', '3')):
        problems.append(f'took {took:.1f} s')
    problems += [f'does not say "{text}"' for text in said if text not in output]
    left = alive(program)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if left:
        problems.append(f'{len(left)} processes were left')
    name = ' '.join([mode, *arguments])
    print(f'{"FAILED" if problems else "ok":6} {name}, {ranks} ranks, {took:.1f} s: {"; ".join(problems)}', flush=True)
    if problems:
        print(output)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', required=True)
    parser.add_argument('--only', help='one mode')
    options = parser.parse_args()
    if shutil.which('mpirun') is None:
        print('SKIPPED: no mpirun: the mpi communicator is not tested')
        return SKIPPED
    program = os.path.realpath(options.program)
    cases = [c for c in CASES if options.only in (None, c[0])]
    return 0 if all([run(program, *case) for case in cases]) else 1


if __name__ == '__main__':
    sys.exit(main())
