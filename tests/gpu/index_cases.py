"""Cases of run_gpu_tests.py: few elements put among many."""
import random
import struct

from graphs import FEW_AMONG_MANY

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

    def few_among_many(self):
        """A lane for each source, and the bits of a lane for each destination: runs of equal indices, skipped ones, complex numbers."""
        rng = self.rng
        inputs = {'x': ('F32', (ROWS, COLUMNS), self.numbers(ROWS * COLUMNS)),
                  'i': ('I64', (ROWS, 3), longs([rng.choice((7, 7, 9, rng.randrange(COLUMNS))) for _ in range(ROWS * 3)])),
                  's': ('F32', (ROWS, 3), self.numbers(ROWS * 3)),
                  'k': ('I64', (SOURCES, ), longs([rng.choice((0, 3, 3, 3, 69, rng.randrange(ROWS))) for _ in range(SOURCES)])),
                  'g': ('F32', (SOURCES, COLUMNS), self.numbers(SOURCES * COLUMNS)),
                  'w': ('I64', (ROWS, 3), longs([rng.randrange(-50, 50) for _ in range(ROWS * 3)]))}
        kernels = {'scatter_runs': 7, 'scatter_buckets': 1, 'bucket_begins': 1}
        self.tests.against_processor('few among many', self.at, FEW_AMONG_MANY, inputs, kernels=kernels)
