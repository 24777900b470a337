"""Cases of run_gpu_tests.py: cross entropy without log-probabilities in memory (sg-clean --fold-losses) has the bits of the ops apart,
but for long rows of bf16 and f16, whose exponentials are the device's own."""
import math
import os
import random
import struct

from tensor_files import bf16, write_tensors

ROWS, CLASSES = 9, 700  # a block has fewer lanes than a row has numbers

APART = '''sg 1.0
graph rank *
  input %x : TYPE[3, 3, CLASSES] "x"
  input %t : i64[ROWS] "t"
  input %w : WIDE[CLASSES] "w"
  input %g : WIDE[GRAD] "g"
  %rows = aten.view(%x, [ROWS, CLASSES])
CAST
  %logs = aten._log_softmax(%SCORES, -1, false)
  %loss, %total = aten.nll_loss_forward(%logs, %t, WEIGHT, REDUCTION, 3)
  %dlogs = aten.nll_loss_backward(%g, %logs, %t, WEIGHT, REDUCTION, 3, %total)
  %drows = aten._log_softmax_backward_data(%dlogs, %logs, -1, WIDE)
  %dx = aten.view(%drows, [3, 3, CLASSES])
BACK
  output %loss
  output %total
  output %RESULT
'''


# A vocabulary whose rows begin unevenly, between the products that make and read them: on a device they begin evenly.
HEAD = '''sg 1.0
graph rank *
  input %h : bf16[9, 32] "h"
  input %e : bf16[4099, 32] "e"
  input %t : i64[9] "t"
  %w = aten.t(%e)
  %x = aten.mm(%h, %w)
  %loss, %total, %sums = sg.cross_entropy(%x, %t, none, 1, -100)
  %one = aten.ones_like(%loss)
  %dx = sg.cross_entropy_backward(%x, %sums, %one, %t, none, 1, -100, %total, dtype=bf16)
  %dh = aten.mm(%dx, %e)
  %dt = aten.t(%dx)
  %de = aten.mm(%dt, %h)
  output %loss
  output %dh
  output %de
'''

LONG = '''sg 1.0
graph rank *
  input %x : TYPE[5, 4104] "x"
  input %t : i64[5] "t"
  input %w : f32[4104] "w"
  input %g : f32[GRAD] "g"
  %loss, %total, %sums = sg.cross_entropy(%x, %t, WEIGHT, REDUCTION, 3)
  %dx = sg.cross_entropy_backward(%x, %sums, %g, %t, WEIGHT, REDUCTION, 3, %total, dtype=TYPE)
'''


