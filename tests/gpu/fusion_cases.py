"""Cases of run_gpu_tests.py: chains of pointwise ops and reductions over the same rows, as one kernel of generated text."""
import os
import random
import re
import struct

from call_cases import compile_text
from fusion_graphs import random_rows
from tensor_files import write_tensors

# By graph: reductions that are fused with the chains before them, chains behind them that are, too, and kernels of that.
WANTED = {'reduced.txt': (24, 7, 18), 'behind.txt': (9, 10, 5), 'apart.txt': (0, 0, 3), 'held.txt': (1, 0, 2)}

# Chains, each with its reduction: all of them fuse. Inputs are read in their strides, through broadcasts and views. Of
# %brief are so many short rows that what is behind it has more lanes by itself.
REDUCED = '''sg 1.0
graph rank *
  input %x : f32[6, 40, 70] "x"
  input %w : f32[70] "w"
  input %r : f32[6, 40, 1] "r"
  input %h : bf16[40, 70] "h"
  input %f : f16[9, 64] "f"
  input %i : i32[12, 33] "i"
  input %d : f64[5, 300] "d"
  input %z : c64[7, 20] "z"
  input %long : f32[3, 20000] "long"
  input %tall : bf16[600, 48] "tall"
  input %brief : f32[2000, 8] "brief"
  %a0 = aten.mul.Tensor(%x, %w)
  %a1 = aten.add.Tensor(%a0, %r)
  %a2 = aten.sum.dim_IntList(%a1, [2], true)
  %b0 = aten.exp(%x)
  %b1 = aten.mean.dim(%b0, [1, -1])
  %c0 = aten.mul.Tensor(%h, %h)
  %c1 = aten.add.Tensor(%c0, %h)
  %c2 = aten.sum.dim_IntList(%c1, [1], true)
  %c3 = aten.mul.Scalar(%h, 3.0)
  %c4 = aten.amax(%c3, [-1])
  %f0 = aten.hardsigmoid(%f)
  %f1 = aten.logsumexp(%f0, [1], true)
  %f2 = aten.cos(%f)
  %f3 = aten.prod.dim_int(%f2, 1)
  %i0 = aten.remainder.Scalar(%i, 7)
  %i1 = aten.sum.dim_IntList(%i0, [1])
  %i2 = aten.mul.Scalar(%i, 3)
  %i3, %i4 = aten.max.dim(%i2, 1)
  %i5 = aten.sub.Scalar(%i, 3)
  %i6 = aten.prod.dim_int(%i5, 1)
  %d0 = aten.cos(%d)
  %d1, %d2 = aten.var_mean.correction(%d0, [1], correction=1, keepdim=true)
  %d3 = aten.mul.Tensor(%d, %d)
  %d4 = aten.std.correction(%d3, [1])
  %z0 = aten.mul.Tensor(%z, %z)
  %z1 = aten.sum.dim_IntList(%z0, [1])
  %z2 = aten.neg(%z)
  %z3 = aten.linalg_vector_norm(%z2, 3.0, [1])
  %g0 = aten.ge.Scalar(%x, 0.5)
  %g1 = aten.any.dim(%g0, 2)
  %g2 = aten.gt.Tensor(%x, %r)
  %g3 = aten.all.dim(%g2, 2, true)
  %g4 = aten.lt.Scalar(%f, 0.0)
  %g5 = aten.count_nonzero.default(%g4)
  %n0 = aten.sub.Tensor(%x, %w)
  %n1 = aten.argmin(%n0, 2)
  %t0 = aten.transpose.int(%x, 1, 2)
  %t1 = aten.silu(%t0)
  %t2 = aten.amin(%t1, [1])
  %v0 = aten.relu(%x)
  %v1 = aten.view(%v0, [240, 70])
  %v2 = aten.sum.dim_IntList(%v1, [1])
  %s0 = aten.mul.Tensor(%h, %w)
  %s1 = aten.sum.default(%s0)
  %l0 = aten.mul.Tensor(%long, %long)
  %l1 = aten.mean.dim(%l0, [1])
  %k0 = aten.mul.Tensor(%tall, %tall)
  %k1 = aten.sum.dim_IntList(%k0, [0], true, dtype=f32)
  %o0 = aten.mul.Tensor(%brief, %brief)
  %o1 = aten.sum.dim_IntList(%o0, [1])
  %o2 = aten.neg(%o1)
  %q0 = aten.flip(%x, [1])
  %q1 = aten.mul_.Tensor(%q0, %w)
  %q2 = aten.sum.dim_IntList(%q1, [2])
  output %a2
  output %b0
  output %b1
  output %c2
  output %c4
  output %f1
  output %f3
  output %i1
  output %i3
  output %i4
  output %i6
  output %d1
  output %d2
  output %d4
  output %z1
  output %z3
  output %g1
  output %g3
  output %g5
  output %n1
  output %t2
  output %v2
  output %s1
  output %l1
  output %k1
  output %o2
  output %q1
  output %q2
'''

