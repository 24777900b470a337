"""Cases of run_gpu_tests.py: --profile on the device. Times are those of its streams, not of the host that fills them."""
import json
import re

# A kernel that takes long, a number for the host, a chain that is fused, and an op that the host computes.
PROFILED = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  %low  = aten.tril(%a)                                    : f32[6, 5]
  %turn = aten.flip(%low, [0])                             : f32[6, 5]
  %sum  = aten.sum(%turn)                                  : f32[]
  %n    = aten._local_scalar_dense(%sum)                   : float
  %soft = aten.tanh(%turn)                                 : f32[6, 5]
  %more = aten.mul.Tensor(%soft, %turn)                    : f32[6, 5]
  %both = aten.add.Tensor(%more, %low)                     : f32[6, 5]
  %all  = aten.mul.Tensor(%both, %n)                       : f32[6, 5]
  %view = aten.slice.Tensor(%all, 0, 0, 5)                 : f32[5, 5]
  %wide = aten.linalg_matrix_exp(%view)                    : f32[5, 5]
  output %wide
'''

# A collective beside a kernel that takes longer, and one that nothing hides.
OVERLAPPED = '''sg 1.0 world 4
group @all [0 1 2 3]
group @pair [0 2] [1 3]
graph rank *
  input %x : f32[8, 8] "x"
  %sum    = _c10d_functional.all_reduce(%x, "sum", @all)   : f32[8, 8]
  %low    = aten.tril(%x)                                  : f32[8, 8]
  %ws     = _c10d_functional.wait_tensor(%sum)             : f32[8, 8]
  %both   = aten.add.Tensor(%ws, %low)                     : f32[8, 8]
  %all    = _c10d_functional.all_gather_into_tensor(%both, 2, @pair) : f32[16, 8]
  %wa     = _c10d_functional.wait_tensor(%all)             : f32[16, 8]
  output %wa
