#!/usr/bin/env python3
"""run_mutated_graphs.py --bin BIN [--seeds N] [--first S] [--keep DIR]: the graphs of the tests and examples, slightly wrong.

A seed takes one of them and changes a number or two, an element type, an operand, or the place of a node; mostly the
recorded types go as well, so that they are inferred. Whatever sg-check calls valid is then given to every tool: none
crashes, hangs or finds an error of its own (exit 70), and what a pass of equal bits makes of it gives the same bits.
"""
import argparse
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT  # noqa: E402

NUMBER = re.compile(r'(?<![\w.@%"])(\d+)(?![\w."])')
TYPES = ('f32', 'f64', 'bf16', 'f16', 'i64', 'i32', 'u8', 'bool', 'c64')
RECORDED = re.compile(r'^(\s+%[^=\n]*= .*?\))\s+: [^\n#]*?(?=\s{2}\S|$)', re.M)
SAME_BITS = (('sg-clean',), ('sg-remat', '--policy', 'all'), ('sg-remat', '--budget', '0'), ('sg-overlap',), ('sg-bucket',),
             ('sg-offload', '--budget', '0'))
OTHERS = (('sg-chunk', '--auto', '--min-output', '1', '-o', 'chunked.sg'),
          ('sg-chunk', '--modules', '*', '--chunks', '2', '--best-effort', '-o', 'chunked.sg'),
          ('sg-concretize', '-o', 'numbers.sg'), ('sg-reduce', '--node', '*', '-o', 'reduced.sg'),
          ('sg-view', '-o', 'page.html'), ('sg-export', '-o', 'step.py'), ('sg-sim', '--machine', 'h100-8'), ('sg-stat',),
          ('sg-explain',), ('sg-print', '-o', 'printed.txt'))


def texts():
    """Every graph as text in the repository, without what a golden says about it."""
    found = {}
    for folder in ('tests', 'examples'):
        for path in sorted(glob.glob(os.path.join(ROOT, folder, '**', '*.txt'), recursive=True)):
            with open(path, errors='replace') as file:
                text = file.read()
            begin = re.search(r'^sg 1\.', text, re.M)
            if begin and 'golden/help' not in path:
                found[os.path.relpath(path, ROOT)] = text[begin.start():].split('---- expected ----')[0]
    return found


def mutate(text, rng):
    numbers = list(NUMBER.finditer(text))
    kind = rng.random()
    if kind < 0.35 and numbers:         # one number everywhere: a size, and all that goes with it
        old = rng.choice(numbers)[1]
        return re.sub(rf'(?<![\w.@%"]){old}(?![\w."])', rng.choice('00125'), text)
    if kind < 0.6 and numbers:
        at = rng.choice(numbers)
        return text[:at.start()] + rng.choice(['0', '1', '-1', '2', '3', '7', '16']) + text[at.end():]
    if kind < 0.8:
        return re.sub(rf'\b{rng.choice(TYPES)}\b', rng.choice(TYPES), text)
    lines = text.split('\n')
    nodes = [i for i, line in enumerate(lines) if '= ' in line and '(' in line]
    if len(nodes) < 2:
        return text
    at = rng.choice(nodes)
    if rng.random() < 0.5:
        lines.insert(rng.choice(nodes), lines.pop(at))
    else:
        names, (made, call) = re.findall(r'%[\w.]+', text), lines[at].split('=', 1)
        taken = re.findall(r'%[\w.]+', call)
        if taken:
            lines[at] = made + '=' + call.replace(rng.choice(taken), rng.choice(names), 1)
    return '\n'.join(lines)


class Seed:
    """One graph, in a folder of its own."""

    def __init__(self, bin_folder, folder, codes):
        self.bin, self.folder, self.codes, self.bad = bin_folder, folder, codes, []

    def run(self, tool, *args):
        """The exit code. A death, a hang or an internal error is noted."""
        command = [os.path.join(self.bin, tool), *args]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors='replace', timeout=60, cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.bad.append(f'{" ".join((tool, *args))}: no end after 60 s')
            return 124
        self.codes[done.returncode] += 1
        if done.returncode < 0 or done.returncode >= 64:
            self.bad.append(f'{" ".join((tool, *args))}: exit {done.returncode}: {done.stderr[:400]}')
        return done.returncode

    def values(self, prefix):
        out = []
        for path in sorted(glob.glob(os.path.join(self.folder, f'{prefix}*.st'))):
            with open(path, 'rb') as file:
                out.append(file.read())
            os.remove(path)
        return out

    def run_graph(self, graph, inputs, prefix):
        """The outputs of all ranks; None where it does not run."""
        code = self.run('sg-run', '-q', graph, *inputs, '--memory-limit', '600MiB', '--timeout', '5', '--outputs', prefix + '{r}.st')
        found = self.values(prefix)
        return found if code == 0 else None

    def hold(self, rng):
        if self.run('sg-check', '-q', 'g.txt') != 0:
            return
        before = self.run_graph('g.txt', ('--init', 'seed:0', '--dump-inputs', 'in{r}'), 'before')
        for command in SAME_BITS:
            if self.run(command[0], '-q', 'g.txt', *command[1:], '-o', 'after.sg') != 0 or before is None:
                continue
            after = self.run_graph('after.sg', ('--inputs', 'in{r}', '--init', 'seed:0'), 'after')
            if after != before:
                self.bad.append(f'{" ".join(command)}: {"does not run" if after is None else "other bits"}')
        if rng.random() < 0.3:
            for tool, *options in OTHERS:
                self.run(tool, 'g.txt', *options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--seeds', type=int, default=100)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--keep', default='')
    args = parser.parse_args()
    bin_folder, begin, codes, failed, held = os.path.abspath(args.bin), time.time(), Counter(), 0, 0
    graphs = texts()
    for seed in range(args.first, args.first + args.seeds):
        rng = random.Random(seed)
        name = rng.choice(list(graphs))
        text = graphs[name]
        for _ in range(rng.choice([1, 1, 2])):
            text = mutate(text, rng)
        if rng.random() < 0.7:
            text = RECORDED.sub(r'\1', text)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'g.txt'), 'w') as file:
                file.write(text)
            case = Seed(bin_folder, folder, codes)
            case.hold(rng)
            for why in case.bad:
                print(f'FAIL seed {seed} ({name}): {why}')
            failed += bool(case.bad)
            held += not case.bad
            if case.bad and args.keep:
                os.makedirs(args.keep, exist_ok=True)
                shutil.copy(os.path.join(folder, 'g.txt'), os.path.join(args.keep, f'{seed}.txt'))
    said = ', '.join(f'{count} exit {code}' for code, count in sorted(codes.items()))
    print(f'{held} graphs held, {failed} failed; {sum(codes.values())} commands: {said}; {time.time() - begin:.0f} s')
    return 1 if failed or codes[0] == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
