#!/usr/bin/env python3
"""run_chunks.py --bin BIN [--only TEXT]: sg-chunk against PyTorch's own chunks and recorded results.

  truth    a capture chunked by us with --grad-accumulation eager, against the capture whose modules PyTorch called once for each half:
           loss, gradients and written buffers equal to the bit, after one step and after 20 steps of AdamW; with early sums within
           4 units in the last place of f32 at the tensor's largest magnitude
  values   against PyTorch's recorded results of the unchunked step, by the usual tolerance, at several numbers of chunks
  recomputed  the same behind sg-clean and sg-remat
  drawn    random numbers are those of the unchunked run
  rows     of whole blocks along the batch: every value of a chunk is a part of the whole's to the bit, or a sum over chunks
  refused  exit 4, with the node and the rule
Says aloud when ../shared/traces is absent.
"""
import argparse
import json
import math
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from harness import Failure, TRACES, Tally, Workbench, run, skip  # noqa: E402
from tensor_files import read_tensors, to_numbers  # noqa: E402

TRUTH = ['dsv3-ep4', 'dsv3-ep4-fp32']
VALUES = [('multi/dsv3-ep4-fp32', 'layers.*.moe', [3, 4, 5]), ('multi/dsv3-ep4', 'layers.*.moe', [3, 4]),
          ('peer/dsv3-ep4/graphchunk', 'layers.*.moe', [2, 3]), ('single/dsv3-1rank', 'layers.*.moe', [2, 5]),
          ('single/gpt2-tiny', 'transformer.h.*', [2]), ('single/gpt2-tiny-dynamic', 'transformer.h.*', [2, 4, 5]),
          ('single/llama-hf-sdpa', 'model.layers.*', [2]), ('single/bert', 'bert.encoder.layer.*', [2]),
          ('single/mixtral', 'model.layers.*', [2]), ('single/mixtral', 'model.layers.*.mlp', [2])]
DRAWN = [('single/gpt2-tiny-dropout', 'transformer.h.*')]
ROWS = [('single/gpt2-tiny', 'transformer.h.*', 2), ('single/gpt2-tiny-dynamic', 'transformer.h.*', 4),
        ('single/llama-hf-sdpa', 'model.layers.*', 2),
        ('single/bert', 'bert.encoder.layer.*', 2)]
REFUSED = [('single/dsv3-1rank', 'layers.*', r'[product]'), ('single/llama3-1rank', 'layers.*', '[attention]'),
           ('single/llama3-1rank-flex', 'layers.*', '[attention]'), ('multi/dsv3-ep4', 'layers.*', '[product]'),
           ('multi/llama3-fsdp4', 'layers.*', '[attention]')]


def f32_tensors(path):
    return {name: to_numbers(dtype, data) for name, (dtype, _, data) in read_tensors(path).items() if dtype == 'F32'}


def worst_ulps(ours, theirs):
    """The largest difference, in units in the last place of f32 at each tensor's largest magnitude."""
    worst = 0.0
    for name, want in theirs.items():
        got = ours[name]
        largest = max((abs(x) for x in want), default=0.0)
        if largest == 0.0:
            worst = max([worst, *(math.inf for x in got if x != 0.0)])
            continue
        ulp = 2.0 ** (math.floor(math.log2(largest)) - 23)
        worst = max([worst, *(abs(a - b) / ulp for a, b in zip(got, want))])
    return worst


class Case(Workbench):
    def load(self, capture, name):
        """Imports a capture; returns graph, inputs and expected values."""
        root, target = f'{TRACES}/{capture}', self.file(name)
        traced = f'{root}/00-traced.json.gz'
        if os.path.exists(traced):
            run(self.tool('sg-import'), '-q', '--spmd', traced, '-o', target)
            return target, f'{root}/rank{{r}}/inputs.safetensors', f'{root}/rank{{r}}/expected_traced.safetensors'
        ranks = 'rank{r}/' if os.path.isdir(f'{root}/rank0') else ''
        probe = f'{root}/{ranks}step.json'.replace('{r}', '0')
        ending = '' if os.path.exists(probe) else '.gz'
        run(self.tool('sg-import'), '-q', f'{root}/{ranks}step.json{ending}', '-o', target)
        return target, f'{root}/{ranks}inputs.safetensors', f'{root}/{ranks}expected.safetensors'

    def chunk(self, graph, modules, chunks, *options):
        target = self.file('chunked.sg')
        run(self.tool('sg-chunk'), '-q', graph, '--modules', modules, '--chunks', str(chunks), *options, '-o', target)
        run(self.tool('sg-check'), '-q', target)
        return target


def hold_truth(case, name):
    plain, inputs, _ = case.load(f'multi/{name}', 'plain.sg')
    eager, _, _ = case.load(f'multi/{name}-eagerchunk2', 'eager.sg')
    ours = case.chunk(plain, 'layers.*.moe', 2, '--grad-accumulation', 'eager')
    for label, options in (('step', []), ('adamw', ['--steps', '20', '--optimizer', 'adamw:lr=1e-3'])):
        values = case.file(label + '{r}.safetensors')
        run(case.tool('sg-run'), '-q', eager, '--inputs', inputs, *options, '--outputs', values)
        run(case.tool('sg-run'), ours, '--inputs', inputs, *options, '--expect', values, '--bitwise')
    plain_run = run(case.tool('sg-run'), plain, '--inputs', inputs, '--expect', case.file('step{r}.safetensors'),
                    '--bitwise', ok=(0, 1))
    if plain_run.returncode == 0:
        raise Failure('the unchunked step gives the same bits: the comparison can tell nothing')
    early = case.chunk(plain, 'layers.*.moe', 2)
    run(case.tool('sg-run'), '-q', early, '--inputs', inputs, '--outputs', case.file('early{r}.safetensors'))
    for rank in range(4):
        ulps = worst_ulps(f32_tensors(case.file(f'early{rank}.safetensors')),
                          f32_tensors(case.file(f'step{rank}.safetensors')))
        if ulps > 4:
            raise Failure(f'early sums are {ulps:.1f} ulp away on rank {rank}')


