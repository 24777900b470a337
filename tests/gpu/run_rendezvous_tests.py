#!/usr/bin/env python3
"""run_rendezvous_tests.py --bin BIN --stub DIR [NAME...]: processes with a GPU each that find each other without MPI.

`sg-run --comm nccl` as torchrun, Slurm and people by hand start it, over the stand-ins of tests/gpu/stub: answers to the bit, and
faults, which have to end all ranks in seconds with the documented exit code and one message. Real torchrun is used where a Python
with torch is (STEPGRAPH_PYTHON, a venv, or that of the path); else it is said. Skipped, aloud, where the backend was not built (exit 77).
"""
import argparse
import glob
import os
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
from harness import Cases, python_with, skip  # noqa: E402
from run_gpu_tests import prepare  # noqa: E402

PATIENCE = float(os.environ.get('SG_TEST_PATIENCE', '3'))
cases = Cases()


class Ranks:
    """Processes, one a rank, in the folder of the case."""

    def __init__(self, tool, options, words, world=4, log='log'):
        self.began, self.log = time.monotonic(), log
        command = [tool, 'all.txt', '-q', '--inputs', 'all{r}.safetensors', '--backend', 'cuda', '--comm', 'nccl', *options]
        self.files = [open(f'{log}{r}', 'w+', encoding='utf-8') for r in range(world)]
        self.processes = [subprocess.Popen(command, env={**os.environ, **words(r)}, stdout=f, stderr=subprocess.STDOUT)
                          for r, f in enumerate(self.files)]

    def end(self, codes, seconds, said='', errors=1):
        """All have ended in time, each with its code; what they said, with so many errors."""
        try:
            for process in self.processes:
                process.wait(timeout=PATIENCE * seconds + 20)
        except subprocess.TimeoutExpired:
            pass
        took = time.monotonic() - self.began
        found = [process.poll() for process in self.processes]
        for process in self.processes:
            process.kill()
            process.wait()
        text = ''
        for f in self.files:
            f.seek(0)
            text += f.read()
            f.close()
        assert found == codes, f'{found} after {took:.1f} s: {text}'
        assert said in text, text
        assert text.count('error: ') == errors, text
        assert took <= PATIENCE * seconds, f'{took:.1f} s'
        left = glob.glob('out*') + glob.glob('.sg-*')
        assert not left, left
        return text

    def until_all_run(self):
        time.sleep(2)
        assert all(p.poll() is None for p in self.processes), [open(f'{self.log}{r}').read() for r in range(4)]


def free_port():
    with socket.socket() as s:
        s.bind(('', 0))
        return str(s.getsockname()[1])


def by_hand(world=4, **more):
    port = free_port()
    return lambda r: {'RANK': str(r), 'WORLD_SIZE': str(world), 'MASTER_ADDR': 'localhost', 'MASTER_PORT': port, **more}


def ready(tool):
    """The inputs of the ranks, and what the processor makes of them."""
    prepare(lambda name: name)
    subprocess.run([tool, '-q', 'all.txt', '--inputs', 'all{r}.safetensors', '--outputs', 'cpu{r}'], check=True)
    return ['--deterministic', '--expect', 'cpu{r}', '--bitwise']


ENDLESS = ['--steps', '1000000000', '--outputs', 'out{r}', '--timeout', '2']


@cases.add
def an_address_by_hand(tool):
    Ranks(tool, ready(tool), by_hand()).end([0] * 4, 5, errors=0)


@cases.add
def an_address_by_option(tool):
    held = ready(tool)
    Ranks(tool, [*held, '--rendezvous', f'localhost:{free_port()}'],
          lambda r: {'RANK': str(r), 'WORLD_SIZE': '4'}).end([0] * 4, 5, errors=0)


@cases.add
def a_file(tool):
    held = ready(tool)
    with open('meet', 'w', encoding='utf-8') as f:
        f.write('stepgraph-rank0 old 1 127.0.0.1\n')       # of a run before: nobody listens there
    for _ in range(2):
        Ranks(tool, [*held, '--rendezvous', 'meet'], lambda r: {'RANK': str(r), 'WORLD_SIZE': '4'}).end([0] * 4, 5, errors=0)
        assert not os.path.exists('meet')


