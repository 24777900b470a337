"""Cases of run_gpu_tests.py: samples between pixels and their gradients, on the device, against the processor to the bit."""
import math
import random
import struct

from tensor_files import bf16

HEAD = '''sg 1.0
graph rank *
  input %x : TYPE[PLANES] "x"
  input %at : TYPE[PLACES] "at"
  input %g : TYPE[RESULT] "g"
'''
CALL = '''  %y_N = aten.grid_sampler_KIND(%x, %at, MODE, PADDING, ALIGNED)
  %dx_N, %dat_N = aten.grid_sampler_KIND_backward(%g, %x, %at, MODE, PADDING, ALIGNED, [true, true])
  %none_N, %only_N = aten.grid_sampler_KIND_backward(%g, %x, %at, MODE, PADDING, ALIGNED, [false, true])
'''
MODES = {'2d': (0, 1, 2), '3d': (0, 1)}  # linear, nearest, cubic
SIZES = {'2d': ((3, 5, 7, 6), (4, 9)), '3d': ((2, 9, 3, 4, 5), (3, 2, 4))}  # planes, and places of one


class GridCases:
    def __init__(self, tests, at):
        self.tests, self.at, self.rng = tests, at, random.Random(23)
        self.words = {'F32': lambda x: struct.pack(f'<{len(x)}f', *x), 'F64': lambda x: struct.pack(f'<{len(x)}d', *x), 'BF16': bf16}

    def numbers(self, dtype, shape, reach):
        return dtype, shape, self.words[dtype]([self.rng.uniform(-reach, reach) for _ in range(math.prod(shape))])

    def run(self):
        for kind in MODES:
            for dtype in self.words:
                planes, places = SIZES[kind]
                grid, result = (planes[0], *places, len(places)), (*planes[:2], *places)
                text = HEAD.replace('TYPE', dtype.lower())
                for name, sizes in (('PLANES', planes), ('PLACES', grid), ('RESULT', result)):
                    text = text.replace(name, ', '.join(map(str, sizes)))
                outputs = ''
                for mode in MODES[kind]:
                    for padding in (0, 1, 2):
                        for aligned in ('true', 'false'):
                            n = f'{mode}{padding}{aligned}'
                            text += CALL.replace('KIND', kind).replace('MODE', str(mode)).replace('PADDING', str(padding)).replace('ALIGNED', aligned).replace('_N', f'_{n}')
                            outputs += ''.join(f'  output %{what}_{n}\n' for what in ('y', 'dx', 'dat', 'only'))
                inputs = {'x': self.numbers(dtype, planes, 2), 'at': self.numbers(dtype, grid, 1.6), 'g': self.numbers(dtype, result, 1)}
                self.tests.against_processor(f'samples of {kind} planes of {dtype}', self.at, text + outputs, inputs)