# Chains behind reductions, over the same rows. The norm of a llama and its gradient; a softmax by hand; weights that sum up
# to 1, a value of which somebody else reads; rows of a turned tensor; a row's result and then no more.
BEHIND = '''sg 1.0
graph rank *
  input %x : bf16[4, 40, 70] "x"
  input %w : bf16[70] "w"
  input %g : f32[4, 40, 70] "g"
  input %m : f32[3, 90] "m"
  input %d : f64[300, 7] "d"
  %n0 = aten._to_copy(%x, dtype=f32)
  %n1 = aten.pow.Tensor_Scalar(%n0, 2)
  %n2 = aten.mean.dim(%n1, [-1], true)
  %n3 = aten.add_.Scalar(%n2, 1e-5)
  %n4 = aten.rsqrt(%n3)
  %n5 = aten.mul.Tensor(%n0, %n4)
  %n6 = aten._to_copy(%n5, dtype=bf16)
  %n7 = aten.mul.Tensor(%n6, %w)
  %b0 = aten.mul.Tensor(%g, %w)
  %b1 = aten.mul.Tensor(%b0, %n0)
  %b2 = aten.sum.dim_IntList(%b1, [2], true)
  %b3 = aten.pow.Tensor_Scalar(%n4, 3)
  %b4 = aten.mul.Tensor(%b2, %b3)
  %b5 = aten.div.Scalar(%b4, -70.0)
  %b6 = aten.mul.Tensor(%b5, %n0)
  %b7 = aten.mul.Tensor(%b0, %n4)
  %b8 = aten.add.Tensor(%b6, %b7)
  %s0 = aten.mul.Scalar(%m, 0.5)
  %s1 = aten.amax(%s0, [1], true)
  %s2 = aten.sub.Tensor(%s0, %s1)
  %s3 = aten.exp(%s2)
  %s4 = aten.sum.dim_IntList(%s3, [1], true)
  %s5 = aten.div.Tensor(%s3, %s4)
  %p0 = aten.abs(%d)
  %p1 = aten.sum.dim_IntList(%p0, [1])
  %p2 = aten.view(%p1, [300, 1])
  %p3 = aten.div.Tensor(%p0, %p2)
  %p4, %p5 = aten.var_mean.correction(%p3, [1], correction=0)
  %p6 = aten.mul.Tensor(%p4, %p5)
  %t0 = aten.transpose.int(%g, 1, 2)
  %t1 = aten.tanh(%t0)
  %t2 = aten.amin(%t1, [1], true)
  %t3 = aten.add.Tensor(%t0, %t2)
  %t4 = aten.sum.dim_IntList(%t3, [1])
  %e0 = aten.neg(%m)
  %e1 = aten.argmax(%e0, 1)
  %e2 = aten.add.Scalar(%e1, 1)
  output %n4
  output %n7
  output %b8
  output %s5
  output %p0
  output %p6
  output %t4
  output %e2
  output %b6
'''

# What stays two kernels: few long rows that do not go by parts, rows that lie across memory, what the chain does not
# make, and nothing to reduce.
APART = '''sg 1.0
graph rank *
  input %long : f32[3, 20000] "long"
  input %tall : f32[600, 48] "tall"
  input %none : f32[4, 0] "none"
  %l0 = aten.mul.Tensor(%long, %long)
  %l1 = aten.amax(%l0, [1])
  %k0 = aten.mul.Tensor(%tall, %tall)
  %k1 = aten.amax(%k0, [0])
  %m0 = aten.exp(%tall)
  %m1 = aten.sum.dim_IntList(%tall, [1])
  %e0 = aten.mul.Tensor(%none, %none)
  %e1 = aten.sum.dim_IntList(%e0, [1])
  output %l1
  output %k1
  output %m0
  output %m1
  output %e1
'''