@cases.add
def a_step_of_slurm(tool):
    job = str(int(free_port()) % 10000)
    Ranks(tool, ready(tool), lambda r: {'SLURM_PROCID': str(r), 'SLURM_STEP_NUM_TASKS': '4', 'SLURM_LOCALID': str(r),
                                        'SLURM_STEP_NODELIST': 'localhost', 'SLURM_JOB_ID': job, 'SLURM_STEP_ID': '0',
                                        'PMI_RANK': str(r), 'PMI_SIZE': '4'}).end([0] * 4, 5, errors=0)


@cases.add
def a_job_script_of_slurm(tool):
    """One process, which has all GPUs: nobody else is waited for."""
    Ranks(tool, ready(tool), lambda r: {'SLURM_PROCID': '0', 'SLURM_NTASKS': '4', 'SLURM_JOB_ID': '1'}, world=1).end([0], 5, errors=0)


@cases.add
def a_process_that_sees_its_gpu_alone(tool):
    words = by_hand(SG_STUB_DEVICES='1')
    Ranks(tool, ready(tool), lambda r: {**words(r), 'SG_STUB_FIRST_DEVICE': str(r)}).end([0] * 4, 5, errors=0)


@cases.add
def processes_that_see_one_gpu(tool):
    Ranks(tool, ready(tool), by_hand(SG_STUB_DEVICES='1')).end(
        [5] * 4, 5, 'NCCL needs a GPU a rank: ranks 0, 1 of this machine have the same')


@cases.add
def a_process_that_does_not_split(tool):
    """One that does not is enough: the others would wait for it."""
    words = by_hand()
    Ranks(tool, ready(tool), lambda r: {**words(r), **({'SG_CUDA_SPLIT': '0'} if r == 2 else {})}).end([0] * 4, 5, errors=0)


@cases.add
def inputs_that_one_rank_lacks(tool):
    ready(tool)
    os.remove('all2.safetensors')
    Ranks(tool, [], by_hand()).end([3] * 4, 5, 'all2.safetensors')


@cases.add
def fewer_processes_than_ranks(tool):
    ready(tool)
    Ranks(tool, [], by_hand(world=3), world=3).end([4] * 3, 5, 'the job has 4 ranks, the variables of torchrun mention 3', errors=3)


@cases.add
def a_rank_that_does_not_come(tool):
    ready(tool)
    text = Ranks(tool, ['--timeout', '2'], by_hand(), world=3).end([6] * 3, 10, errors=3)
    assert text.count('rank 3 did not come to localhost:') == 3, text


@cases.add
def no_place_and_no_rank(tool):
    ready(tool)
    Ranks(tool, [], lambda r: {'RANK': str(r), 'WORLD_SIZE': '4'}).end([2] * 4, 5, 'does not say where they meet', errors=4)
    Ranks(tool, ['--rendezvous', 'meet'], lambda r: {}, world=1).end([2], 5, 'does not say which rank this process is')
    done = subprocess.run([tool, 'all.txt', '--rendezvous', 'meet'], capture_output=True, text=True)
    assert done.returncode == 2 and '--rendezvous is for --comm nccl' in done.stderr, done


@cases.add
def a_process_that_dies(tool):
    for guilty in (2, 0):
        ready(tool)
        ranks = Ranks(tool, ENDLESS, by_hand())
        ranks.until_all_run()
        ranks.processes[guilty].send_signal(signal.SIGKILL)
        codes = [-signal.SIGKILL if r == guilty else 6 for r in range(4)]
        # Nobody is left to say which rank speaks when rank 0 dies: the lowest does at once, the others later.
        ranks.end(codes, 10, f'rank {guilty} ended without reporting an error', errors=1 if guilty else 3)


@cases.add
def a_process_that_is_stopped(tool):
    ready(tool)
    ranks = Ranks(tool, ENDLESS, by_hand())
    ranks.until_all_run()
    ranks.processes[1].send_signal(signal.SIGSTOP)
    for r in (0, 2, 3):
        assert ranks.processes[r].wait(timeout=20 * PATIENCE) == 6
    ranks.processes[1].send_signal(signal.SIGCONT)       # nobody is there any more
    ranks.end([6] * 4, 20, 'rank 1 has not run for')


