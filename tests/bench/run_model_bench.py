#!/usr/bin/env python3
"""run_model_bench.py --bin BIN [--rounds K] [--threads T] [--only TEXT] [--profile]: whole training steps of small models, here and in PyTorch eager.

Forward, loss and backward of the models of bench_models.py, captured by tools/capture. Both sides run the step on the same values
with as many threads, in turns, K rounds of some steps each; a round's figure is the least of its steps, a model's the median of the
rounds' ratios. Each `--bin` more is another build, run in the same turns. Run it with a Python that has torch, torchvision and
transformers. `--profile` adds the ops that our step spends most on.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from bench_models import MODELS
from machine import machine

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.normpath(os.path.join(HERE, '..', '..', 'tools', 'capture')))
from stepgraph_capture import capture  # noqa: E402

STEPS, WARM_UP = 6, 1


def command(args, bin_folder, folder, steps):
    return [os.path.join(bin_folder, 'sg-run'), '-q', os.path.join(folder, 'step.sg'), '--inputs',
            os.path.join(folder, 'inputs.safetensors'), '--steps', str(steps), '--threads', str(args.threads)]


def run_ours(args, bin_folder, folder):
    done = subprocess.run(command(args, bin_folder, folder, STEPS) + ['--json'], check=True, capture_output=True, text=True)
    return min(json.loads(done.stdout)['step_seconds'][WARM_UP:])


def run_theirs(model, inputs, targets, loss):
    seconds = []
    for _ in range(STEPS):
        model.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        loss(model(**inputs), targets).backward()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[WARM_UP:])


def most_by_op(args, folder):
    """Ops by their share of a step; a fused chain counts by the name that the profile gives it."""
    trace = os.path.join(folder, 'profile.json')
    subprocess.run(command(args, args.bin[-1], folder, 3) + ['--profile', trace], check=True, capture_output=True)
    with open(trace, encoding='utf-8') as f:
        events = [e for e in json.load(f)['traceEvents'] if e['ph'] == 'X' and 'cat' in e]
    least = {}
    for e in events:
        node = (e['name'], e['args']['node'])
        least[node] = min(e['dur'], least.get(node, e['dur']))
    spent = {}
    for (name, _), micros in least.items():
        spent[name] = spent.get(name, 0) + micros
    whole = sum(spent.values())
    top = sorted(spent.items(), key=lambda item: -item[1])[:8]
    return '   ' + ', '.join(f'{name} {100 * t / whole:.0f} %' for name, t in top)


def measure(args, make):
    torch.manual_seed(0)
    model, inputs, targets, loss = make()
    model.train()
    with tempfile.TemporaryDirectory() as folder:
        capture(model=model, loss_fn=loss, inputs=inputs, targets=targets, out_dir=folder)
        subprocess.run([os.path.join(args.bin[0], 'sg-import'), '-q', os.path.join(folder, 'step.json'), '-o',
                        os.path.join(folder, 'step.sg')], check=True)
        rounds = [[run_ours(args, b, folder) for b in args.bin] + [run_theirs(model, inputs, targets, loss)] for _ in range(args.rounds)]
        *ours, theirs = (1e3 * statistics.median(side) for side in zip(*rounds))
        ratios = [statistics.median(r[i] / r[-1] for r in rounds) for i in range(len(args.bin))]
        print(f'{make.__name__:13} sg-run {", ".join(f"{t:7.1f}" for t in ours)} ms   PyTorch eager {theirs:7.1f} ms   '
              f'ratio {", ".join(f"{r:.2f}" for r in ratios)}', flush=True)
        if args.profile:
            print(most_by_op(args, folder), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True, action='append')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--only', default='', help='models whose names have TEXT')
    parser.add_argument('--profile', action='store_true', help='and the ops that our step spends most on')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f'{machine()}, torch {torch.__version__}, {args.threads} threads each')
    for make in MODELS:
        if args.only in make.__name__:
            measure(args, make)


if __name__ == '__main__':
    main()
