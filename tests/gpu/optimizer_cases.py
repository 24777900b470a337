"""Cases of run_gpu_tests.py: --optimizer on the device. Its bits are those of the processor, and no parameter travels."""
import os
import random
import re
import struct

from tensor_files import bf16, write_tensors

# Parameters of every type and layout, each with a gradient that hangs on it, so that a wrong update shows in the next step:
# as they lie, turned, of another type, brought to the host, of a parameter that nothing else reads, without an element. The
# gradient of %p is a view of it, and that of %q one of %p: each has to be read before either is written. The loss is a
# single number.
TRAINED = '''sg 1.0
graph rank *
  param %w : f32[40, 9] "w"
  param %v : f32[9, 40] "v"
  param %t : f32[5, 6] stride [1, 5] "t"
  param %h : bf16[6, 5] "h"
  param %m : bf16[6, 5] "m"
  param %k : f16[6, 5] "k"
  param %d : f64[6, 5] "d"
  param %c : f64[6, 5] "c"
  param %s : f32[] "s"
  param %p : f32[7, 7] "p"
  param %q : f32[7, 7] "q"
  param %e : f32[0, 4] "e"
  buffer %n : f32[6, 5] "n"
  input %x : f32[6, 5] "x"
  %half   = aten.mul.Tensor(%h, %k)                     : f32[6, 5]
  %mixed  = aten.mul.Tensor(%half, %x)                  : f32[6, 5]
  %scaled = aten.mul.Tensor(%mixed, %s)                 : f32[6, 5]
  %next   = aten.add.Tensor(%n, %scaled)                : f32[6, 5]
  %row    = aten.select.int(%next, 0, 1)
  %loss   = aten.select.int(%row, 0, 2)
  backward -
    %gw  = aten.cos(%w)                                 : f32[40, 9]
    %cw  = aten.sin(%w)                                 : f32[40, 9]
    %gv  = aten.t(%cw)                                  : f32[9, 40] stride [1, 9]
    %tt  = aten.t(%t)                                   : f32[6, 5]
    %et  = aten.mul.Tensor(%tt, %mixed)                 : f32[6, 5]
    %gt  = aten.t(%et)                                  : f32[5, 6] stride [1, 5]
    %sh  = aten.sigmoid(%h)                             : bf16[6, 5]
    %oh  = sg.offload(%sh)                              : bf16[6, 5]
    %gh  = sg.wait(%oh)                                 : bf16[6, 5]
    %wm  = aten._to_copy(%m, dtype=f32)                 : f32[6, 5]
    %gm  = aten.mul.Tensor(%wm, %x)                     : f32[6, 5]
    %gk  = aten.tanh(%k)                                : f16[6, 5]
    %gd  = aten.mul.Tensor(%d, %d)                      : f64[6, 5]
    %gc  = aten._to_copy(%x, dtype=bf16)                : bf16[6, 5]
    %gs  = aten.exp(%s)                                 : f32[]
    %gp  = aten.t(%p)                                   : f32[7, 7] stride [1, 7]
    %gq  = aten.view(%p, [7, 7])                        : f32[7, 7]
    %ge  = aten.exp(%e)                                 : f32[0, 4]
  loss %loss
  update %next of %n
  grad %gw of %w
  grad %gv of %v
  grad %gt of %t
  grad %gh of %h
  grad %gm of %m
  grad %gk of %k
  grad %gd of %d
  grad %gc of %c
  grad %gs of %s
  grad %gp of %p
  grad %gq of %q
  grad %ge of %e
  output %w
  output %v
  output %t
  output %h
  output %m
  output %k
  output %d
  output %c
  output %s
  output %p
  output %q
  output %e
  output %n
'''

# Gradients that ranks share, and one that is theirs alone.
SHARED = '''sg 1.0 world 4
group @all [0 1 2 3]
graph rank *
  param %w : f32[8, 3] "w"
  param %h : bf16[8, 3] "h"
  input %x : f32[8, 3] "x"
  backward -
    %a  = aten.mul.Tensor(%w, %x)                             : f32[8, 3]
    %ra = _c10d_functional.all_reduce(%a, "avg", @all)        : f32[8, 3]
    %gh = aten.sigmoid(%h)                                    : bf16[8, 3]
    %gw = _c10d_functional.wait_tensor(%ra)                   : f32[8, 3]
  grad %gw of %w
  grad %gh of %h
  output %w
  output %h
'''

PARAMETERS = {'w': ('F32', (40, 9)), 'v': ('F32', (9, 40)), 't': ('F32', (5, 6)), 'h': ('BF16', (6, 5)), 'm': ('BF16', (6, 5)),
              'k': ('F16', (6, 5)), 'd': ('F64', (6, 5)), 'c': ('F64', (6, 5)), 's': ('F32', ()), 'p': ('F32', (7, 7)),
              'q': ('F32', (7, 7)), 'e': ('F32', (0, 4)), 'n': ('F32', (6, 5)), 'x': ('F32', (6, 5))}

