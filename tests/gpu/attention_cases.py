"""Cases of run_gpu_tests.py: attention of bf16 by tiles, against the processor."""
import math
import random
import struct

from tensor_files import bf16

GRAPH = '''sg 1.0
graph rank *
  input %q : bf16[BATCH, HEADS, QUERIES, DEPTH] "q"
  input %k : bf16[BATCH, SHARED, KEYS, DEPTH] "k"
  input %v : bf16[BATCH, SHARED, KEYS, DEPTH] "v"
  input %g : bf16[BATCH, HEADS, QUERIES, DEPTH] "g"
  %o, %l = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, CAUSAL, scale=0.2)
  %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(%g, %q, %k, %v, %o, %l, 0.0, CAUSAL, scale=0.2)
  output %o
  output %l
  output %dq
  output %dk
  output %dv
'''

# The four in one tensor, [batch, rows, 4, heads, depth], as a linear layer gives them.
PACKED = '''sg 1.0
graph rank *
  input %x : bf16[BATCH, QUERIES, 4, HEADS, DEPTH] "x"
  %t = aten.permute(%x, [2, 0, 3, 1, 4])
  %q = aten.select.int(%t, 0, 0)
  %k = aten.select.int(%t, 0, 1)
  %v = aten.select.int(%t, 0, 2)
  %g = aten.select.int(%t, 0, 3)
  %o, %l = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, CAUSAL)
  %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(%g, %q, %k, %v, %o, %l, 0.0, CAUSAL)
  output %o
  output %dq
  output %dk
  output %dv
'''

# With a mask, of booleans or of numbers that are added, as large as numbers go among them.
MASKED = GRAPH.replace('"g"\n', '"g"\n  input %m : MASK "m"\n').replace('scale=0.2)', 'scale=0.2, attn_mask=%m)')

# batch, heads, key heads, queries, keys, depth, causal; the kernels forward, and backward over the queries and over the keys
CASES = (
    (2, 4, 4, 150, 150, 64, 'true', '64', '64', '64'),        # more rows than a block has; rows that are cut off
    (2, 4, 4, 150, 70, 128, 'false', '128', '128', '128'),
    (1, 2, 2, 70, 300, 128, 'true', '128', '128', '128'),      # keys that no query sees
    (2, 4, 4, 150, 90, 40, 'true', '64', '64', '64'),         # a depth that is filled up
    (1, 2, 2, 50, 200, 34, 'false', '64', '64', '64'),        # and one whose rows begin at no multiple of 16 bytes
    (1, 4, 2, 100, 100, 64, 'true', '64', '64', '64'),        # heads that share keys
    (1, 256, 256, 40, 150, 64, 'true', '64_wide', '64_wide', '64_wide'),  # blocks enough for 32 rows a warp
    (2, 128, 64, 300, 33, 64, 'false', '64_wide', '64_wide', '64'),
    (1, 128, 128, 70, 290, 64, 'true', '64', '64', '64_wide'),  # of keys alone, some of which no query sees
    (1, 256, 128, 150, 90, 72, 'true', '128_wide', '128', '128'),
)
# depth, causal, type and shape of the mask, which broadcasts to 2, 4, 150, 90
MASKS = (
    (64, 'false', 'bool', (2, 1, 1, 90)),   # of keys that are padding
    (128, 'true', 'f32', (150, 90)),
    (40, 'false', 'bf16', (1, 4, 150, 90)),
)
# Queries and keys so large that scores are some thousands, and some 10^8: a logarithm of these is 4 off where it is stored. By the
# first, what gradients are off, as they are products with such rows; of the second only the largest score of a row counts.
LARGE = ((30, 1), (8000, 0.04))
LANES = (0, 2, 4, 5)  # for each lane alone is slow
WIDE_LANES = ((1, 256, 256, 40, 70, 64, 'true', '64_wide', '64_wide', '64_wide'), (1, 256, 256, 20, 70, 128, 'true', '128_wide', '128', '128'))


class AttentionCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at
        self.rng = random.Random(11)

    def run(self):
        for case in CASES:
            self.held(*case)
        for size, atol in LARGE:
            for case in (CASES[0], CASES[9]) if size == 30 else (CASES[0], CASES[2], CASES[6], CASES[9]):
                self.held(*case, size=size, atol=atol)
            self.masked(*MASKS[0], size=size, atol=atol)
        for depth in (64, 36):
            self.packed(depth)
        for mask in MASKS:
            self.masked(*mask)
        self.without_tiles()

    def without_tiles(self):
        """What a device can do instead, if it has to."""
        sizes = {'BATCH': 2, 'HEADS': 4, 'SHARED': 2, 'QUERIES': 70, 'KEYS': 50, 'DEPTH': 64, 'CAUSAL': 'true'}
        tensors = {name: self.noise(2, 2 if name in 'kv' else 4, 50 if name in 'kv' else 70, 64) for name in 'qkvg'}
        self.compare('attention without tiles', GRAPH, sizes, tensors, {'flash_delta': 0, 'attention_weights': 4}, env={'SG_CUDA_TILES': '0'})

    def run_lanes(self):
        for i in LANES:
            self.held(*CASES[i])
        self.held(*CASES[0], size=8000)
        for case in WIDE_LANES:
            self.held(*case)
        self.masked(*MASKS[0])

    def noise(self, *shape, size=1):
        count = 1
        for n in shape:
            count *= n
        some = [self.rng.gauss(0, size) for _ in range(4099)]  # a prime
        return 'BF16', shape, bf16([some[i % len(some)] for i in range(count)])

    def compare(self, name, graph, sizes, tensors, kernels, atol=0.04, env=None):
        for word, size in sizes.items():
            graph = graph.replace(word, str(size))
        self.tests.against_processor(name, self.at, graph, tensors, ['--rtol', '0.02', '--atol', str(atol)], env, kernels,
                                     numerics='strict')  # matrix units round scores as the device does, so the distance would be that of both

    def held(self, batch, heads, shared, queries, keys, depth, causal, forward, over_queries, over_keys, size=1, atol=0.04):
        sizes = {'BATCH': batch, 'HEADS': heads, 'SHARED': shared, 'QUERIES': queries, 'KEYS': keys, 'DEPTH': depth, 'CAUSAL': causal}
        tensors = {name: self.noise(batch, shared if name in 'kv' else heads, keys if name in 'kv' else queries, depth,
                                    size=size if name in 'qk' else 1) for name in 'qkvg'}
        kernels = {'flash_forward_' + forward: 1, 'flash_delta': 1, 'flash_backward_keys_' + over_keys: 1,
                   'flash_backward_queries_' + over_queries: 1}
        self.compare(f'attention, {heads} heads on {shared}, {queries} x {keys}, depth {depth}, queries of {size}', GRAPH, sizes, tensors, kernels, atol)

    def packed(self, depth):
        sizes = {'BATCH': 2, 'HEADS': 3, 'QUERIES': 130, 'DEPTH': depth, 'CAUSAL': 'true'}
        self.compare(f'attention of one tensor, depth {depth}', PACKED, sizes, {'x': self.noise(2, 130, 4, 3, depth)},
                     {'flash_forward_64': 1, 'flash_backward_keys_64': 1, 'flash_backward_queries_64': 1})

    def masked(self, depth, causal, kind, shape, size=1, atol=0.04):
        sizes = {'BATCH': 2, 'HEADS': 4, 'SHARED': 4, 'QUERIES': 150, 'KEYS': 90, 'DEPTH': depth, 'CAUSAL': causal, 'MASK': f'{kind}{list(shape)}'}
        tensors = {name: self.noise(2, 4, 90 if name in 'kv' else 150, depth, size=size if name in 'qk' else 1) for name in 'qkvg'}
        count = math.prod(shape)
        if kind == 'bool':
            tensors['m'] = 'BOOL', shape, bytes(i % 90 < 70 or i < 90 for i in range(count))
        else:
            least = -3.4e38 if kind == 'f32' else -3.3e38
            numbers = [least if self.rng.random() < 0.2 else self.rng.gauss(0, 2) for _ in range(count)]
            numbers[90:180] = [least] * 90  # a row of them, which counts as one that sees all
            tensors['m'] = ('F32', shape, struct.pack(f'<{count}f', *numbers)) if kind == 'f32' else ('BF16', shape, bf16(numbers))
        ending = ('64' if depth <= 64 else '128') + '_masked'
        self.compare(f'attention with a mask of {kind}{list(shape)}, queries of {size}', MASKED, sizes, tensors,
                     {'flash_forward_' + ending: 1, 'flash_backward_keys_' + ending: 1, 'flash_backward_queries_' + ending: 1}, atol)
