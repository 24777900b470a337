#!/usr/bin/env python3
"""run_gpu_bench.py --bin BIN [--python PYTHON] [--rounds K] [--seconds S] [--only TEXT] [--traces DIR]: training steps on this machine's GPU, here and in PyTorch.

The steps are those of gpu_models.py: PYTHON captures each with tools/capture (--fake, on the processor), and runs it on the GPU eagerly,
compiled, and compiled with CUDA graphs; sg-run runs the capture. Both in turns, K rounds; medians, and their ratio. Beside them: memory
(planned arena and inputs; PyTorch's allocated peak), how busy the GPU is in our profile, and of H100 and H200 the share of their peak
in bf16 that the step's products take. Ours is timed twice: behind sg-clean --fold-losses, and behind sg-remat as well. Without a torch only the stored captures of GPT-2 are timed, and without one that sees the
GPU only ours; both are said. With --seconds each case has its share of what is left of them: ours is timed once at least, what there is no
time for is said. SG_BENCH_SIZE=small is for trying the script out.

With --profiles PyTorch is left out: each step is timed once and profiled once, what took the most time is printed, and DIR has the profiles
(MODEL.profile.json.gz) and what --explain says (MODEL.explain).
"""
import argparse
import collections
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TRACES = os.path.normpath(os.path.join(ROOT, '..', 'shared', 'traces'))
#        title                        model       optimizer  rows    stored capture
CASES = [('GPT-2 124M 32 x 1024 bf16', 'gpt2', False, 32768, 'shape/gpt2-124m-b32t1024-amp'),
         ('Llama 1B 2 x 8192 bf16', 'llama', False, 16384, ''),
         ('64 experts, 16384 rows, bf16', 'experts', False, 16384, ''),
         ('GPT-2 124M 32 x 1024 bf16, AdamW', 'gpt2', True, 32768, ''),
         ('GPT-2 124M 4 x 64 f32', 'gpt2_f32', False, 256, 'shape/gpt2-124m-b4t64')]
ATTENTION = 'aten._scaled_dot_product_flash_attention_for_cpu.default'  # as a capture on the processor has it
MODES = ('eager', 'compile', 'graphs')
WARM_UP, STEPS = 3, 10
PROFILED, MOST = 3, 16    # steps; lines of a profile
PEAK_BF16 = {'H100': 989e12, 'H200': 989e12}    # a second, dense


