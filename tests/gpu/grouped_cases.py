"""Cases of run_gpu_tests.py: products of groups by tiles, against the processor."""
import random
import struct

from tensor_files import bf16

ENDS = [5, 5, 133, 261, 290]             # an empty group, one of less than a tile, one of a tile and a bit
TOTAL = 300                              # what is behind the last group is zero
WIDTHS = (136, 7, 259)                   # columns: more than a tile, hardly any, an odd number
DEPTHS = (72, 33)                        # not a multiple of what is taken at a time; odd, so that no run of numbers is a word

HEAD = 'sg 1.0\ngraph rank *\n  input %ends : i32[GROUPS] "ends"\n'.replace('GROUPS', str(len(ENDS)))


class GroupedCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(8)

    def run(self):
        for width in WIDTHS:
            for depth in DEPTHS:
                self.held(width, depth)
        self.wrong()

    def run_lanes(self):
        """Few, for each lane alone is slow: no number of a row in one word with another, and runs of them."""
        self.held(7, 33)
        self.held(136, 72)

    def noise(self, *shape):
        count = 1
        for n in shape:
            count *= n
        return 'BF16', shape, bf16([self.rng.gauss(0, 1) for _ in range(count)])

    def step(self, width, depth, ends):
        """A graph and its inputs: groups of rows, of columns and of the depth, each with operands as they lie and turned."""
        groups = len(ENDS)
        shapes = {'rows': (TOTAL, depth), 'each': (groups, depth, width), 'left': (groups, width, depth), 'columns': (depth, TOTAL),
                  'tall': (width, TOTAL), 'wide': (TOTAL, depth)}
        lines, outputs = [], []
        for name, shape in shapes.items():
            lines.append(f'  input %{name} : bf16{list(shape)} "{name}"')
            turned = (*shape[:-2], shape[-1], shape[-2])
            lines.append(f'  input %{name}_t : bf16{list(turned)} "{name}_t"')
        lines.sort(key=lambda line: 'input' not in line)
        for name in shapes:
            lines.append(f'  %{name}_v = aten.transpose.int(%{name}_t, -2, -1)')
        for i, (a, b) in enumerate((('rows', 'each'), ('left', 'columns'), ('tall', 'wide'))):
            for j, (x, y) in enumerate(((a, b), (a + '_v', b), (a, b + '_v'), (a + '_v', b + '_v'))):
                lines.append(f'  %y{i}{j} = aten._grouped_mm(%{x}, %{y}, %ends)')
                outputs.append(f'  output %y{i}{j}')
        tensors = {name: self.noise(*shape) for name, shape in shapes.items()}
        tensors |= {name + '_t': self.noise(*shape[:-2], shape[-1], shape[-2]) for name, shape in shapes.items()}
        tensors['ends'] = ('I32', (groups,), struct.pack(f'<{groups}i', *ends))
        return HEAD + '\n'.join(lines + outputs) + '\n', tensors

    def held(self, width, depth):
        self.tests.against_processor(f'groups, width {width}, depth {depth}', self.at, *self.step(width, depth, ENDS),
                                     ['--rtol', '0.008', '--atol', '0.004'], kernels={**{'grouped_tiles' + turned: 3 for turned in ('', '_left', '_right', '_both')}, 'matmul_elements': 0})

    def wrong(self):
        """Ends that fall, or lie beyond the operand."""
        for ends in ([5, 5, 133, 100, 290], [5, 5, 133, 261, 301]):
            self.tests.refused_by_device(f'groups that end at {ends}', self.at, *self.step(7, 33, ends),
                                         r'%y00 = aten._grouped_mm.default: index (100|301) is out of range for size 300')
