#!/usr/bin/env python3
"""run_mpi_tests.py --program PLAY_RANKS --run SG_RUN: the mpi communicator under mpirun: answers to the bit, and faults.

Every fault has to end within seconds, on all ranks, with the documented exit code and a message that names the rank.
Skipped, aloud, without mpirun (exit 77).
"""
import argparse
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import skip  # noqa: E402
from tensor_files import write_tensors  # noqa: E402

#        mode        arguments      ranks  exit  seconds  what has to be said
CASES = [
    ('script', ['1', '150'], 2, [0], 60, ['2 ranks agree with the definitions']),
    ('script', ['2', '150'], 4, [0], 60, ['4 ranks agree with the definitions']),
    ('script', ['3', '60'], 1, [0], 60, ['1 ranks agree with the definitions']),
    ('agree', [], 2, [6], 10, ['rank 1 calls broadcast %odd, rank 0 calls all_reduce %even']),
    ('fail', [], 3, [4], 10, ['rank 1: index 9 is out of range']),
    ('mismatch', [], 3, [6], 10, ['all_to_all %routed of group @all']),
    ('endless', [], 3, [6], 10, ['rank 1 has been stuck for']),
    ('stop', [], 3, [6], 10, ['rank 1 has not run for']),
    ('deadlock', [], 3, [6], 10, ['in all_reduce %second of group @', 'did not come']),
    ('kill', [], 3, [137], 10, []),
]


# Every kind of collective that the table of ops has, in a step of four ranks.
STEP = '''sg 1.0 world 4
group @all [0 1 2 3]
group @pair [0 2] [1 3]
graph rank *
  input %x : f32[8, 3] "x"
  input %n : i64[4] "n"
  %gathered = _c10d_functional.all_gather_into_tensor(%x, 2, @pair)             : f32[16, 3]
  %reduced  = _c10d_functional.all_reduce(%x, "avg", @all)                      : f32[8, 3]
  %shard    = _c10d_functional.reduce_scatter_tensor(%x, "sum", 4, @all)        : f32[2, 3]
  %routed   = _c10d_functional.all_to_all_single(%n, [1, 1, 1, 1], [1, 1, 1, 1], @all) : i64[4]
  %first    = _c10d_functional.broadcast(%x, 1, @pair)                          : f32[8, 3]
  %w4 = _c10d_functional.wait_tensor(%first)    : f32[8, 3]
  %w0 = _c10d_functional.wait_tensor(%gathered) : f32[16, 3]
  %w3 = _c10d_functional.wait_tensor(%routed)   : i64[4]
  %w1 = _c10d_functional.wait_tensor(%reduced)  : f32[8, 3]
  %w2 = _c10d_functional.wait_tensor(%shard)    : f32[2, 3]
  output %w0
  output %w1
  output %w2
  output %w3
  output %w4
'''


def write_inputs(path, rank, dtype='F32', shape=(8, 3)):
    rng = random.Random(rank)
    x = struct.pack('<24f', *(rng.uniform(-1, 1) for _ in range(24)))
    n = struct.pack('<4q', *(rng.randrange(1000) for _ in range(4)))
    write_tensors(path, {'x': (dtype, shape, x), 'n': ('I64', (4,), n)})


