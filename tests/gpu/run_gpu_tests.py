#!/usr/bin/env python3
"""run_gpu_tests.py --bin BIN [--stub DIR [--lanes DIR]] [--vectors RUN_VECTORS] [--only TEXT] [-v]: the CUDA backend, on what there is.

With --stub its kernels run on the processor, under stand-ins for the driver, cuBLASLt and NCCL (tests/gpu/stub); without, on
the GPU of this machine. The cases are the same; those that need stand-ins (faults on purpose, more GPUs than there are) say
that they are skipped. Skipped as a whole, aloud, where the backend was not built (exit 77).
"""
import argparse
import ctypes
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from graphs import (  # noqa: E402
    BIASED, BY_HOST, CLASS_GRADIENT, CLASSES, COLLECTIVES, DROPOUT, FLEX, HALVES, LONG_NORMS, LONG_SUMS, MASKED, PICK, PRODUCTS, RECORDED, RUNNING, SAME_BITS, SHARED_WORK)
from harness import TRACES, skip  # noqa: E402
from attention_cases import AttentionCases  # noqa: E402
from copy_cases import CopyCases  # noqa: E402
from ctc_cases import CtcCases  # noqa: E402
from float8_cases import Float8Cases  # noqa: E402
from fusion_cases import FusionCases  # noqa: E402
from grouped_cases import GroupedCases  # noqa: E402
from norm_cases import NormCases  # noqa: E402
from optimizer_cases import OptimizerCases  # noqa: E402
from profile_cases import ProfileCases  # noqa: E402
from loss_cases import LossCases  # noqa: E402
from grid_cases import GridCases  # noqa: E402
from segment_cases import SegmentCases  # noqa: E402
from set_cases import SetCases  # noqa: E402
from sort_cases import SortCases  # noqa: E402
from split_cases import SplitCases  # noqa: E402

EVERY = 5            # of the conformance vectors, for CI


def safetensors(path, tensors):
    """name -> (dtype, shape, bytes)"""
    header, body = {}, b''
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)


def bf16(values):
    return b''.join(struct.pack('<f', v)[2:] for v in values)