@cases.add
def before_the_first_step(tool):
    """One that takes long to begin is waited for; one that is stopped meanwhile is not."""
    held = ready(tool)
    slow = by_hand()
    words = lambda r: {**slow(r), 'SG_STUB_SLOW': 'cuInit:4000' if r == 2 else ''}
    Ranks(tool, [*held, '--timeout', '2'], words).end([0] * 4, 10, errors=0)
    ranks = Ranks(tool, ENDLESS, words)
    time.sleep(1.5)
    ranks.processes[2].send_signal(signal.SIGSTOP)
    for r in (0, 1, 3):
        assert ranks.processes[r].wait(timeout=20 * PATIENCE) == 6
    ranks.processes[2].kill()
    ranks.end([6, 6, -signal.SIGKILL, 6], 20, 'rank 2 has not run for')


@cases.add
def a_rank_that_hangs_in_nccl(tool):
    ready(tool)
    Ranks(tool, ['--timeout', '2'], by_hand(SG_FAKE_NCCL='hang:1:4')).end([6] * 4, 10, 'waits since 3 s in all_reduce %most of group @all')


def torchrun(python, tool, options, *how, program=None):
    run = program or ['all.txt', '--inputs', 'all{r}.safetensors', '--backend', 'cuda', '--comm', 'nccl', *options]
    command = [python, '-m', 'torch.distributed.run', *how, '--no-python', tool, *run]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@cases.add
def real_torchrun(tool):
    """Its agents keep the address of rank 0 in a store of their own; one agent, and two that act as two machines."""
    python = python_with('torch.distributed.run')
    if python is None:
        print('SKIPPED real torchrun: no Python with torch; set STEPGRAPH_PYTHON')
        return
    held = ready(tool)
    two = ['--nnodes', '2', '--nproc-per-node', '2', '--rdzv-backend', 'c10d', '--rdzv-endpoint', f'localhost:{free_port()}']
    static = ['--nnodes', '2', '--nproc-per-node', '2', '--master-addr', 'localhost', '--master-port', free_port()]
    for agents in ([['--nproc-per-node', '4']], [two, two], [[*static, '--node-rank', '0'], [*static, '--node-rank', '1']]):
        running = [torchrun(python, tool, held, *how) for how in agents]
        said = [agent.communicate(timeout=120)[0] for agent in running]
        assert [agent.returncode for agent in running] == [0] * len(agents), said
        assert sum(text.count('all 8 compared values are as expected') for text in said) == 4, said
    os.remove('all2.safetensors')
    agent = torchrun(python, tool, [], '--nproc-per-node', '4')
    text = agent.communicate(timeout=120)[0]
    assert agent.returncode == 1 and 'all2.safetensors' in text and text.count(' error: cannot read') == 1, text


@cases.add
def torchrun_starts_again(tool):
    """Two agents, of which each counts its own restarts: the ranks meet again all the same."""
    python = python_with('torch.distributed.run')
    if python is None:
        print('SKIPPED restarts by torchrun: no Python with torch; set STEPGRAPH_PYTHON')
        return
    held = ready(tool)
    with open('rank.sh', 'w', encoding='utf-8') as f:
        f.write('if [ "$RANK" = 3 ] && [ ! -e once ]; then touch once; sleep 1; exit 7; fi\nexec "$@"\n')
    how = ['--nnodes', '2', '--nproc-per-node', '2', '--max-restarts', '2', '--rdzv-backend', 'c10d', '--rdzv-endpoint', f'localhost:{free_port()}']
    agents = [torchrun(python, 'sh', [], *how, program=['rank.sh', tool, 'all.txt', '--inputs', 'all{r}.safetensors', '--backend', 'cuda',
                                                        '--comm', 'nccl', *held]) for _ in range(2)]
    said = [agent.communicate(timeout=180)[0] for agent in agents]
    assert os.path.exists('once')
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert sum(text.count('all 8 compared values are as expected') for text in said) == 4, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--stub', required=True)
    parser.add_argument('names', nargs='*')
    args = parser.parse_args()
    tool = os.path.join(os.path.abspath(args.bin), 'sg-run')
    if not os.path.exists(os.path.join(args.bin, '../lib/stepgraph/libsg_backend_cuda.so')):
        return skip('built without the cuda backend (nvcc was not found)')
    os.environ['LD_LIBRARY_PATH'] = os.path.abspath(args.stub) + ':' + os.environ.get('LD_LIBRARY_PATH', '')
    os.environ['SG_STUB_DEVICES'] = '4'
    return cases.run(args.names, (tool, ))


if __name__ == '__main__':
    sys.exit(main())
