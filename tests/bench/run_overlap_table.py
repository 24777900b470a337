#!/usr/bin/env python3
"""run_overlap_table.py --bin BIN [--md] [--only TEXT] [--time]: sg-overlap beside TorchTitan's scheduling.

Each row takes a graph as TorchTitan's passes found it (rank 0, `--spmd`) and holds what ours make of it beside theirs:
  steps       the same graph behind their bucketing: only the order differs. Ours by both strategies
  pipelines   from the step as captured: clean, remat, chunk, isolate, bucket, overlap of ours beside all of theirs
Fails when ours has more collectives, copies or bytes copied, a longer simulated step, or (steps only: what is gathered
again is sg-remat's choice) hands more to collectives.

  collectives  all of them, by sg-stat
  copies       nodes that copy: casts, clones, cats, packing and cutting apart
  step         simulated on --machine (sg-sim); none where nothing bounds the sizes that only the data decides
  peak         planned bytes beyond the inputs, by sg-stat
--time prints what the pass takes in its process (the phase of sg-overlap --verbose; the median of five), for deep
graphs and for steps of more and more layers: --strategy model on chunks, --dense-fsdp on sharded layers.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'passes')]
import run_overlap  # noqa: E402  a machine on which messages take as long as some kernels
from tables import Table, copied_bytes, copy_count, need_traces, print_table, run, size  # noqa: E402

GRAPH, EAGER = 'peer/dsv3-ep4/graphchunk', 'peer/dsv3-ep4-eagerchunk2/eagerchunk'
BUCKETS = 'joint_transformer_block_bucketing_reordering'
STEPS = [('dsv3-ep4 graphchunk', f'{GRAPH}/11-{BUCKETS}', f'{GRAPH}/12-ep_overlap_schedule'),
         ('dsv3-ep4 eagerchunk', f'{EAGER}/10-{BUCKETS}', f'{EAGER}/11-ep_overlap_schedule')]
CHUNK = 'chunk --modules layers.*.moe --chunks 2'
PIPELINES = [('dsv3-ep4 graphchunk +', f'{GRAPH}/00-traced', f'{GRAPH}/13-concretize_ep_chunk_symbolic_shapes', True),
             ('deep/dsv3-deep +', 'deep/dsv3-deep/step-dynamic', 'deep/dsv3-deep/after-all-graphchunk', True),
             ('deep/llama3-deep +', 'deep/llama3-deep/step', 'deep/llama3-deep/after-all-default', False)]
KEYS = ('collectives', 'sent', 'copies', 'copied', 'step')


class OverlapTable(Table):
    def __init__(self, bin_dir, folder, machine):
        super().__init__(bin_dir, folder)
        self.machine = machine
        if machine == 'slow-links':
            self.machine = self.file('slow-links.yaml')
            with open(self.machine, 'w') as out:
                out.write(run_overlap.MACHINE)

    def measure(self, graph):
        stat = self.stat_by_op(graph)
        moved = stat['collectives']
        command = [self.tool('sg-sim'), graph, '--machine', self.machine, '--json']
        sim = subprocess.run(command, capture_output=True, text=True)
        return {'collectives': sum(c['count'] for c in moved), 'sent': sum(c['bytes'] for c in moved),
                'copies': copy_count(stat), 'copied': copied_bytes(stat, moved),
                'peak': stat['memory']['peak_bytes'],
                'step': json.loads(sim.stdout)['makespan_us'] if sim.returncode == 0 else None}

    def overlap(self, strategy):
        return f'overlap --strategy {strategy} --machine {self.machine}'

    def pipe(self, source, stages, name):
        words = [word for stage in stages for word in ('--pass', stage)]
        run(self.tool('sg-pipe'), '-q', source, *words, '-o', self.file(name))
        return self.file(name)


def cells(name, figures):
    step = '-' if figures['step'] is None else f'{figures["step"] / 1000:.3f} ms'
    return (name, str(figures['collectives']), size(figures['sent']), str(figures['copies']), size(figures['copied']),
            step, size(figures['peak']))


def compare(name, theirs, ours, keys, worse):
    for key in keys:
        if theirs[key] is not None and ours[key] is not None and ours[key] > theirs[key] * (1 + 1e-9):
            worse.append(f'{name}: {key} {ours[key]} and {theirs[key]}')


def steps(table, only, rows, worse):
    for name, before, after in STEPS:
        if only not in name:
            continue
        source = table.bring(before, 'before.sg')
        theirs = table.measure(table.bring(after, 'theirs.sg'))
        rows += [cells(f'{name}: before', table.measure(source)), cells(f'{name}: theirs', theirs)]
        for strategy in ('reference', 'model'):
            ours = table.measure(table.pipe(source, [table.overlap(strategy)], 'ours.sg'))
            rows.append(cells(f'{name}: ours, {strategy}', ours))
            compare(f'{name} {strategy}', theirs, ours, KEYS, worse)


def pipelines(table, only, rows, worse):
    for name, before, after, chunks in PIPELINES:
        if only not in name:
            continue
        source = table.bring(before, 'step.sg')
        theirs = table.measure(table.bring(after, 'theirs.sg'))
        stages = ['clean', 'remat', *([CHUNK] if chunks else []), 'overlap --isolate-only', 'bucket', 'concretize']
        ours = {strategy: table.measure(table.pipe(source, [*stages, table.overlap(strategy)], 'ours.sg'))
                for strategy in ('reference', 'model')}
        rows.append(cells(f'{name}: theirs', theirs))
        for strategy, figures in ours.items():
            rows.append(cells(f'{name}: ours, {strategy}', figures))
        compare(name, theirs, ours['model'], ('collectives', 'copies', 'copied', 'step'), worse)


def pass_seconds(table, graph, *options, tool='overlap'):
    """Nodes; medians of wall seconds of the pass and of processor seconds of its process."""
    wall, processor = [], []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [table.tool(f'sg-{tool}'), '-v', graph, *options, '-o', table.file('timed.sg')]
        done = subprocess.run(command, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        wall.append(float(re.search(rf'^sg-{tool}: {tool}: .*, ([0-9.]+) s$', done.stderr, re.MULTILINE)[1]))
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        nodes = int(re.search(r'\((\d+)(?: -> \d+)? nodes\)', done.stderr)[1])
    return nodes, statistics.median(wall), statistics.median(processor)


def times(table):
    chunked = ['clean', 'remat', CHUNK, 'overlap --isolate-only', 'bucket']
    for name, stages in (('deep/dsv3-deep', chunked), ('deep/llama3-deep', ['clean', 'remat', 'bucket'])):
        graph = table.pipe(table.bring(f'{name}/step', 'step.sg'), stages, 'deep.sg')
        report(name, *pass_seconds(table, graph))
    for layers in (125, 250, 500, 1000, 2000):
        graph = parsed(table, long_step(layers))
        for strategy in ('reference', 'model'):
            report(f'{strategy}, {layers} layers in two chunks', *pass_seconds(table, graph, '--strategy', strategy))
    for layers in (500, 1000, 2000, 4000, 8000):
        graph = parsed(table, dense_step(layers))
        report(f'bucket, {layers} layers', *pass_seconds(table, graph, tool='bucket'))
        report(f'model, {layers} layers', *pass_seconds(table, graph))
        report(f'--dense-fsdp, {layers} layers',
               *pass_seconds(table, graph, '--strategy', 'reference', '--dense-fsdp', '--best-effort'))

def parsed(table, text):
    with open(table.file('long.sg.txt'), 'w') as out:
        out.write(text)
    run(table.tool('sg-parse'), '-q', table.file('long.sg.txt'), '-o', table.file('long.sg'))
    return table.file('long.sg')


def report(name, nodes, wall, processor):
    print(f'{name:38} {nodes:8} nodes  {wall:7.3f} s  {1e6 * wall / nodes:7.2f} us a node  '
          f'processor of the process {processor:7.3f} s', flush=True)


def gathered(b, i):
    """The weight of layer `i`, whole, for the forward or (`b`) the backward."""
    return [f'    %{b}g{i} = _c10d_functional.all_gather_into_tensor(%w{i}, 2, @fsdp)',
            f'    %{b}W{i} = _c10d_functional.wait_tensor(%{b}g{i})']


def reduced(i):
    """The gradient of layer `i`, summed over the ranks."""
    return [f'    %r{i} = _c10d_functional.reduce_scatter_tensor(%gw{i}, "sum", 2, @fsdp)',
            f'    %R{i} = _c10d_functional.wait_tensor(%r{i})']


def long_step(layers, width=16):
    """Layers of products with two exchanges, in two chunks, forward and backward."""
    head = 'sg 1.0 job "long" world 2\ngroup @ep [0 1] "0"\ngroup @fsdp [0 1] "1"\ndevice cuda:0\ngraph rank *\n'
    params = ''.join(f'  param %w{i} : f32[64, 128] "layers.{i}.w.weight"\n' for i in range(layers))
    lines, grads = [], []
    values = ['x0', 'x1']
    for backward in (False, True):
        for i in reversed(range(layers)) if backward else range(layers):
            b = 'b' if backward else ''
            lines.append(f'  {"backward" if backward else "forward"} layers.{i}')
            lines += gathered(b, i)
            for c in (0, 1):
                meta = f'chunk {c} in layers.{i} role body from graph backward {"true" if backward else "false"}'
                value = values[c]
                for k in range(width):
                    lines.append(f'    %{b}p{i}_{c}_{k} = aten.mm(%{value}, %{b}W{i})  {meta}')
                    value = f'{b}p{i}_{c}_{k}'
                for kind in ('dispatch', 'combine'):
                    step = f'ep {kind} token_exchange {meta}'
                    exchange = f'_c10d_functional.all_to_all_single(%{value}, [64, 64], [64, 64], @ep)'
                    wait = f'_c10d_functional.wait_tensor(%{b}{kind}{i}_{c})'
                    lines.append(f'    %{b}{kind}{i}_{c} = {exchange}  {step}')
                    lines.append(f'    %{b}{kind}_w{i}_{c} = {wait}  {step}')
                    lines.append(f'    %{b}{kind}_m{i}_{c} = aten.mm(%{b}{kind}_w{i}_{c}, %{b}W{i})  {meta}')
                    value = f'{b}{kind}_m{i}_{c}'
                if backward:
                    lines.append(f'    %gw{i}_{c} = aten.mm(%{value}, %p{i}_{c}_0)  {meta}')
                values[c] = value
            if backward:
                lines += [f'    %gw{i} = aten.add.Tensor(%gw{i}_0, %gw{i}_1)', *reduced(i)]
                grads.append(f'  grad %R{i} of %w{i}\n')
        if not backward:
            lines += ['  forward -', f'    %loss = aten.sum(%{values[0]})']
    inputs = '  input %x0 : f32[128, 128]\n  input %x1 : f32[128, 128]\n'
    return head + params + inputs + '\n'.join(lines) + '\n  loss %loss\n' + ''.join(grads)


def dense_step(layers, width=8):
    """Layers of products whose weights are sharded: gathered in both directions, gradients reduced."""
    head = 'sg 1.0 job "dense" world 2\ngroup @fsdp [0 1] "1"\ndevice cuda:0\ngraph rank *\n'
    params = ''.join(f'  param %w{i} : f32[64, 128] "layers.{i}.w.weight"\n' for i in range(layers))
    lines, grads, value = [], [], 'x'
    for backward in (False, True):
        for i in reversed(range(layers)) if backward else range(layers):
            b = 'b' if backward else ''
            lines += [f'  {"backward" if backward else "forward"} layers.{i}.w', *gathered(b, i)]
            for k in range(width):
                lines.append(f'    %{b}p{i}_{k} = aten.mm(%{value}, %{b}W{i})')
                value = f'{b}p{i}_{k}'
            if backward:
                lines += [f'    %gw{i} = aten.mm(%{value}, %p{i}_0)', *reduced(i)]
                grads.append(f'  grad %R{i} of %w{i}\n')
        if not backward:
            lines += ['  forward -', f'    %loss = aten.sum(%{value})']
    return head + params + '  input %x : f32[128, 128]\n' + '\n'.join(lines) + '\n  loss %loss\n' + ''.join(grads)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    parser.add_argument('--machine', default='h100-8', help='simulates the steps; slow-links: that of run_overlap.py')
    parser.add_argument('--md', action='store_true', help='as the table of docs/results/overlap.md')
    parser.add_argument('--time', action='store_true', help='how long overlap and bucket take as steps grow to 200,000 nodes, and nothing else')
    args = parser.parse_args()
    need_traces()
    rows, worse = [], []
    with tempfile.TemporaryDirectory() as folder:
        table = OverlapTable(os.path.abspath(args.bin), folder, args.machine)
        if args.time:
            times(table)
            return 0
        steps(table, args.only, rows, worse)
        pipelines(table, args.only, rows, worse)
    print_table(('graph', 'collectives', 'sent', 'copies', 'copied', 'step', 'peak'), rows, args.md)
    for line in worse:
        print(f'WORSE THAN THEIRS: {line}')
    return 1 if worse else 0


if __name__ == '__main__':
    sys.exit(main())
