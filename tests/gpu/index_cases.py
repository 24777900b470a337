"""Cases of run_gpu_tests.py: few elements put among many, zeros, random numbers four at a time, losses of many rows."""
import os
import random
import struct

from graphs import FEW_AMONG_MANY, MANY_CLASSES, RANDOM, ZEROS

ROWS, COLUMNS, SOURCES = 70, 300, 40


def longs(values):
    return struct.pack(f'<{len(values)}q', *values)


def floats(values):
    return struct.pack(f'<{len(values)}f', *values)


class IndexCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(11)

    def numbers(self, count):
        return floats([self.rng.uniform(-3, 3) for _ in range(count)])

    def run(self):
        self.few_among_many()
        self.zeros()
        self.four_at_a_time()
        self.losses()

    def launches(self, log):
        with open(log, encoding='utf-8') as f:
            lines = f.read().splitlines()
        os.remove(log)
        return lines

    def zeros(self):
        """Memory that is set at once; of a slice's gradient what is outside of the slice."""
        log = self.at('launches')
        self.tests.against_processor('zeros', self.at, ZEROS, {'x': ('F32', (6, 5), self.numbers(30))}, kernels={'fill_elements': 1},
                                     env={'SG_STUB_LAUNCHES': log})
        if self.tests.args.stub:
            found = sorted(int(line.split()[1]) for line in self.launches(log) if line.startswith('memset'))
            self.tests.expect('zeros: bytes', found != [20, 30, 40, 60, 120, 1080] and str(found))

    def few_among_many(self):
        """A lane for each source, and the bits of a lane for each destination: runs of equal indices, and skipped ones."""
        rng = self.rng
        inputs = {'x': ('F32', (ROWS, COLUMNS), self.numbers(ROWS * COLUMNS)),
                  'i': ('I64', (ROWS, 3), longs([rng.choice((7, 7, 9, rng.randrange(COLUMNS))) for _ in range(ROWS * 3)])),
                  's': ('F32', (ROWS, 3), self.numbers(ROWS * 3)),
                  'k': ('I64', (SOURCES, ), longs([rng.choice((0, 3, 3, 3, 69, rng.randrange(ROWS))) for _ in range(SOURCES)])),
                  'g': ('F32', (SOURCES, COLUMNS), self.numbers(SOURCES * COLUMNS)),
                  'w': ('I64', (ROWS, 3), longs([rng.randrange(-50, 50) for _ in range(ROWS * 3)]))}
        kernels = {'scatter_runs': 7, 'scatter_buckets': 1, 'bucket_begins': 1}
        self.tests.against_processor('few among many', self.at, FEW_AMONG_MANY, inputs, kernels=kernels)

    def four_at_a_time(self):
        """Numbers of a block of the generator belong to neighbours: a quarter of the lanes, the same bits."""
        count = 41 * 67  # no multiple of four
        log = self.at('launches')
        self.tests.against_processor('random numbers', self.at, RANDOM, {'x': ('F32', (41, 67), self.numbers(count))},
                                     env={'SG_STUB_LAUNCHES': log})
        if not self.tests.args.stub:
            return
        launches = self.launches(log)
        blocks = lambda kernel: [int(line.split()[1]) for line in launches if line.split()[0] == kernel]
        few, many = -(-count // 1024), -(-count // 256)
        found = blocks('dropout_elements'), sorted(blocks('draw_elements'))
        self.tests.expect('random numbers: blocks', found != ([few, few], [few] * 3 + [many] * 3) and str(found))

    def losses(self):
        rows, classes = 3000, 5
        inputs = {'x': ('F32', (rows, classes), self.numbers(rows * classes)),
                  't': ('I64', (rows, ), longs([self.rng.choice((3, self.rng.randrange(classes))) for _ in range(rows)]))}
        for reduction in (0, 1, 2):
            graph = MANY_CLASSES.replace('REDUCTION', str(reduction))
            self.tests.against_processor(f'losses of many rows, {reduction}', self.at, graph, inputs, ['--rtol', '1e-6', '--atol', '0'],
                                         kernels={'nll_loss_all': 0, 'nll_loss_parts': 1, 'finish_nll_loss': 1})
