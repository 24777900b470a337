"""Cases of run_gpu_tests.py: norms of rows that a warp keeps in registers, and of such as it cannot, against the processor."""
import random
import struct

from tensor_files import bf16

GRAPH = '''sg 1.0
graph rank *
  input %x : TYPE[3, 7, LENGTH] "x"
  input %g : TYPE[3, 7, LENGTH] "g"
  input %w : TYPE[LENGTH] "w"
  input %b : TYPE[LENGTH] "b"
  %y, %mean, %rstd = aten.native_layer_norm(%x, [LENGTH], WEIGHT, BIAS, 1e-5)
  %dx, %dw, %db = aten.native_layer_norm_backward(%g, %x, [LENGTH], %mean, %rstd, WEIGHT, BIAS, [true, true, true])
  %z, %scale = aten._fused_rms_norm(%x, [LENGTH], WEIGHT, 1e-5)
  %dz, %dv = aten._fused_rms_norm_backward(%g, %x, [LENGTH], %scale, WEIGHT, [true, true])
  output %y
  output %rstd
  output %dx
  output %z
  output %dz
'''
WITH_WEIGHT = '  output %dw\n  output %db\n  output %dv\n'

# type, length, and the kernels by what they end with
CASES = (
    ('f32', 768, '_1024'),
    ('bf16', 1000, '_1024'),
    ('f16', 1032, '_2048'),
    ('f32', 2048, '_2048'),
    ('bf16', 8, '_1024'),
    ('bf16', 2056, ''),   # too long
    ('f16', 44, ''),      # of no multiple of 8
)
TOLERANCE = {'f32': '1e-6', 'bf16': '0.008', 'f16': '0.002'}


class NormCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(5)

    def run(self):
        for case in CASES:
            self.held(*case, with_weight=True)
        self.held('f32', 256, '_1024', with_weight=False)

    def run_lanes(self):
        """Few, for each lane alone is slow."""
        self.held('f32', 768, '_1024', with_weight=True)
        self.held('bf16', 1032, '_2048', with_weight=False)

    def noise(self, kind, *shape):
        count = 1
        for n in shape:
            count *= n
        numbers = [self.rng.gauss(0.5, 1) for _ in range(count)]
        if kind == 'bf16':
            return 'BF16', shape, bf16(numbers)
        return ('F32', shape, struct.pack(f'<{count}f', *numbers)) if kind == 'f32' else ('F16', shape, struct.pack(f'<{count}e', *numbers))

    def held(self, kind, length, ending, with_weight):
        graph = (GRAPH + WITH_WEIGHT if with_weight else GRAPH).replace('TYPE', kind).replace('LENGTH', str(length))
        graph = graph.replace('WEIGHT', '%w' if with_weight else 'none').replace('BIAS', '%b' if with_weight else 'none')
        tensors = {name: self.noise(kind, *shape) for name, shape in (('x', (3, 7, length)), ('g', (3, 7, length)), ('w', (length, )), ('b', (length, )))}
        self.tests.against_processor(f'norms of {length}, {kind}', self.at, graph, tensors, ['--rtol', TOLERANCE[kind], '--atol', TOLERANCE[kind]],
                                     kernels={'norm_rows' + ending: 2, 'norm_backward_rows' + ending: 2})
