#!/usr/bin/env python3
"""run_gpu_tests.py --bin BIN [--stub DIR [--lanes DIR]] [--vectors RUN_VECTORS] [--only TEXT] [--jobs N] [-v]: the CUDA backend, on what there is.

With --stub its kernels run on the processor, under stand-ins for the driver, cuBLASLt and NCCL (tests/gpu/stub); without, on
the GPU of this machine. The cases are the same; those that need stand-ins (faults on purpose, more GPUs than there are) say
that they are skipped. Exit 77, aloud, where the backend was not built or no case held anything.
"""
import argparse
import concurrent.futures
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import basic_cases  # noqa: E402
import call_cases  # noqa: E402
import flex_cases  # noqa: E402
import mask_cases  # noqa: E402
import rank_cases  # noqa: E402
import softmax_cases  # noqa: E402
import sum_cases  # noqa: E402
from attention_cases import AttentionCases  # noqa: E402
from attention_mask_cases import AttentionMaskCases  # noqa: E402
from copy_cases import CopyCases  # noqa: E402
from choice_cases import ChoiceCases  # noqa: E402
from ctc_cases import CtcCases  # noqa: E402
from float8_cases import Float8Cases  # noqa: E402
from fusion_cases import FusionCases  # noqa: E402
from grid_cases import GridCases  # noqa: E402
from grouped_cases import GroupedCases  # noqa: E402
from index_cases import IndexCases  # noqa: E402
from loss_cases import LossCases  # noqa: E402
from norm_cases import NormCases  # noqa: E402
from optimizer_cases import OptimizerCases  # noqa: E402
from profile_cases import ProfileCases  # noqa: E402
from segment_cases import SegmentCases  # noqa: E402
from set_cases import SetCases  # noqa: E402
from sort_cases import SortCases  # noqa: E402
from split_cases import SplitCases  # noqa: E402
from graphs import AWAITED, BY_HOST, COLLECTIVES, LONG_SUMS, PICK, RECORDED, SAME_BITS  # noqa: E402
from harness import SKIPPED, TRACES, skip  # noqa: E402
from tensor_files import bf16, write_tensors  # noqa: E402

EVERY = 5            # of the conformance vectors, for CI