# The sums lie where %u0 did, each over numbers of other rows: they are held back, and nothing goes on from them.
HELD = '''sg 1.0
graph rank *
  input %u : bf16[300, 2] "u"
  %u0 = aten.flip(%u, [0])                              : bf16[300, 2]
  %u1 = aten._to_copy(%u0, dtype=f32)                   : f32[300, 2]
  %u2 = aten.sum.dim_IntList(%u1, [1], dtype=f64)       : f64[300]
  %u3 = aten.neg(%u2)                                   : f64[300]
  output %u3
'''

# Of random plans: those in which rows meet, if nothing looks whether they do: wrong bits in one order of blocks.
SEEDS = (7, 9, 15, 17, 24, 27)

DIVIDED = '''sg 1.0
graph rank *
  input %n : i64[8, 40] "n"
    at "step.py":3 forward
  %zero = aten.mul.Scalar(%n, 0)                                 : i64[8, 40]
    at "step.py":4 forward
  %part = aten.div.Tensor_mode(%n, %zero, rounding_mode="floor") : i64[8, 40]
    at "step.py":5 forward
  %sum  = aten.sum.dim_IntList(%part, [1])                       : i64[8]
  output %sum
'''


class FusionCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        whole = lambda letter, n: struct.pack(f'<{n}{letter}', *(i * 37 % 23 - 11 for i in range(n)))
        write_tensors(at('reduced.txt.in'), {'i': ('I32', (12, 33), whole('i', 396))})
        write_tensors(at('apart.txt.in'), {'none': ('F32', (4, 0), b'')})
        for name in ('behind', 'held'):
            write_tensors(at(name + '.txt.in'), {})
        write_tensors(at('divided.txt.in'), {'n': ('I64', (8, 40), whole('q', 320))})
        for name, text in (('reduced.txt', REDUCED), ('behind.txt', BEHIND), ('apart.txt', APART), ('held.txt', HELD), ('divided.txt', DIVIDED)):
            with open(at(name), 'w', encoding='utf-8') as f:
                f.write(text)
        self.env = {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': at('fusion-cache')} if tests.args.stub else {}

    def command(self, graph, *options):
        return [self.tests.tool('sg-run'), self.at(graph), '--inputs', self.at(graph + '.in'), '--init', 'seed:3', *options]

    def launches(self, graph, env):
        """The kernels of one step, in order."""
        log = self.at('kernels')
        status, text = self.tests.run(self.command(graph, '-q', '--backend', 'cuda'), {**env, 'SG_STUB_KERNELS': log})
        self.tests.expect(f'fusion: {graph} once', status and f'exit {status}: {text}')
        with open(log, encoding='utf-8') as f:
            names = f.read().split()
        os.remove(log)
        return names

    def run(self):
        for graph in WANTED:
            self.bits(graph)
        if self.tests.args.stub:
            self.kernels()
            self.texts()
            self.plans()
        self.looked_at()
        status, text = self.tests.run(self.command('divided.txt', '--backend', 'cuda'), self.env)
        said = re.search(r'rank 0, %\w+ = aten\.\w+\.\w+: an integer is divided by zero', text) and 'step.py' in text
        self.tests.expect('fusion: a division by zero', (status != 4 or not said) and f'exit {status}: {text}')

    def bits(self, graph):
        """Those of the two by themselves, and the processor's as far as sums of doubles are: first alone, then recorded."""
        apart, cpu = self.at('apart.out'), self.at('cpu.out')
        status, text = self.tests.run(self.command(graph, '-q', '--outputs', cpu))
        self.tests.expect(f'fusion: {graph}, the processor', status and f'exit {status}: {text}')
        run = self.command(graph, '--backend', 'cuda', '--explain')
        status, text = self.tests.run([*run, '--outputs', apart], {'SG_CUDA_INTERPRET': '1'})
        none = 'reductions fused with the chains before them: 0, and chains behind them: 0\n' in text
        self.tests.expect(f'fusion: {graph}, interpreted', (status or not none) and f'exit {status}: {text}')
        for steps, blocks in (('1', 'up'), ('1', 'down'), ('5', 'up')):
            for name, held in (('by themselves', ['--expect', apart, '--bitwise']),
                               ('the processor', ['--expect', cpu, '--rtol', '1e-6', '--atol', '1e-6'])):
                status, text = self.tests.run([*run, '--steps', steps, *held], {**self.env, 'SG_STUB_BLOCKS': blocks})
                fused, behind, _ = WANTED[graph]
                said = f'reductions fused with the chains before them: {fused}, and chains behind them: {behind}\n' in text
                self.tests.expect(f'fusion: {graph}, {steps} steps, blocks {blocks}, as {name}',
                                  (status or not said) and f'exit {status}: {text}')

    def kernels(self):
        """A kernel for a chain and its reduction: neither is launched by itself; none of a chain's values is made twice."""
        own = ('pointwise_program', 'reduce_rows', 'row_parts', 'column_parts')
        count = lambda names: [sum(name == one or name == one + '_by_warps' for name in names) for one in (*own, 'sg_chain')]
        alone = self.launches('reduced.txt', {'SG_CUDA_INTERPRET': '1'})
        self.tests.expect('fusion: two kernels each', count(alone) != [25, 22, 1, 1, 0] and str(count(alone)))
        for graph, (fused, _, kernels) in WANTED.items():
            names = self.launches(graph, self.env)
            reduced = 4 if graph == 'apart.txt' else 0
            self.tests.expect(f'fusion: kernels of {graph}', count(names) != [0, reduced, 0, 0, kernels] and str(names))

    def plans(self):
        """Whatever the memory plan puts where: no row touches what another one does, in whichever order they come."""
        graph, apart, behind = self.at('plan.txt'), self.at('apart.out'), 0
        for seed in SEEDS:
            with open(graph, 'w', encoding='utf-8') as f:
                f.write(random_rows(random.Random(seed)))
            run = [self.tests.tool('sg-run'), graph, '--init', 'seed:1', '--backend', 'cuda', '--explain']
            status, text = self.tests.run([*run, '--outputs', apart], {'SG_CUDA_INTERPRET': '1'})
            for blocks in ('up', 'down') if status == 0 else ():
                status, more = self.tests.run([*run, '--expect', apart, '--bitwise'], {**self.env, 'SG_STUB_BLOCKS': blocks})
                text += more
                behind += int(re.search(r'chains behind them: (\d+)', more)[1])
                if status:
                    break
            self.tests.expect(f'fusion: a random plan, seed {seed}', status and f'exit {status}: {text}')
        self.tests.expect('fusion: random plans have stages', behind < len(SEEDS) and str(behind))

    def texts(self):
        """What the real NVRTC makes of them."""
        folder = self.at('fusion-texts')
        os.mkdir(folder)
        for graph in ('reduced.txt', 'behind.txt'):
            status, text = self.tests.run(self.command(graph, '-q', '--backend', 'cuda'),
                                          {**self.env, 'SG_STUB_NVRTC_KEEP': folder, 'SG_CUDA_CACHE': ''})
            self.tests.expect(f'fusion: texts of {graph}', status and f'exit {status}: {text}')
        for name in sorted(os.listdir(folder)):
            compile_text(self.tests, os.path.join(folder, name))

    def looked_at(self):
        """Where somebody looks at each node, every value is there, and nothing is fused; a profile has one slice."""
        run = self.command('reduced.txt', '--backend', 'cuda')
        for options in (['--watch', 'nan'], ['--compare', self.at('reduced.txt')]):
            status, text = self.tests.run([*run, *options], self.env)
            self.tests.expect(f'fusion: {options[0]}', status and f'exit {status}: {text}')
        profile = self.at('fusion.json')
        status, text = self.tests.run([*run, '--profile', profile], self.env)
        with open(profile, encoding='utf-8') as f:
            slices = re.findall(r'"node": *"a0"[^}]*"fused": *(\d+)', f.read())
        self.tests.expect('fusion: a slice of a profile', (status or slices != ['3']) and f'exit {status}, {slices}: {text}')
