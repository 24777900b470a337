#!/usr/bin/env python3
"""run_auto_chunks.py --bin BIN [--only TEXT]: sg-chunk --auto against PyTorch's recorded results, the untouched step,
and the plan.

  values    every single-rank capture, at several numbers of chunks, uneven rows and one row a chunk: loss and all
            gradients within 1e-5 of the untouched graph's largest magnitude under sg-run, and as PyTorch recorded
            them by the usual rule; so in strict numerics, behind sg-clean (with folded losses too) and sg-remat, before them
  ranks     four ranks: sharded parameters, several losses, experts
  exported  back in PyTorch, which gives what it recorded; left out where no Python has torch
  text      a chunked step is the same after sg-print and sg-parse, and a second run finds nothing more to do
  symbols   a step with symbolic sizes, chunked and then concretized
  scenario  every golden of tests/golden/chunk that --auto chunks: run whole and in chunks on made-up inputs
  peaks     planned peaks of real sizes: 0.65 of the untouched plan at 8 chunks; a peak that is asked for is kept
  memory    a head that is really run: what the process needs for it, against the plan
Says aloud when ../shared/traces is absent.
"""
import argparse
import array
import glob
import json
import math
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, '..', 'numeric')]
import harness  # noqa: E402
from harness import Failure, TRACES, Tally, Workbench, python_with, skip  # noqa: E402
from tensor_files import read_tensors, write_tensors  # noqa: E402
GOLDEN = os.path.join(HERE, '..', 'golden', 'chunk')
SINGLE = ['gpt2-tiny', 'gpt2-tiny-dynamic', 'llama-hf-sdpa', 'mixtral', 'bert', 'llama3-1rank', 'llama3-1rank-flex',
          'dsv3-1rank']
RANKS = {'llama3-fsdp4-fp32': 1, 'llama3-fsdp4-chunkedloss': 4, 'dsv3-ep4-fp32': 1}      # amplifiers
EXPORTED = ['gpt2-tiny', 'gpt2-tiny-dynamic', 'bert']
SMALL = ['--min-output', '1KiB']
HOW = [['--chunks', '4'], ['--chunks', '5'], ['--chunks', '1000'], ['--rows-per-chunk', '7']]
RELATIVE = 1e-5
FORMATS = {'F32': 'f', 'F64': 'd'}


def run(*command, data=None, **more):
    """In bytes: graphs go through standard input and output."""
    return harness.run(*command, text=False, input=data, **more)


def tensors(path):
    """Those of floats: name -> array."""
    return {name: array.array(FORMATS[dtype], data)
            for name, (dtype, _, data) in read_tensors(path).items() if dtype in FORMATS}


def furthest(ours, theirs):
    """The largest difference, relative to the tensor's largest magnitude, and where.

    What is a millionth of the others is rounding, as gradients that should be 0."""
    worst = (0.0, '')
    least = 1e-6 * max((abs(x) for v in theirs.values() for x in v), default=0.0)
    if set(ours) != set(theirs):
        raise Failure(f'other outputs: {sorted(set(ours) ^ set(theirs))[:5]}')
    for name, a in ours.items():
        top = max([least, *(abs(x) for x in theirs[name])])
        off = max((abs(x - y) for x, y in zip(a, theirs[name])), default=0.0)
        if off != off or len(a) != len(theirs[name]):
            raise Failure(f'{name}: not a number, or another size')
        worst = max(worst, (off / top if top else off, name))
    return worst


