"""Cases of run_gpu_tests.py: which values there are and how often, on the device, against the processor to the bit."""
import math
import random
import struct

from sort_cases import NAMES, TILE, some_elements

SIZES = (0, 1, 2, 700, 2 * TILE + 3)

UNIQUE = '''sg 1.0
graph rank *
SYMBOLS
  input %x : TYPE[SIZE] "x"
  input %y : TYPE[ROWS, 3, 2] "y"
  %u0, %i0, %c0 = aten._unique2(%x, true, true, true)           : TYPE[u0], i64[SIZE], i64[u0]
  %u1, %i1, %c1 = aten._unique2(%x)                             : TYPE[u1], i64[0], i64[0]
  %u2, %i2, %c2 = aten.unique_consecutive(%x, true, true)       : TYPE[u2], i64[SIZE], i64[u2]
  %u3, %i3, %c3 = aten.unique_consecutive(%y, true, true, 0)    : TYPE[u3, 3, 2], i64[ROWS], i64[u3]
  %t = aten.transpose.int(%y, 0, 2)
  %u4, %i4, %c4 = aten.unique_consecutive(%t, true, false, 2)   : TYPE[2, 3, u4], i64[ROWS], i64[u4]
  %u5, %i5, %c5 = aten._unique2(%t, true, true, false)          : TYPE[u5], i64[2, 3, ROWS], i64[0]
'''
COUNTS = '''sg 1.0
graph rank *
SYMBOLS
  input %x : TYPE[SIZE] "x"
  input %w : f64[SIZE] "w"
  input %z : f32[SIZE] "z"
  %o0 = aten.bincount(%x)           : i64[u0]
  %o1 = aten.bincount(%x, none, 40) : i64[u1]
  %o2 = aten.bincount(%x, %w)       : f64[u2]
  %o3 = aten.one_hot(%x, 60)
  %o4 = aten.histc(%z, 7, -1.0, 1.0)
'''
ALL_OF_THEM = '  %o5 = aten.histc(%z, 7)\n'  # between the smallest and the largest, which have to be finite


def symbols(count):
    return '\n'.join(f'  symbol u{k} data [0, 10000]' for k in range(count))


def outputs(names):
    return ''.join(f'  output %{name}\n' for name in names)


class SetCases:
    def __init__(self, tests, at):
        self.tests, self.at, self.rng = tests, at, random.Random(31)

    def run(self):
        for dtype in ('F32', 'BF16', 'F64', 'I64', 'U8', 'BOOL'):
            for size in SIZES:
                self.unique(dtype, size)
        for dtype in ('I64', 'I32', 'U8'):
            for size in SIZES:
                values = [self.rng.choice((0, 3, 3, 3, 17, self.rng.randrange(60))) for _ in range(size)]
                self.tests.against_processor(f'counts {dtype} of {size}', self.at, *self.counts(dtype, values, size == 700))
        self.tests.refused_by_device('a count of a negative number', self.at, *self.counts('I64', [3, -2, 5]),
                                     r'%o0 = aten.bincount.default: value -2 cannot be counted')
        text, inputs = self.counts('I64', [3, -2, 5])
        text = ''.join(line + '\n' for line in text.split('\n') if 'aten.bincount' not in line and 'output' not in line)
        self.tests.refused_by_device('a class that is negative', self.at, text + outputs(['o3']), inputs,
                                     r'%o3 = aten.one_hot.default: index -2 is out of range for size 60')

    def unique(self, dtype, size):
        """Floats with both zeros, and with NaN, which is equal to none; slices that are equal in a row."""
        rows = max(1, size // 6)
        often = some_elements(self.rng, dtype, 6)
        slices = b''.join(often if self.rng.random() < 0.6 else some_elements(self.rng, dtype, 6) for _ in range(rows))
        text = UNIQUE.replace('SYMBOLS', symbols(6)) + outputs(f'{letter}{k}' for k in range(6) for letter in 'uic')
        text = text.replace('TYPE', NAMES[dtype]).replace('SIZE', str(size)).replace('ROWS', str(rows))
        self.tests.against_processor(f'unique {dtype} of {size}', self.at, text, {
            'x': (dtype, (size,), some_elements(self.rng, dtype, size)), 'y': (dtype, (rows, 3, 2), slices)})

    def counts(self, dtype, values, infinite=False):
        """A graph and its inputs."""
        size, code = len(values), {'I64': 'q', 'I32': 'i', 'U8': 'B'}[dtype]
        wholes = [float(self.rng.randrange(100)) for _ in values]  # sums are the same in any order
        few = (0.0, 1.0, -1.0, math.inf, math.nan) if infinite else (0.0, 1.0, -1.0)
        noise = [self.rng.choice((*few, self.rng.gauss(0, 1))) for _ in values]
        text = COUNTS.replace('SYMBOLS', symbols(3)) + (ALL_OF_THEM if not infinite else '')
        text += outputs(f'o{k}' for k in range(5 if infinite else 6))
        return text.replace('TYPE', NAMES[dtype]).replace('SIZE', str(size)), {
            'x': (dtype, (size,), struct.pack(f'<{size}{code}', *values)), 'w': ('F64', (size,), struct.pack(f'<{size}d', *wholes)),
            'z': ('F32', (size,), struct.pack(f'<{size}f', *noise))}
