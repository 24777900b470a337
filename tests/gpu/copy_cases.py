"""Cases of run_gpu_tests.py: sg.offload and sg.reload, which are copies beside the kernels."""
import json

# What is copied comes from a kernel that may be slow; its memory, and that of the copy, is used by others before and after.
OFFLOADED = '''sg 1.0
graph rank *
  input %x : f32[60, 40] "x"
  %a = aten.tril(%x)                     : f32[60, 40]
  %h = sg.offload(%a, device=cpu)        : f32[60, 40]
  %b = aten.flip(%a, [1])                : f32[60, 40]
  %k = sg.wait(%h)                       : f32[60, 40]
  %c = aten.flip(%b, [0])                : f32[60, 40]
  %d = aten.roll(%c, [1], [0])           : f32[60, 40]
  %e = aten.roll(%d, [1], [1])           : f32[60, 40]
  %r = sg.reload(%k, device=cpu)         : f32[60, 40]
  %f = aten.flip(%e, [1])                : f32[60, 40]
  %w = sg.wait(%r)                       : f32[60, 40]
  %g = aten.mul.Tensor(%f, %w)           : f32[60, 40]
  output %g
'''
# What is on its way is written to: in place through a view of another shape, which the verifier takes for a part.
WRITTEN = '''sg 1.0
graph rank *
  input %x : f32[60, 40] "x"
  %a = aten.tanh(%x)                     : f32[60, 40]
  %h = sg.offload(%a, device=cpu)        : f32[60, 40]
  %v = aten.view(%a, [2400])             : f32[2400]
  %m = aten.mul_.Scalar(%v, 3.0)         : f32[2400]
  %k = sg.wait(%h)                       : f32[60, 40]
  output %k
  output %m
'''
NODES, SLOW_MS = 1, 50


class CopyCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        with open(at('offloaded.txt'), 'w', encoding='utf-8') as f:
            f.write(OFFLOADED)
        self.command = [tests.tool('sg-run'), at('offloaded.txt'), '--init', 'seed:3', '--steps', '5']

    def run(self):
        status, text = self.tests.run([*self.command, '-q', '--outputs', self.at('offloaded{step}.out')])
        self.tests.expect('copies: the processor', status and f'exit {status}: {text}')
        held = [*self.command, '--backend', 'cuda', '--expect', self.at('offloaded{step}.out'), '--bitwise']
        slow = {'as they come': '', 'a slow kernel before them': f'triangle:{SLOW_MS}', 'slow copies': f'memcpy:{SLOW_MS}'}
        for name, rule in slow.items() if self.tests.args.stub else [('as they come', '')]:
            status, text = self.tests.run([*held, '--explain'], {'SG_STUB_SLOW': rule})
            said = 'split by copies to the host and back: 4 items, first %h' in text
            self.tests.expect(f'copies: {name}', (status or not said) and f'exit {status}: {text}')
        with open(self.at('written.txt'), 'w', encoding='utf-8') as f:
            f.write(WRITTEN)
        written = [self.tests.tool('sg-run'), '-q', self.at('written.txt'), '--init', 'seed:3']
        status, text = self.tests.run([*written, '--outputs', self.at('written.out')])
        self.tests.expect('copies that are written to: the processor', status and f'exit {status}: {text}')
        status, text = self.tests.run([*written, '--backend', 'cuda', '--expect', self.at('written.out'), '--bitwise'],
                                      {'SG_STUB_SLOW': f'memcpy:{SLOW_MS}'})
        self.tests.expect('copies that are written to', status and f'exit {status}: {text}')
        for options in (['--watch', 'nan'], ['--dump-nodes', self.at('offloaded.nodes')]):
            status, text = self.tests.run([*held, *options])
            self.tests.expect(f'copies: {options[0]}', status and f'exit {status}: {text}')
        if self.tests.args.stub:
            self.beside_kernels()
            self.failures(held)

    def beside_kernels(self):
        """Nodes between a copy and its wait do not take part in its time; they have a track of their own."""
        path = self.at('copies.json')
        status, text = self.tests.run([*self.command, '--backend', 'cuda', '--profile', path], {'SG_STUB_SLOW': f'memcpy:{SLOW_MS}'})
        self.tests.expect('copies: a profile', status and f'exit {status}: {text}')
        with open(path, encoding='utf-8') as f:
            events = [e for e in json.load(f)['traceEvents'] if e['ph'] == 'X']
        copies = [e['dur'] for e in events if e['cat'] == 'copy' and e['args'].get('bytes') == 60 * 40 * 4 and e['dur'] >= 1000 * SLOW_MS]
        beside = [e['dur'] for e in events if e['tid'] == NODES and e['args'].get('node') in ('b', 'f')]
        late = len(copies) != 10 or len(beside) != 10 or max(beside) > 1000 * SLOW_MS
        self.tests.expect('copies: beside kernels', late and f'{copies}, {beside}')

    def failures(self, held):
        for call in ('cuMemcpyAsync', 'cuStreamCreate', 'cuStreamWaitEvent'):
            for n in (1, 2, 3):
                status, text = self.tests.run(held, {'SG_STUB_FAIL': f'{call}:{n}'})
                fine = status == 5 and f'{call} failed' in text
                self.tests.expect(f'copies: {call} fails, call {n}', not fine and f'exit {status}: {text}')
