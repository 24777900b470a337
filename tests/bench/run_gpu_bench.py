#!/usr/bin/env python3
"""run_gpu_bench.py --bin BIN [--traces DIR] [--python PYTHON] [--rounds K]: GPT-2 124M steps on this machine's GPU, here and in PyTorch.

Forward, loss and backward; both run in turns, K rounds; medians, and their ratio. PYTHON needs a torch that sees the GPU; without one
only ours is timed, and that is said. Memory: planned (arena and inputs) beside PyTorch's allocated peak.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces'))
#        name                      capture                        batch length dtype
CASES = [('GPT-2 124M 4 x 64 f32', 'shape/gpt2-124m-b4t64', 4, 64, 'f32'),
         ('GPT-2 124M 32 x 1024 bf16', 'shape/gpt2-124m-b32t1024-amp', 32, 1024, 'bf16')]
MODES = ('eager', 'compile', 'graphs')
WARM_UP = 3


def run(command, timeout=600):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def ours(tool, graph):
    status, out, err = run([tool('sg-run'), graph, '--init', 'seed:0', '--backend', 'cuda', '--steps',
                            str(WARM_UP + 10), '--json'])
    if status != 0:
        return f'exit {status}: {err.strip()[-300:]}'
    report = json.loads(out)
    rank = report['ranks'][0]
    return {'seconds': report['step_seconds'][WARM_UP:], 'memory': rank['arena_bytes'] + rank['input_bytes']}


def peer(python, batch, length, dtype, mode):
    status, out, err = run([python, os.path.join(HERE, 'peer_gpu.py'), '--batch', str(batch), '--length', str(length),
                            '--dtype', dtype, '--mode', mode])
    return json.loads(out.splitlines()[-1]) if status == 0 else f'exit {status}: {err.strip()[-300:]}'


def line(name, rounds, tokens, memory, against=None):
    times = [statistics.median(r['seconds']) for r in rounds]
    ratio = f'  {statistics.median(t / o for t, o in zip(times, against)):5.2f} x our time' if against else ''
    middle = statistics.median(times)
    print(f'  {name:18} {middle * 1e3:9.2f} ms ({min(times) * 1e3:.2f}..{max(times) * 1e3:.2f})  {tokens / middle:9.0f} tok/s  {memory / 2**20:8.0f} MiB{ratio}', flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--traces', default=TRACES)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    tool = lambda name: os.path.join(args.bin, name)
    status, out, _ = run([args.python, '-c',
                          'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())'])
    print(f'PyTorch: {out.strip()}' if status == 0 else 'NOT RUN beside PyTorch: no torch that sees a GPU')
    has_torch, failed = status == 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, capture, batch, length, dtype in CASES:
            print(name)
            graph = os.path.join(folder, 'step.sg')
            status, _, err = run([tool('sg-import'), '-q', os.path.join(args.traces, capture, 'step.json.gz'), '-o',
                                  graph])
            first = ours(tool, graph) if status == 0 else err.strip()
            if isinstance(first, str):
                print(f'  NOT RUN: {first}')
                failed += 1
                continue
            mine, theirs = [], {mode: [] for mode in MODES}
            for _ in range(args.rounds):
                mine.append(ours(tool, graph))
                for mode in MODES if has_torch else ():
                    theirs[mode].append(peer(args.python, batch, length, dtype, mode))
            against = line('sg-run', mine, batch * length, mine[0]['memory'])
            for mode, rounds in theirs.items():
                problem = next((r for r in rounds if isinstance(r, str)), None)
                if problem:
                    print(f'  PyTorch {mode}: NOT RUN: {problem}')
                elif rounds:
                    line(f'PyTorch {mode}', rounds, batch * length, rounds[0]['peak_bytes'], against)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