class Checks(Workbench):
    def __init__(self, bin_dir, only):
        super().__init__(bin_dir, tempfile.mkdtemp())
        self.only, self.tally = only, Tally()

    def check(self, name, fn):
        if self.only and self.only not in name:
            return
        self.tally.hold(name, fn)

    # --- captures ---

    def bring(self, name):
        graph = self.file(name + '.sg')
        if not os.path.exists(graph):
            run(self.tool('sg-import'), '-q', f'{TRACES}/single/{name}/step.json', '-o', graph)
            run(self.tool('sg-run'), '-q', graph, '--inputs', self.inputs(name), '--outputs', self.file(name + '.out'))
        return graph

    def inputs(self, name):
        return f'{TRACES}/single/{name}/inputs.safetensors'

    def expected(self, name):
        return f'{TRACES}/single/{name}/expected.safetensors'

    def hold(self, name, graph, *options):
        out = self.file('out.safetensors')
        run(self.tool('sg-run'), '-q', graph, '--inputs', self.inputs(name), '--outputs', out, '--expect',
            self.expected(name), *options)
        far, where = furthest(tensors(out), tensors(self.file(name + '.out')))
        if far > RELATIVE:
            raise Failure(f'{where} is {far:.2e} from the untouched step')

    def values(self, name, how):
        out = self.file('chunked.sg')
        said = run(self.tool('sg-chunk'), self.bring(name), '--auto', *how, *SMALL, '-o', out, ok=(0, 4))
        if said.returncode == 4:
            if 'it is unknown how many chunks' not in said.stderr.decode() or '--rows-per-chunk' not in how:
                raise Failure(said.stderr.decode())
            return
        if b'in chunks' not in said.stderr:
            raise Failure(f'nothing is chunked: {said.stderr.decode()}')
        self.hold(name, out)

    def variations(self, name):
        graph, out = self.bring(name), self.file('chunked.sg')
        chunk = [self.tool('sg-chunk'), '-', '--auto', '--chunks', '3', *SMALL, '-q']
        clean, remat = [self.tool('sg-clean'), '-q'], [self.tool('sg-remat'), '-q', '--policy']
        data = run(*clean, graph, '-o', '-').stdout
        for policy in ('default', 'full'):
            before = run(*chunk, '-o', '-', data=run(*remat, policy, '-', '-o', '-', data=data).stdout).stdout
            behind = run(*remat, policy, '-', '-o', '-', data=run(*chunk, '-o', '-', data=data).stdout, ok=(0,)).stdout
            for bytes_of in (before, behind):
                with open(out, 'wb') as file:
                    file.write(bytes_of)
                self.hold(name, out)
        run(self.tool('sg-run'), '-q', out, '--numerics', 'strict', '--inputs', self.inputs(name), '--expect',
            self.expected(name))
        folded = run(*clean, '--fold-losses', graph, '-o', '-').stdout
        with open(out, 'wb') as file:
            file.write(run(*chunk, '-o', '-', data=folded).stdout)
        self.hold(name, out)

    def text(self, name):
        out, text, again = self.file('chunked.sg'), self.file('chunked.txt'), self.file('again.sg')
        run(self.tool('sg-chunk'), '-q', self.bring(name), '--auto', '--chunks', '3', *SMALL, '-o', out)
        with open(text, 'wb') as file:
            file.write(run(self.tool('sg-print'), out).stdout)
        run(self.tool('sg-parse'), '-q', text, '-o', again)
        with open(out, 'rb') as a, open(again, 'rb') as b:
            if a.read() != b.read():
                raise Failure('another file after sg-print and sg-parse')
        run(self.tool('sg-check'), '-q', out)
        said = run(self.tool('sg-chunk'), out, '--auto', '--chunks', '3', *SMALL, '-o', again).stderr
        if b'nothing is chunked' not in said:
            raise Failure('a second run chunks again')

    def symbols(self):
        name, out, done = 'gpt2-tiny-dynamic', self.file('chunked.sg'), self.file('done.sg')
        for chunks in ('2', '5', '144'):
            run(self.tool('sg-chunk'), '-q', self.bring(name), '--auto', '--chunks', chunks, *SMALL, '-o', out)
            sizes = [w for bind in ('s32=6', 's28=24', 's74=6', 's59=24') for w in ('--bind', bind)]
            run(self.tool('sg-concretize'), '-q', out, *sizes, '-o', done)
            if b'symbol' in run(self.tool('sg-print'), done).stdout:
                raise Failure('symbols are left')
            self.hold(name, done)
        few = run(self.tool('sg-concretize'), out, '--bind', 's32=2', '--bind', 's28=10', '-o', done, ok=(4,))
        if b'144' not in few.stderr:
            raise Failure(f'fewer rows than chunks: {few.stderr.decode()}')

    def ranks(self, name, amplifiers):
        graph, out, root = self.file('ranks.sg'), self.file('chunked.sg'), f'{TRACES}/multi/{name}/rank{{r}}'
        run(self.tool('sg-import'), '-q', f'{root}/step.json', '-o', graph)
        said = run(self.tool('sg-chunk'), graph, '--auto', '--chunks', '3', *SMALL, '-o', out).stderr.decode()
        if said.count(' 3 times ') != amplifiers:
            raise Failure(f'{amplifiers} amplifiers: {said}')
        run(self.tool('sg-run'), '-q', out, '--inputs', f'{root}/inputs.safetensors', '--expect',
            f'{root}/expected.safetensors')

    def traced(self):
        """A symbolic step of four ranks, with sizes that the data decides."""
        graph, out, root = self.file('ranks.sg'), self.file('chunked.sg'), f'{TRACES}/peer/dsv3-ep4/graphchunk'
        run(self.tool('sg-import'), '-q', '--spmd', f'{root}/00-traced.json.gz', '-o', graph)
        run(self.tool('sg-chunk'), '-q', graph, '--auto', '--chunks', '3', *SMALL, '-o', out)
        run(self.tool('sg-run'), '-q', out, '--inputs', f'{root}/rank{{r}}/inputs.safetensors', '--expect',
            f'{root}/rank{{r}}/expected_traced.safetensors')

    def exported(self, python, name):
        out, module = self.file('chunked.sg'), self.file('module.py')
        run(self.tool('sg-chunk'), '-q', self.bring(name), '--auto', '--chunks', '5', *SMALL, '-o', out)
        for form in ([], ['--fx']):
            run(self.tool('sg-export'), '-q', out, *form, '-o', module)
            run(python, module, self.inputs(name), '--expect', self.expected(name), '--rtol', '1e-4', '--atol', '1e-5')

    # --- scenarios ---

    def scenario(self, path):
        with open(path) as file:
            lines = file.read().split('---- expected ----')[0].splitlines()
        if any(line.startswith('# EXIT') for line in lines):
            return
        command = next(shlex.split(line[len('# RUN:'):].split('|')[0]) for line in lines if line.startswith('# RUN:'))
        graph, out = self.file('in.txt'), self.file('out.sg')
        values = self.file(os.path.basename(path) + '{r}.safetensors')
        with open(graph, 'w') as file:
            file.write('\n'.join(line for line in lines if not line.startswith('#')) + '\n')
        options = [w for w in command[1:] if w not in ('%s', '--text', '-q')]
        if '-o' in options:
            return
        run(self.tool('sg-chunk'), '-q', graph, *options, '-o', out)
        init = ['--init', 'seed:3', *self.unbounded([graph, out], lines)]
        run(self.tool('sg-run'), '-q', graph, *init, '--outputs', values)
        near = [] if 'bf16' in '\n'.join(lines) else ['--rtol', '1e-4', '--atol', '1e-5']
        run(self.tool('sg-run'), '-q', out, *init, '--expect', values, *near)

    def unbounded(self, graphs, lines):
        """Options that give what --init cannot make up for one of the graphs: labels and masks, 0 and 1 in turn."""
        asked = set()
        for graph in graphs:
            done = run(self.tool('sg-run'), '-q', graph, '--init', 'seed:3', ok=(0, 3))
            asked |= set(re.findall(r'\(%(\w+)\)', done.stderr.decode()))
        tensors = {}
        for name in asked:
            kind, sizes = re.search(rf'input %{name} : (\w+)\[([\d, ]*)\]', '\n'.join(lines)).groups()
            shape = [int(size) for size in sizes.split(',')]
            values = [i % 2 for i in range(math.prod(shape))]
            data = bytes(values) if kind == 'bool' else struct.pack(f'<{len(values)}q', *values)
            tensors[name] = ({'bool': 'BOOL', 'i64': 'I64'}[kind], shape, data)
        if not tensors:
            return []
        write_tensors(self.file('asked.safetensors'), tensors)
        return ['--inputs', self.file('asked.safetensors')]

    # --- plans ---

    def peak(self, graph):
        return json.loads(run(self.tool('sg-run'), graph, '--plan', '--json').stdout)['plans'][0]['peak_bytes']

    def bring_shape(self, name):
        graph = self.file(name + '.sg')
        if not os.path.exists(graph):
            run(self.tool('sg-import'), '-q', '--spmd', f'{TRACES}/shape/{name}/step.json.gz', '-o', graph)
        return graph

    def peaks(self):
        graph, out = self.bring_shape('gpt2-124m-b32t1024-amp'), self.file('chunked.sg')
        untouched = self.peak(graph)
        run(self.tool('sg-chunk'), '-q', graph, '--auto', '--chunks', '8', '-o', out)
        if self.peak(out) > 0.65 * untouched:
            raise Failure(f'{self.peak(out) / untouched:.4f} of the untouched plan at 8 chunks')
        run(self.tool('sg-chunk'), '-q', graph, '--auto', '--peak', '19.5GiB', '-o', out)
        if self.peak(out) > 19.5 * 2**30:
            raise Failure(f'{self.peak(out)} bytes planned, 19.5 GiB were asked for')
        said = run(self.tool('sg-chunk'), graph, '--auto', '--peak', '10GiB', '-o', out, ok=(4,)).stderr.decode()
        if 'sg-remat --peak' not in said:
            raise Failure(f'no way out is named: {said}')

    def default(self):
        """As few as are enough: with one less the chunks set the peak, and it is higher."""
        graph, out = self.bring_shape('gpt2-124m-b32t1024-amp'), self.file('chunked.sg')
        said = run(self.tool('sg-clean'), '-q', graph, '-o', '-').stdout
        cleaned = self.file('remat.sg')
        run(self.tool('sg-remat'), '-q', '-', '--policy', 'default', '-o', cleaned, data=said)
        plan = json.loads(run(self.tool('sg-chunk'), cleaned, '--auto', '--explain', '--json', '-o', out).stdout)
        region = plan['passes'][0]['plan']['regions'][0]
        peaks = {}
        for chunks in (region['chunks'] - 1, region['chunks'], 2 * region['chunks']):
            run(self.tool('sg-chunk'), '-q', cleaned, '--auto', '--chunks', str(chunks), '-o', out)
            peaks[chunks] = self.peak(out)
        values = list(peaks.values())
        if not values[0] > values[1] or values[1] > 1.01 * values[2]:
            raise Failure(f'{region["chunks"]} chunks, but the peaks are {peaks}')

    # --- memory of a run ---

    def resident(self, *command):
        """Bytes that a process has at most."""
        script = ('import resource, subprocess, sys; '
                  'subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); '
                  'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)')
        return 1024 * int(run(sys.executable, '-c', script, *command).stdout.split()[-1])

    def memory(self):
        head = '''sg 1.0 job "head" world 1
graph rank *
  input %x : f32[8192, 64] "x"
  input %labels : i64[8192] "labels"
  param %w : f32[16384, 64] "w"
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
        tiny = head.replace('8192', '4').replace('16384', '16').replace('64]', '4]')
        graph, small, out = self.file('head.txt'), self.file('tiny.txt'), self.file('chunked.sg')
        for path, text in ((graph, head), (small, tiny)):
            with open(path, 'w') as file:
                file.write(text)
        run(self.tool('sg-chunk'), '-q', graph, '--auto', '--chunks', '2', '-o', out)
        plan = json.loads(run(self.tool('sg-run'), out, '--plan', '--json').stdout)['plans'][0]
        planned = plan['peak_bytes'] + plan['inputs_bytes']
        step = lambda g: self.resident(self.tool('sg-run'), '-q', g, '--init', 'seed:0')
        measured = step(out) - step(small)
        print(f'a head of 8192 x 16384 in 2 chunks: {planned / 2**20:.1f} MiB planned, '
              f'{measured / 2**20:.1f} MiB measured')
        if abs(measured - planned) > 0.05 * planned and not harness.is_sanitized(self.tool('sg-run')):
            raise Failure(f'{measured} bytes measured, {planned} planned')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    checks = Checks(args.bin, args.only)
    for path in sorted(glob.glob(os.path.join(GOLDEN, '*.txt'))):
        with open(path) as file:
            if '--auto' in file.readline():
                checks.check('scenario ' + os.path.basename(path), lambda: checks.scenario(path))
    checks.check('memory', checks.memory)
    if not os.path.isdir(TRACES):
        skip(f'no captures: {TRACES} is absent')
    else:
        for name in SINGLE:
            for how in HOW:
                checks.check(f'values {name} {" ".join(how)}', lambda: checks.values(name, how))
            checks.check(f'variations {name}', lambda: checks.variations(name))
            checks.check(f'text {name}', lambda: checks.text(name))
        for name, amplifiers in RANKS.items():
            checks.check(f'ranks {name}', lambda: checks.ranks(name, amplifiers))
        checks.check('traced', checks.traced)
        python = python_with('torch', 'safetensors')
        if not python:
            skip('no Python with torch: exported modules are not run')
        for name in EXPORTED if python else []:
            checks.check(f'exported {name}', lambda: checks.exported(python, name))
        checks.check('symbols', checks.symbols)
        checks.check('peaks', checks.peaks)
        checks.check('default', checks.default)
    return checks.tally.finish()


if __name__ == '__main__':
    sys.exit(main())