class Tests:
    def __init__(self, args):
        self.args = args
        self.held, self.failed = 0, 0
        self.env = dict(os.environ)
        if args.stub:
            self.env['LD_LIBRARY_PATH'] = args.stub + ':' + self.env.get('LD_LIBRARY_PATH', '')
            self.env['SG_STUB_DEVICES'] = '4'

    def tool(self, name):
        return os.path.join(self.args.bin, name)

    def run(self, command, env=None, timeout=300):
        done = subprocess.run(command, capture_output=True, text=True, env={**self.env, **(env or {})}, timeout=timeout)
        return done.returncode, done.stdout + done.stderr

    def expect(self, name, problem, seconds=None):
        took = f'  {seconds:.1f} s' if seconds is not None else ''
        if problem:
            self.failed += 1
            print(f'FAILED {name}{took}: {str(problem)[:1500]}', flush=True)
        else:
            self.held += 1
            if self.args.verbose:
                print(f'ok     {name}{took}', flush=True)

    def against_processor(self, name, at, graph, inputs, options=('--bitwise', ), env=None, kernels=None, numerics='fast'):
        """A graph on both with the same inputs; `kernels`: how often the stand-in has to be asked for some; `numerics`: the processor's."""
        with open(at('held.txt'), 'w', encoding='utf-8') as f:
            f.write(graph)
        write_tensors(at('held.safetensors'), inputs)
        run, log = [self.tool('sg-run'), at('held.txt'), '--inputs', at('held.safetensors')], at('kernels')
        status, text = self.run([*run, '-q', '--numerics', numerics, '--outputs', at('held.out')])
        self.expect(f'{name}: the processor', status and f'exit {status}: {text}')
        status, text = self.run([*run, '--backend', 'cuda', '--expect', at('held.out'), *options], {**(env or {}), 'SG_STUB_KERNELS': log})
        self.expect(name, (status or 'by the host' in text) and f'exit {status}: {text}')
        if not self.args.stub:
            return
        names = []
        if os.path.exists(log):  # else nothing was launched
            with open(log, encoding='utf-8') as f:
                names = f.read().split()
            os.remove(log)
        counts = {kernel: names.count(kernel) for kernel in kernels or {}}
        self.expect(f'{name}: the kernels', counts != (kernels or {}) and str(counts))

    def same_out(self, at):
        """What the processor makes of same.txt, which several cases hold the device against."""
        if not os.path.exists(at('same.out')):
            status, text = self.run([self.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors'), '--outputs', at('same.out')])
            self.expect('same bits: the processor', status and f'exit {status}: {text}')
        return at('same.out')

    def refused_by_device(self, name, at, graph, inputs, said):
        """What the data does not allow, with node and value; `said` is a pattern."""
        with open(at('held.txt'), 'w', encoding='utf-8') as f:
            f.write(graph)
        write_tensors(at('held.safetensors'), inputs)
        status, text = self.run([self.tool('sg-run'), at('held.txt'), '--inputs', at('held.safetensors'), '--backend', 'cuda'])
        self.expect(name, (status != 4 or not re.search('rank 0, ' + said, text)) and f'exit {status}: {text}')

    def case(self, name, at):
        """All of a case; one line for what held, as some have a hundred."""
        begin, held = time.monotonic(), self.held
        try:
            CASES[name](self, at)
        except Exception:  # of a case's own: the others are worth having
            self.expect(name, traceback.format_exc())
        if self.held > held:
            print(f'ok     {name}: {self.held - held}, {time.monotonic() - begin:.1f} s', flush=True)


def conformance(tests, at, every=0, options=()):
    begin = time.monotonic()
    every = str(every or tests.args.every)
    status, text = tests.run([tests.args.vectors, *options, '--backend', 'cuda', '--every', every, '--listed',
                              os.path.join(HERE, '../conformance/listed.txt'), '--listed', os.path.join(HERE, 'listed.txt'),
                              os.path.join(HERE, '../conformance/vectors')], timeout=900)
    said = [line for line in text.splitlines() if 'vectors' in line or line.startswith('FAIL')]
    tests.expect('conformance', status and '\n'.join(said[-40:]), time.monotonic() - begin)
    print('       ' + '\n       '.join(said[-2:]))


def layouts(tests, at):
    """Results in an order of axes that no rule gives: a capture says how they lie."""
    if tests.args.vectors:
        conformance(tests, at, 3 * tests.args.every, ['--column-order'])


def lanes(tests, at):
    """The text that a device runs, each lane ahead of the others as far as it may: what lacks a meeting shows."""
    if not tests.args.lanes:
        print('SKIPPED lanes: their stand-in is for x86-64 processors')
        return
    kept = tests.env
    for order in ('up', 'down'):
        print(f'lanes {order}:')
        tests.env = {**kept, 'LD_LIBRARY_PATH': tests.args.lanes + ':' + kept['LD_LIBRARY_PATH'],
                     'SG_STUB_LANES': order}
        for case in ('same_bits', 'shared_work', 'long_sums', 'indices', 'choices_by_lanes', 'sorts_by_lanes', 'ctc_by_lanes',
                     'groups_by_lanes', 'norms_by_lanes', 'attention_by_lanes', 'attention_masks_by_lanes', 'masked',
                     'dropout', 'flex'):
            tests.case(case, at)
        if tests.args.vectors:
            conformance(tests, at, 3 * tests.args.every)
    tests.env = kept


def guarded(tests, at):
    """The host cannot touch the device's memory: a function of the processor's that looks into it does not survive."""
    if not tests.args.stub:
        print('SKIPPED guarded: a device guards its memory itself')
        return
    kept = tests.env
    tests.env = {**kept, 'SG_STUB_GUARD': '1'}
    for case in ('same_bits', 'shared_work', 'attention', 'attention_masks', 'masked', 'dropout', 'flex'):
        tests.case(case, at)
    if tests.args.vectors:
        conformance(tests, at, 3 * tests.args.every)
    tests.env = kept


def captures(tests, at):
    if not os.path.isdir(TRACES):
        print(f'SKIPPED captures: {TRACES} is absent')
        return
    for backend in ('--backend cuda', '--backend cuda --comm nccl --deterministic'):
        if 'nccl' in backend and not tests.args.stub:
            continue
        for only in ([''] if tests.args.all else ['single/gpt2-tiny', 'single/mixtral', 'single/llama3-1rank-flex'] if 'nccl' not in backend else ['multi/dsv3-ep4-fp32', 'multi/llama3-fsdp4']):
            begin = time.monotonic()
            status, text = tests.run([sys.executable, os.path.join(HERE, '../numeric/run_numbers.py'), '--bin',
                                      tests.args.bin, '--only', only, '--backend', backend],
                                     timeout=1800)
            tests.expect(f'captures {backend} {only}', status and text[-3000:], time.monotonic() - begin)
            for line in text.splitlines():
                if line.startswith('SKIPPED'):
                    print('       ' + line[:200])


def of(kind, method='run'):
    """A case that a class has."""
    return lambda tests, at: getattr(kind(tests, at), method)()


def by_lanes(kind):
    """Few, for each lane alone is slow: only where the stand-in's lanes run for themselves."""
    def case(tests, at):
        if 'SG_STUB_LANES' in {**os.environ, **tests.env}:
            kind(tests, at).run_lanes()
    return case


CASES = {  # in their order
    'usage': basic_cases.usage,
    'absent': basic_cases.absent,
    'same_bits': basic_cases.same_bits,
    'products': basic_cases.products,
    'shared_work': basic_cases.shared_work,
    'collectives': rank_cases.collectives,
    'splits': of(SplitCases),
    'faults': rank_cases.faults,
    'split_faults': of(SplitCases, 'faults'),
    'failing_calls': call_cases.failing_calls,
    'chains': call_cases.chains,
    'near': call_cases.near,
    'fusion': of(FusionCases),
    'recording': call_cases.recording,
    'carried_buffers': call_cases.carried_buffers,
    'long_sums': sum_cases.long_sums,
    'sorts': of(SortCases),
    'sets': of(SetCases),
    'segments': of(SegmentCases),
    'samples': of(GridCases),
    'halves': softmax_cases.halves,
    'indices': of(IndexCases),
    'choices': of(ChoiceCases),
    'choices_by_lanes': by_lanes(ChoiceCases),
    'losses': of(LossCases),
    'class_gradients': softmax_cases.class_gradients,
    'sorts_by_lanes': by_lanes(SortCases),
    'ctc': of(CtcCases),
    'ctc_by_lanes': by_lanes(CtcCases),
    'groups': of(GroupedCases),
    'float8': of(Float8Cases),
    'groups_by_lanes': by_lanes(GroupedCases),
    'norms': of(NormCases),
    'norms_by_lanes': by_lanes(NormCases),
    'attention': of(AttentionCases),
    'attention_by_lanes': by_lanes(AttentionCases),
    'attention_masks': of(AttentionMaskCases),
    'attention_masks_by_lanes': by_lanes(AttentionMaskCases),
    'masked': mask_cases.masked,
    'flex': flex_cases.flex,
    'dropout': mask_cases.dropout,
    'optimizers': of(OptimizerCases),
    'profiles': of(ProfileCases),
    'copies': of(CopyCases),
    'conformance': conformance,
    'layouts': layouts,
    'lanes': lanes,
    'guarded': guarded,
    'captures': captures,
}
LONGEST = ('conformance', 'captures', 'fusion', 'flex', 'attention')  # they begin first where cases run side by side


def prepare(at):
    rng = random.Random(7)
    for name, text in (('same.txt', SAME_BITS), ('pick.txt', PICK), ('all.txt', COLLECTIVES),
                       ('recorded.txt', RECORDED), ('by_host.txt', BY_HOST), ('sums.txt', LONG_SUMS), ('awaited.txt', AWAITED)):
        with open(at(name), 'w') as f:
            f.write(text)
    numbers = lambda n: [rng.uniform(-3, 3) for _ in range(n)]
    a, i = ('F32', (6, 5), struct.pack('<30f', *numbers(30))), ('I64', (6, 5), struct.pack('<30q', *(rng.randrange(-1000, 1000) for _ in range(30))))
    write_tensors(at('same.safetensors'), {'a': a, 'b': ('BF16', (6, 5), bf16(numbers(30))), 'i': i})
    write_tensors(at('pick.safetensors'), {'a': a, 'i': i})
    write_tensors(at('a.safetensors'), {'a': a})
    f32 = lambda *shape: ('F32', shape, struct.pack(f'<{math.prod(shape)}f', *numbers(math.prod(shape))))
    write_tensors(at('sums.safetensors'), {'x': f32(3, 700, 45), 'w': f32(45), 'h': ('BF16', (9000, 2), bf16(numbers(18000)))})
    for r in range(4):
        write_tensors(at(f'all{r}.safetensors'),
                      {'x': ('F32', (8, 3), struct.pack('<24f', *numbers(24))), 'h': ('BF16', (8, 3), bf16(numbers(24))),
                       'n': ('I64', (4,), struct.pack('<4q', *(rng.randrange(1000) for _ in range(4))))})


def cases_of(args):
    out = []
    for case in CASES:
        if case in args.without:
            print(f'SKIPPED {case}: this run goes without it')
        elif (case == args.case if args.case else args.only in case) and (case != 'conformance' or args.vectors):
            out.append(case)
    return out


def in_processes(args):
    """Each case by this script, some at a time. What a case says comes when it has ended."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], '--jobs', '1']
    cases = sorted(cases_of(args), key=lambda case: LONGEST.index(case) if case in LONGEST else len(LONGEST))
    held = failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = [pool.submit(subprocess.run, [*command, '--case', case], capture_output=True, text=True) for case in cases]
        for done in concurrent.futures.as_completed(running):
            *lines, last = (done.result().stdout.splitlines() or [''])
            counts = re.fullmatch(r'(\d+) passed, (\d+) failed', last)
            lines = [line for line in lines if not line.endswith('this run goes without it')]
            if not counts:
                lines += [f'FAILED a case ended with {done.result().returncode}', last, done.result().stderr[-3000:]]
            if lines:
                print('\n'.join(lines), flush=True)
            held, failed = held + (int(counts[1]) if counts else 0), failed + (int(counts[2]) if counts else 1)
    print(f'{held} passed, {failed} failed')
    return 1 if failed else 0 if held else SKIPPED


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--stub', default='')
    parser.add_argument('--lanes', default='', help='the stand-in whose lanes run for themselves')
    parser.add_argument('--vectors', default='')
    parser.add_argument('--nvrtc', default='', help='the real libnvrtc.so.13')
    parser.add_argument('--every', type=int, default=EVERY)
    parser.add_argument('--all', action='store_true', help='all captures')
    parser.add_argument('--only', default='', help='cases whose names have TEXT')
    parser.add_argument('--case', default='', help='that one alone')
    parser.add_argument('--jobs', type=int, default=1, help='so many cases at a time, each in a process: a GPU waits for a start of sg-run longer than it computes')
    parser.add_argument('-v', '--verbose', action='store_true', help='a line too for each check that holds')
    parser.add_argument('--without', default=[], nargs='*', help='cases')
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.bin, '../lib/stepgraph/libsg_backend_cuda.so')):
        return skip('built without the cuda backend (nvcc was not found)')
    if args.jobs > 1:
        return in_processes(args)
    tests = Tests(args)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        prepare(at)
        for case in cases_of(args):
            tests.case(case, at)
    print(f'{tests.held} passed, {tests.failed} failed')
    return 1 if tests.failed else 0 if tests.held else SKIPPED


if __name__ == '__main__':
    sys.exit(main())