def hold_values(case, name, modules, counts):
    graph, inputs, expected = case.load(name, 'in.sg')
    for chunks in counts:
        for sums in ('early', 'eager'):
            target = case.chunk(graph, modules, chunks, '--grad-accumulation', sums)
            run(case.tool('sg-run'), target, '--inputs', inputs, '--expect', expected)


def hold_recomputed(case, name, modules, policy):
    """The reference order: clean, recompute, chunk."""
    graph, inputs, expected = case.load(name, 'in.sg')
    run(case.tool('sg-clean'), '-q', graph, '-o', case.file('clean.sg'))
    run(case.tool('sg-remat'), '-q', case.file('clean.sg'), '--policy', policy, '-o', case.file('remat.sg'))
    run(case.tool('sg-run'), case.chunk(case.file('remat.sg'), modules, 3), '--inputs', inputs, '--expect', expected)


def hold_drawn(case, name, modules):
    graph, inputs, _ = case.load(name, 'in.sg')
    run(case.tool('sg-run'), '-q', graph, '--inputs', inputs, '--seed', '3', '--outputs',
        case.file('before.safetensors'))
    target = case.chunk(graph, modules, 2)
    run(case.tool('sg-run'), target, '--inputs', inputs, '--seed', '3', '--expect', case.file('before.safetensors'))


def hold_rows(case, name, modules, chunks):
    graph, inputs, _ = case.load(name, 'in.sg')
    done = run(case.tool('sg-run'), graph, '--compare', case.chunk(graph, modules, chunks), '--inputs', inputs,
               '--json')
    said = json.loads(done.stdout)['ranks'][0]['comparison']
    if said['differences'] or said['chunked_equal'] < 50:
        raise Failure(f'{said["chunked_equal"]} chunks are equal together, {len(said["differences"])} values differ: {said["differences"][:1]}')


def compared(case, graph, changed, inputs):
    done = run(case.tool('sg-run'), graph, '--compare', changed, '--inputs', inputs, '--json', ok=(0, 1))
    return [rank['comparison'] for rank in json.loads(done.stdout)['ranks']]


def hold_items(case, name, modules):
    """Of experts in chunks: all that a dispatch sorts is there in another order; what differs comes behind sums over chunks.
    One wrong op in one chunk is named."""
    graph, inputs, _ = case.load(name, 'in.sg')
    target = case.chunk(graph, modules, 2)
    for said in compared(case, graph, target, inputs):
        other = [d for d in said['differences'] if 'wait_tensor' not in d['op']]
        if other or said['reordered_equal'] < 50 or said['own_numbers'] > 30:
            raise Failure(f'{said["reordered_equal"]} equal in another order, {said["own_numbers"]} positions, {other[:1]} differ')
    text = run(case.tool('sg-print'), target).stdout
    wrong, count = re.subn(r'(%silu_\w*_chunk1 = aten)\.silu\(', r'\1.relu(', text, count=1)
    with open(case.file('wrong.txt'), 'w') as file:
        file.write(wrong)
    for said in compared(case, graph, case.file('wrong.txt'), inputs):
        first = said['differences'][0]
        if not count or not first['name'].startswith('silu'):
            raise Failure(f'a wrong op in a chunk of items is not named: {first}')


def hold_refused(case, name, modules, rule):
    graph, _, _ = case.load(name, 'in.sg')
    done = run(case.tool('sg-chunk'), graph, '--modules', modules, '--chunks', '2', '-o', case.file('out.sg'), ok=(4,))
    if rule not in done.stderr or 'node %' not in done.stderr:
        raise Failure(f'refused without node or rule {rule}: {done.stderr}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    if not os.path.isdir(TRACES):
        return skip('../shared/traces is absent; no capture was chunked')
    jobs = [(f'truth {c}', hold_truth, (c,)) for c in TRUTH]
    jobs += [(f'values {c[0]} {c[1]}', hold_values, c) for c in VALUES]
    jobs += [(f'recomputed {c} {p}', hold_recomputed, (f'multi/{c}', 'layers.*.moe', p))
             for c in TRUTH for p in ('default', 'full')]
    jobs += [(f'drawn {c[0]}', hold_drawn, c) for c in DRAWN]
    jobs += [(f'rows {c[0]}', hold_rows, c) for c in ROWS]
    jobs += [('items dsv3-ep4-fp32', hold_items, ('multi/dsv3-ep4-fp32', 'layers.*.moe'))]
    jobs += [(f'refused {c[0]} {c[1]}', hold_refused, c) for c in REFUSED]
    tally = Tally()
    for label, hold, words in jobs:
        if args.only not in label:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally.hold(label, hold, Case(args.bin, folder), *words)
    return tally.finish()


if __name__ == '__main__':
    sys.exit(main())