def flex_inputs(path, rng, dtype, wide, queries=37):
    """What FLEX is given."""
    words = {'F32': lambda x: struct.pack(f'<{len(x)}f', *x), 'F64': lambda x: struct.pack(f'<{len(x)}d', *x),
             'F16': lambda x: struct.pack(f'<{len(x)}e', *x), 'BF16': bf16}
    noise = lambda kind, *shape: (kind, shape, words[kind]([rng.gauss(0, 1) for _ in range(math.prod(shape))]))
    safetensors(path, {'q': noise(dtype, 2, 4, queries, 8), 'k': noise(dtype, 1, 2, 45, 8), 'v': noise(dtype, 1, 2, 45, 6),
                       'g': noise(dtype, 2, 4, queries, 6), 'gl': noise(wide, 2, 4, queries), 'table': noise(dtype, 2, 4, 7),
                       'doc': ('I32', (100,), struct.pack('<100i', *(i // 20 for i in range(100))))})


def class_inputs(path, targets):
    """What CLASSES is given."""
    safetensors(path, {'a': ('F32', (6, 5), struct.pack('<30f', *(math.sin(i) for i in range(30)))),
                       't': ('I64', (6,), struct.pack('<6q', *targets))})


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

    def against_processor(self, name, at, graph, inputs, options=('--bitwise', ), env=None, kernels=None):
        """A graph on both with the same inputs; `kernels`: how often the stand-in has to be asked for some."""
        with open(at('held.txt'), 'w', encoding='utf-8') as f:
            f.write(graph)
        safetensors(at('held.safetensors'), inputs)
        run, log = [self.tool('sg-run'), at('held.txt'), '--inputs', at('held.safetensors')], at('kernels')
        status, text = self.run([*run, '-q', '--outputs', at('held.out')])
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

    def refused_by_device(self, name, at, graph, inputs, said):
        """What the data does not allow, with node and value; `said` is a pattern."""
        with open(at('held.txt'), 'w', encoding='utf-8') as f:
            f.write(graph)
        safetensors(at('held.safetensors'), inputs)
        status, text = self.run([self.tool('sg-run'), at('held.txt'), '--inputs', at('held.safetensors'), '--backend', 'cuda'])
        self.expect(name, (status != 4 or not re.search('rank 0, ' + said, text)) and f'exit {status}: {text}')

    def case(self, name, at):
        """All of a case; one line for what held, as some have a hundred."""
        begin, held = time.monotonic(), self.held
        getattr(self, name)(at)
        if self.held > held:
            print(f'ok     {name}: {self.held - held}, {time.monotonic() - begin:.1f} s', flush=True)

    # --- cases ---

    def usage(self, at):
        graph = at('same.txt')
        for options, code, said in (
                (['--comm', 'nccl'], 2, 'goes with --backend cuda'),
                (['--deterministic'], 2, '--deterministic is for --comm nccl'),
                (['--backend', 'cuda', '--numerics', 'f64'], 2, 'is what CPUs do'),
                (['--backend', 'cuda', '--chaos', '1'], 2, 'ranks on CPUs')):
            status, text = self.run([self.tool('sg-run'), graph, '--init', 'seed:0', *options])
            self.expect(f'usage {" ".join(options)}', status != code or said not in text and f'exit {status}: {text}')

    def absent(self, at):
        """Without a driver: exit 5, what is missing, and the remedy."""
        if not self.args.stub or shutil.which('nvidia-smi'):
            print('SKIPPED absent: this machine has a driver')
            return
        env = {'LD_LIBRARY_PATH': ''}
        status, text = self.run([self.tool('sg-run'), at('same.txt'), '--init', 'seed:0', '--backend', 'cuda'], env)
        self.expect('no driver',
                    (status != 5 or 'finds no driver' not in text or 'hint:' not in text) and f'exit {status}: {text}')
        for fault, said in (('cuInit:1', 'CUDA_ERROR_NO_DEVICE'), ):
            status, text = self.run([self.tool('sg-run'), at('same.txt'), '--init', 'seed:0', '--backend', 'cuda'],
                                    {'SG_STUB_FAIL': fault})
            self.expect('a driver without a device', (status != 5 or said not in text) and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda'], {'SG_STUB_ARCHITECTURE': '75'})
        self.expect('an old GPU', (status != 5 or 'has compute capability 7.5, and 8.0 is needed' not in text) and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), at('all.txt'), '--init', 'seed:0', '--backend', 'cuda', '--comm', 'nccl'], {'SG_FAKE_NCCL_VERSION': '21000'})
        self.expect('an old NCCL', (status != 5 or 'NCCL 2.10 is too old' not in text) and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), at('all.txt'), '--inputs', at('all{r}.safetensors'), '--backend', 'cuda', '--comm', 'nccl'], {'SG_STUB_DEVICES': '2'})
        self.expect('fewer GPUs than ranks', (status != 5 or 'ranks 0, 2 of this machine have the same' not in text) and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda'], {'SG_STUB_MEMORY': '100000'})
        self.expect('a GPU without memory',
                    (status != 5 or 'no memory on the GPU' not in text) and f'exit {status}: {text}')

    def same_bits(self, at):
        run = [self.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors')]
        status, text = self.run([*run, '--outputs', at('same.out')])
        self.expect('same bits: the processor', status and f'exit {status}: {text}')
        for options in ([], ['--watch', 'nan,inf'], ['--profile', at('profile.json')]):
            status, text = self.run([*run, *options, '--backend', 'cuda', '--expect', at('same.out'), '--bitwise'])
            self.expect(f'same bits {" ".join(options[:1])}', status and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), at('pick.txt'), '--inputs', at('pick.safetensors'), '--backend',
                                 'cuda'])
        self.expect('an index out of range', (status != 4 or not re.search(r'rank 0, %rows = aten.embedding.default: index -?\d+ is out of range for size 6', text)) and f'exit {status}: {text}')

    def products(self, at):
        """Products that cuBLASLt has no algorithm for, or whose algorithm does not take them after all, are our own kernel's."""
        if not self.args.stub:
            print('SKIPPED products without cuBLASLt: its stand-in refuses them')
            return
        run = [self.tool('sg-run'), at('products.txt'), '--init', 'seed:0']
        with open(at('products.txt'), 'w', encoding='utf-8') as f:
            f.write(PRODUCTS)
        status, text = self.run([*run, '-q', '--outputs', at('products.out')])
        self.expect('products: the processor', status and f'exit {status}: {text}')
        cuda = [*run, '--backend', 'cuda', '--steps', '4', '--expect', at('products.out'), '--rtol', '0.01', '--atol', '0.01']
        # In 3 steps, of which the last is recorded: products by our own kernel; and what is added, copied into the result by one:
        # a column, and two biases where no algorithm adds them.
        for said, own, copies in (('', 0, 3), ('no_bias', 0, 9), ('none', 21, 9), ('refuses', 21, 9)):
            log = at('kernels-' + said)
            status, text = self.run(cuda, {'SG_STUB_LT': said, 'SG_STUB_KERNELS': log})
            names = open(log, encoding='utf-8').read().split() if os.path.exists(log) else []
            counts = names.count('matmul_elements'), sum(name.startswith('work_move') for name in names)
            self.expect(f'products, cuBLASLt {said}', (status or counts != (own, copies)) and f'exit {status}, {counts}: {text}')
        status, text = self.run(cuda, {'SG_STUB_LT': 'fails'})
        self.expect('products that fail', (status != 5 or 'cublasLtMatmul failed with cuBLAS status 13' not in text) and f'exit {status}: {text}')

    def shared_work(self, at):
        """Ops whose work is written once for both, and classes that the data names: not by the host, as the processor has them."""
        classes = at('classes.safetensors')
        for name, text, inputs, held in (('work', SHARED_WORK, at('same.safetensors'), ['--bitwise']),
                                         ('classes', CLASSES, classes, ['--rtol', '1e-6', '--atol', '1e-6'])):
            graph = at(name + '.txt')
            with open(graph, 'w', encoding='utf-8') as f:
                f.write(text)
            class_inputs(classes, [0, 4, 2, 1, 2, 3])
            run = [self.tool('sg-run'), graph, '--inputs', inputs]
            status, text = self.run([*run, '-q', '--outputs', at(name + '.out')])
            self.expect(f'{name} that both share: the processor', status and f'exit {status}: {text}')
            status, text = self.run([*run, '--backend', 'cuda', '--expect', at(name + '.out'), *held])
            self.expect(f'{name} that both share', (status or 'computed by the host' in text) and f'exit {status}: {text}')
        class_inputs(classes, [0, 4, 2, 1, 5, 3])
        status, text = self.run([self.tool('sg-run'), at('classes.txt'), '--inputs', classes, '--backend', 'cuda'])
        said = re.search(r'rank 0, %whole = aten.cross_entropy_loss.default: index 5 is out of range for size 5', text)
        self.expect('a class out of range', (status != 4 or not said) and f'exit {status}: {text}')

    def collectives(self, at):
        run = [self.tool('sg-run'), '-q', at('all.txt'), '--inputs', at('all{r}.safetensors')]
        status, text = self.run([*run, '--outputs', at('all{r}.out')])
        self.expect('collectives: the processor', status and f'exit {status}: {text}')
        cuda = [*run, '--backend', 'cuda', '--timeout', '30']
        held = ['--expect', at('all{r}.out')]
        cases = [('ranks of one GPU', [*cuda, *held, '--bitwise'], {'SG_STUB_DEVICES': '1'})]
        if self.args.stub:
            alone = [self.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
                     '--comm', 'nccl']
            cases += [('NCCL, one rank', [*alone, '--expect', at('same.out'), '--bitwise'], {}),
                      ('NCCL, ranks that share a GPU', [*cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'],
                       {'SG_STUB_DEVICES': '1', 'SG_CUDA_SHARE': '1'}),
                      ('NCCL', [*cuda, '--comm', 'nccl', *held], {}),
                      ('NCCL, deterministic', [*cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'], {})]
            if shutil.which('mpirun') and self.run([*mpirun(4), *run, '--comm', 'mpi'])[0] == 0:
                cases += [('NCCL, a process a GPU',
                           [*mpirun(4), *cuda, '--comm', 'nccl', '--deterministic', *held, '--bitwise'], {}),
                          ('MPI, ranks of one GPU', [*mpirun(4), *cuda, '--comm', 'mpi', *held, '--bitwise'],
                           {'SG_STUB_DEVICES': '1'})]
            else:
                print('SKIPPED NCCL with a process a GPU: no mpirun, or built without MPI')
        else:
            print('SKIPPED NCCL between GPUs: it needs four')
        for name, command, env in cases:
            begin = time.monotonic()
            status, text = self.run(command, env)
            self.expect(name, status and f'exit {status}: {text}', time.monotonic() - begin)

    def faults(self, at):
        """A hung, a broken and a dead rank: exit 6 in time, the rank, its collective, and what came before."""
        if not self.args.stub:
            print('SKIPPED faults of NCCL: they are made by its stand-in')
            return
        run = [self.tool('sg-run'), '-q', at('all.txt'), '--inputs', at('all{r}.safetensors'), '--backend', 'cuda',
               '--comm', 'nccl', '--timeout', '2']
        # Who gives up first may be a rank that has launched %most, and waits for one that has not got on from it.
        stuck = r'rank \d waits since 3 s (for the other ranks to start|in) all_reduce %(most of group @all|strided of group @pair) \(number \d+\)'
        cases = [('an operation is refused', run, 'refuse:1:2', 6,
                  r'rank \d: nccl\w+ failed: an error of the stand-in'),
                 ('a communicator does not come to be', run, 'init:1:1', 6, r'rank 1: ncclCommInitRankConfig failed'),
                 ('there is no unique id', run, 'id:0:1', 6, r'ncclGetUniqueId failed'),
                 ('a rank does not come', run, 'absent:1:1', 6,
                  r'rank \d waits since 2 s for the other ranks of the job to start NCCL'),
                 ('a rank hangs', run, 'hang:1:3', 6, r'rank \d waits since \d s in all_reduce %most of group @all \(number \d+\), launched at %most \(step.py:7\).*(\n.*)*its last collectives: .* ended; .* is open'),
                 ('a collective is never issued', run, 'stuck:1:3', 6, stuck),
                 ('NCCL reports an error', run, 'error:2:2', 6, r'rank 2: NCCL failed: remote process exited')]
        if shutil.which('mpirun') and self.run([*mpirun(4), *run[:5], '--comm', 'mpi'])[0] == 0:
            cases += [('a process hangs', [*mpirun(4), *run], 'hang:1:3', 6, r'waits since \d s in all_reduce %most'),
                      ('a process dies', [*mpirun(4), *run], 'die:2:4', 9, '')]
        for name, command, fault, code, said in cases:
            begin = time.monotonic()
            status, text = self.run(command, {'SG_FAKE_NCCL': fault})
            took = time.monotonic() - begin
            late = took > 10 * float(os.environ.get('SG_TEST_PATIENCE', '3'))
            self.expect(name, (status != code or not re.search(said, text) or late) and f'exit {status} after {took:.1f} s: {text}', took)

    def failing_calls(self, at):
        """Each call of the driver fails once: exit 5 with the call's name, never a crash, never a wrong answer."""
        if not self.args.stub:
            print('SKIPPED failing calls: they are made by the stand-in of the driver')
            return
        run = [self.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
               '--expect', at('same.out'), '--bitwise']
        for call, most in (('cuMemAlloc_v2', 6), ('cuMemHostAlloc', 1), ('cuLaunchKernel', 12),
                           ('cuMemcpyHtoDAsync_v2', 6), ('cuMemcpyDtoHAsync_v2', 4),
                           ('cuStreamCreate', 1), ('cuModuleLoadData', 1), ('cuDevicePrimaryCtxRetain', 1)):
            problem = None
            for n in range(1, most + 1):
                status, text = self.run(run, {'SG_STUB_FAIL': f'{call}:{n}'})
                if status == 5 and 'error:' in text:
                    continue
                if status == 0 and n > 1:          # there are fewer calls than that
                    break
                problem = f'call {n}: exit {status}: {text}'
                break
            self.expect(f'{call} fails', problem)

    def chains(self, at):
        """Chains of pointwise ops as generated text: bits of the interpreter, code kept on disk, and what else compiles the texts."""
        if not self.args.stub:
            print('SKIPPED texts of chains: they are looked at with stand-ins')
            return
        folder, cache = at('texts'), at('cache')
        os.mkdir(folder)
        env = {'SG_STUB_NVRTC': '1', 'SG_STUB_NVRTC_KEEP': folder, 'SG_CUDA_CACHE': cache}
        run = [self.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
               '--explain', '--expect', at('same.out'), '--bitwise']
        begin = time.monotonic()
        status, text = self.run(run, env)
        made = sorted(os.listdir(folder))
        self.expect('chains, compiled', (status or not made or f'{len(made)} compiled ({len(made)} kernels), 0 interpreted' not in text) and f'exit {status}, {made}: {text}',
                    time.monotonic() - begin)
        status, text = self.run(run, env)
        self.expect('chains, from the cache',
                    (status or sorted(os.listdir(folder)) != made) and f'exit {status}: {text}')
        kept = [os.path.join(cache, name) for name in os.listdir(cache)]
        with open(kept[0], 'r+b') as f:
            f.seek(100)
            f.write(b'damaged')
        status, text = self.run(run, env)
        self.expect('chains, a damaged file of the cache',
                    (status or len(os.listdir(folder)) != len(made) + 1) and f'exit {status}: {text}')
        status, text = self.run(run, {**env, 'SG_STUB_NVRTC_FAIL': '1', 'SG_CUDA_CACHE': ''})
        self.expect('chains that do not compile',
                    (status or 'interpreted: NVRTC' not in text) and f'exit {status}: {text}')
        for name in made:
            self.compile_text(os.path.join(folder, name))

    def compile_text(self, folder):
        """By the real NVRTC, which needs no GPU, for sm_90 and as PTX of the oldest GPU."""
        if not os.path.exists(self.args.nvrtc):
            print('SKIPPED texts of chains by NVRTC: libnvrtc was not found')
            return
        headers = {}
        for root, _, files in os.walk(folder):
            for name in files:
                path = os.path.relpath(os.path.join(root, name), folder)
                if path.endswith(('.h', '.def')) or path.startswith('device/'):
                    headers[path.removeprefix('device/')] = open(os.path.join(folder, path), encoding='utf-8').read()
        with open(os.path.join(folder, 'chain.cc'), encoding='utf-8') as f:
            text = f.read()
        nvrtc, problem = ctypes.CDLL(self.args.nvrtc), None
        strings = lambda words: (ctypes.c_char_p * len(words))(*(w.encode() for w in words))
        for architecture in ('sm_90', 'compute_80'):
            program, size = ctypes.c_void_p(), ctypes.c_size_t()
            nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b'chain.cu', len(headers),
                                     strings(list(headers.values())), strings(list(headers)))
            options = strings(['--gpu-architecture=' + architecture, '--std=c++20', '--fmad=false', '-default-device'])
            code = nvrtc.nvrtcCompileProgram(program, len(options), options)
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            (nvrtc.nvrtcGetCUBINSize if architecture == 'sm_90' else nvrtc.nvrtcGetPTXSize)(program, ctypes.byref(size))
            if code or size.value == 0:
                problem = problem or f'{architecture}: {code}: {log.value.decode()}'
        self.expect('a chain by NVRTC, sm_90 and PTX', problem)

    def recording(self, at):
        """Segments of launches that are recorded: what splits them, and draws that are new in each step."""
        graph, host = at('recorded.txt'), at('by_host.txt')
        run = [self.tool('sg-run'), graph, '--inputs', at('a.safetensors'), '--steps', '6']
        status, text = self.run([*run, '-q', '--outputs', at('recorded{step}.out')])
        self.expect('recording: the processor', status and f'exit {status}: {text}')
        held = [*run, '--backend', 'cuda', '--explain', '--expect', at('recorded{step}.out'), '--rtol', '1e-6',
                '--atol', '1e-6']
        status, text = self.run(held, {'SG_STUB_CAPTURES': at('captures')})
        said = 'recorded as 2 segments' in text and re.search(r'split by numbers for the host: 1 item, first %n\b',
                                                              text)
        self.expect('recorded segments', (status or not said) and f'exit {status}: {text}')
        if self.args.stub:
            with open(at('captures'), encoding='utf-8') as f:
                counts = [int(line) for line in f]
            self.expect('recorded launches', (len(counts) != 2 or min(counts) < 3) and str(counts))
            for call in ('cuStreamBeginCapture_v2', 'cuStreamEndCapture', 'cuGraphInstantiateWithFlags',
                         'cuGraphLaunch'):
                status, text = self.run(held, {'SG_STUB_FAIL': call + ':1'})
                self.expect(f'{call} fails', (status != 5 or 'error:' not in text) and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), '-q', host, '--inputs', at('a.safetensors'), '--outputs',
                                 at('by_host.out')])
        self.expect('by the host: the processor', status and f'exit {status}: {text}')
        status, text = self.run([self.tool('sg-run'), host, '--inputs', at('a.safetensors'), '--backend', 'cuda',
                                 '--expect', at('by_host.out'), '--bitwise', '--steps', '4', '--explain'])
        said = '1 nodes are computed by the host, for which the device waits: aten.linalg_matrix_exp.default' in text and 'split by ops for which the host takes part' in text
        self.expect('by the host', (status or not said) and f'exit {status}: {text}')

    def long_sums(self, at):
        run = [self.tool('sg-run'), '-q', at('sums.txt'), '--inputs', at('sums.safetensors')]
        status, text = self.run([*run, '--outputs', at('sums.out')])
        self.expect('long sums: the processor', status and f'exit {status}: {text}')
        status, text = self.run([*run, '--backend', 'cuda', '--expect', at('sums.out'), '--rtol', '1e-6', '--atol', '1e-5'],
                                {'SG_STUB_KERNELS': at('kernels')})
        self.expect('long sums', status and f'exit {status}: {text}')
        if self.args.stub:
            with open(at('kernels'), encoding='utf-8') as f:
                names = [line.strip() for line in f]
            os.remove(at('kernels'))
            counts = {name: names.count(name) for name in ('column_parts', 'row_parts', 'norm_column_parts')}
            self.expect('long sums by parts', list(counts.values()) != [2, 3, 1] and str(counts))
        inputs = {'x': ('F32', (300, 70), struct.pack('<21000f', *(0.01 * (i % 97) - 0.4 for i in range(21000)))),
                  'h': ('BF16', (9000, 2), bf16([0.01 * (i % 89) - 0.4 for i in range(18000)]))}
        for way, env, kernels in (('alone', {'SG_CUDA_INTERPRET': '1'}, {'row_parts': 4, 'column_parts': 1, 'reduce_rows': 1}),
                                  ('behind chains', {'SG_STUB_NVRTC': '1'}, {'reduce_rows': 1, 'finish_parts': 5})):
            self.against_processor(f'long norms {way}', at, LONG_NORMS, inputs, ['--rtol', '1e-6', '--atol', '0'], env, kernels)
        for length in (1, 7, 8, 21):
            numbers = struct.pack(f'<{9 * length}q', *((i * i % 31) - 9 for i in range(9 * length)))
            self.against_processor(f'running sums of {length}', at, RUNNING.replace('LENGTH', str(length)),
                                   {'i': ('I64', (9, length), numbers)}, kernels={'scan_rows': 5})

    def attention(self, at):
        AttentionCases(self, at, bf16).run()

    def attention_by_lanes(self, at):
        if 'SG_STUB_LANES' in {**os.environ, **self.env}:
            AttentionCases(self, at, bf16).run_lanes()

    def norms(self, at):
        NormCases(self, at, bf16).run()

    def norms_by_lanes(self, at):
        if 'SG_STUB_LANES' in {**os.environ, **self.env}:
            NormCases(self, at, bf16).run_lanes()

    def masked(self, at):
        rng = random.Random(3)
        noise = lambda *shape: ('F32', shape, struct.pack(f'<{math.prod(shape)}f', *(rng.gauss(0, 1) for _ in range(math.prod(shape)))))
        rows = [[rng.randrange(3) for _ in range(7)] for _ in range(3)] + [[0] * 7, [1] * 7]
        safetensors(at('masked.safetensors'), {'q': noise(1, 2, 5, 8), 'k': noise(1, 2, 7, 8),
                                               'n': ('I64', (5, 7), struct.pack('<35q', *sum(rows, [])))})
        with open(at('masked.txt'), 'w', encoding='utf-8') as f:
            f.write(MASKED)
        run = [self.tool('sg-run'), '-q', at('masked.txt'), '--inputs', at('masked.safetensors')]
        status, text = self.run([*run, '--outputs', at('masked.out')])
        self.expect('queries that see nothing: the processor', status and f'exit {status}: {text}')
        status, text = self.run([*run, '--backend', 'cuda', '--expect', at('masked.out'), '--rtol', '1e-5', '--atol', '1e-6'])
        self.expect('queries that see nothing', status and f'exit {status}: {text}')

        for shape in ((2, 4, 5, 7), (1, 4, 5, 7), (2, 1, 1, 7), (5, 7)):
            with open(at('biased.txt'), 'w', encoding='utf-8') as f:
                f.write(BIASED.replace('TYPE', f'f32{list(shape)}'))
            safetensors(at('biased.safetensors'), {'q': noise(2, 4, 5, 8), 'k': noise(2, 4, 7, 8), 'b': noise(*shape)})
            run = [self.tool('sg-run'), at('biased.txt'), '--inputs', at('biased.safetensors')]
            status, text = self.run([*run, '-q', '--outputs', at('biased.out')])
            self.expect(f'a bias of {shape}: the processor', status and f'exit {status}: {text}')
            status, text = self.run([*run, '--backend', 'cuda', '--expect', at('biased.out'), '--rtol', '1e-5', '--atol', '1e-6'],
                                    {'SG_STUB_KERNELS': at('kernels')})
            self.expect(f'a bias of {shape}', status and f'exit {status}: {text}')
            if self.args.stub:
                with open(at('kernels'), encoding='utf-8') as f:
                    count = f.read().count('attention_mask_gradients')
                os.remove(at('kernels'))
                self.expect(f'a bias of {shape}: on the device', count != 2 and str(count))

    def dropout(self, at):
        with open(at('dropout.txt'), 'w', encoding='utf-8') as f:
            f.write(DROPOUT)
        run = [self.tool('sg-run'), '-q', at('dropout.txt'), '--init', 'seed:1', '--steps', '5']
        status, text = self.run([*run, '--outputs', at('dropout{step}')])
        self.expect('dropout inside attention: the processor', status and f'exit {status}: {text}')
        held = ['--backend', 'cuda', '--expect', at('dropout{step}'), '--rtol', '1e-5', '--atol', '1e-5']
        status, text = self.run([*run, *held], {'SG_STUB_KERNELS': at('kernels'), 'SG_STUB_CAPTURES': at('drawn')})
        self.expect('dropout inside attention', status and f'exit {status}: {text}')
        if self.args.stub:
            with open(at('kernels'), encoding='utf-8') as f:
                names = f.read().split()
            with open(at('drawn'), encoding='utf-8') as f:
                recorded = len(f.read().split())
            os.remove(at('kernels')), os.remove(at('drawn'))
            # 3 times for each of 2 batch entries; launched in 2 steps, then recorded: 2 steps are drawn by the recording
            counts = [names.count('attention_drop'), names.count('work_draw_key'), recorded]
            self.expect('dropout inside attention: the kernels', counts != [18, 3, 1] and str(counts))
        files = [open(at(f'dropout{step}'), 'rb').read() for step in range(5)]
        self.expect('each step drops others', len(set(files)) != 5 and 'equal files')

    def optimizers(self, at):
        OptimizerCases(self, at, safetensors).run()

    def profiles(self, at):
        ProfileCases(self, at).run()

    def sorts(self, at):
        SortCases(self, at, safetensors).run()

    def class_gradients(self, at):
        """A loss's gradient and that of its log-softmax as one kernel: the bits of both by themselves, as when nodes are watched."""
        rng = random.Random(12)
        codes = {'f32': lambda x: struct.pack(f'<{len(x)}f', *x), 'f64': lambda x: struct.pack(f'<{len(x)}d', *x), 'bf16': bf16}
        targets = [rng.randrange(700) for _ in range(7)] + [3, 0]
        for dtype, to in (('f32', 'f32'), ('f32', 'bf16'), ('f64', 'f64'), ('bf16', 'bf16')):
            for reduction in range(3):
                for weight in ('none', '%w'):
                    name, rows = f'class gradients {dtype} to {to}, reduction {reduction}, weight {weight}', 9 if reduction == 0 else 1
                    numbers = lambda n: codes[dtype]([rng.uniform(0.5, 3) for _ in range(n)])
                    text = CLASS_GRADIENT.replace('TYPE', dtype).replace('GRAD', '9' if reduction == 0 else '').replace('WEIGHT', weight)
                    with open(at('classes.txt'), 'w', encoding='utf-8') as f:
                        f.write(text.replace('REDUCTION', str(reduction)).replace('TO', to))
                    safetensors(at('classes.safetensors'), {
                        'x': (dtype.upper(), (9, 700), numbers(6300)), 't': ('I64', (9,), struct.pack('<9q', *targets)),
                        'w': (dtype.upper(), (700,), numbers(700)), 'g': (dtype.upper(), (9,) if rows == 9 else (), numbers(rows))})
                    run = [self.tool('sg-run'), at('classes.txt'), '--inputs', at('classes.safetensors'), '--backend', 'cuda']
                    status, text = self.run([*run, '-q', '--watch', 'nan', '--outputs', at('classes.out')])
                    self.expect(f'{name}: each node by itself', status and f'exit {status}: {text}')
                    status, text = self.run([*run, '--steps', '4', '--expect', at('classes.out'), '--bitwise', '--explain'])
                    fused = 'gradients of losses that the softmax before them makes itself: 1' in text
                    self.expect(name, (status or not fused) and f'exit {status}: {text}')

    def halves(self, at):
        """A softmax that casts by itself has the bits of a cast before it."""
        rng = random.Random(17)
        numbers = lambda n: [rng.gauss(0, 3) for _ in range(n)]
        for dtype, words in (('bf16', bf16), ('f16', lambda x: struct.pack(f'<{len(x)}e', *x))):
            apart, folded, inputs, out = at('apart.txt'), at('folded.txt'), at('halves.safetensors'), at('halves.out')
            with open(apart, 'w', encoding='utf-8') as f:
                f.write(HALVES.replace('TYPE', dtype))
            safetensors(inputs, {'x': (dtype.upper(), (3, 7, 300), words(numbers(6300))), 'g': ('F32', (21, 300), struct.pack('<6300f', *numbers(6300)))})
            status, text = self.run([self.tool('sg-clean'), apart, '--fold-casts', '-o', folded])
            self.expect(f'casts of {dtype} folded', (status or '2 casts folded' not in text) and f'exit {status}: {text}')
            run = ['--inputs', inputs, '--backend', 'cuda']
            status, text = self.run([self.tool('sg-run'), '-q', apart, *run, '--outputs', out])
            self.expect(f'casts of {dtype} before softmax', status and f'exit {status}: {text}')
            status, text = self.run([self.tool('sg-run'), folded, *run, '--expect', out, '--bitwise'])
            self.expect(f'casts of {dtype} by softmax', status and f'exit {status}: {text}')

    def sets(self, at):
        SetCases(self, at).run()

    def segments(self, at):
        SegmentCases(self, at, bf16).run()

    def samples(self, at):
        GridCases(self, at, bf16).run()

    def losses(self, at):
        LossCases(self, at, safetensors, bf16).run()

    def groups(self, at):
        GroupedCases(self, at, bf16).run()

    def float8(self, at):
        Float8Cases(self, at).run()

    def groups_by_lanes(self, at):
        if 'SG_STUB_LANES' in {**os.environ, **self.env}:
            GroupedCases(self, at, bf16).run_lanes()

    def ctc(self, at):
        CtcCases(self, at).run()

    def ctc_by_lanes(self, at):
        if 'SG_STUB_LANES' in {**os.environ, **self.env}:
            CtcCases(self, at).run_lanes()

    def sorts_by_lanes(self, at):
        if 'SG_STUB_LANES' in {**os.environ, **self.env}:
            SortCases(self, at, safetensors).run_lanes()

    def splits(self, at):
        SplitCases(self, at, safetensors).run()

    def split_faults(self, at):
        SplitCases(self, at, safetensors).faults()

    def copies(self, at):
        CopyCases(self, at).run()

    def fusion(self, at):
        FusionCases(self, at, safetensors).run()

    def flex(self, at):
        """FlexAttention on the device, in one part and in many, against the processor; and by the host, aloud."""
        rng = random.Random(5)
        one, lanes_alone = 'aten.select.int(%row, 0, 1)', 'aten.sum.dim_IntList(%row, [0])'
        by_host = 'are computed by the host, for which the device waits: higher_order.flex_attention, higher_order.flex_attention_backward'
        dense = 'attention with its scores in memory, a part of them at a time: 2 nodes'
        # (the processor's gradients of f64 go by the logarithms, which are f32)
        for name, dtype, wide, rtol in (('F32', 'f32', 'f32', '1e-5'), ('F64', 'f64', 'f64', '2e-6'),
                                        ('BF16', 'bf16', 'f32', '0.03'), ('F16', 'f16', 'f32', '0.005')):
            graph, inputs, out, log = at('flex.txt'), at('flex.safetensors'), at('flex.out'), at('kernels')
            flex_inputs(inputs, rng, name, wide.upper())
            texts = {row: FLEX.replace('TYPE', dtype).replace('WIDE', wide).replace('ROW', row) for row in (one, lanes_alone)}
            run = [self.tool('sg-run'), graph, '--inputs', inputs]
            cases = [(one, {}, 4), (one, {'SG_CUDA_FLEX_SCORES': '4000'}, 8), (one, {'SG_CUDA_FLEX_SCORES': '500'}, 64),
                     (lanes_alone, {}, 0)]
            for row, env, parts in cases[:4 if dtype == 'f32' else 2]:
                with open(graph, 'w', encoding='utf-8') as f:
                    f.write(texts[row])
                status, text = self.run([*run, '-q', '--outputs', out])
                self.expect(f'flex attention {dtype}: the processor', status and f'exit {status}: {text}')
                same = ['--bitwise'] if parts == 0 else ['--rtol', rtol, '--atol', rtol]
                status, text = self.run([*run, '--backend', 'cuda', '--expect', out, *same, '--explain'], {**env, 'SG_STUB_KERNELS': log})
                wrong = status or (by_host in text) != (parts == 0) or (dense in text) != (parts > 0)
                self.expect(f'flex attention {dtype} in {parts} parts', wrong and f'exit {status}: {text}')
                if self.args.stub:
                    names = []
                    if os.path.exists(log):
                        with open(log, encoding='utf-8') as f:
                            names = [line.strip() for line in f]
                        os.remove(log)
                    counts = [names.count('attention_weights'), names.count('attention_seen')]
                    self.expect(f'flex attention {dtype}: the kernels', counts != [parts, parts // 2] and str(counts))
        self.flex_recorded(at)
        flex_inputs(at('flex.safetensors'), rng, 'F32', 'F32', 200)  # more queries than there are documents for
        with open(at('flex.txt'), 'w', encoding='utf-8') as f:
            f.write(FLEX.replace('TYPE', 'f32').replace('WIDE', 'f32').replace('ROW', one).replace('[1, 100]', '[1, 300]'))
        status, text = self.run([self.tool('sg-run'), at('flex.txt'), '--inputs', at('flex.safetensors'), '--backend', 'cuda'])
        said = re.search(r'rank 0, %o = higher_order.flex_attention: index 1\d\d is out of range for size 100', text)
        self.expect('flex attention: an index out of range', (status != 4 or not said) and f'exit {status}: {text}')

    def flex_recorded(self, at):
        """With compiled chains the host takes no part in it: both directions are recorded, and run right from recordings."""
        if not self.args.stub or 'SG_STUB_LANES' in self.env or 'SG_STUB_GUARD' in self.env:  # generated code is for the plain one
            return
        graph, inputs, out = at('flex.txt'), at('flex.safetensors'), at('flex.out')
        flex_inputs(inputs, random.Random(6), 'F32', 'F32')
        with open(graph, 'w', encoding='utf-8') as f:
            f.write(FLEX.replace('TYPE', 'f32').replace('WIDE', 'f32').replace('s0', '37').replace('  symbol 37 input [1, 100] hint 37\n', '')
                    .replace('ROW', 'aten.select.int(%row, 0, 1)').replace('  %dq', '  %g2 = aten.mul.Tensor(%g, 1.0)\n  %dq')
                    .replace('%l, %g, %gl', '%l, %g2, %gl'))
        run = [self.tool('sg-run'), graph, '--inputs', inputs]
        status, text = self.run([*run, '-q', '--outputs', out])
        self.expect('flex attention, recorded: the processor', status and f'exit {status}: {text}')
        begin, texts = time.monotonic(), at('flex-texts')
        os.mkdir(texts)
        status, text = self.run([*run, '--backend', 'cuda', '--expect', out, '--rtol', '1e-5', '--atol', '1e-5', '--steps', '4', '--explain'],
                                {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': at('flex-cache'), 'SG_STUB_NVRTC_KEEP': texts})
        said = '3 of them recorded as 1 segment' in text and 'split by' not in text
        self.expect('flex attention, recorded', (status or not said) and f'exit {status}: {text}', time.monotonic() - begin)
        for name in os.listdir(texts):
            self.compile_text(os.path.join(texts, name))

    def conformance(self, at, every=0):
        begin = time.monotonic()
        every = str(every or self.args.every)
        status, text = self.run([self.args.vectors, '--backend', 'cuda', '--every', every, '--listed',
                                 os.path.join(HERE, '../conformance/listed.txt'), '--listed', os.path.join(HERE, 'listed.txt'),
                                 os.path.join(HERE, '../conformance/vectors')], timeout=900)
        said = [line for line in text.splitlines() if 'vectors' in line or line.startswith('FAIL')]
        self.expect('conformance', status and '\n'.join(said[-40:]), time.monotonic() - begin)
        print('       ' + '\n       '.join(said[-2:]))

    def lanes(self, at):
        """The text that a device runs, each lane ahead of the others as far as it may: what lacks a meeting shows."""
        if not self.args.lanes:
            print('SKIPPED lanes: their stand-in is for x86-64 processors')
            return
        kept = self.env
        for order in ('up', 'down'):
            print(f'lanes {order}:')
            self.env = {**kept, 'LD_LIBRARY_PATH': self.args.lanes + ':' + kept['LD_LIBRARY_PATH'],
                        'SG_STUB_LANES': order}
            for case in ('same_bits', 'shared_work', 'long_sums', 'sorts_by_lanes', 'ctc_by_lanes', 'groups_by_lanes', 'norms_by_lanes', 'attention_by_lanes', 'masked', 'dropout', 'flex'):
                self.case(case, at)
            if self.args.vectors:
                self.conformance(at, 3 * self.args.every)
        self.env = kept

    def guarded(self, at):
        """The host cannot touch the device's memory: a function of the processor's that looks into it does not survive."""
        if not self.args.stub:
            print('SKIPPED guarded: a device guards its memory itself')
            return
        kept = self.env
        self.env = {**kept, 'SG_STUB_GUARD': '1'}
        for case in ('same_bits', 'shared_work', 'attention', 'masked', 'dropout', 'flex'):
            self.case(case, at)
        if self.args.vectors:
            self.conformance(at, 3 * self.args.every)
        self.env = kept

    def captures(self, at):
        if not os.path.isdir(TRACES):
            print('SKIPPED captures: ../shared/traces is absent')
            return
        for backend in ('--backend cuda', '--backend cuda --comm nccl --deterministic'):
            if 'nccl' in backend and not self.args.stub:
                continue
            for only in ([''] if self.args.all else ['single/gpt2-tiny', 'single/mixtral', 'single/llama3-1rank-flex'] if 'nccl' not in backend else ['multi/dsv3-ep4-fp32', 'multi/llama3-fsdp4']):
                begin = time.monotonic()
                status, text = self.run([sys.executable, os.path.join(HERE, '../numeric/run_numbers.py'), '--bin',
                                         self.args.bin, '--only', only, '--backend', backend],
                                        timeout=1800)
                self.expect(f'captures {backend} {only}', status and text[-3000:], time.monotonic() - begin)
                for line in text.splitlines():
                    if line.startswith('SKIPPED'):
                        print('       ' + line[:200])


def mpirun(n):
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    names = ['LD_LIBRARY_PATH', 'SG_STUB_DEVICES', 'SG_FAKE_NCCL']
    return ['mpirun', '--oversubscribe', '-n', str(n), *root, *(word for name in names for word in ('-x', name))]


def prepare(at):
    rng = random.Random(7)
    for name, text in (('same.txt', SAME_BITS), ('pick.txt', PICK), ('all.txt', COLLECTIVES),
                       ('recorded.txt', RECORDED), ('by_host.txt', BY_HOST), ('sums.txt', LONG_SUMS)):
        with open(at(name), 'w') as f:
            f.write(text)
    numbers = lambda n: [rng.uniform(-3, 3) for _ in range(n)]
    a, i = ('F32', (6, 5), struct.pack('<30f', *numbers(30))), ('I64', (6, 5), struct.pack('<30q', *(rng.randrange(-1000, 1000) for _ in range(30))))
    safetensors(at('same.safetensors'), {'a': a, 'b': ('BF16', (6, 5), bf16(numbers(30))), 'i': i})
    safetensors(at('pick.safetensors'), {'a': a, 'i': i})
    safetensors(at('a.safetensors'), {'a': a})
    f32 = lambda *shape: ('F32', shape, struct.pack(f'<{math.prod(shape)}f', *numbers(math.prod(shape))))
    safetensors(at('sums.safetensors'), {'x': f32(3, 700, 45), 'w': f32(45), 'h': ('BF16', (9000, 2), bf16(numbers(18000)))})
    for r in range(4):
        safetensors(at(f'all{r}.safetensors'),
                    {'x': ('F32', (8, 3), struct.pack('<24f', *numbers(24))), 'h': ('BF16', (8, 3), bf16(numbers(24))),
                                                'n': ('I64', (4,),
                                                      struct.pack('<4q', *(rng.randrange(1000) for _ in range(4))))})


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
    parser.add_argument('-v', '--verbose', action='store_true', help='a line too for each check that holds')
    parser.add_argument('--without', default=[], nargs='*', help='cases')
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.bin, '../lib/stepgraph/libsg_backend_cuda.so')):
        return skip('built without the cuda backend (nvcc was not found)')
    tests = Tests(args)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        prepare(at)
        for case in ('usage', 'absent', 'same_bits', 'products', 'shared_work', 'collectives', 'splits', 'faults', 'split_faults', 'failing_calls', 'chains', 'fusion', 'recording',
                     'long_sums', 'sorts', 'sets', 'segments', 'samples', 'halves', 'losses', 'class_gradients', 'sorts_by_lanes', 'ctc', 'ctc_by_lanes', 'groups', 'float8', 'groups_by_lanes', 'norms', 'norms_by_lanes', 'attention', 'attention_by_lanes', 'masked', 'flex', 'dropout', 'optimizers', 'profiles', 'copies', 'conformance',
                     'lanes', 'guarded', 'captures'):
            if case in args.without:
                print(f'SKIPPED {case}: this build goes without it')
            elif args.only in case and (case != 'conformance' or args.vectors):
                tests.case(case, at)
    print(f'{tests.held} passed, {tests.failed} failed')
    return 1 if tests.failed else 0


if __name__ == '__main__':
    sys.exit(main())