class LossCases:
    def __init__(self, tests, at):
        self.tests, self.at, self.rng = tests, at, random.Random(23)
        self.words = {'f32': lambda x: struct.pack(f'<{len(x)}f', *x), 'f64': lambda x: struct.pack(f'<{len(x)}d', *x),
                      'f16': lambda x: struct.pack(f'<{len(x)}e', *x), 'bf16': bf16}

    def run(self):
        for dtype, reduction, weight in (('f32', 0, '%w'), ('f32', 1, 'none'), ('bf16', 1, 'none'), ('bf16', 2, '%w'), ('bf16', 0, 'none'),
                                         ('f16', 1, '%w'), ('f64', 1, 'none')):
            self.held(dtype, reduction, weight)
        numbers = lambda *shape: ('BF16', shape, self.words['bf16']([self.rng.gauss(0, 1) for _ in range(count(shape))]))
        inputs = {'h': numbers(9, 32), 'e': numbers(4099, 32), 't': ('I64', (9,), struct.pack('<9q', *(self.rng.randrange(4099) for _ in range(9))))}
        self.tests.against_processor('a head whose rows begin evenly', self.at, HEAD, inputs, ['--rtol', '2e-2', '--atol', '1e-4'],
                                     kernels={'cross_entropy_rows_by_runs': 1, 'cross_entropy_backward_rows_by_runs': 1, 'matmul_elements': 0})
        for dtype, reduction, weight in (('bf16', 1, 'none'), ('f16', 0, '%w'), ('bf16', 2, '%w')):
            self.long(dtype, reduction, weight)
        text, inputs = self.step('bf16', 1, 'none', targets=[CLASSES] + [0] * (ROWS - 1))
        self.fold(text)
        with open(self.at('folded.txt'), encoding='utf-8') as f:
            self.tests.refused_by_device('a folded loss of a class that is none', self.at, f.read(), inputs,
                                         r'%loss = sg.cross_entropy: index 700 is out of range for size 700')

    def long(self, dtype, reduction, weight):
        """Scores far apart and among them infinity: what takes part is next to the largest."""
        scores = [self.rng.gauss(0, 6) for _ in range(5 * 4104)]
        scores[7], scores[4104:2 * 4104] = -math.inf, [-math.inf] * 4103 + [1.0]  # a row of one class
        numbers = lambda kind, *shape: (kind.upper(), shape, self.words[kind]([self.rng.uniform(0.5, 3) for _ in range(count(shape))]))
        text = (LONG.replace('GRAD', '5' if reduction == 0 else '').replace('TYPE', dtype).replace('WEIGHT', weight)
                .replace('REDUCTION', str(reduction)))
        inputs = {'x': (dtype.upper(), (5, 4104), self.words[dtype](scores)), 't': ('I64', (5,), struct.pack('<5q', 4103, 4103, 3, 0, 2000)),
                  'w': numbers('f32', 4104), 'g': numbers('f32', *((5,) if reduction == 0 else ()))}
        for outputs, tolerance in ((('loss', 'total', 'sums'), '1e-6'), (('dx',), '4e-3')):  # dx is rounded to 8 bits or 11
            self.tests.against_processor(f'{outputs[0]} of long rows of {dtype}, reduction {reduction}, weight {weight}', self.at,
                                         text + ''.join(f'  output %{name}\n' for name in outputs), inputs,
                                         ['--rtol', tolerance, '--atol', '1e-6'], kernels={'cross_entropy_rows_by_runs': 1})

    def step(self, dtype, reduction, weight, targets=None):
        half = dtype in ('bf16', 'f16')
        wide, targets = 'f32' if half else dtype, targets or [3, 0, 3] + [self.rng.randrange(CLASSES) for _ in range(ROWS - 3)]
        numbers = lambda kind, *shape: (kind.upper(), shape, self.words[kind]([self.rng.uniform(0.5, 3) for _ in range(count(shape))]))
        text = (APART.replace('CAST\n', '  %wide = aten._to_copy(%rows, dtype=f32)\n' if half else '').replace('WIDE', wide)
                .replace('BACK\n', f'  %narrow = aten._to_copy(%dx, dtype={dtype})\n' if half else '').replace('SCORES', 'wide' if half else 'rows')
                .replace('RESULT', 'narrow' if half else 'dx').replace('WEIGHT', weight).replace('REDUCTION', str(reduction))
                .replace('GRAD', str(ROWS) if reduction == 0 else '').replace('TYPE', dtype).replace('ROWS', str(ROWS)).replace('CLASSES', str(CLASSES)))
        return text, {'x': numbers(dtype, 3, 3, CLASSES), 't': ('I64', (ROWS,), struct.pack(f'<{ROWS}q', *targets)),
                      'w': numbers(wide, CLASSES), 'g': numbers(wide, *((ROWS,) if reduction == 0 else ()))}

    def fold(self, text):
        with open(self.at('apart.txt'), 'w', encoding='utf-8') as f:
            f.write(text)
        status, said = self.tests.run([self.tests.tool('sg-clean'), self.at('apart.txt'), '--fold-losses', '--text', '-o', self.at('folded.txt')])
        self.tests.expect('a loss that folds', (status or '1 loss folded' not in said) and f'exit {status}: {said}')

    def held(self, dtype, reduction, weight):
        name = f'a folded loss of {dtype}, reduction {reduction}, weight {weight}'
        text, inputs = self.step(dtype, reduction, weight)
        self.fold(text)
        write_tensors(self.at('loss.safetensors'), inputs)
        for backend in ('cpu', 'cuda'):
            run = ['--inputs', self.at('loss.safetensors'), '--backend', backend]
            status, said = self.tests.run([self.tests.tool('sg-run'), '-q', self.at('apart.txt'), *run, '--outputs', self.at('loss.out')])
            self.tests.expect(f'{name}, {backend}: apart', status and f'exit {status}: {said}')
            status, said = self.tests.run([self.tests.tool('sg-run'), self.at('folded.txt'), *run, '--expect', self.at('loss.out'), '--bitwise'])
            self.tests.expect(f'{name}, {backend}', (status or 'by the host' in said) and f'exit {status}: {said}')
            os.remove(self.at('loss.out'))


def count(shape):
    out = 1
    for size in shape:
        out *= size
    return out
