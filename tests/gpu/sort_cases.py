"""Cases of run_gpu_tests.py: sorts, of rows that one block holds and of rows that many blocks share."""
import math
import os
import random
import struct
from array import array

from tensor_files import write_tensors

TILE = 2048          # items that a block holds: kSortTile of kernels/sort.h
LENGTHS = (1, 2, 31, 255, 256, 257, 511, 513, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 3 * TILE + 7, 5 * TILE, 10007)
FLOATS = {'F64': 'd', 'F32': 'f', 'F16': 'e'}
WHOLES = {'I64': 'q', 'I32': 'i', 'I16': 'h', 'I8': 'b', 'U8': 'B', 'BOOL': '?'}
NAMES = {'F64': 'f64', 'F32': 'f32', 'F16': 'f16', 'BF16': 'bf16', 'I64': 'i64', 'I32': 'i32', 'I16': 'i16', 'I8': 'i8',
         'U8': 'u8', 'BOOL': 'bool'}


def some_elements(rng, dtype, count):
    """Few different ones, so that most are equal to others: both zeros, infinities and NaN among the floats, the smallest and the
    largest among the whole numbers."""
    if dtype in WHOLES:
        code = WHOLES[dtype]
        if dtype == 'BOOL':
            return bytes(rng.randrange(2) for _ in range(count))
        low, high = (0, 255) if dtype == 'U8' else (-(1 << 8 * struct.calcsize(code) - 1), (1 << 8 * struct.calcsize(code) - 1) - 1)
        few = [low, low + 1, 0, 1, 7, high - 1, high] + [rng.randint(low, high) for _ in range(20)]
        return struct.pack(f'<{count}{code}', *(rng.choice(few) for _ in range(count)))
    few = [0.0, -0.0, math.inf, -math.inf, math.nan] + [rng.gauss(0, 3) for _ in range(20)]
    values = [rng.choice(few) if rng.random() < 0.7 else rng.gauss(0, 3) for _ in range(count)]
    if dtype == 'BF16':
        return b''.join(struct.pack('<f', v)[2:] for v in values)
    return struct.pack(f'<{count}{FLOATS[dtype]}', *values)


def sort_graph(dtype, shapes):
    """Each input both ways, along its last axis and, of two, the first."""
    inputs, nodes, outputs = [], [], []
    for i, shape in enumerate(shapes):
        inputs.append(f'  input %x{i} : {NAMES[dtype]}{list(shape)} "x{i}"')
        for axis, way in ((-1, 'false'), (-1, 'true'), (0, 'true')):
            name = f'{i}_{axis % len(shape)}_{way[0]}'
            if f'  output %v{name}' in outputs:
                continue
            nodes.append(f'  %v{name}, %p{name} = aten.sort.stable(%x{i}, stable=true, dim={axis}, descending={way})')
            outputs += [f'  output %v{name}', f'  output %p{name}']
        nodes.append(f'  %a{i} = aten.argsort.stable(%x{i}, stable=true, dim=-1, descending=true)')
        nodes.append(f'  %m{i} = aten.median(%x{i})')
        nodes.append(f'  %w{i}, %n{i} = aten.median.dim(%x{i}, -1)')  # which of equal ones it is, is up to the backend
        outputs += [f'  output %{letter}{i}' for letter in 'amw']
    return '\n'.join(['sg 1.0', 'graph rank *', *inputs, *nodes, *outputs]) + '\n'


def topk_graph(rows, length, counts):
    nodes, outputs = [], []
    for k in counts:
        for way in ('true', 'false'):
            nodes.append(f'  %v{k}{way}, %p{k}{way} = aten.topk(%x, {k}, -1, {way}, true)')
            outputs += [f'  output %v{k}{way}', f'  output %p{k}{way}']
    return '\n'.join(['sg 1.0', 'graph rank *', f'  input %x : f32[{rows}, {length}] "x"', *nodes, *outputs]) + '\n'


class SortCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(23)

    def run(self):
        self.types()
        self.largest()
        self.some_rows_at_a_time()
        self.buckets()
        self.rows_by_index()
        self.flags()
        if self.tests.args.stub:
            self.blocks()

    def run_lanes(self):
        """Few, for each lane alone is slow."""
        self.held('lanes', 'F32', [(TILE + 300,), (3, 700)])
        self.largest_of(2, 2 * TILE + 77, (5, 1500))
        self.flags()

    # --- cases ---

    def types(self):
        for dtype in (*FLOATS, 'BF16', *WHOLES):
            whole = dtype in ('F32', 'I64')
            shapes = [(n,) for n in LENGTHS] if whole else [(TILE + 1,), (3 * TILE + 7,)]
            shapes += [(3, 300), (2, TILE + 5), (5, 2 * TILE)] if whole else [(3, 300)]
            self.held(dtype, dtype, shapes)

    def held(self, name, dtype, shapes, env=None):
        """Against the processor, values and places to the bit."""
        inputs = {f'x{i}': (dtype, shape, some_elements(self.rng, dtype, math.prod(shape))) for i, shape in enumerate(shapes)}
        self.compare(f'sorts: {name}', sort_graph(dtype, shapes), inputs, env)

    def compare(self, name, graph, inputs, env=None):
        self.tests.against_processor(name, self.at, graph, inputs, env=env)

    def largest(self):
        self.largest_of(3, 700, (1, 8, 700))
        self.largest_of(2, 5 * TILE + 11, (1, 8, TILE // 2, TILE // 2 + 1, TILE, TILE + 1, 3 * TILE, 5 * TILE + 11))

    def largest_of(self, rows, length, counts):
        """Of different elements, because which of equal ones comes out is up to the backend."""
        values = array('f')
        for _ in range(rows):
            row = list(range(-(length // 2), length - length // 2))
            self.rng.shuffle(row)
            values.extend(row)
        self.compare(f'sorts: the largest of {length}', topk_graph(rows, length, counts),
                     {'x': ('F32', (rows, length), values.tobytes())})

    def some_rows_at_a_time(self):
        """As where memory is for a few rows: the last part is smaller."""
        for items in (1, 3 * TILE, 7 * TILE):
            self.held(f'rows by {items} items', 'I32', [(7, TILE + 50), (5, 300)], {'SG_CUDA_SORT_ITEMS': str(items)})

    def buckets(self):
        """Sums by index: many sources of few destinations, one without any, and a padding that has none; each adds its own in their
        order. Nothing to add at all."""
        for n in (0, 1, 3 * TILE + 5):
            graph = f'''sg 1.0
graph rank *
  input %x : f32[6] "x"
  input %i : i64[{n}] "i"
  input %v : f32[{n}] "v"
  input %g : f32[{n}, 3] "g"
  %added = aten.scatter_add(%x, 0, %i, %v)
  %put   = aten.index_put(%x, [%i], %v, true)
  %last  = aten.index_put(%x, [%i], %v)
  %rows  = aten.embedding_dense_backward(%g, %i, 6, 2, false)
  %half  = aten._to_copy(%g, dtype=bf16)
  %short = aten.embedding_dense_backward(%half, %i, 6, 2, false)
  output %added
  output %put
  output %last
  output %rows
  output %short
'''
            floats = lambda count: struct.pack(f'<{count}f', *(self.rng.gauss(0, 1) for _ in range(count)))
            self.compare(f'sums of {n} by index', graph, {
                'x': ('F32', (6,), floats(6)), 'v': ('F32', (n,), floats(n)), 'g': ('F32', (n, 3), floats(3 * n)),
                'i': ('I64', (n,), struct.pack(f'<{n}q', *(self.rng.choice((0, 1, 2, 2, 5)) for _ in range(n))))})

    def rows_by_index(self):
        """Rows by an index that they have in common: as many sources as there are rows, which one block sorts, and no more."""
        n = 600
        graph = f'''sg 1.0
graph rank *
  input %x : f32[6, 5] "x"
  input %y : f32[3, 6] "y"
  input %i : i64[{n}] "i"
  input %v : f32[{n}, 7] "v"
  input %t : f32[3, {n}] "t"
  %column = aten.unsqueeze(%i, 1)
  %down   = aten.expand(%column, [{n}, 4])
  %line   = aten.unsqueeze(%i, 0)
  %across = aten.expand(%line, [2, {n}])
  %added  = aten.scatter_add(%x, 0, %down, %v)
  %last   = aten.scatter.src(%x, 0, %down, %v)
  %most   = aten.scatter_reduce.two(%x, 0, %down, %v, "amax", include_self=false)
  %same   = aten.scatter.value(%x, 0, %down, 2.5)
  %mean   = aten.scatter_reduce.two(%y, 1, %across, %t, "mean")
  %one    = aten.scatter_add(%x, 0, %column, %v)
  output %added
  output %last
  output %most
  output %same
  output %mean
  output %one
'''
        floats = lambda count: struct.pack(f'<{count}f', *(self.rng.gauss(0, 1) for _ in range(count)))
        shapes = {'x': (6, 5), 'y': (3, 6), 'v': (n, 7), 't': (3, n)}
        tensors = {name: ('F32', shape, floats(math.prod(shape))) for name, shape in shapes.items()}
        tensors['i'] = ('I64', (n, ), struct.pack(f'<{n}q', *(self.rng.choice((0, 1, 2, 2, 5)) for _ in range(n))))
        self.tests.against_processor('rows by an index in common', self.at, graph, tensors, kernels={'sort_tiles': 6, 'merge_runs': 0})

    def flags(self):
        """Places of flags: more runs of them than a block has lanes."""
        n = 40_000
        graph = f'''sg 1.0
graph rank *
  input %x : i32[{n}] "x"
  input %m : bool[{n}] "m"
  input %s : i32[{n}] "s"
  %o = aten.masked_scatter(%x, %m, %s)
  output %o
'''
        self.compare('places of flags', graph, {'x': ('I32', (n,), self.rng.randbytes(4 * n)), 's': ('I32', (n,), self.rng.randbytes(4 * n)),
                                                'm': ('BOOL', (n,), bytes(self.rng.random() < 0.3 for _ in range(n)))})

    def blocks(self):
        """A long row is shared: each round has a block for each part of it."""
        length, k, log = 300_000, 20, self.at('blocks')
        graph = f'''sg 1.0
graph rank *
  input %x : i32[{length}] "x"
  %v, %p = aten.sort(%x)
  %w, %q = aten.topk(%x, {k})
  output %v
  output %p
  output %w
'''
        with open(self.at('long.txt'), 'w', encoding='utf-8') as f:
            f.write(graph)
        write_tensors(self.at('long.safetensors'), {'x': ('I32', (length,), self.rng.randbytes(4 * length))})
        command = [self.tests.tool('sg-run'), '-q', self.at('long.txt'), '--inputs', self.at('long.safetensors')]
        status, text = self.tests.run([*command, '--outputs', self.at('long.out')])
        self.tests.expect('sorts: a long row: the processor', status and f'exit {status}: {text}')
        status, text = self.tests.run([*command, '--backend', 'cuda', '--expect', self.at('long.out'), '--bitwise'],
                                      {'SG_STUB_LAUNCHES': log})
        self.tests.expect('sorts: a long row', status and f'exit {status}: {text}')
        with open(log, encoding='utf-8') as f:
            launches = [(name, int(count)) for name, count in map(str.split, f)]
        os.remove(log)
        tiles = -(-length // TILE)
        found = {name: [count for other, count in launches if other == name] for name in ('sort_tiles', 'merge_runs')}
        rounds = math.ceil(math.log2(tiles))
        right = (found['sort_tiles'] == [tiles, tiles, -(-tiles * k // TILE), 1] and len(found['merge_runs']) == rounds
                 and min(found['merge_runs']) >= tiles)
        self.tests.expect('sorts: a long row by many blocks', not right and str(launches))