def run(command, timeout=600, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **more)
    return done.returncode, done.stdout, done.stderr


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.failed = args, folder, 0
        self.end = time.monotonic() + args.seconds if args.seconds else float('inf')
        self.until = self.end    # of the case at hand
        status, out, _ = run([args.python, '-c', 'import torch; print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())'])
        self.has_torch = status == 0
        self.device = out.split(maxsplit=1)[1].strip() if status == 0 else 'False'
        self.sees_gpu = self.device != 'False'
        print(f'PyTorch {out.strip()}' if self.sees_gpu else 'NOT RUN beside PyTorch: no torch that sees a GPU', flush=True)

    def tool(self, name):
        return os.path.join(self.args.bin, name)

    def graph(self, model, stored):
        """The file, or why there is none."""
        capture, out = os.path.join(self.folder, model), os.path.join(self.folder, model + '.sg')
        if os.path.exists(out):
            return out, ''
        source = os.path.join(self.args.traces, stored, 'step.json.gz')
        if self.has_torch:
            env = {**os.environ, 'PYTHONPATH': os.path.join(ROOT, 'tools', 'capture'), 'CUDA_VISIBLE_DEVICES': ''}
            status, _, err = run([self.args.python, '-m', 'stepgraph_capture', f'{HERE}/gpu_models.py:{model}', '--fake', '-o', capture], env=env)
            if status != 0:
                return None, f'its capture: {err.strip()[-300:]}'
            source = os.path.join(capture, 'step.json')
        elif not stored or not os.path.exists(source):
            return None, 'no torch to capture it with'
        status, _, err = run([self.tool('sg-import'), '-q', source, '-o', out])
        if status == 0:
            status, _, err = run([self.tool('sg-clean'), '-q', '--fold-losses', '--in-place', out])
        return (out, '') if status == 0 else (None, err.strip())

    def lean(self, graph):
        """The step that computes again what comes cheap (no product, no attention): less memory, and less that travels to it and back."""
        out = os.path.join(self.folder, 'lean.sg')
        for saved in (['--save', f'op={ATTENTION}'], []):
            if run([self.tool('sg-remat'), '-q', graph, '--policy', 'default', *saved, '-o', out])[0] == 0:
                return out
        return None

    def ours(self, graph, optimizer, *more):
        update = ['--optimizer', 'adamw:lr=1e-4'] if optimizer else []
        status, out, err = run([self.tool('sg-run'), graph, '--init', 'seed:0', '--backend', 'cuda', '--steps',
                                str(WARM_UP + STEPS), '--json', *update, *more])
        if status != 0:
            return f'exit {status}: {err.strip()[-300:]}'
        report = json.loads(out)
        rank = report['ranks'][0]
        return {'seconds': report['step_seconds'][WARM_UP:], 'memory': rank['arena_bytes'] + rank['input_bytes']}

    def peer(self, model, optimizer, mode):
        status, out, err = run([self.args.python, os.path.join(HERE, 'peer_gpu.py'), '--model', model, '--mode', mode,
                                *(['--optimizer'] if optimizer else [])])
        return json.loads(out.splitlines()[-1]) if status == 0 else f'exit {status}: {err.strip()[-300:]}'

    def busy(self, graph):
        """The share of the last profiled step's time in which some stream of the GPU works."""
        path = os.path.join(self.folder, 'profile.json')
        if isinstance(self.ours(graph, False, '--profile', path), str):
            return None
        with open(path, encoding='utf-8') as f:
            slices = sorted((e['ts'], e['ts'] + e['dur']) for e in json.load(f)['traceEvents'] if e['ph'] == 'X' and e['cat'] != 'step')
        works, until = 0.0, slices[0][0]
        for begin, end in slices:
            works += max(end - max(begin, until), 0)
            until = max(until, end)
        return works / (until - slices[0][0])

    def begun(self, title, model, optimizer, stored):
        """The graph of a case and its first run of ours; what did not run is said, and there is no graph."""
        print(title, flush=True)
        graph, problem = self.graph(model, stored)
        first = self.ours(graph, optimizer) if graph else problem
        if isinstance(first, str):
            print(f'  NOT RUN: {first}')
            self.failed += 1
            return None, None
        return graph, first

    def profiled(self, title, model, optimizer, rows, stored):
        """Ours alone, once."""
        graph, once = self.begun(title, model, optimizer, stored)
        if not graph:
            return
        self.line('sg-run', [once], rows, once['memory'])
        path = os.path.join(self.folder, 'profile.json')
        status, out, err = run([self.tool('sg-run'), graph, '--init', 'seed:0', '--backend', 'cuda', '--steps', str(PROFILED), '--explain', '--profile', path])
        with open(os.path.join(self.args.profiles, f'{model}.explain'), 'w', encoding='utf-8') as f:
            f.write(out + err)
        if status != 0:
            print(f'  NOT PROFILED: exit {status}: {err.strip()[-300:]}')
            self.failed += 1
            return
        with open(path, 'rb') as f:
            profile = f.read()
        with gzip.open(os.path.join(self.args.profiles, f'{model}.profile.json.gz'), 'wb') as f:
            f.write(profile)
        of_ops = collections.defaultdict(list)
        for event in json.loads(profile)['traceEvents']:
            if event['ph'] == 'X' and event['cat'] != 'step':
                of_ops[event['cat'], event['name']].append(event['dur'])
        for (phase, name), times in sorted(of_ops.items(), key=lambda item: -sum(item[1]))[:MOST]:
            print(f'  {sum(times) / PROFILED / 1e3:9.2f} ms a step  {len(times) // PROFILED:5} x  {phase:9} {name}')
        print(f'  {sum(map(sum, of_ops.values())) / PROFILED / 1e3:9.2f} ms a step  all', flush=True)

    def flops(self, graph):
        status, out, _ = run([self.tool('sg-stat'), graph, '--json'])
        return json.loads(out)['flops'] if status == 0 else None

    def line(self, name, rounds, rows, memory, against=None):
        times = [statistics.median(r['seconds']) for r in rounds]
        ratio = f'  {statistics.median(t / o for t, o in zip(times, against)):5.2f} x our time' if against else ''
        middle = statistics.median(times)
        print(f'  {name:18} {middle * 1e3:9.2f} ms ({min(times) * 1e3:.2f}..{max(times) * 1e3:.2f})  {rows / middle:9.0f} rows/s  {memory / 2**20:8.0f} MiB{ratio}', flush=True)
        return times

    def share(self, cases_left):
        """The case at hand has an equal part of what is left. False: nothing is."""
        now = time.monotonic()
        self.until = now + (self.end - now) / cases_left
        return now < self.end

    def has_time(self):
        return time.monotonic() < self.until

    def case(self, title, model, optimizer, rows, stored):
        graph, _ = self.begun(title, model, optimizer, stored)
        if not graph:
            return
        lean = self.lean(graph)
        mine, leaner, theirs = [], [], {mode: [] for mode in MODES}
        for i in range(self.args.rounds):
            if i > 0 and not self.has_time():
                break
            mine.append(self.ours(graph, optimizer))
            if isinstance(mine[-1], str):
                print(f'  NOT RUN again: {mine[-1]}')
                self.failed += 1
                return
            if lean:
                leaner.append(self.ours(lean, optimizer))
            for mode in MODES if self.sees_gpu else ():
                if self.has_time() or mode == MODES[0]:
                    theirs[mode].append(self.peer(model, optimizer, mode))
        times = self.line('sg-run', mine, rows, mine[0]['memory'])
        self.shares(graph, statistics.median(times))
        problem = next((r for r in leaner if isinstance(r, str)), None)
        if problem:
            print(f'  sg-run behind sg-remat: NOT RUN: {problem}')
            self.failed += 1
        elif leaner:
            self.line('behind sg-remat', leaner, rows, leaner[0]['memory'], times)
        for mode, rounds in theirs.items():
            problem = next((r for r in rounds if isinstance(r, str)), None)
            if problem:
                print(f'  PyTorch {mode}: NOT RUN: {problem}')
            elif rounds:
                self.line(f'PyTorch {mode}', rounds, rows, rounds[0]['peak_bytes'], times)
            elif self.sees_gpu:
                print(f'  PyTorch {mode}: NOT RUN: no time is left')

    def shares(self, graph, seconds):
        said, flops, busy = [], self.flops(graph), self.busy(graph)
        peak = next((p for name, p in PEAK_BF16.items() if name in self.device), None)
        if flops:
            said.append(f'{flops / seconds / 1e12:.1f} Tflop/s' + (f', {flops / seconds / peak:.1%} of the peak' if peak else ''))
        if busy:
            said.append(f'the GPU is busy for {busy:.1%} of a profiled step')
        print('  ' + '; '.join(said), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--traces', default=TRACES)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=0, help='for all cases together; 0 = as long as it takes')
    parser.add_argument('--only', default='', help='cases whose title contains this')
    parser.add_argument('--profiles', default='', metavar='DIR', help='profiles of ours alone, instead')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        cases = [case for case in CASES if args.only in case[0]]
        if args.profiles:
            cases = [case for case in cases if not case[2]]    # an update is in no profile
        for i, case in enumerate(cases):
            if args.profiles:
                bench.profiled(*case)
            elif bench.share(len(cases) - i):
                bench.case(*case)
            else:
                print(f'{case[0]}\n  NOT RUN: no time is left')
    return 1 if bench.failed else 0


if __name__ == '__main__':
    sys.exit(main())
