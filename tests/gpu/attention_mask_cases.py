"""Cases of run_gpu_tests.py: masks of attention by tiles of 32 x 32, of which kernels leave out those that show nothing."""
import math
import random
import struct

from attention_cases import MASKED
from tensor_files import bf16

INF = math.inf
LEAST = {'bf16': -3.3e38, 'f32': -3.4e38}
UNUSED = 1e-40  # not 0, and changes no score that it is added to

# How a mask of the graph comes from the input: as it is, seen with strides of 0, from an odd place in rows on, columns as rows.
WAYS = {
    'as it is': '',
    'expanded': '  %x = aten.expand(%m, [BATCH, HEADS, QUERIES, KEYS])\n',
    'of odd rows': '  %x = aten.slice.Tensor(%m, 3, 1, 9223372036854775807)\n',
    'turned': '  %x = aten.transpose.int(%m, 2, 3)\n',
}

# batch, heads, key heads, queries, keys, depth, causal; type and shape of the mask without its rows and columns, what it has, its way
CASES = (
    (2, 2, 2, 200, 200, 64, 'false', 'bf16', (1, 1), 'causal', 'expanded'),
    (1, 2, 1, 300, 300, 64, 'false', 'bool', (1, 1), 'causal', 'as it is'),
    (2, 4, 2, 150, 330, 64, 'false', 'bf16', (2, 4), 'mosaic', 'as it is'),   # heads that share keys have masks of their own
    (2, 4, 4, 330, 97, 40, 'true', 'f32', (2, 1), 'mosaic', 'as it is'),      # an odd number of keys; two ways to hide
    (1, 4, 2, 70, 300, 128, 'false', 'f32', (1, 4), 'mosaic', 'as it is'),
    (2, 2, 2, 130, 290, 128, 'true', 'bool', (2, 1), 'mosaic', 'as it is'),
    (1, 2, 2, 130, 70, 64, 'false', 'bf16', (1, 1), 'least', 'as it is'),
    (1, 2, 2, 65, 130, 64, 'false', 'f32', (1, 2), 'least', 'of odd rows'),
    (1, 2, 2, 200, 80, 64, 'false', 'bf16', (1, 2), 'mosaic', 'of odd rows'),
    (2, 2, 2, 96, 160, 64, 'false', 'bool', (2, 1), 'mosaic', 'turned'),
    (2, 2, 1, 100, 64, 64, 'false', 'bf16', (2, 1), 'nothing', 'as it is'),   # of the first batch entry
    (1, 256, 256, 70, 140, 64, 'false', 'bf16', (1, 1), 'mosaic', 'as it is'),  # blocks enough for 32 rows a warp
    (2, 128, 128, 70, 70, 64, 'false', 'bool', (1, 1), 'causal', 'as it is'),
)
LANES = ((1, 2, 1, 70, 130, 64, 'false', 'bf16', (1, 2), 'mosaic', 'as it is'),
         (1, 256, 256, 40, 70, 64, 'false', 'bf16', (1, 1), 'mosaic', 'as it is'))

# Masks that mean the same, and gradients with them: whether all bits are.
SAME = MASKED[:MASKED.index('  output')].replace('  input %m : MASK "m"\n', '  input %m : f32[1, 1, QUERIES, KEYS] "m"\n  input %n : OTHER[1, 1, QUERIES, KEYS] "n"\n')
SAME += SAME[SAME.index('  %o'):].replace('%o', '%o2').replace('%l', '%l2').replace('%d', '%e').replace('%m', '%n')
SAME += ''.join(f'  %same{i} = aten.eq.Tensor(%{a}, %{b})\n  %all{i} = aten.all(%same{i})\n'
                for i, (a, b) in enumerate((('o', 'o2'), ('l', 'l2'), ('dq', 'eq'), ('dk', 'ek'), ('dv', 'ev'))))
SAME += ''.join(f'  output %all{i}\n' for i in range(5))


def packed(kind, numbers):
    if kind == 'bool':
        return 'BOOL', bytes(x != -INF for x in numbers)
    if kind == 'bf16':
        return 'BF16', bf16(numbers)
    return 'F32', struct.pack(f'<{len(numbers)}f', *numbers)


class AttentionMaskCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(17)

    def run(self):
        for case in CASES:
            self.held(*case)
        for sizes in ((1, 2, 1, 200, 290), (2, 128, 128, 70, 70)):
            for other in ('f32', 'bf16', 'bool'):
                self.same(*sizes, other)

    def run_lanes(self):
        for case in LANES:
            self.held(*case)

    def noise(self, *shape):
        some = [self.rng.gauss(0, 1) for _ in range(4099)]  # a prime
        return 'BF16', shape, bf16([some[i % len(some)] for i in range(math.prod(shape))])

    def inputs(self, batch, heads, shared, queries, keys, depth):
        return {name: self.noise(batch, shared if name in 'kv' else heads, keys if name in 'kv' else queries, depth) for name in 'qkvg'}

    def mask(self, what, kind, queries, keys):
        """Rows of one head's mask."""
        if what == 'causal':
            return [[0.0 if k <= q else -INF for k in range(keys)] for q in range(queries)]
        if what == 'nothing':
            return [[-INF] * keys for _ in range(queries)]
        if what == 'least':  # whole tiles of it; a row of nothing else is attention_cases.py's
            return [[LEAST[kind] if k // 32 % 2 or k > q else -0.0 for k in range(keys)] for q in range(queries)]
        number = lambda: self.rng.gauss(0, 2)
        kinds = {'hidden': lambda: -INF, 'zero': lambda: 0.0, 'zeros': lambda: self.rng.choice((0.0, -0.0)),
                 'cut': lambda: self.rng.choice((0.0, -INF)), 'numbers': number, 'all': lambda: self.rng.choice((0.0, -INF, number()))}
        tiles = [[self.rng.choice(list(kinds)) for _ in range(keys // 32 + 1)] for _ in range(queries // 32 + 1)]
        rows = [[kinds[tiles[q // 32][k // 32]]() for k in range(keys)] for q in range(queries)]
        rows[-5] = [-INF] * keys  # a row that sees nothing
        return rows

    def held(self, batch, heads, shared, queries, keys, depth, causal, kind, lead, what, way):
        down, across = (keys, queries) if way == 'turned' else (queries, keys + (way == 'of odd rows'))
        numbers = []
        for i in range(math.prod(lead)):
            rows = self.mask(what if what != 'nothing' or i == 0 else 'mosaic', kind, down, across)
            numbers += sum(rows, [])
        shape = (*lead, down, across)
        tensors = self.inputs(batch, heads, shared, queries, keys, depth)
        dtype, data = packed(kind, numbers)
        tensors['m'] = dtype, shape, data
        graph = MASKED
        if WAYS[way]:
            graph = graph.replace('attn_mask=%m', 'attn_mask=%x').replace('  %o,', WAYS[way] + '  %o,', 1)
        self.compare(f'a mask of {what}, {kind}{list(shape)} {way}, {heads} heads on {shared}, {queries} x {keys}, depth {depth}', graph,
                     {'BATCH': batch, 'HEADS': heads, 'SHARED': shared, 'QUERIES': queries, 'KEYS': keys, 'DEPTH': depth, 'CAUSAL': causal,
                      'MASK': f'{kind}{list(shape)}'}, tensors, 1, depth, batch * heads >= 256)

    def same(self, batch, heads, shared, queries, keys, other):
        """Hidden and plain tiles against ones that are read: their numbers change no score, or no weight."""
        rows = self.mask('causal', 'f32', queries, keys)
        tensors = self.inputs(batch, heads, shared, queries, keys, 64)
        tensors['m'] = 'F32', (1, 1, queries, keys), packed('f32', sum(rows, []))[1]
        if other == 'f32':
            rows = [[(UNUSED if x == 0 else x if k % 3 else LEAST['f32']) for k, x in enumerate(row)] for row in rows]
        dtype, data = packed(other, sum(rows, []))
        tensors['n'] = dtype, (1, 1, queries, keys), data
        self.compare(f'a mask of f32 and one of {other} that means the same, {heads} heads', SAME,
                     {'BATCH': batch, 'HEADS': heads, 'SHARED': shared, 'QUERIES': queries, 'KEYS': keys, 'DEPTH': 64, 'CAUSAL': 'false', 'OTHER': other},
                     tensors, 2, 64, batch * heads >= 256)

    def compare(self, name, graph, sizes, tensors, times, depth, is_wide):
        for word, size in sizes.items():
            graph = graph.replace(word, str(size))
        ending = ('64' if depth <= 64 else '128') + ('_wide' if is_wide else '') + '_masked'
        kernels = {'flash_mask_tiles': 2 * times}
        for kernel in ('flash_forward_', 'flash_backward_keys_', 'flash_backward_queries_'):
            kernels[kernel + ending] = times
        self.tests.against_processor(name, self.at, graph, tensors, ['--rtol', '0.02', '--atol', '0.04'], kernels=kernels,
                                     numerics='strict')
