#!/usr/bin/env python3
"""run_autochunk_bench.py --bin BIN [--rounds N] [--rows N] [--width N] [--classes N]: a loss head that is really run,
whole and in 2 to 16 chunks: time, and what the process needs.

Each round runs all of them in turn, so that a busy machine slows all alike; the median of the ratios to the whole head
of the same round is printed. Memory is the most that the process had at once, less that of a head of a few rows, beside
the plan (arena and inputs). Targets, not asserted: at most 1.05 of the time at 8 chunks, memory within 5 % of the plan.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

COUNTS = [1, 2, 4, 8, 16]
MIB = 1 << 20
HEAD = '''sg 1.0 job "head" world 1
graph rank *
  input %x : f32[{rows}, {width}] "x"
  input %labels : i64[{rows}] "labels"
  param %w : f32[{classes}, {width}] "w"
  forward head
    %t = aten.t(%w)
    %logits = aten.mm(%x, %t)
    %log = aten._log_softmax(%logits, 1, false)
    %nll, %total = aten.nll_loss_forward(%log, %labels, none, 1, -100)
    %seed = aten.ones_like(%nll)
  backward head
    %grad_log = aten.nll_loss_backward(%seed, %log, %labels, none, 1, -100, %total)
    %grad = aten._log_softmax_backward_data(%grad_log, %log, 1, f32)
    %grad_t = aten.t(%grad)
    %grad_w = aten.mm(%grad_t, %x)
    %grad_x = aten.mm(%grad, %w)
  loss %nll
  grad %grad_w of %w
  output %grad_x
'''
RUN = '''import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, check=True)
report = json.loads(done.stdout)
report['resident'] = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps(report))
'''


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{" ".join(command)}\n{done.stderr}')
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--rows', type=int, default=4096)
    parser.add_argument('--width', type=int, default=512)
    parser.add_argument('--classes', type=int, default=32768)
    args = parser.parse_args()
    tool = lambda name: os.path.join(args.bin, name)
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)
        sizes = {'rows': args.rows, 'width': args.width, 'classes': args.classes}
        for name, numbers in (('1.txt', sizes), ('tiny.txt', {'rows': 4, 'width': 4, 'classes': 16})):
            with open(file(name), 'w') as out:
                out.write(HEAD.format(**numbers))
        graphs = {n: file(f'{n}.sg') if n > 1 else file('1.txt') for n in COUNTS}
        for n in COUNTS[1:]:
            run(tool('sg-chunk'), '-q', file('1.txt'), '--auto', '--chunks', str(n), '-o', graphs[n])
        options = ['--init', 'seed:0', '--steps', '3', '--json']
        step = lambda g: json.loads(run(sys.executable, '-c', RUN, tool('sg-run'), g, *options))
        base = step(file('tiny.txt'))['resident']
        times, resident = {n: [] for n in COUNTS}, {}
        for _ in range(args.rounds):
            for n in COUNTS:
                report = step(graphs[n])
                times[n].append(min(report['step_seconds']))
                resident[n] = report['resident'] - base
        print(f'{platform.machine()}, {os.cpu_count()} cores: {args.rows} x {args.width}, {args.classes} classes, f32')
        print('chunks  step s  of whole  planned MiB  measured MiB  measured/planned')
        for n in COUNTS:
            plan = json.loads(run(tool('sg-run'), graphs[n], '--plan', '--json'))['plans'][0]
            planned = plan['peak_bytes'] + plan['inputs_bytes']
            ratio = statistics.median(a / b for a, b in zip(times[n], times[1]))
            print(f'{n:6}  {min(times[n]):6.3f}  {ratio:8.3f}  {planned / MIB:11.1f}  {resident[n] / MIB:12.1f}  '
                  f'{resident[n] / planned:16.3f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