'''
NODES, GROUPS = 1, 2     # tracks: of the nodes, and the first of a group
SLOW_MS, STEPS = 300, 3


class ProfileCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        for name, text in (('profiled.txt', PROFILED), ('overlapped.txt', OVERLAPPED)):
            with open(at(name), 'w', encoding='utf-8') as f:
                f.write(text)

    def profile(self, name, graph, options=(), env=None, said=''):
        """The complete events of a run, by rank: (track, name, node or '', begin, end, args), in microseconds."""
        path = self.at('profile.json')
        status, text = self.tests.run([self.tests.tool('sg-run'), self.at(graph), '--init', 'seed:3', '--steps', str(STEPS),
                                       '--backend', 'cuda', '--timeout', '30', '--profile', path, *options], env)
        self.tests.expect(f'profile: {name}', (status or said not in text) and f'exit {status}: {text}')
        with open(path, encoding='utf-8') as f:
            events = [e for e in json.load(f)['traceEvents'] if e['ph'] == 'X']
        ranks = {}
        for e in events:
            ranks.setdefault(e['pid'], []).append((e['tid'], e['name'], e['args'].get('node', ''), e['ts'], e['ts'] + e['dur'],
                                                   e['args']))
        return ranks

    def expect(self, name, problem):
        self.tests.expect(f'profile: {name}', problem)

    def run(self):
        if self.tests.args.stub:
            self.nodes()
            self.lanes('NCCL', ['--comm', 'nccl'])
            self.slow_collective()
            self.failures()
        else:
            print('SKIPPED slow kernels, NCCL between GPUs and failing events in profiles: their stand-in makes them')
        self.copies()
        self.lanes('ranks of one GPU', [])
        self.simulated()

    def nodes(self):
        """A kernel that takes long does so in its own node, though its launch returns at once; nodes follow each other."""
        events = self.profile('a slow kernel', 'profiled.txt', ['--explain'], {'SG_STUB_SLOW': f'triangle:{SLOW_MS}'},
                              said='nothing is recorded, as each is timed')[0]
        nodes = [e for e in events if e[0] == NODES]
        names = [(e[2], e[5].get('fused', 1)) for e in nodes]
        wanted = STEPS * [('low', 1), ('turn', 1), ('sum', 1), ('n', 1), ('soft', 3), ('all', 1), ('wide', 1)]
        self.expect('every node of every step', names != wanted and str(names))
        slow = [e[4] - e[3] for e in nodes if e[2] == 'low']
        rest = [e[4] - e[3] for e in nodes if e[2] != 'low']
        self.expect('the slow node is slow', min(slow) < 1000 * SLOW_MS and str(slow))
        self.expect('the others are not', (min(rest) < 0 or max(rest) > 1000 * SLOW_MS) and str(rest))
        self.in_turn('a slow kernel', nodes)

    def in_turn(self, name, nodes):
        """No node begins before the one ahead of it has ended: also where a step begins."""
        early = [(a, b) for a, b in zip(nodes, nodes[1:]) if b[3] < a[4] - 1]
        self.expect(f'{name}: one node after the other', early and str(early))

    def copies(self):
        """What goes up and down has a track of its own, with the node that asked for it."""
        events = self.profile('copies', 'profiled.txt')[0]
        copies = [e for e in events if e[1] in ('upload', 'download')]
        seen = {(e[1], e[2], e[5]['bytes']) for e in copies}
        wanted = {('download', 'n', 4), ('download', 'wide', 100), ('upload', 'wide', 100)}
        self.expect('copies by node', not wanted <= seen and str(seen))
        nodes = {(e[2], i): e for i, e in enumerate(events) if e[0] == NODES}
        outside = [c for c in copies if c[2] and not any(n == c[2] and e[3] - 1 <= c[3] and c[4] <= e[4] + 1
                                                         for (n, _), e in nodes.items())]
        self.expect('copies lie within their nodes', outside and str(outside))
        tracks = {e[0] for e in copies}
        self.expect('copies have a track', tracks != {GROUPS} and str(tracks))

    def lanes(self, name, options):
        """Collectives on the tracks of their groups. NCCL's last as long as its streams take, not as their waits."""
        slow = {'SG_STUB_SLOW': f'triangle:{SLOW_MS}'} if 'nccl' in options else {'SG_STUB_DEVICES': '1'}
        ranks = self.profile(name, 'overlapped.txt', options, slow)
        for rank, events in ranks.items():
            flights = [(e[0], e[2]) for e in events if e[0] != NODES and e[0] < GROUPS + 2]
            self.expect(f'{name}, rank {rank}: collectives',
                        sorted(flights) != STEPS * [(GROUPS, 'sum')] + STEPS * [(GROUPS + 1, 'all')] and str(flights))
            bad = [e for e in events if e[4] < e[3]]
            self.expect(f'{name}, rank {rank}: time goes forward', bad and str(bad))
            self.in_turn(f'{name}, rank {rank}', [e for e in events if e[0] == NODES])
        if 'nccl' not in options:
            return
        hidden = [(e[4] - e[3], e[5]['waited_us']) for events in ranks.values() for e in events
                  if e[0] == GROUPS and e[2] == 'sum']
        late = [h for h in hidden if h[0] > 1000 * SLOW_MS or h[1] > 1000 * SLOW_MS]
        self.expect(f'{name}: what a kernel hides is short, and so is its wait', late and str(hidden))
        for events in ranks.values():
            sums = [e for e in events if e[0] == GROUPS]
            lows = [e for e in events if e[0] == NODES and e[2] == 'low']
            after = [(s[3:5], k[3:5]) for s, k in zip(sums, lows) if s[4] > k[4]]
            self.expect(f'{name}: it ends before the kernel beside it', after and str(after))

    def slow_collective(self):
        """A sum that takes long in the stream of its group is long there; a node beside it is not, and the wait is."""
        ranks = self.profile('a slow collective', 'overlapped.txt', ['--comm', 'nccl', '--deterministic'],
                             {'SG_STUB_SLOW': f'reduce_slots:{SLOW_MS}'})
        for rank, events in ranks.items():
            length = lambda track, node: [e[4] - e[3] for e in events if e[0] == track and e[2] == node]
            flights, beside, waits = length(GROUPS, 'sum'), length(NODES, 'low'), length(NODES, 'ws')
            short = min(flights) < 1000 * SLOW_MS or max(beside) > 1000 * SLOW_MS or min(waits) < 500 * SLOW_MS
            self.expect(f'a slow collective, rank {rank}', short and f'{flights}, {beside}, {waits}')

    def simulated(self):
        """A profile of a device is one that sg-sim reads."""
        self.profile('for sg-sim', 'overlapped.txt', [], {'SG_STUB_DEVICES': '1'})
        status, text = self.tests.run([self.tests.tool('sg-sim'), self.at('overlapped.txt'), '-m', 'cpu-here', '--measured',
                                       self.at('profile.json')])
        said = re.search(rf'measured by sg-run: .* a step \({STEPS} steps, 4 ranks\)', text) and 'upload' not in text and 'download' not in text
        self.expect('sg-sim reads it', (status or not said) and f'exit {status}: {text}')

    def failures(self):
        command = [self.tests.tool('sg-run'), '-q', self.at('profiled.txt'), '--init', 'seed:3', '--backend', 'cuda', '--profile',
                   self.at('none.json')]
        for call in ('cuEventCreate', 'cuEventRecord', 'cuEventElapsedTime'):
            for n in (1, 5):
                status, text = self.tests.run(command, {'SG_STUB_FAIL': f'{call}:{n}'})
                self.expect(f'{call} fails, call {n}', (status != 5 or call + ' failed' not in text) and f'exit {status}: {text}')
