#!/usr/bin/env python3
"""torch_sums.py: sums as PyTorch's CPU kernels add them, recorded: the digests of their bits, in torch_sums.json.

Run by itself, with a Python that has torch, it records them anew. Summands are numbers of 24 bits that any Python makes.
"""
import hashlib
import json
import os
import struct

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_sums.json')

# (op, type of the summands, their shape, the order that permute brings the axes into, axes that are summed, type of the result)
SUMS = [
    ('mean', 'f32', (128, 64), (0, 1), [1], 'f32'), ('sum', 'f32', (37, 1000), (0, 1), [1], 'f32'),
    ('sum', 'f32', (5, 16384), (0, 1), [1], 'f32'), ('mean', 'f32', (300, 50), (0, 1), [1], 'f32'),
    ('sum', 'f32', (400, 7), (0, 1), [1], 'f32'), ('sum', 'f32', (400, 8), (0, 1), [1], 'f32'),
    ('sum', 'f32', (20000,), (0,), [0], 'f32'), ('mean', 'f32', (6,), (0,), [0], 'f32'),
    ('sum', 'f32', (700, 96), (0, 1), [0], 'f32'), ('sum', 'f32', (5000, 61), (0, 1), [0], 'f32'),
    ('sum', 'f32', (900, 6), (0, 1), [0], 'f32'), ('sum', 'f32', (17, 40, 33), (0, 1, 2), [1], 'f32'),
    ('mean', 'f32', (4, 12, 9, 11), (0, 1, 2, 3), [0, 2, 3], 'f32'), ('sum', 'f32', (4, 10, 21), (2, 0, 1), [1], 'f32'),
    ('sum', 'f32', (28, 16, 18, 13), (3, 2, 1, 0), [2], 'f32'), ('sum', 'f32', (6, 50, 3), (1, 2, 0), [1], 'f32'),
    ('sum', 'bf16', (40, 777), (0, 1), [1], 'bf16'), ('sum', 'bf16', (40, 777), (0, 1), [1], 'f32'),
    ('mean', 'bf16', (40, 777), (0, 1), [1], 'bf16'), ('sum', 'bf16', (600, 45), (0, 1), [0], 'bf16'),
    ('sum', 'bf16', (90, 15), (0, 1), [1], 'bf16'), ('mean', 'bf16', (8, 30, 20), (2, 1, 0), [1], 'bf16'),
]


def numbers(shape):
    count = 1
    for size in shape:
        count *= size
    return [((i * 2654435761 + 12345) & 0xFFFFFF) / (1 << 24) - 0.5 for i in range(count)]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def main():
    import torch

    torch.set_num_threads(1)
    types = {'f32': torch.float32, 'bf16': torch.bfloat16}
    out = []
    for op, dtype, shape, order, axes, result in SUMS:
        data = b''.join(struct.pack('<f', x) for x in numbers(shape))
        x = torch.frombuffer(bytearray(data), dtype=torch.float32)
        if dtype == 'bf16':  # cut off
            x = x.view(torch.int16)[1::2].clone().view(torch.bfloat16)
        y = getattr(torch, op)(x.reshape(shape).permute(order), axes, dtype=types[result] if result != dtype else None)
        out.append(digest(y.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()))
    with open(FILE, 'w', encoding='utf-8') as file:
        json.dump({'torch': torch.__version__.split('+')[0], 'sums': out}, file, indent=1)
        file.write('\n')


if __name__ == '__main__':
    main()
