"""Cases of run_gpu_tests.py: the communicators of groups, split from that of all ranks, with the stand-in of NCCL."""
import os
import re
import shutil
import struct

from tensor_files import write_tensors


def graph_of(ranks, groups, reverse=False):
    """Gathers over groups (name, size), all of them launched before the first is waited for: what comes shows which ranks the
    group has, in which order, and that the second of two groups of the same ranks is not taken for the first."""
    order = list(reversed(groups)) if reverse else groups
    lines = [f'graph rank {" ".join(map(str, ranks))}', '  input %x : f32[2, 3] "x"', '  %neg = aten.neg(%x)']
    lines += [f'  %g{i} = _c10d_functional.all_gather_into_tensor({"%neg" if ":" in name else "%x"}, {n}, {name}) : f32[{2 * n}, 3]' for i, (name, n) in enumerate(order)]
    lines += [f'  %w{i} = _c10d_functional.wait_tensor(%g{i}) : f32[{2 * n}, 3]' for i, (_, n) in enumerate(order)]
    return '\n'.join([*lines, '  %own = aten.relu(%neg)', *(f'  output %w{i}' for i in range(len(order))), '  output %own']) + '\n'


# Axes of disjoint parts, a group that leaves ranks out, and all ranks twice: what is launched over the one may come before what is
# launched over the other, or after it, as each rank likes.
OVERLAPPING = ('''sg 1.0 world 6
group @all [0..5]
group @dp [0 3] [1 4] [2 5]
group @even [0 2 4]
group @tp [0 1 2] [3 4 5]
group @all:1 [0..5]
''' + graph_of((0, 2, 4), [('@all', 6), ('@dp', 2), ('@even', 3), ('@tp', 3), ('@all:1', 6)])
    + graph_of((1, 3, 5), [('@all', 6), ('@dp', 2), ('@tp', 3), ('@all:1', 6)], reverse=True))

# A rank in both of two groups, and one in none.
FEW = ('''sg 1.0 world 4
group @left [0 1]
group @right [1 2]
''' + graph_of((0,), [('@left', 2)]) + graph_of((1,), [('@left', 2), ('@right', 2)]) + graph_of((2,), [('@right', 2)]) + graph_of((3,), []))

# The ranks of a part in another order than their own.
TURNED = '''sg 1.0 world 4
group @all [0..3]
group @turned [2 0] [3 1]
''' + graph_of(('*',), [('@all', 4), ('@turned', 2)])

# Two groups whose first exchanges, which connect their members, come in different orders.
def exchanges(rank, first, second):
    return f'''graph rank {rank}
  input %x : f32[2, 3] "x"
  %a = _c10d_functional.all_to_all_single(%x, [1, 1], [1, 1], {first})  : f32[2, 3]
  %b = _c10d_functional.all_to_all_single(%x, [1, 1], [1, 1], {second}) : f32[2, 3]
  %wa = _c10d_functional.wait_tensor(%a) : f32[2, 3]
  %wb = _c10d_functional.wait_tensor(%b) : f32[2, 3]
  output %wa
  output %wb
'''


CROSSED = '''sg 1.0 world 2
group @left [0 1]
group @right [0 1]
''' + exchanges(0, '@left', '@right') + exchanges(1, '@right', '@left')
# The same with sums, which --deterministic turns into exchanges.
CROSSED_SUMS = CROSSED.replace('all_to_all_single(%x, [1, 1], [1, 1], ', 'all_reduce(%x, "sum", ')

ONE_AXIS = '''sg 1.0 world 4
group @pair [0 2] [1 3]
''' + graph_of(('*',), [('@pair', 2)])

ALONE = '''sg 1.0 world 1
group @dp [0]
group @tp [0]
''' + graph_of(('*',), [('@dp', 1), ('@tp', 1)])

# name, the job, its ranks; how often all ranks together get an id, meet by one, split, and are in what has been split off
JOBS = (('overlapping groups', OVERLAPPING, 6, (1, 6, 24, 6 + 3 + 6 + 6)),
        ('few ranks in groups', FEW, 4, (1, 4, 8, 4)),
        ('ranks in another order', TURNED, 4, (1, 4, 4, 4)),
        ('one axis', ONE_AXIS, 4, (2, 4, 0, 0)),
        ('one rank', ALONE, 1, (1, 1, 1, 1)),
        ('crossed exchanges', CROSSED, 2, (1, 2, 2, 2)),
        ('crossed sums', CROSSED_SUMS, 2, (1, 2, 2, 2)))
OLD = {'overlapping groups': (1 + 3 + 1 + 2 + 1, 6 + 6 + 3 + 6 + 6, 0, 0)}
CALLS = (('ncclGetUniqueId', 1), ('ncclCommInitRankConfig', 4), ('ncclCommSplit', 4), ('ncclCommGetAsyncError', 3), ('ncclGroupStart', 2),
         ('ncclGroupEnd', 2), ('ncclSend', 3), ('ncclRecv', 3), ('ncclAllGather', 3), ('ncclBroadcast', 2), ('ncclAllReduce', 3),
         ('ncclReduceScatter', 2))


class SplitCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        for r in range(6):  # others on each rank, so that what comes says from whom
            write_tensors(at(f'split{r}.in'), {'x': ('F32', (2, 3), struct.pack('<6f', *(10 * r + i for i in range(6))))})
        self.old = {'LD_LIBRARY_PATH': f'{tests.args.stub}_old:{tests.env.get("LD_LIBRARY_PATH", "")}'}

    def run(self):
        if not self.tests.args.stub:
            print('SKIPPED splits: they are seen by the stand-in of NCCL')
            return
        for name, job, world, counts in JOBS:
            self.held(name, job, world, counts)
        self.connected_late()
        for name, env, why in (('without ncclCommSplit', self.old, 'it has no ncclCommSplit'),
                               ('that nobody wants', {'SG_CUDA_SPLIT': '0'}, 'SG_CUDA_SPLIT says so')):
            text = self.held(f'splits {name}', OVERLAPPING, 6, OLD['overlapping groups'], env)
            self.tests.expect(f'splits {name}: why', f'5 by an id, 0 by splits: {why}' not in text and text)

    def connected_late(self):
        """Why connections are made before the first step: else ranks that launch in different orders wait for each other."""
        run = [self.tests.tool('sg-run'), self.at('split.txt'), '--init', 'seed:0', '--backend', 'cuda', '--comm', 'nccl', '--timeout', '2']
        with open(self.at('split.txt'), 'w', encoding='utf-8') as f:
            f.write(OVERLAPPING)
        status, text = self.tests.run(run, {'SG_STUB_DEVICES': '6', 'NCCL_RUNTIME_CONNECT': '1'})
        hangs = status == 6 and re.search(r'rank \d waits since 3 s (for the other ranks to start|in) all_gather', text)
        self.tests.expect('connections of collectives in the step', not hangs and f'exit {status}: {text}')

    def held(self, name, job, world, counts, env=None):
        """As the ranks of the processor have it, to the bit; how the communicators came to be."""
        graph, log, out = self.at('split.txt'), self.at('nccl.log'), self.at(f'split-of-{world}-{{r}}.out')
        with open(graph, 'w', encoding='utf-8') as f:
            f.write(job)
        inputs = self.at(f'inputs-of-{world}')
        os.makedirs(inputs, exist_ok=True)
        for r in range(world):
            shutil.copy(self.at(f'split{r}.in'), inputs)
        command = [self.tests.tool('sg-run'), graph, '--inputs', os.path.join(inputs, 'split{r}.in')]
        status, text = self.tests.run([*command, '-q', '--outputs', out])
        self.tests.expect(f'{name}: the processor', status and f'exit {status}: {text}')
        command += ['--backend', 'cuda', '--comm', 'nccl', '--timeout', '30', '--expect', out, '--bitwise']
        command += ['--deterministic'] if job is CROSSED_SUMS else []
        env = {**(env or {}), 'SG_STUB_DEVICES': str(world)}
        status, text = self.tests.run([*command, '--explain'], {**env, 'SG_FAKE_NCCL_LOG': log})
        lines = []
        if os.path.exists(log):
            with open(log, encoding='utf-8') as f:
                lines = f.read().splitlines()
            os.remove(log)
        found = tuple(sum(line.split(':')[0] == what for line in lines) for what in ('id', 'met', 'split', 'split off'))
        self.tests.expect(name, status and f'exit {status}: {text}')
        slow = {line for line in lines if line.startswith('stream') and line != 'stream: priority -5'}
        self.tests.expect(f'{name}: streams before that of the kernels', slow)
        self.tests.expect(f'{name}: how they came to be', found != counts and f'{found}, not {counts}: {lines}')
        return text

    def faults(self):
        """A split that fails, one that a rank does not come to, and each call failing once: exit 6 in time, with the call's name."""
        if not self.tests.args.stub:
            print('SKIPPED faults of splits: they are made by the stand-in of NCCL')
            return
        run = [self.tests.tool('sg-run'), '-q', self.at('all.txt'), '--inputs', self.at('all{r}.safetensors'), '--backend', 'cuda', '--comm',
               'nccl', '--timeout', '2']
        for name, fault, said in (
                ('a split fails', 'split:1:1', r'rank 1: ncclCommSplit failed: remote process exited'),
                ('a rank does not come to a split', 'apart:1:1', r'rank \d waits since 2 s for the other ranks of the job to split group @pair')):
            status, text = self.tests.run(run, {'SG_FAKE_NCCL': fault})
            self.tests.expect(name, (status != 6 or not re.search(said, text)) and f'exit {status}: {text}')
        for call, most in CALLS:
            problem = None
            for n in range(1, most + 1):
                # --deterministic is what sends and receives are for
                options = ['--deterministic'] if call in ('ncclGroupStart', 'ncclGroupEnd', 'ncclSend', 'ncclRecv') else []
                status, text = self.tests.run([*run, *options], {'SG_FAKE_NCCL_FAIL': f'{call}:{n}'})
                if status != 6 or not re.search(rf'rank \d: {call} failed: an error of the stand-in', text):
                    problem = f'call {n}: exit {status}: {text}'
                    break
            self.tests.expect(f'{call} fails', problem)
