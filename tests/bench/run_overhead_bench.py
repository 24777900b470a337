#!/usr/bin/env python3
"""run_overhead_bench.py --bin BIN [--nodes N] [--rounds K]: what a node costs beside its arithmetic. Target: 1 microsecond.

Graphs of N nodes over tensors of one element, so that arithmetic is next to nothing; the time of a step is divided by N. Three kinds:

  fused     neighbours that run as one pass (pointwise)
  single    each node by itself (a sum after each pointwise op, which nothing can be fused with)
  body      single ones, half of them in bodies that calls run again

Steps after the first, medians over K rounds; --threads 1, since there is nothing to share out. Kernels of a few elements
are counted in, so the overhead proper is below what is printed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from machine import machine

HEAD = 'sg 1.0 job "overhead" world 1\n\ngraph rank *\n  input %x0 : f32[1]\n  forward -\n'
BODY_NODES = 8


def fused(nodes):
    lines = [f'    %x{i + 1} = aten.mul.Tensor(%x{i}, 0.5)' for i in range(nodes)]
    return HEAD + '\n'.join(lines) + f'\n  output %x{nodes}\n'


def pair(i, name='x'):
    return [f'    %s{name}{i} = aten.sum.dim_IntList(%{name}{i}, [0], true)',
            f'    %{name}{i + 1} = aten.mul.Tensor(%s{name}{i}, 0.5)']


def single(nodes):
    lines = [line for i in range(nodes // 2) for line in pair(i)]
    return HEAD + '\n'.join(lines) + f'\n  output %x{nodes // 2}\n'


def body(nodes):
    calls = nodes // (BODY_NODES + 1)
    lines = [f'    %x{i + 1}, = sg.call(graph:body, [%x{i}])  : f32[1]' for i in range(calls)]
    inside = [line for i in range(BODY_NODES // 2) for line in pair(i, 'y')]
    return (HEAD + '\n'.join(lines) + f'\n  output %x{calls}\n\ngraph rank * nested body\n  input %y0 : f32[1]\n  forward -\n' +
            '\n'.join(inside) + f'\n  output %y{BODY_NODES // 2}\n')


def step_seconds(tool, graph):
    command = [tool, graph, '--init', 'seed:0', '--steps', '6', '--threads', '1', '--json', '-q']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}: exit {done.returncode}\n{done.stderr}')
    return statistics.median(json.loads(done.stdout)['step_seconds'][1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--nodes', type=int, default=100000)
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for make in (fused, single, body):
            graph = os.path.join(folder, f'{make.__name__}.txt')
            with open(graph, 'w') as f:
                f.write(make(args.nodes))
            times = [step_seconds(os.path.join(args.bin, 'sg-run'), graph) for _ in range(args.rounds)]
            print(f'{make.__name__:8} {1e9 * statistics.median(times) / args.nodes:8.0f} ns a node  '
                  f'({1e9 * min(times) / args.nodes:.0f}..{1e9 * max(times) / args.nodes:.0f})', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
