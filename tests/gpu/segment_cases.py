"""Cases of run_gpu_tests.py: segments, masks, rows that are looked up, on the device, against the processor to the bit."""
import math
import random
import struct

from tensor_files import bf16

SEGMENTS = '''sg 1.0
graph rank *
  input %x : f32[COUNT, ROWS, 3] "x"
  input %g : f32[COUNT, PARTS, 3] "g"
  input %lengths : i64[COUNT, PARTS] "lengths"
  input %offsets : i32[COUNT, MORE] "offsets"
'''
JOINS = '''  %WHAT_l = aten.segment_reduce(%x, "WHAT", lengths=%lengths, axis=1, unsafe=true, initial=INITIAL)
  %WHAT_o = aten.segment_reduce(%x, "WHAT", offsets=%offsets, axis=1)
  %WHAT_g = aten._segment_reduce_backward(%g, %WHAT_l, %x, "WHAT", lengths=%lengths, axis=1, initial=INITIAL)
  output %WHAT_l
  output %WHAT_o
  output %WHAT_g
'''
MASKS = '''sg 1.0
graph rank *
  input %g : TYPE[5, 7] "g"
  input %mask : bool[7] "mask"
  input %table : TYPE[9, 6] "table"
  input %at : i64[2, 4] "at"
  %source = aten.masked_scatter_backward(%g, %mask, [4, 9])
  %t = aten.transpose.int(%g, 0, 1)
  %turned = aten.masked_scatter_backward(%t, %t, [35])
  %two = aten.clone(%table)
  %one = aten.clone(%table)
  %top = aten.clone(%table)
  %w0 = aten.embedding_renorm_(%two, %at, 1.0, 2.0)
  %w1 = aten.embedding_renorm_(%one, %at, 1.5, 1.0)
  %w2 = aten.embedding_renorm_(%top, %at, 0.5, inf)
  output %source
  output %turned
  output %two
  output %one
  output %top
'''
FUNCTIONS = '''sg 1.0
graph rank *
  input %x : TYPE[40, 30] "x"
  input %y : TYPE[40, 30] "y"
  input %n : i64[40, 30] "n"
''' + ''.join(f'  %{name} = aten.{op}\n  output %{name}\n' for name, op in (
    ('a', 'lgamma(%x)'), ('b', 'digamma(%x)'), ('c', 'erfinv(%x)'), ('d', 'i0(%x)'), ('e', 'special_i1e(%x)'), ('f', 'special_erfcx(%x)'),
    ('g', 'special_ndtri(%x)'), ('h', 'special_log_ndtr(%x)'), ('i', 'special_zeta(%x, %y)'), ('j', 'polygamma(2, %x)'),
    ('k', 'sinc(%x)'), ('l', 'special_entr(%x)'), ('m', 'nextafter(%x, %y)'), ('o', 'mish_backward(%x, %y)'),
    ('p', 'logit_backward(%x, %y, 0.1)'), ('q', 'gcd(%n, %n)'), ('r', 'lcm(%n, %n)'), ('s', 'special_bessel_j0(%x)'), ('t', 'special_bessel_y1(%x)'),
    ('u', 'special_modified_bessel_k0(%x)'), ('v', 'special_scaled_modified_bessel_k1(%x)'), ('aa', 'special_airy_ai(%x)'),
    ('ab', 'special_spherical_bessel_j0(%x)'), ('ac', 'special_chebyshev_polynomial_t.n_scalar(%x, 40)'),
    ('ad', 'special_shifted_chebyshev_polynomial_w.n_scalar(%x, 5)'), ('ae', 'special_laguerre_polynomial_l.x_scalar(0.5, %n)'),
    ('af', 'special_hermite_polynomial_h(%x, %y)')))
COMPLEX = '''sg 1.0
graph rank *
  input %x : TYPE[40, 30] "x"
  input %y : TYPE[40, 30] "y"
  %z = aten.polar(%x, %y)
  %w = aten.complex(%y, %x)
  %angle = aten.angle(%z)
  %size = aten.abs(%w)
  output %angle
  output %size
''' + ''.join(f'  %{op} = aten.{op}(%z)\n  %{op}_parts = aten.view_as_real(%{op})\n  output %{op}_parts\n' for op in (
    'exp', 'exp2', 'expm1', 'log', 'log2', 'log10', 'log1p', 'sqrt', 'rsqrt', 'sin', 'cos', 'tan', 'sinh', 'cosh', 'tanh', 'asin', 'acos',
    'atan', 'asinh', 'acosh', 'atanh', 'sigmoid', 'silu', 'sgn', 'sinc')) + '''  %power = aten.pow.Tensor_Tensor(%z, %w)
  %some = aten.mul.Tensor(%exp, %w)
  %chain = aten.tanh(%some)
  %slope = aten.tanh_backward(%w, %chain)
  %power_parts = aten.view_as_real(%power)
  %slope_parts = aten.view_as_real(%slope)
  output %power_parts
  output %slope_parts
'''


