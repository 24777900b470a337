#!/usr/bin/env python3
"""run_step_bench.py --bin BIN [--rounds K] [--python PYTHON]: a GPT-2 124M step (4 x 64 tokens, f32) here and in PyTorch.

Forward, loss and backward on the same weights and tokens, 2 threads each. Both run in turns, K rounds of a few steps; the
figures are medians of the rounds, and what counts is their ratio. Losses are compared to the last digits. Last, where our
time goes, by families of ops, beside the least that the matrix products can take here. The graph is
../shared/traces/shape/gpt2-124m-b4t64. PYTHON needs torch, transformers and safetensors; without --python an environment is
made in a temporary folder from the registry.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import venv

from machine import machine

HERE = os.path.dirname(os.path.abspath(__file__))
CAPTURE = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'shared', 'traces', 'shape', 'gpt2-124m-b4t64',
                                        'step.json.gz'))
PEER = os.path.join(HERE, 'peer_gpt2.py')
GEMM_FLOP = 190e9     # of the step's matrix products: runtime-anchors 2.2
WARM_UP = 2           # steps that are not counted
# The first that matches an op's name decides.
FAMILIES = [
    ('attention', r'attention'),
    ('matrix products', r'\.(mm|addmm|bmm|baddbmm|matmul|linear)\.'),
    ('softmax and loss', r'softmax|nll_loss|cross_entropy'),
    ('norms', r'_norm'),
    ('embedding', r'embedding'),
    ('sums', r'\.(sum|mean|cumsum)\.'),
    ('copies', r'\.(cat|stack|clone|copy_?|_to_copy|constant_pad_nd|split_with_sizes_copy)\.'),
    ('pointwise and others', r''),
]


def make_python(folder):
    venv.create(folder, with_pip=True)
    python = os.path.join(folder, 'bin', 'python')
    subprocess.run([python, '-m', 'pip', 'install', '-q', 'torch', 'transformers', 'safetensors', 'numpy'], check=True)
    return python


def peer_round(python, data, *options):
    done = subprocess.run([python, PEER, '--time', data, '--steps', '4', '--warm-up', '2', *options],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def our_round(tool, graph, data):
    command = [tool('sg-run'), graph, '--inputs', data, '--steps', '6', '--threads', '2', '--json']
    with tempfile.TemporaryFile('w+') as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f'{" ".join(command)}: status {status}')
        out.seek(0)
        report = json.load(out)
    rank = report['ranks'][0]
    return {'seconds': report['step_seconds'][WARM_UP:], 'loss': rank['losses'][-1], 'resident': usage.ru_maxrss * 1024,
            'planned': rank['arena_bytes'] + rank['input_bytes']}


def gemm_seconds(tool):
    """The step's products if both threads did nothing but multiply and add, on this machine, now. None: nobody built gemm_rates."""
    if not os.path.exists(tool('gemm_rates')):
        return None
    text = subprocess.run([tool('gemm_rates'), '2'], capture_output=True, text=True, check=True).stdout
    rate = re.search(r'multiply-adds alone (\d+)', text)
    return GEMM_FLOP / (float(rate[1]) * 1e9) if rate and float(rate[1]) > 0 else None


def family_seconds(tool, graph, data, folder):
    """Seconds of a step by family: medians of each node over a few steps."""
    profile = os.path.join(folder, 'profile.json')
    subprocess.run([tool('sg-run'), graph, '--inputs', data, '--steps', str(WARM_UP + 5), '--threads', '2', '--json',
                    '--profile', profile],
                   check=True, capture_output=True)
    with open(profile) as f:
        events = json.load(f)['traceEvents']
    nodes = {}
    for e in (e for e in events if e['ph'] == 'X' and 'cat' in e):
        nodes.setdefault((e['name'], e['args']['node']), []).append(e['dur'])
    seconds = dict.fromkeys((name for name, _ in FAMILIES), 0.0)
    for (op, _), times in nodes.items():
        family = next(name for name, pattern in FAMILIES if re.search(pattern, op))
        seconds[family] += statistics.median(times[WARM_UP:]) / 1e6
    return seconds


def print_families(seconds, floor):
    total = sum(seconds.values())
    print(f'where the time goes (each node by itself, so nothing is fused: {total:.3f} s)')
    for family, s in sorted(seconds.items(), key=lambda item: -item[1]):
        note = f'  {s / floor:.2f} x the floor ({floor:.3f} s of nothing but multiply-adds)' if floor and family == 'matrix products' else ''
        print(f'  {family:22} {s:7.3f} s  {100 * s / total:5.1f} %{note}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--python')
    parser.add_argument('--compile', action='store_true', help='beside torch.compile too (minutes)')
    args = parser.parse_args()
    if not os.path.exists(CAPTURE):
        print('run_step_bench: ../shared/traces is absent, there is nothing to run')
        return 0
    tool = lambda name: os.path.join(args.bin, name)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        python = args.python or make_python(os.path.join(folder, 'venv'))
        data, graph = os.path.join(folder, 'data.safetensors'), os.path.join(folder, 'step.sg')
        subprocess.run([python, PEER, '--save', data], check=True, capture_output=True)
        subprocess.run([tool('sg-import'), '-q', CAPTURE, '-o', graph], check=True)
        peers = {'eager': []} | ({'compile': ['--compile']} if args.compile else {})
        ours, theirs = [], {name: [] for name in peers}
        for _ in range(args.rounds):
            ours.append(our_round(tool, graph, data))
            for name, options in peers.items():
                theirs[name].append(peer_round(python, data, *options))
        mine = [statistics.median(r['seconds']) for r in ours]
        print(f'sg-run            {statistics.median(mine):7.3f} s  ({min(mine):.3f}..{max(mine):.3f})  loss {ours[-1]["loss"]:.7f}'
              f'  resident {ours[-1]["resident"] / 2**20:.0f} MiB, plan + inputs {ours[-1]["planned"] / 2**20:.0f} MiB')
        for name, rounds in theirs.items():
            them = [statistics.median(r['seconds']) for r in rounds]
            ratio = statistics.median(a / b for a, b in zip(mine, them))
            print(f'PyTorch {name:8}  {statistics.median(them):7.3f} s  ({min(them):.3f}..{max(them):.3f})  loss {rounds[-1]["loss"]:.7f}'
                  f'  resident {rounds[-1]["resident"] / 2**20:.0f} MiB   ratio {ratio:.3f}  (torch {rounds[-1]["torch"]})')
        print_families(family_seconds(tool, graph, data, folder), gemm_seconds(tool))
    return 0


if __name__ == '__main__':
    sys.exit(main())
