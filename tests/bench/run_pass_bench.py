#!/usr/bin/env python3
"""run_pass_bench.py --bin BIN [--runs K] [--largest N]: how long the memory passes take, in process.

Seconds are those that `-v` gives for the pass alone: no reading, verifying or writing; the median of K runs. Two tables: the deep
captures of ../shared/traces (target: 0.1 s for sg-clean and sg-remat --policy full), with the seconds of TorchTitan's Python passes
beside them where those were taken; and steps of more and more layers up to N nodes, where microseconds a node say whether time
grows with the nodes alone.
"""
import argparse
import csv
import os
import re
import statistics
import subprocess
import tempfile

from machine import machine

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))
PASSES = ['clean', 'remat', 'remat --policy full', 'remat --budget 0.5', 'offload', 'concretize']
DEEP = {'llama3-deep': 'llama3-deep-68layers', 'dsv3-deep': 'dsv3-deep-26layers'}
THEIRS = {'clean': ('eliminate_dead_code_pass', 'canonicalize_graph_pass', 'deduplicate_fsdp_unshard_chains_pass'),
          'remat': ('tag_with_memory_policy_pass', 'selective_activation_remat_pass')}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done.stderr


def seconds(bin_dir, words, graph, runs):
    name, *options = words.split()
    found = []
    for _ in range(runs):
        said = run(os.path.join(bin_dir, f'sg-{name}'), graph, *options, '-v', '-o', '/dev/null')
        found.append(float(re.search(rf'^sg-{name}: {name}: .*, ([0-9.]+) s$', said, re.M).group(1)))
    return statistics.median(found)


def their_seconds():
    """By graph and pass of ours."""
    out = {}
    path = f'{TRACES}/peer/torchtitan-pass-times.tsv'
    if not os.path.exists(path):
        return out
    rows = [r for r in csv.DictReader(open(path), delimiter='\t') if r['policy'] == 'default']
    for name, parts in THEIRS.items():
        for row in rows:
            if row['pass'] in parts:
                key = row['graph'], name
                out[key] = out.get(key, 0) + float(row['median_s'])
    return out


def deep(bin_dir, folder, runs):
    theirs = their_seconds()
    print(f'{"graph":12} {"pass":22} {"seconds":>8} {"TorchTitan":>11}')
    for name, known_as in DEEP.items():
        graph = os.path.join(folder, f'{name}.sg')
        run(os.path.join(bin_dir, 'sg-import'), '-q', f'{TRACES}/deep/{name}/step.json.gz', '--spmd', '-o', graph)
        for words in PASSES:
            other = theirs.get((known_as, words))
            print(f'{name:12} {words:22} {seconds(bin_dir, words, graph, runs):8.3f} {f"{other:.1f}" if other else "-":>11}')


def layered_step(layers):
    """Ten nodes forward and ten back for each layer: products, a norm, a residual."""
    out = ['sg 1.0 world 1', 'graph rank *', '  param %w : f32[64, 64] "w"', '  input %x0 : f32[64, 64]']

    def node(result, call):
        out.append(f'    %{result} = aten.{call} : f32[64, 64]')
    for i in range(layers):
        out.append(f'  forward layers.{i}')
        node(f'd{i}', f'detach(%x{i})')
        node(f's{i}', f'mul.Tensor(%d{i}, %d{i})')
        node(f'r{i}', f'rsqrt(%s{i})')
        node(f'n{i}', f'mul.Tensor(%x{i}, %r{i})')
        node(f'm{i}', f'mm(%n{i}, %w)')
        node(f't{i}', f'tanh(%m{i})')
        node(f'q{i}', f'mm(%t{i}, %w)')
        node(f'e{i}', f'exp(%q{i})')
        node(f'p{i}', f'mul.Tensor(%e{i}, %t{i})')
        node(f'x{i + 1}', f'add.Tensor(%x{i}, %p{i})')
    grad = f'x{layers}'
    for i in reversed(range(layers)):
        out.append(f'  backward layers.{i}')
        node(f'a{i}', f'mul.Tensor(%{grad}, %e{i})')
        node(f'b{i}', f'mul.Tensor(%{grad}, %t{i})')
        node(f'c{i}', f'mul.Tensor(%b{i}, %e{i})')
        node(f'f{i}', f'mm(%c{i}, %w)')
        node(f'g{i}', f'add.Tensor(%f{i}, %a{i})')
        node(f'h{i}', f'tanh_backward(%g{i}, %t{i})')
        node(f'j{i}', f'mm(%h{i}, %w)')
        node(f'k{i}', f'mul.Tensor(%j{i}, %r{i})')
        node(f'l{i}', f'mul.Tensor(%j{i}, %n{i})')
        node(f'o{i}', f'add.Tensor(%k{i}, %l{i})')
        grad = f'o{i}'
    return '\n'.join([*out, f'  output %{grad}', ''])


def growing(bin_dir, folder, runs, largest):
    print(f'\n{"pass":22} {"nodes":>8} {"seconds":>8} {"us a node":>10}')
    for words in PASSES[:-1]:
        nodes = 12500
        while nodes <= largest:
            text, graph = os.path.join(folder, 'step.sg.txt'), os.path.join(folder, f'step{nodes}.sg')
            if not os.path.exists(graph):
                with open(text, 'w') as file:
                    file.write(layered_step(nodes // 20))
                run(os.path.join(bin_dir, 'sg-parse'), '-q', text, '-o', graph)
            spent = seconds(bin_dir, words, graph, runs)
            print(f'{words:22} {nodes:8} {spent:8.3f} {1e6 * spent / nodes:10.2f}')
            nodes *= 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--largest', type=int, default=200000)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        if os.path.isdir(TRACES):
            deep(args.bin, folder, args.runs)
        else:
            print('SKIPPED: ../shared/traces is absent; the deep captures were not measured')
        growing(args.bin, folder, args.runs, args.largest)


if __name__ == '__main__':
    main()
