"""Cases of run_gpu_tests.py: connectionist temporal classification on the device, against the processor."""
import random
import struct

TIME, CLASSES = 170, 7
LABELS = [130, 1, 0, 40]                 # of each entry: of the first there are 261 states, more than a block has lanes
INPUTS = [170, 3, 0, 41]                 # steps of time; too few for the last, whose labels repeat: its loss is infinite

GRAPH = '''sg 1.0
graph rank *
  input %x : TYPE[TIME, 4, CLASSES] "x"
  input %labels : i64[SHAPE] "labels"
  input %g : TYPE[4] "g"
SIZES
  %loss, %alpha = aten._ctc_loss.OVERLOAD(%x, %labels, INPUTS, LABELS, 2, true) : TYPE[4], TYPE[4, TIME, 261]
  %dx = aten._ctc_loss_backward.OVERLOAD(%g, %x, %labels, INPUTS, LABELS, %loss, %alpha, 2, true)
  output %loss
  output %dx
'''


class CtcCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at

    def step(self, dtype, in_rows, as_tensors, spoil=None):
        """A graph and its inputs."""
        rng = random.Random(4)
        rows = [[rng.choice([0, 1, 3, 4, 5, 6]) for _ in range(max(LABELS))] for _ in LABELS]
        rows[3][:8] = [5] * 8
        if spoil:
            rows[0][100] = spoil
        labels = sum(rows, []) if in_rows else sum((row[:n] for row, n in zip(rows, LABELS)), [])
        numbers = lambda n: [rng.gauss(0, 2) for _ in range(n)]
        code = {'f32': 'f', 'f64': 'd'}[dtype]
        tensors = {'x': (dtype.upper(), (TIME, 4, CLASSES), struct.pack(f'<{TIME * 4 * CLASSES}{code}', *numbers(TIME * 4 * CLASSES))),
                   'labels': ('I64', (4, max(LABELS)) if in_rows else (len(labels),), struct.pack(f'<{len(labels)}q', *labels)),
                   'g': (dtype.upper(), (4,), struct.pack(f'<4{code}', *numbers(4)))}
        text, sizes = GRAPH, ''
        if as_tensors:
            sizes = '  input %in : i64[4] "in"\n  input %count : i64[4] "count"'
            tensors['in'], tensors['count'] = ('I64', (4,), struct.pack('<4q', *INPUTS)), ('I64', (4,), struct.pack('<4q', *LABELS))
        text = (text.replace('SIZES\n', sizes + '\n' if sizes else '').replace('OVERLOAD', 'Tensor' if as_tensors else 'default')
                .replace('SHAPE', f'4, {max(LABELS)}' if in_rows else str(len(labels))).replace('TYPE', dtype)
                .replace('INPUTS', '%in' if as_tensors else str(INPUTS)).replace('LABELS', '%count' if as_tensors else str(LABELS))
                .replace('TIME', str(TIME)).replace('CLASSES', str(CLASSES)))
        return text, tensors

    def run(self):
        self.held('f32', True, False)
        self.held('f64', False, False)
        self.held('f32', False, True)
        self.tests.refused_by_device('ctc: a label that is not a class', self.at, *self.step('f32', True, False, spoil=9),
                                     r'%loss = aten._ctc_loss.default: index 9 is out of range for size 7')

    def run_lanes(self):
        """One, for each lane alone is slow."""
        self.held('f32', False, True)

    def held(self, dtype, in_rows, as_tensors):
        """Against the processor; a device's own exponential differs from its library's in the last place."""
        same = ['--bitwise'] if self.tests.args.stub else ['--rtol', '1e-5', '--atol', '1e-6']
        name = f'ctc {dtype}, labels {"in rows" if in_rows else "in a line"}, lengths as {"tensors" if as_tensors else "lists"}'
        self.tests.against_processor(name, self.at, *self.step(dtype, in_rows, as_tensors), [*same, '--steps', '4'],
                                     kernels={'ctc_forward': 4, 'ctc_backward': 4})
