"""Cases of run_gpu_tests.py: collectives of ranks, and what becomes of a rank that hangs, breaks or dies."""
import os
import re
import shutil
import subprocess
import time


def collectives(tests, at):
    run = [tests.tool('sg-run'), '-q', at('all.txt'), '--inputs', at('all{r}.safetensors')]
    status, text = tests.run([*run, '--outputs', at('all{r}.out')])
    tests.expect('collectives: the processor', status and f'exit {status}: {text}')
    cuda = [*run, '--backend', 'cuda', '--timeout', '30']
    held = ['--expect', at('all{r}.out')]
    between_gpus = [('NCCL', [*cuda, '--comm', 'nccl', *held], {}),
                    ('NCCL, deterministic', [*cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'], {})]
    cases = [('ranks of one GPU', [*cuda, *held, '--bitwise'], {'SG_STUB_DEVICES': '1'})]
    if tests.args.stub:
        alone = [tests.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
                 '--comm', 'nccl']
        cases += [('NCCL, one rank', [*alone, '--expect', tests.same_out(at), '--bitwise'], {}),
                  ('NCCL, ranks that share a GPU', [*cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'],
                   {'SG_STUB_DEVICES': '1', 'SG_CUDA_SHARE': '1'}), *between_gpus]
        if shutil.which('mpirun') and tests.run([*mpirun(4), *run, '--comm', 'mpi'])[0] == 0:
            cases += [('NCCL, a process a GPU',
                       [*mpirun(4), *cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'], {}),
                      ('MPI, ranks of one GPU', [*mpirun(4), *cuda, '--comm', 'mpi', *held, '--bitwise'],
                       {'SG_STUB_DEVICES': '1'})]
        else:
            print('SKIPPED NCCL with a process a GPU: no mpirun, or built without MPI')
    elif gpus() >= 4:
        cases += between_gpus
    else:
        print(f'SKIPPED NCCL between GPUs: it needs four, and this machine has {gpus()}')
    for name, command, env in cases:
        begin = time.monotonic()
        status, text = tests.run(command, env)
        tests.expect(name, status and f'exit {status}: {text}', time.monotonic() - begin)


def gpus():
    """How many this machine has."""
    try:
        return len(subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True).stdout.splitlines())
    except OSError:
        return 0


def faults(tests, at):
    """A hung, a broken and a dead rank: exit 6 in time, the rank, its collective, and what came before."""
    if not tests.args.stub:
        print('SKIPPED faults of NCCL: they are made by its stand-in')
        return
    run = [tests.tool('sg-run'), '-q', at('all.txt'), '--inputs', at('all{r}.safetensors'), '--backend', 'cuda',
           '--comm', 'nccl', '--timeout', '2']
    # The first request of @all connects its members, for %routed. Who gives up first may be a rank that has launched %most, and waits for one that has not got on from it.
    stuck = r'rank \d waits since 3 s (for the other ranks to start|in) all_reduce %(most of group @all|strided of group @pair) \(number \d+\)'
    cases = [('an operation is refused', run, 'refuse:1:2', 6,
              r'rank \d: nccl\w+ failed: an error of the stand-in'),
             ('a communicator does not come to be', run, 'init:1:1', 6, r'rank 1: ncclCommInitRankConfig failed'),
             ('there is no unique id', run, 'id:0:1', 6, r'ncclGetUniqueId failed'),
             ('a rank does not come', run, 'absent:1:1', 6,
              r'rank \d waits since 2 s for the other ranks of the job to start NCCL'),
             ('a rank hangs', run, 'hang:1:4', 6, r'rank \d waits since \d s in all_reduce %most of group @all \(number \d+\), launched at %most \(step.py:7\).*(\n.*)*its last collectives: .* ended; .* is open'),
             # (the driver waits for all that is before a copy to memory that is not pinned, and asks nobody meanwhile)
             ('a rank hangs before a number for the host', [*run[:2], at('awaited.txt'), '--init', 'seed:0', *run[5:]], 'hang:1:1', 6,
              r'waits since \d s in all_reduce %r of group @all'),
             ('a collective is never issued', run, 'stuck:1:4', 6, stuck),
             ('NCCL reports an error', run, 'error:2:3', 6, r'rank 2: NCCL failed: remote process exited')]
    if shutil.which('mpirun') and tests.run([*mpirun(4), *run[:5], '--comm', 'mpi'])[0] == 0:
        cases += [('a process hangs', [*mpirun(4), *run], 'hang:1:4', 6, r'waits since \d s in all_reduce %most'),
                  ('a process dies', [*mpirun(4), *run], 'die:2:5', 9, '')]
    for name, command, fault, code, said in cases:
        begin = time.monotonic()
        status, text = tests.run(command, {'SG_FAKE_NCCL': fault})
        took = time.monotonic() - begin
        late = took > 10 * float(os.environ.get('SG_TEST_PATIENCE', '3'))
        tests.expect(name, (status != code or not re.search(said, text) or late) and f'exit {status} after {took:.1f} s: {text}', took)


def mpirun(n):
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    names = ['LD_LIBRARY_PATH', 'SG_STUB_DEVICES', 'SG_FAKE_NCCL']
    return ['mpirun', '--oversubscribe', '-n', str(n), *root, *(word for name in names for word in ('-x', name))]
