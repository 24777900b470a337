#!/usr/bin/env python3
"""run_chunk_properties.py --bin BIN [--seeds N] [--first S] [--keep DIR]: random modules, chunked at random: equal, or refused with a reason.

Each module is a random graph of table ops over data with rows, shared parameters and what they make of each other: products,
reductions, views that merge, move and take apart axes, sorts, look-ups and writes by index, fills, writes in place, and a backward part over the
same values. It is run whole and in chunks on the same inputs. A different result fails, and so does a refusal that names no node.
With --keep the graphs of failures stay in DIR.
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tensor_files import write_tensors  # noqa: E402

UNARY = ['aten.tanh', 'aten.sigmoid', 'aten.neg', 'aten.relu', 'aten.clone', 'aten.alias']
BINARY = ['aten.add.Tensor', 'aten.sub.Tensor', 'aten.mul.Tensor', 'aten.maximum']


class Module:
    """Text of a graph; values are (name, shape, dtype)."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        rng = self.rng
        self.rows = rng.choice([4, 5, 6, 7, 8, 12, 24])
        self.width = rng.choice([2, 3, 4])
        self.length = rng.choice([None, None, 2, 3])
        self.shapes = []
        self.inputs, self.lines, self.values, self.count = [], [], [], 0
        middle = [self.length] if self.length else []
        self.x = self.add_input('input', [self.rows, *middle, self.width])
        self.other = self.add_input('input', [self.rows, *middle, self.width])
        self.w = self.add_input('param', [self.width, self.width])
        self.table = self.add_input('param', [self.rows, self.width])
        self.row = self.add_input('param', [self.width])
        self.values = [self.other, self.w, self.table, self.row, self.x, self.x, self.x]

    def add_input(self, kind, shape, dtype='f32'):
        name = f'%in{len(self.inputs)}'
        self.shapes.append(list(shape))
        self.inputs.append(f'  {kind} {name} : {dtype}{list(shape)} "in{len(self.inputs)}"')
        return name, list(shape), dtype

    def write_inputs(self, path):
        draw = lambda shape: array.array('f', (self.rng.gauss(0, 1) for _ in range(math.prod(shape)))).tobytes()
        write_tensors(path, {f'in{i}': ('F32', shape, draw(shape)) for i, shape in enumerate(self.shapes)})

    def emit(self, op, args, *shapes, dtype='f32'):
        names = []
        for shape in shapes:
            names.append((f'%v{self.count}', list(shape), dtype if isinstance(dtype, str) else dtype[len(names)]))
            self.count += 1
        self.lines.append(f'    {", ".join(n for n, _, _ in names)} = {op}({args})')
        self.values += [n for n in names if n[2] == 'f32']
        return names[0] if len(names) == 1 else names

    def pick(self, want=lambda v: True):
        """A value that fits, recent ones more often."""
        fitting = [v for v in self.values if want(v)]
        if not fitting:
            return None
        return fitting[max(self.rng.randrange(len(fitting)) for _ in range(2))]

    # --- steps ---

    def unary(self):
        v = self.pick()
        self.emit(self.rng.choice(UNARY), v[0], v[1])

    def binary(self):
        a = self.pick()
        b = self.pick(lambda v: v[1] == a[1] or v[1] == a[1][1:] or (len(v[1]) == len(a[1]) and all(x in (1, y) for x, y in zip(v[1], a[1]))))
        if b:
            self.emit(self.rng.choice(BINARY), f'{a[0]}, {b[0]}', a[1])

    def product(self):
        a = self.pick(lambda v: len(v[1]) == 2)
        b = a and self.pick(lambda v: len(v[1]) == 2 and v[1][0] == a[1][1])
        if b:
            self.emit('aten.mm', f'{a[0]}, {b[0]}', [a[1][0], b[1][1]])

    def gram(self):
        a = self.pick(lambda v: len(v[1]) == 2)
        b = a and self.pick(lambda v: len(v[1]) == 2 and v[1][0] == a[1][0])
        if b:
            t = self.emit('aten.t', a[0], a[1][::-1])
            self.emit('aten.mm', f'{t[0]}, {b[0]}', [a[1][1], b[1][1]])

    def batched(self):
        a = self.pick(lambda v: len(v[1]) == 3)
        b = a and self.pick(lambda v: len(v[1]) == 3 and v[1][0] == a[1][0])
        if b:
            t = self.emit('aten.transpose.int', f'{b[0]}, 1, 2', [b[1][0], b[1][2], b[1][1]])
            if b[1][2] == a[1][2]:
                self.emit('aten.bmm', f'{a[0]}, {t[0]}', [a[1][0], a[1][1], b[1][1]])

    def affine(self):
        a = self.pick(lambda v: len(v[1]) == 2 and v[1][1] == self.width)
        if a:
            self.emit('aten.addmm', f'{self.row[0]}, {a[0]}, {self.w[0]}', a[1])

    def reduce(self):
        a = self.pick(lambda v: v[1])
        d = self.rng.randrange(len(a[1]))
        keep = self.rng.random() < 0.4
        shape = [1 if i == d else n for i, n in enumerate(a[1]) if keep or i != d]
        op = self.rng.choice(['aten.sum.dim_IntList', 'aten.sum.dim_IntList', 'aten.mean.dim', 'aten.amax'])
        self.emit(op, f'{a[0]}, [{d}], {str(keep).lower()}', shape)

    def along(self):
        a = self.pick(lambda v: v[1])
        d = self.rng.randrange(len(a[1]))
        if self.rng.random() < 0.5:
            self.emit('aten._softmax', f'{a[0]}, {d}, false', a[1])
        else:
            self.emit('aten.cumsum', f'{a[0]}, {d}', a[1])

    def norm(self):
        a = self.pick(lambda v: len(v[1]) >= 2 and v[1][-1] == self.width)
        if a:
            self.emit('aten.native_layer_norm', f'{a[0]}, [{self.width}], {self.row[0]}, {self.row[0]}, 1e-5', a[1],
                      a[1][:-1] + [1], a[1][:-1] + [1])

    def turn(self):
        a = self.pick(lambda v: len(v[1]) >= 2)
        order = list(range(len(a[1])))
        self.rng.shuffle(order)
        self.emit('aten.permute', f'{a[0]}, {order}', [a[1][i] for i in order])

    def reshape(self):
        a = self.pick(lambda v: v[1])
        shape, n = list(a[1]), self.rng.randrange(3)
        if n == 0 and len(shape) > 1:
            i = self.rng.randrange(len(shape) - 1)
            shape[i:i + 2] = [shape[i] * shape[i + 1]]
        elif n == 1:
            i = self.rng.randrange(len(shape))
            for f in (2, 3, 4):
                if shape[i] % f == 0:
                    shape[i:i + 1] = self.rng.choice([[f, shape[i] // f], [shape[i] // f, f]])
                    break
        else:
            shape.insert(self.rng.randrange(len(shape) + 1), 1)
        written = list(shape)
        if self.rng.random() < 0.3:
            written[self.rng.randrange(len(written))] = -1
        self.emit('aten.reshape', f'{a[0]}, {written}', shape)

    def unsqueeze(self):
        a = self.pick(lambda v: len(v[1]) < 4)
        d = self.rng.randrange(len(a[1]) + 1)
        self.emit('aten.unsqueeze', f'{a[0]}, {d}', a[1][:d] + [1] + a[1][d:])

    def squeeze(self):
        a = self.pick(lambda v: 1 in v[1])
        if a:
            d = a[1].index(1)
            self.emit('aten.squeeze.dim', f'{a[0]}, {d}', a[1][:d] + a[1][d + 1:])

    def widen(self):
        a = self.pick(lambda v: 1 in v[1])
        if a:
            d = a[1].index(1)
            shape = a[1][:d] + [self.rng.choice([self.rows, self.width])] + a[1][d + 1:]
            self.emit('aten.expand', f'{a[0]}, {shape}', shape)

    def cut(self):
        a = self.pick(lambda v: v[1])
        d = self.rng.randrange(len(a[1]))
        n = a[1][d]
        begin = self.rng.randrange(n)
        end = self.rng.choice([n, begin + 1, 9223372036854775807])
        shape = a[1][:d] + [min(end, n) - begin] + a[1][d + 1:]
        self.emit('aten.slice.Tensor', f'{a[0]}, {d}, {begin}, {end}', shape)

    def take(self):
        a = self.pick(lambda v: v[1])
        d = self.rng.randrange(len(a[1]))
        self.emit('aten.select.int', f'{a[0]}, {d}, {self.rng.randrange(a[1][d])}', a[1][:d] + a[1][d + 1:])

    def join(self):
        a = self.pick(lambda v: v[1])
        b = self.pick(lambda v: v[1] == a[1])
        d = self.rng.randrange(len(a[1]))
        if self.rng.random() < 0.5:
            self.emit('aten.cat', f'[{a[0]}, {b[0]}], {d}', a[1][:d] + [2 * a[1][d]] + a[1][d + 1:])
        else:
            self.emit('aten.stack', f'[{a[0]}, {b[0]}], {d}', a[1][:d] + [2] + a[1][d:])

    def split(self):
        a = self.pick(lambda v: v[1] and v[1][-1] > 1)
        if a:
            d = self.rng.randrange(len(a[1]))
            n = a[1][d]
            if n > 1:
                k = self.rng.randrange(1, n)
                self.emit('aten.split_with_sizes', f'{a[0]}, [{k}, {n - k}], {d}', a[1][:d] + [k] + a[1][d + 1:],
                          a[1][:d] + [n - k] + a[1][d + 1:])

    def fill(self):
        a = self.pick()
        if self.rng.random() < 0.5:
            z = self.emit(self.rng.choice(['aten.zeros_like', 'aten.ones_like']), a[0], a[1])
        else:
            z = self.emit('aten.new_zeros', f'{a[0]}, {a[1]}', a[1])
        b = self.pick(lambda v: v[1] == a[1])
        if self.rng.random() < 0.5:
            self.emit('aten.add_.Tensor', f'{z[0]}, {b[0]}', a[1])
        else:
            self.emit('aten.add.Tensor', f'{z[0]}, {b[0]}', a[1])

    def write(self):
        a = self.pick(lambda v: v[0].startswith('%v'))
        b = a and self.pick(lambda v: v[1] == a[1])
        if b:
            self.emit(self.rng.choice(['aten.mul_.Tensor', 'aten.add_.Tensor']), f'{a[0]}, {b[0]}', a[1])

    def best(self):
        a = self.pick(lambda v: len(v[1]) >= 2)
        d = self.rng.randrange(len(a[1]))
        shape = a[1][:d] + [1] + a[1][d + 1:]
        names = self.emit('aten.topk', f'{a[0]}, 1, {d}', shape, shape, dtype=['f32', 'i64'])
        self.emit('aten.gather', f'{a[0]}, {d}, {names[1][0]}', shape)
        b = self.pick(lambda v: v[1] == a[1])
        z = self.emit('aten.zeros_like', b[0], b[1])
        self.emit('aten.scatter_add', f'{z[0]}, {d}, {names[1][0]}, {names[0][0]}', b[1])

    def route(self):
        """Rows in the order of a sort, something for each, and back."""
        a = self.pick(lambda v: len(v[1]) == 2 and v[1][0] == self.rows)
        if not a:
            return
        k = self.rng.choice([1, min(2, a[1][1])])
        names = self.emit('aten.topk', f'{a[0]}, {k}, 1', [self.rows, k], [self.rows, k], dtype=['f32', 'i64'])
        ids = self.emit('aten.view', f'{names[1][0]}, [-1]', [self.rows * k], dtype='i64')
        _, at = self.emit('aten.sort.stable', f'{ids[0]}, stable=true', [self.rows * k], [self.rows * k],
                          dtype=['i64', 'i64'])
        row = self.emit('aten.floor_divide', f'{at[0]}, {k if self.rng.random() < 0.8 else 1}', [self.rows * k],
                        dtype='i64')
        items = self.emit('aten.index.Tensor', f'{a[0]}, [{row[0]}]', [self.rows * k, a[1][1]])
        items = self.emit(self.rng.choice(['aten.tanh', 'aten.relu']), items[0], items[1])
        if self.rng.random() < 0.3:
            items = self.emit('aten.cumsum', f'{items[0]}, {self.rng.randrange(2)}', items[1])
        zeros = self.emit('aten.new_zeros', f'{items[0]}, {a[1]}', a[1])
        self.emit('aten.index_put', f'{zeros[0]}, [{row[0]}], {items[0]}, true', a[1])

    def group(self):
        """Rows as entries of several, something within each entry, and rows again."""
        a = self.pick(lambda v: len(v[1]) == 2 and v[1][0] % 2 == 0)
        if not a:
            return
        n = self.rng.choice([k for k in (2, 3, 4) if a[1][0] % k == 0])
        apart = [a[1][0] // n, n, a[1][1]]
        entries = self.emit('aten.view', f'{a[0]}, {self.rng.choice([apart, [-1, n, a[1][1]]])}', apart)
        if self.rng.random() < 0.5:
            entries = self.emit('aten.cumsum', f'{entries[0]}, 1', apart)
        else:
            mean = self.emit('aten.mean.dim', f'{entries[0]}, [1], true', [apart[0], 1, a[1][1]])
            entries = self.emit('aten.sub.Tensor', f'{entries[0]}, {mean[0]}', apart)
        if self.rng.random() < 0.6:
            self.emit('aten.view', f'{entries[0]}, {a[1]}', a[1])

    def look_up(self):
        a = self.pick(lambda v: len(v[1]) == 2 and v[1][1] >= 1)
        names = self.emit('aten.topk', f'{a[0]}, 1, 1', [a[1][0], 1], [a[1][0], 1], dtype=['f32', 'i64'])
        flat = self.emit('aten.view', f'{names[1][0]}, [-1]', [a[1][0]], dtype='i64')
        t = self.pick(lambda v: len(v[1]) == 2 and v[1][0] >= a[1][1])
        if t:
            self.emit('aten.index.Tensor', f'{t[0]}, [{flat[0]}]', [a[1][0], t[1][1]])

    def text(self):
        steps = [self.unary, self.binary, self.binary, self.product, self.gram, self.batched, self.affine, self.reduce,
                 self.along, self.norm, self.turn,
                 self.reshape, self.unsqueeze, self.squeeze, self.widen, self.cut, self.take, self.join, self.split,
                 self.fill, self.write, self.best,
                 self.route, self.look_up, self.group, self.group]
        self.lines.append('  forward m')
        calls = self.rng.choice([1, 1, 1, 2, 3])          # of the module, with something else between them
        for call in range(calls):
            for _ in range(self.rng.randrange(2, 7) if calls == 1 else self.rng.randrange(1, 4)):
                self.rng.choice(steps)()
            if call + 1 < calls:
                self.lines.append('  forward -')
                self.unary()
                self.lines.append('  forward m')
        used = list(self.values)
        if self.rng.random() < 0.5:
            self.lines.append('  backward head')
            a = self.pick(lambda v: v[0].startswith('%v')) or self.x
            self.emit('aten.ones_like', a[0], a[1])
            self.lines.append('  backward m')
            for _ in range(self.rng.randrange(1, 5)):
                self.rng.choice(steps)()
        results = [v for v in self.values if v[0].startswith('%v')]
        leaves = [v for v in results if not any(f'{v[0]},' in l.split('=')[1] or f'{v[0]})' in l.split('=')[1] or f'{v[0]}]' in l.split('=')[1]
                                                for l in self.lines if '=' in l)]
        chosen = leaves or results[-1:]
        if used and self.rng.random() < 0.5 and results:
            chosen = chosen + [self.rng.choice(results)]
        if not chosen:
            return None
        out = ['sg 1.0 job "j" world 1', 'graph rank *', *self.inputs, *self.lines]
        return '\n'.join(out + [f'  output {v[0]}' for v in dict.fromkeys((c[0], 0) for c in chosen)]) + '\n'


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr + done.stdout


class Tally:
    def __init__(self):
        self.equal = self.refused = self.left = 0
        self.failed = []


def hold(seed, bin_dir, folder, tally):
    rng = random.Random(seed * 7919 + 1)
    module = Module(seed)
    text = module.text()
    if text is None:
        tally.left += 1
        return None
    graph, chunked, values = (os.path.join(folder, n) for n in ('in.txt', 'out.sg', 'values.safetensors'))
    with open(graph, 'w') as file:
        file.write(text)
    tool = lambda name: os.path.join(bin_dir, name)
    module.write_inputs(os.path.join(folder, 'in.safetensors'))
    init = ['--inputs', os.path.join(folder, 'in.safetensors')]
    code, said = run(tool('sg-run'), '-q', graph, *init, '--outputs', values)
    if code != 0:
        tally.left += 1                     # our generator's fault: an op that does not take these shapes
        return None
    chunks = rng.choice([2, 2, 3, 4])
    sums = rng.choice(['early', 'eager'])
    code, said = run(tool('sg-chunk'), '-q', graph, '--modules', 'm', '--chunks', str(chunks), '--grad-accumulation',
                     sums, '-o', chunked)
    if code == 4:
        if 'names no module' in said:
            tally.left += 1                 # none of its steps made a node
            return None
        tally.refused += 1
        return None if 'node %' in said or 'module m' in said else f'refused without a place: {said}'
    if code != 0:
        return f'sg-chunk: exit {code}: {said}'
    code, said = run(tool('sg-run'), chunked, *init, '--expect', values, '--rtol', '1e-4', '--atol', '1e-5')
    if code != 0:
        return f'{chunks} chunks: {said}'
    tally.equal += 1
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--seeds', type=int, default=200)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--keep', default='')
    args = parser.parse_args()
    begin, tally = time.time(), Tally()
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            why = hold(seed, args.bin, folder, tally)
            if why:
                tally.failed.append(seed)
                print(f'FAIL seed {seed}: {why}')
                if args.keep:
                    os.makedirs(args.keep, exist_ok=True)
                    shutil.copy(os.path.join(folder, 'in.txt'), os.path.join(args.keep, f'{seed}.txt'))
    print(f'{tally.equal} equal, {tally.refused} refused, {tally.left} do not run, {len(tally.failed)} failed; {time.time() - begin:.0f} s')
    if tally.equal < args.seeds // 10:
        print('FAIL: too few modules are chunked to tell anything')
        return 1
    return 1 if tally.failed else 0


if __name__ == '__main__':
    sys.exit(main())
