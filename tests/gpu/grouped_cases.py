"""Cases of run_gpu_tests.py: products of groups by tiles, against the processor."""
import os
import random
import re
import struct

ENDS = [5, 5, 133, 261, 290]             # an empty group, one of less than a tile, one of a tile and a bit
TOTAL = 300                              # what is behind the last group is zero
WIDTHS = (136, 7, 259)                   # columns: more than a tile, hardly any, an odd number
DEPTHS = (72, 33)                        # not a multiple of what is taken at a time; odd, so that no pair of numbers is a word

HEAD = 'sg 1.0\ngraph rank *\n  input %ends : i32[GROUPS] "ends"\n'.replace('GROUPS', str(len(ENDS)))


class GroupedCases:
    def __init__(self, tests, at, safetensors, bf16):
        self.tests, self.at, self.safetensors, self.bf16 = tests, at, safetensors, bf16
        self.rng = random.Random(8)

    def run(self):
        for width in WIDTHS:
            for depth in DEPTHS:
                self.held(width, depth)
        self.wrong()

    def run_lanes(self):
        """One, for each lane alone is slow."""
        self.held(7, 33)

    def noise(self, *shape):
        count = 1
        for n in shape:
            count *= n
        return 'BF16', shape, self.bf16([self.rng.gauss(0, 1) for _ in range(count)])

    def graph(self, width, depth, ends):
        """Groups of rows, of columns and of the depth, each with operands as they lie and turned."""
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
        with open(self.at('grouped.txt'), 'w', encoding='utf-8') as f:
            f.write(HEAD + '\n'.join(lines + outputs) + '\n')
        tensors = {name: self.noise(*shape) for name, shape in shapes.items()}
        tensors |= {name + '_t': self.noise(*shape[:-2], shape[-1], shape[-2]) for name, shape in shapes.items()}
        tensors['ends'] = ('I32', (groups,), struct.pack(f'<{groups}i', *ends))
        self.safetensors(self.at('grouped.safetensors'), tensors)

    def held(self, width, depth):
        name = f'groups, width {width}, depth {depth}'
        self.graph(width, depth, ENDS)
        run = [self.tests.tool('sg-run'), self.at('grouped.txt'), '--inputs', self.at('grouped.safetensors')]
        status, text = self.tests.run([*run, '-q', '--outputs', self.at('grouped.out')])
        self.tests.expect(name + ': the processor', status and f'exit {status}: {text}')
        log = self.at('kernels')
        status, text = self.tests.run([*run, '--backend', 'cuda', '--expect', self.at('grouped.out'), '--rtol', '0.008', '--atol', '0.004'],
                                      {'SG_STUB_KERNELS': log})
        self.tests.expect(name, (status or 'all 12 compared' not in text) and f'exit {status}: {text}')
        if self.tests.args.stub:
            with open(log, encoding='utf-8') as f:
                names = f.read().split()
            os.remove(log)
            counts = names.count('grouped_tiles'), names.count('matmul_elements')
            self.tests.expect(name + ': the kernels', counts != (12, 0) and str(counts))

    def wrong(self):
        """Ends that fall, or lie beyond the operand."""
        for ends in ([5, 5, 133, 100, 290], [5, 5, 133, 261, 301]):
            self.graph(7, 33, ends)
            status, text = self.tests.run([self.tests.tool('sg-run'), self.at('grouped.txt'), '--inputs', self.at('grouped.safetensors'),
                                           '--backend', 'cuda'])
            said = re.search(r'rank 0, %y00 = aten._grouped_mm.default: index (100|301) is out of range for size 300', text)
            self.tests.expect(f'groups that end at {ends}', (status != 4 or not said) and f'exit {status}: {text}')