def in_order(text):
    """With the outputs at the end, where they have to stand."""
    lines = text.splitlines()
    return '\n'.join(sorted(lines, key=lambda line: line.startswith('  output '))) + '\n'


class SegmentCases:
    def __init__(self, tests, at):
        self.tests, self.at, self.rng = tests, at, random.Random(17)
        self.words = {'F32': lambda x: struct.pack(f'<{len(x)}f', *x), 'F64': lambda x: struct.pack(f'<{len(x)}d', *x),
                      'F16': lambda x: struct.pack(f'<{len(x)}e', *x), 'BF16': bf16}
        # Powers and the like are the C library's on the one side, and CUDA's on a GPU.
        self.held = ('--bitwise', ) if tests.args.stub else ('--rtol', '1e-5', '--atol', '1e-5')

    def numbers(self, dtype, *shape, low=-2.0, high=2.0):
        return dtype, shape, self.words[dtype]([self.rng.uniform(low, high) for _ in range(math.prod(shape))])

    def run(self):
        for batch, lengths in ((1, [3, 0, 5, 1]), (2, [0, 700, 2, 0, 33])):
            self.tests.against_processor(f'segments of {lengths}', self.at, *self.segments(batch, lengths, sum(lengths) + 1))
        text, inputs = self.segments(1, [3, 9], 8)
        self.tests.refused_by_device('a segment beyond its rows', self.at, text, inputs,
                                     r'%sum_l = aten.segment_reduce.default: index 12 is out of range for size 8')
        for dtype in ('F32', 'F64', 'BF16', 'F16'):
            self.tests.against_processor(f'masks and rows of {dtype}', self.at, *self.masks(dtype, 8), self.held)
        self.tests.refused_by_device('a row that there is not', self.at, *self.masks('F32', 9),
                                     r'%w0 = aten.embedding_renorm_.default: index 9 is out of range for size 9')
        ways = [('generated', {})]  # as a GPU's chains are; the stand-in interprets them, but for what it is told
        if self.tests.args.stub:
            ways = [('interpreted', {}), ('generated', {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': ''})]
        for said, env in ways:
            for dtype in ('F32', 'F64'):
                self.functions(dtype, said, env)

    def segments(self, batch, lengths, rows):
        text = SEGMENTS.replace('MORE', str(len(lengths) + 1)).replace('COUNT', str(batch)).replace('ROWS', str(rows)).replace('PARTS', str(len(lengths)))
        for what, initial in (('sum', 'none'), ('mean', '2.0'), ('max', '0.5'), ('min', 'none'), ('prod', '3.0')):
            text += JOINS.replace('WHAT', what).replace('INITIAL', initial)
        offsets = [min(sum(lengths[:i]), rows) for i in range(len(lengths) + 1)]
        pack = lambda letter, values: struct.pack(f'<{batch * len(values)}{letter}', *(values * batch))
        return in_order(text), {'x': self.numbers('F32', batch, rows, 3), 'g': self.numbers('F32', batch, len(lengths), 3),
                      'lengths': ('I64', (batch, len(lengths)), pack('q', lengths)),
                      'offsets': ('I32', (batch, len(offsets)), pack('i', offsets))}

    def masks(self, dtype, last):
        text = MASKS.replace('TYPE', dtype.lower())
        return text, {'g': self.numbers(dtype, 5, 7), 'mask': ('BOOL', (7,), bytes([1, 0, 1, 1, 0, 0, 1])),
                      'table': self.numbers(dtype, 9, 6), 'at': ('I64', (2, 4), struct.pack('<8q', 3, 0, 3, 7, 1, 1, last, 0))}

    def functions(self, dtype, said, env):
        inputs = {'x': self.numbers(dtype, 40, 30), 'y': self.numbers(dtype, 40, 30),
                  'n': ('I64', (40, 30), struct.pack('<1200q', *(self.rng.randrange(-99, 99) for _ in range(1200))))}
        text = in_order(FUNCTIONS.replace('TYPE', dtype.lower()))
        self.tests.against_processor(f'special functions of {dtype}, {said}', self.at, text, inputs, self.held, env)
        del inputs['n']
        self.tests.against_processor(f'complex functions of {dtype}, {said}', self.at, in_order(COMPLEX.replace('TYPE', dtype.lower())), inputs, self.held, env)