def run_step(tool):
    """sg-run gives the same files with ranks as threads and as processes; a failure is spoken of once."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        with open(at('step.txt'), 'w') as f:
            f.write(STEP)
        for rank in range(4):
            write_inputs(at(f'in{rank}.safetensors'), rank)
        step = [tool, at('step.txt'), '--inputs', at('in{r}.safetensors')]
        for command in ([*step, '--outputs', at('local{r}')],
                        [*mpirun(4), *step, '--comm', 'mpi', '--outputs', at('mpi{r}')]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                problems.append(f'{command[0]}: exit {done.returncode}: {done.stderr}')
        slow = ['--chaos', '7', '--link', '2ms,1MiB/s']
        for command in ([*step, *slow, '--outputs', at('slow{r}')],
                        [*mpirun(4), *step, *slow, '--comm', 'mpi', '--outputs', at('slower{r}')]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                problems.append(f'{command[0]}, delayed: exit {done.returncode}: {done.stderr}')
        if not problems:
            read = lambda name: open(at(name), 'rb').read()
            problems += [f'rank {r}, {name}: other bits' for r in range(4) for name in ('mpi', 'slow', 'slower')
                         if read(f'local{r}') != read(f'{name}{r}')]
        problems += reports_that_differ([*step, '--steps', '2'])
        ranks = [subprocess.Popen([*step, '--comm', 'mpi', '--outputs', at('torch{r}')], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, 'RANK': str(r), 'WORLD_SIZE': '4', 'LOCAL_RANK': str(r)}) for r in range(4)]
        said = [process.communicate(timeout=120)[0] for process in ranks]
        if any(process.returncode != 0 for process in ranks):
            problems.append(f'as torchrun starts it: {said}')
        elif not problems:
            problems += [f'torchrun, rank {r}: other bits' for r in range(4) if read(f'local{r}') != read(f'torch{r}')]
        with open(at('step.txt')) as given:
            done = subprocess.run([*mpirun(2), tool, '-', '--init', 'seed:1', '--comm', 'mpi'], stdin=given, capture_output=True,
                                  text=True, timeout=120)
        if done.returncode != 2 or "standard input is one's alone" not in done.stderr:
            problems.append(f'a graph from standard input: exit {done.returncode}: {done.stderr}')
        os.remove(at('in2.safetensors'))
        done = subprocess.run([*mpirun(4), *step, '--comm', 'mpi'], capture_output=True, text=True, timeout=120)
        if done.returncode != 3 or done.stderr.count('error: ') != 1:
            problems.append(f'inputs missing: exit {done.returncode}: {done.stderr}')
    print(f'{"FAILED" if problems else "ok":6} sg-run --comm mpi: {"; ".join(problems)}', flush=True)
    return not problems


def reports_that_differ(command):
    """Processes report as threads do, in one text or document, but for the time that a step takes."""
    def report(start, options):
        done = subprocess.run([*start, *command, *options], capture_output=True, text=True, timeout=120)
        return re.sub(r'^step .*$|"step_seconds":[^]]*', 'TIME', done.stdout, flags=re.M)
    problems = []
    for options in ([], ['--json'], ['--dry-run', '--json']):
        threads, processes = report([], options), report(mpirun(4), [*options, '--comm', 'mpi'])
        if threads != processes or not threads:
            problems.append(f'{options}: threads say {threads!r}, processes {processes!r}')
    return problems


def check_fault(name, command, code, message, seconds, folder, disturb=(None, None)):
    """One run that has to fail: in time, with this exit code, one message, and no outputs of any rank."""
    for rank in range(4):
        write_inputs(os.path.join(folder, f'in{rank}'), rank)
    for old in os.listdir(folder):
        if old.startswith(('out', '.sg-')):
            os.remove(os.path.join(folder, old))
    prepare, after_start = disturb
    if prepare:
        prepare(folder)
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        if after_start:
            after_start(process)
            begin = time.monotonic()  # the fault
        _, said = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
    took = time.monotonic() - begin
    problems = [] if process.returncode == code else [f'exit {process.returncode} instead of {code}']
    if message not in said or said.count('error: ') > 1:
        problems.append(f'says {said!r}')
    if took > seconds * float(os.environ.get('SG_TEST_PATIENCE', '3')):
        problems.append(f'took {took:.1f} s')
    left = [f for f in os.listdir(folder) if f.startswith(('out', '.sg-')) and not os.path.islink(os.path.join(folder, f))]
    if left:
        problems.append(f'left {sorted(left)}')
    print(f'{"FAILED" if problems else "ok":6} fault: {name}, {took:.1f} s: {"; ".join(problems)}', flush=True)
    return not problems


def signal_rank(tool, number, wait=1):
    """Sends the signal to one rank of a run, `wait` seconds after all four are there."""
    def send(process):
        latest = time.monotonic() + 120  # a busy machine is slow to start them
        while len(ranks := alive(os.path.realpath(tool))) != 4:
            if time.monotonic() > latest or process.poll() is not None:
                print(f'FAILED to find four ranks: {ranks}', flush=True)
                return
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(ranks[1], number)
    return (None, send)


def run_faults(tool):
    """Whole runs that fail, with ranks as threads and as processes."""
    passed = []
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        with open(at('step.txt'), 'w') as f:
            f.write(STEP)
        step = [tool, at('step.txt'), '--inputs', at('in{r}'), '--outputs', at('out{r}')]
        full = lambda home: os.symlink('/dev/full', os.path.join(home, 'out2'))
        dtype = lambda home: write_inputs(os.path.join(home, 'in1'), 1, dtype='I32')
        shape = lambda home: write_inputs(os.path.join(home, 'in3'), 3, shape=(4, 6))
        gone = lambda home: os.remove(os.path.join(home, 'in2'))
        for kind, command in (('threads', step), ('processes', [*mpirun(4), *step, '--comm', 'mpi'])):
            passed.append(check_fault(f'full disk of one rank, {kind}', command, 5, 'No space left', 10, folder,
                                      (full, None)))
            passed.append(check_fault(f'another dtype on one rank, {kind}', command, 3, 'in1', 10, folder,
                                      (dtype, None)))
            passed.append(check_fault(f'another shape on one rank, {kind}', command, 3, 'in3', 10, folder,
                                      (shape, None)))
            passed.append(check_fault(f'no inputs for one rank, {kind}', command, 3,
                                      'rank 2' if kind == 'threads' else 'in2', 10, folder, (gone, None)))
        passed.append(check_fault('three processes for four ranks', [*mpirun(3), *step, '--comm', 'mpi'], 4, '4', 10,
                                  folder))
        endless = [*mpirun(4), *step, '--comm', 'mpi', '--steps', '100000000', '--timeout', '2']
        stopped = 'is stopped, or the machine is out of memory'  # in its step; on a busy machine perhaps before that, as below
        passed.append(check_fault('a stopped process', endless, 6, stopped, 20, folder,
                                  signal_rank(tool, signal.SIGSTOP)))
        passed.append(check_fault('a process stopped while MPI starts', endless, 6, stopped, 20, folder,
                                  signal_rank(tool, signal.SIGSTOP, 0)))
        passed.append(check_fault('a killed process', endless, 137, '', 20, folder, signal_rank(tool, signal.SIGKILL)))
    left = alive(os.path.realpath(tool))
    if left:
        print(f'FAILED {len(left)} processes of sg-run were left')
    return all(passed) and not left


def mpirun(ranks):
    command = ['mpirun', '--oversubscribe', '-n', str(ranks)]
    return command + (['--allow-run-as-root'] if os.geteuid() == 0 else [])


# In the environment of what this test starts: other tests run the same programs beside it.
MARK = f'SG_MPI_TEST={os.getpid()}'


def alive(program):
    """Processes of this test that still run the program, stopped ones included."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat') as f:
                zombie = f.read().rsplit(')', 1)[1].split()[0] == 'Z'
            with open(f'/proc/{pid}/environ', 'rb') as f:
                ours = MARK.encode() in f.read().split(b'\0')
            if not zombie and ours and os.readlink(f'/proc/{pid}/exe') == program:
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
    parser.add_argument('--run', required=True)
    parser.add_argument('--only', help='one mode')
    options = parser.parse_args()
    if shutil.which('mpirun') is None:
        return skip('no mpirun: the mpi communicator is not tested')
    program = os.path.realpath(options.program)
    os.environ.update([MARK.split('=')])
    cases = [c for c in CASES if options.only in (None, c[0])]
    passed = [run(program, *case) for case in cases]
    if options.only in (None, 'sg-run'):
        passed.append(run_step(options.run))
    if options.only in (None, 'faults'):
        passed.append(run_faults(options.run))
    return 0 if passed and all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