OPTIMIZERS = ('sgd:lr=0.1', 'sgd:lr=0.1,momentum=0.9,dampening=0.25,wd=0.05', 'sgd:lr=0.02,momentum=0.8,nesterov=1', 'adamw',
              'adamw:lr=0.02,betas=0.8:0.95,eps=1e-3,wd=0.1')
STEPS = 5            # recorded from the third on


def numbers(rng, dtype, shape):
    count = 1
    for size in shape:
        count *= size
    values = [rng.uniform(-2, 2) for _ in range(count)]
    if dtype == 'BF16':
        return dtype, shape, bf16(values)
    return dtype, shape, struct.pack(f'<{count}' + {'F32': 'f', 'F64': 'd', 'F16': 'e'}[dtype], *values)


def lines_of(path):
    with open(path, encoding='utf-8') as f:
        lines = f.read().splitlines()
    os.remove(path)
    return lines


class OptimizerCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        rng = random.Random(17)
        for name, text in (('trained.txt', TRAINED), ('shared.txt', SHARED)):
            with open(at(name), 'w', encoding='utf-8') as f:
                f.write(text)
        write_tensors(at('trained.safetensors'), {name: numbers(rng, *form) for name, form in PARAMETERS.items()})
        write_tensors(at('weights.safetensors'), {name: numbers(rng, *form) for name, form in PARAMETERS.items() if name != 'x'})
        for step in range(STEPS):
            names = 'xwd' if step == 2 else 'x'
            write_tensors(at(f'batch{step}.safetensors'), {name: numbers(rng, *PARAMETERS[name]) for name in names})
        for rank in range(4):
            write_tensors(at(f'shared{rank}.safetensors'), {'w': numbers(rng, 'F32', (8, 3)), 'h': numbers(rng, 'BF16', (8, 3)),
                                                            'x': numbers(rng, 'F32', (8, 3))})

    def expect_run(self, name, command, env=None, said=''):
        status, text = self.tests.run(command, env)
        self.tests.expect(f'optimizer: {name}', (status or said not in text) and f'exit {status}: {text}')

    def command(self, optimizer, steps=STEPS, inputs=('trained.safetensors',)):
        files = [word for name in inputs for word in ('--inputs', self.at(name))]
        return [self.tests.tool('sg-run'), self.at('trained.txt'), *files, '--steps', str(steps), '--optimizer', optimizer]

    def run(self):
        for optimizer in OPTIMIZERS:
            self.same_bits(optimizer)
        self.state()
        self.batches()
        self.observed()
        self.ranks()
        self.many()
        if self.tests.args.stub:
            self.transfers()
            self.memory()
        else:
            print('SKIPPED transfers of an optimizer: the stand-in of the driver counts them')

    def same_bits(self, optimizer):
        run = [*self.command(optimizer), '-q']
        self.expect_run(f'{optimizer}: the processor', [*run, '--outputs', self.at('trained{step}.out')])
        files = {open(self.at(f'trained{step}.out'), 'rb').read() for step in range(STEPS)}
        self.tests.expect(f'optimizer: {optimizer}: each step moves', len(files) != STEPS and 'equal files')
        self.expect_run(optimizer, [*run, '--backend', 'cuda', '--expect', self.at('trained{step}.out'), '--bitwise'])

    def state(self):
        """What the last update leaves to a further step."""
        run = [*self.command('adamw:lr=0.02'), '-q']
        self.expect_run('state: the processor', [*run, '--dump-state', self.at('cpu.state')])
        self.expect_run('state', [*run, '--backend', 'cuda', '--dump-state', self.at('cuda.state')])
        states = [open(self.at(name), 'rb').read() for name in ('cpu.state', 'cuda.state')]
        self.tests.expect('optimizer: state', states[0] != states[1] and 'they differ')
        self.expect_run('after the state: the processor', [*run, '--state', self.at('cpu.state'), '--outputs', self.at('on{step}.out')])
        self.expect_run('after the state', [*run, '--state', self.at('cpu.state'), '--backend', 'cuda', '--expect',
                                            self.at('on{step}.out'), '--bitwise'])

    def batches(self):
        """Steps with inputs of their own, one of them with parameters: those are new, the others go on."""
        run = [*self.command('adamw:lr=0.02', inputs=('weights.safetensors', 'batch{step}.safetensors')), '-q']
        self.expect_run('batches: the processor', [*run, '--outputs', self.at('batches{step}.out')])
        self.expect_run('batches', [*run, '--backend', 'cuda', '--expect', self.at('batches{step}.out'), '--bitwise'])

    def observed(self):
        """With somebody who looks at each node, and where it is said what updates."""
        run = self.command('adamw')
        held = ['--backend', 'cuda', '--expect', self.at('observed{step}.out'), '--bitwise']
        dump = lambda name: ['--dump-nodes', self.at(name), '--nodes', '*']
        self.expect_run('observed: the processor',
                        [*run, '-q', '--outputs', self.at('observed{step}.out'), *dump('cpu.dump')])
        self.expect_run('watched', [*run, '-q', '--watch', 'nan,inf', *held])
        self.expect_run('dumped', [*run, '-q', *dump('cuda.dump'), *held])
        dumps = [open(self.at(name), 'rb').read() for name in ('cpu.dump', 'cuda.dump')]
        self.tests.expect('optimizer: dumps', dumps[0] != dumps[1] and 'they differ')
        self.expect_run('compared', [*run, '-q', '--backend', 'cuda', '--compare', self.at('trained.txt'), '--bitwise'])
        self.expect_run('explained', [*run, '--explain', *held], said='optimizer: 12 parameters are updated by the GPU')
        self.expect_run('explained, the processor', [*run, '--explain'],
                        said='optimizer: 12 parameters are updated by the processor')

    def ranks(self):
        run = [self.tests.tool('sg-run'), '-q', self.at('shared.txt'), '--inputs', self.at('shared{r}.safetensors'), '--steps',
               str(STEPS), '--optimizer', 'sgd:lr=0.1,momentum=0.9']
        self.expect_run('ranks: the processor', [*run, '--outputs', self.at('shared{r}.{step}.out')])
        held = [*run, '--backend', 'cuda', '--timeout', '30', '--expect', self.at('shared{r}.{step}.out'), '--bitwise']
        self.expect_run('ranks of one GPU', held, {'SG_STUB_DEVICES': '1'})
        if self.tests.args.stub:
            self.expect_run('ranks with NCCL', [*held, '--comm', 'nccl', '--deterministic'])

    def many(self):
        """More small parameters than a launch takes, and a large one among them."""
        rng = random.Random(5)
        shapes = {f'p{i}': (rng.choice(('F32', 'BF16', 'F16')), (rng.randrange(1, 700),)) for i in range(150)}
        shapes['p70'] = 'F32', (1 << 18 | 5,)
        lines = ['sg 1.0', 'graph rank *']
        typed = {name: f'{form[0].lower()}[{form[1][0]}]' for name, form in shapes.items()}
        lines += [f'  param %{name} : {of} "{name}"' for name, of in typed.items()] + ['  backward -']
        lines += [f'    %g{name} = aten.sin(%{name}) : {of}' for name, of in typed.items()]
        lines += [f'  grad %g{name} of %{name}' for name in shapes] + [f'  output %{name}' for name in shapes]
        with open(self.at('many.txt'), 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')
        write_tensors(self.at('many.safetensors'), {name: numbers(rng, *form) for name, form in shapes.items()})
        run = [self.tests.tool('sg-run'), '-q', self.at('many.txt'), '--inputs', self.at('many.safetensors'), '--steps', '3', '--optimizer', 'adamw']
        self.expect_run('many: the processor', [*run, '--outputs', self.at('many{step}.out')])
        env = {'SG_STUB_KERNELS': self.at('kernels')} if self.tests.args.stub else {}
        self.expect_run('many', [*run, '--backend', 'cuda', '--expect', self.at('many{step}.out'), '--bitwise'], env)
        if self.tests.args.stub:
            names = lines_of(self.at('kernels'))
            counts = [names.count(name) for name in ('work_adamw', 'work_adamw_many')]
            self.tests.expect('optimizer: many: kernels', counts != [3, 9] and str(counts))

    def transfers(self):
        """What a step more brings: its loss alone comes to the host, and each parameter is updated once more by a kernel:
        those that lie in rows, as their gradients do, by one for all of a type."""
        for optimizer, kernel in (('sgd:lr=0.1', 'work_sgd'), ('adamw', 'work_adamw')):
            seen, kernels = [], []
            for steps in (4, 9):
                env = {'SG_STUB_TRANSFERS': self.at('transfers'), 'SG_STUB_KERNELS': self.at('kernels')}
                self.expect_run(f'{steps} steps', [*self.command(optimizer, steps), '-q', '--backend', 'cuda'], env)
                seen.append(sorted(lines_of(self.at('transfers'))))
                names = lines_of(self.at('kernels'))
                kernels.append([names.count(kernel + ending) for ending in ('', '_f64', '_many', '_many_f64')])
            more = sorted(seen[0] + 5 * ['down 4'])
            self.tests.expect(f'optimizer: {optimizer}: transfers', more != seen[1] and f'{seen[0]}, then {seen[1]}')
            self.tests.expect(f'optimizer: {optimizer}: kernels', kernels != [[8, 0, 4, 4], [18, 0, 9, 9]] and str(kernels))

    def memory(self):
        """A GPU that has none left for the state says so."""
        said = []
        for n in range(1, 60):
            status, text = self.tests.run([*self.command('adamw', 1), '-q', '--backend', 'cuda'],
                                          {'SG_STUB_FAIL': f'cuMemAlloc_v2:{n}'})
            if status == 0:
                break
            said += re.findall(r'--optimizer: state of `(\w)` .*the GPU has', text) if status == 5 else [f'exit {status}: {text}']
        self.tests.expect('optimizer: no memory for its state', said != list('wvthmkdcspq') and str(said))
