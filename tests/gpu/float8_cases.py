"""Cases of run_gpu_tests.py: conversions to float8 and products of it, against the processor."""
import math
import random
import struct

FORMATS = ('f8e4m3fn', 'f8e5m2', 'f8e4m3fnuz', 'f8e5m2fnuz')

# A chain through each format and back, of lengths that no word divides.
CHAINS = 'sg 1.0\ngraph rank *\n  input %x : f32[37, 19] "x"\n' + ''.join(
    f'  %n{i} = aten._to_copy(%x, dtype={name})\n  %w{i} = aten._to_copy(%n{i}, dtype=f32)\n  %h{i} = aten.mul.Tensor(%w{i}, %x)\n'
    f'  %t{i} = aten.t(%n{i})\n  %c{i} = aten.clone(%t{i}, memory_format=contiguous_format)\n'
    for i, name in enumerate(FORMATS)) + ''.join(f'  output %{v}{i}\n' for i in range(len(FORMATS)) for v in 'nhc')

# Left and right operand, their scales, the result, and whether there is a bias.
PRODUCTS = (('f8e4m3fn', 'f8e4m3fn', 'one', 'bf16', True), ('f8e5m2', 'f8e4m3fn', 'one', 'f32', False), ('f8e4m3fn', 'f8e5m2', 'each', 'bf16', False),
            ('f8e4m3fn', 'f8e4m3fn', 'each', 'f16', True), ('f8e5m2', 'f8e5m2', 'one', 'bf16', False))


class Float8Cases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(21)

    def noise(self, *shape, low=-3.0, high=3.0):
        count = math.prod(shape)
        return 'F32', shape, struct.pack(f'<{count}f', *(self.rng.uniform(low, high) for _ in range(count)))

    def run(self):
        stub = self.tests.args.stub
        for how, env in (('interpreted', {}), ('generated', {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': ''} if stub else {})):
            self.tests.against_processor(f'chains of float8, {how}', self.at, CHAINS, {'x': self.noise(37, 19)}, env=env)
        for m, k, n, by_library in ((32, 48, 16, len(PRODUCTS) - 1), (5, 48, 32, len(PRODUCTS) - 1), (7, 33, 9, 0)):
            graph, inputs = self.products(m, k, n)
            self.tests.against_processor(f'products of float8, {m} x {k} x {n}', self.at, graph, inputs, ['--rtol', '0.01', '--atol', '0.001'],
                                         kernels={'work_scale_sums': len(PRODUCTS) - by_library})

    @staticmethod
    def products_text():
        for i, (left, right, scales, out, has_bias) in enumerate(PRODUCTS):
            yield f'  %a{i} = aten._to_copy(%x, dtype={left})'
            yield f'  %r{i} = aten._to_copy(%y, dtype={right})'
            yield f'  %b{i} = aten.t(%r{i})'
            if has_bias:
                yield f'  %c{i} = aten._to_copy(%bias, dtype={out})'
            bias = f'%c{i}' if has_bias else 'none'
            yield f'  %o{i} = aten._scaled_mm(%a{i}, %b{i}, %{scales}_a, %{scales}_b, {bias}, none, {out}, {"true" if i % 2 else "false"})'

    def products(self, m, k, n):
        shapes = {'x': (m, k), 'y': (n, k), 'bias': (n,), 'one_a': (), 'one_b': (), 'each_a': (m, 1), 'each_b': (1, n)}
        lines = [f'  input %{name} : f32{list(shape)} "{name}"' for name, shape in shapes.items()]
        lines += [*self.products_text(), *(f'  output %o{i}' for i in range(len(PRODUCTS)))]
        inputs = {name: self.noise(*shape, low=0.5 if '_' in name else -3.0) for name, shape in shapes.items()}
        return 'sg 1.0\ngraph rank *\n' + '\n'.join(lines) + '\n', inputs
