#!/usr/bin/env python3
"""run_auto_chunk_properties.py --bin BIN [--seeds N] [--first S] [--keep DIR]: random heads, chunked by sg-chunk
--auto: equal, or refused with a reason.

Each head blows rows up to a vocabulary - by a product, a product with a bias, rows beside columns, or a product that
is transposed - and goes on with random ops of the table over that, the labels, and what is made of them: log-softmax
and its losses, reductions, views, fills, writes in place, and a backward part with products over the rows. It is run
whole and in chunks on the same inputs. A different result fails, and so does a refusal that names no node.
"""
import argparse
import os
import random
import shutil
import sys
import tempfile
import time

from run_chunk_properties import Module, Tally, run


class Head(Module):
    def __init__(self, seed):
        super().__init__(seed)
        rng = self.rng
        self.vocabulary = rng.choice([13, 17])
        self.length = None
        self.big = self.add_input('param', [self.width, self.vocabulary])
        self.bias = self.add_input('param', [self.vocabulary])
        self.flat = self.add_input('input', [self.rows, self.width])
        self.scores = self.add_input('input', [self.rows, self.vocabulary])
        self.values = [self.flat, self.flat, self.row]
        self.labels = None

    def amplify(self):
        rng, n, v = self.rng, self.rows, self.vocabulary
        hidden = self.flat
        if rng.random() < 0.5:
            hidden = self.emit('aten.tanh', self.flat[0], self.flat[1])
        kind = rng.choice(['mm', 'mm', 'addmm', 'outer', 'turned'])
        if kind == 'mm':
            logits = self.emit('aten.mm', f'{hidden[0]}, {self.big[0]}', [n, v])
        elif kind == 'addmm':
            logits = self.emit('aten.addmm', f'{self.bias[0]}, {hidden[0]}, {self.big[0]}', [n, v])
        elif kind == 'outer':
            column = self.emit('aten.sum.dim_IntList', f'{hidden[0]}, [1], true', [n, 1])
            logits = self.emit('aten.mul.Tensor', f'{column[0]}, {self.bias[0]}', [n, v])
        else:
            turned = self.emit('aten.t', hidden[0], hidden[1][::-1])
            wide = self.emit('aten.t', self.big[0], [v, self.width])
            logits = self.emit('aten.mm', f'{wide[0]}, {turned[0]}', [v, n])
        if kind != 'turned' and n % 2 == 0 and rng.random() < 0.4:
            deep = self.emit('aten.view', f'{logits[0]}, [2, {n // 2}, {v}]', [2, n // 2, v])
            deep = self.emit(rng.choice(['aten.mul.Tensor', 'aten.add.Tensor']), f'{deep[0]}, {deep[0]}', deep[1])
            logits = self.emit('aten.view', f'{deep[0]}, [-1, {v}]', [n, v])
        self.values += [logits] * 4
        self.hidden, self.logits, self.kind = hidden, logits, kind

    def loss(self):
        """Cross entropy and its gradients, as a capture has them."""
        if self.kind == 'turned':
            return
        rng, n, v = self.rng, self.rows, self.vocabulary
        _, at = self.emit('aten.max.dim', f'{self.scores[0]}, 1', [n], [n], dtype=['f32', 'i64'])
        if rng.random() < 0.4:
            first = self.emit('aten.eq.Scalar', f'{at[0]}, 3', [n], dtype='bool')
            at = self.emit('aten.masked_fill.Scalar', f'{at[0]}, {first[0]}, -100', [n], dtype='i64')
        weight = self.bias[0] if rng.random() < 0.3 else 'none'
        reduction = rng.choice([1, 1, 2, 0])
        log = self.emit('aten._log_softmax', f'{self.logits[0]}, 1, false', [n, v])
        shape = [n] if reduction == 0 else []
        value, total = self.emit('aten.nll_loss_forward', f'{log[0]}, {at[0]}, {weight}, {reduction}, -100', shape, [])
        seed = self.emit('aten.ones_like', value[0], shape)
        if rng.random() < 0.5:
            seed = self.emit('aten.mul.Tensor', f'{seed[0]}, 0.5', shape)
        self.lines.append('  backward head')
        operands = f'{seed[0]}, {log[0]}, {at[0]}, {weight}, {reduction}, -100, {total[0]}'
        grad = self.emit('aten.nll_loss_backward', operands, [n, v])
        if rng.random() < 0.8:
            grad = self.emit('aten._log_softmax_backward_data', f'{grad[0]}, {log[0]}, 1, f32', [n, v])
        self.products(grad)

    def products(self, grad):
        n, v = self.rows, self.vocabulary
        turned = self.emit('aten.t', grad[0], [v, n])
        self.emit('aten.mm', f'{turned[0]}, {self.hidden[0]}', [v, self.width])
        wide = self.emit('aten.t', self.big[0], [v, self.width])
        self.emit('aten.mm', f'{grad[0]}, {wide[0]}', [n, self.width])
        self.emit('aten.sum.dim_IntList', f'{grad[0]}, [0]', [v])

    def wide_fill(self):
        a = self.pick(lambda v: len(v[1]) == 2 and v[1][1] == self.vocabulary)
        if a:
            z = self.emit('aten.full', f'[{a[1][0]}, {a[1][1]}], 0.5', a[1])
            self.emit('aten.add.Tensor', f'{z[0]}, {a[0]}', a[1])

    def wide_mask(self):
        a = self.pick(lambda v: len(v[1]) == 2 and v[1] == [self.rows, self.vocabulary])
        if a:
            soft = self.emit('aten._softmax', f'{self.scores[0]}, 1, false', self.scores[1])
            self.emit('aten.mul.Tensor', f'{soft[0]}, {a[0]}', a[1])

    def text(self):
        steps = [self.unary, self.unary, self.binary, self.binary, self.reduce, self.reduce, self.along, self.turn,
                 self.reshape, self.unsqueeze, self.squeeze, self.widen, self.cut, self.take, self.join, self.split,
                 self.fill, self.write, self.best, self.gram, self.wide_fill, self.wide_mask]
        self.lines.append('  forward head')
        self.amplify()
        for _ in range(self.rng.randrange(0, 4)):
            self.rng.choice(steps)()
        if self.rng.random() < 0.6:
            self.loss()
        else:
            self.lines.append('  backward head')
            wide = self.pick(lambda v: v[1] == [self.rows, self.vocabulary])
            if wide and self.rng.random() < 0.7:
                self.products(wide)
        for _ in range(self.rng.randrange(0, 3)):
            self.rng.choice(steps)()
        results = [v for v in self.values if v[0].startswith('%v')]
        taken = '\n'.join(line.split('=', 1)[1] for line in self.lines if '=' in line)
        chosen = [v for v in results if not any(f'{v[0]}{end}' in taken for end in ',)]')]
        if self.rng.random() < 0.3:
            chosen.append(self.rng.choice(results))
        outputs = [f'  output {name}' for name in dict.fromkeys(v[0] for v in chosen)]
        return '\n'.join(['sg 1.0 job "j" world 1', 'graph rank *', *self.inputs, *self.lines, *outputs]) + '\n'


class Sequences(Head):
    """Scores stay [batch, length, vocabulary], as language models' losses take them: turned, with rows left out at either end,
    reduced before they meet anything flat."""

    def __init__(self, seed):
        super().__init__(seed)
        self.batch, self.length = self.rng.choice([2, 3]), self.rng.choice([4, 5, 7, 8])
        self.rows = self.batch * self.length
        self.deep = self.add_input('input', [self.batch, self.length, self.width])
        self.given = self.add_input('input', [self.batch, self.length, self.vocabulary])
        self.values = [self.deep, self.row]

    def amplify(self):
        rng, b, m, v = self.rng, self.batch, self.length, self.vocabulary
        self.hidden = self.emit('aten.view', f'{self.deep[0]}, [{b * m}, {self.width}]', [b * m, self.width])
        if rng.random() < 0.5:
            logits = self.emit('aten.mm', f'{self.hidden[0]}, {self.big[0]}', [b * m, v])
        else:
            logits = self.emit('aten.addmm', f'{self.bias[0]}, {self.hidden[0]}, {self.big[0]}', [b * m, v])
        self.scores3 = self.emit('aten.view', f'{logits[0]}, [{b}, {m}, {v}]', [b, m, v])
        if rng.random() < 0.3:
            self.scores3 = self.emit('aten._to_copy', f'{self.scores3[0]}, dtype=f32', [b, m, v])
        self.begin, self.end = rng.choice([(0, m), (0, m - 1), (1, m), (1, m - 1)])
        self.kept = self.scores3
        if (self.begin, self.end) != (0, m):
            self.kept = self.emit('aten.slice.Tensor', f'{self.scores3[0]}, 1, {self.begin}, {self.end}', [b, self.end - self.begin, v])
        self.values += [self.kept] * 3
        self.kind = 'sequences'

    def loss(self):
        rng, b, m, v, y = self.rng, self.batch, self.end - self.begin, self.vocabulary, self.kept
        labels = self.emit('aten.slice.Tensor', f'{self.given[0]}, 1, {self.length - m}, {self.length}', [b, m, v])
        _, at = self.emit('aten.max.dim', f'{labels[0]}, 2', [b, m], [b, m], dtype=['f32', 'i64'])
        turned = rng.random() < 0.4
        dim, shape = (1, [b, v, m]) if turned else (2, [b, m, v])
        if turned:
            y = self.emit('aten.transpose.int', f'{y[0]}, 1, 2', shape)
        column = self.emit('aten.unsqueeze', f'{at[0]}, {dim}', [b, 1, m] if turned else [b, m, 1], dtype='i64')
        log = self.emit('aten._log_softmax', f'{y[0]}, {dim}, false', shape)
        picked = self.emit('aten.gather', f'{log[0]}, {dim}, {column[0]}', column[1])
        self.emit(rng.choice(['aten.mean', 'aten.sum']), picked[0], [])
        z = rng.random() < 0.5
        if z:
            lse = self.emit('aten.logsumexp', f'{y[0]}, [{dim}], true', column[1])
            self.emit('aten.mean', self.emit('aten.mul.Tensor', f'{lse[0]}, {lse[0]}', column[1])[0], [])
        self.lines.append('  backward head')
        fill = self.emit('aten.full', f'{shape}, 0.0', shape)
        ones = self.emit('aten.full', f'{column[1]}, {-1.0 / (b * m)}', column[1])
        grad = self.emit('aten.scatter_add', f'{fill[0]}, {dim}, {column[0]}, {ones[0]}', shape)
        grad = self.emit('aten._log_softmax_backward_data', f'{grad[0]}, {log[0]}, {dim}, f32', shape)
        if z:
            part = self.emit('aten.exp', self.emit('aten.sub.Tensor', f'{y[0]}, {lse[0]}', shape)[0], shape)
            part = self.emit('aten.mul.Tensor', f'{part[0]}, {lse[0]}', shape)
            grad = self.emit('aten.add.Tensor', f'{grad[0]}, {part[0]}', shape)
        if turned:
            grad = self.emit('aten.transpose.int', f'{grad[0]}, 1, 2', [b, m, v])
        whole = [b, self.length, v]
        if m != self.length:
            grad = self.emit('aten.slice_backward', f'{grad[0]}, {whole}, 1, {self.begin}, {self.end}, 1', whole)
        elif turned:
            grad = self.emit('aten.clone', f'{grad[0]}, memory_format=contiguous_format', whole)
        self.products(self.emit('aten.view', f'{grad[0]}, [{self.rows}, {v}]', [self.rows, v]))

    def wide_fill(self):
        pass

    wide_mask = wide_fill


class AutoTally(Tally):
    unchanged = 0


def hold(seed, bin_dir, folder, tally):
    rng = random.Random(seed * 7919 + 5)
    head = Sequences(seed) if seed % 3 == 2 else Head(seed)
    names = ('in.txt', 'out.sg', 'values.safetensors', 'in.safetensors')
    graph, chunked, values, inputs = (os.path.join(folder, n) for n in names)
    with open(graph, 'w') as file:
        file.write(head.text())
    head.write_inputs(inputs)
    tool = lambda name: os.path.join(bin_dir, name)
    code, said = run(tool('sg-run'), '-q', graph, '--inputs', inputs, '--outputs', values)
    if code != 0:
        tally.left += 1                     # our generator's fault: an op that does not take these shapes
        return None
    how = rng.choice([['--chunks', str(rng.choice([2, 3, 4, 7]))], ['--rows-per-chunk', str(rng.choice([1, 2, 3]))]])
    code, said = run(tool('sg-chunk'), graph, '--auto', *how, '--min-output', '0', '-o', chunked)
    if code == 4:
        tally.refused += 1
        return None if 'node %' in said else f'refused without a place: {said}'
    if code != 0:
        return f'sg-chunk: exit {code}: {said}'
    if 'nothing is chunked' in said:
        tally.unchanged += 1
        return None
    near = ['--rtol', '1e-4', '--atol', '1e-5']
    code, said = run(tool('sg-run'), chunked, '--inputs', inputs, '--expect', values, *near)
    if code != 0:
        return f'{how}: {said}'
    tally.equal += 1
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--seeds', type=int, default=200)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--keep', default='')
    args = parser.parse_args()
    begin, tally = time.time(), AutoTally()
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            why = hold(seed, args.bin, folder, tally)
            if why:
                tally.failed.append(seed)
                print(f'FAIL seed {seed}: {why}')
                if args.keep:
                    os.makedirs(args.keep, exist_ok=True)
                    shutil.copy(os.path.join(folder, 'in.txt'), os.path.join(args.keep, f'{seed}.txt'))
    print(f'{tally.equal} equal, {tally.refused} refused, {tally.unchanged} unchanged, {tally.left} do not run, '
          f'{len(tally.failed)} failed; {time.time() - begin:.0f} s')
    if tally.equal < args.seeds // 10:
        print('FAIL: too few heads are chunked to tell anything')
        return 1
    return 1 if tally.failed else 0


if __name__ == '__main__':
    sys.exit(main())
