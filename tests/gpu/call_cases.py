"""Cases of run_gpu_tests.py: failing calls of the driver, chains as generated text, recorded segments."""
import ctypes
import os
import re
import time


def failing_calls(tests, at):
    """Each call of the driver fails once: exit 5 with the call's name, never a crash, never a wrong answer."""
    if not tests.args.stub:
        print('SKIPPED failing calls: they are made by the stand-in of the driver')
        return
    run = [tests.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
           '--expect', tests.same_out(at), '--bitwise']
    for call, most in (('cuMemAlloc_v2', 6), ('cuMemHostAlloc', 1), ('cuLaunchKernel', 12),
                       ('cuMemcpyHtoDAsync_v2', 6), ('cuMemcpyDtoHAsync_v2', 4),
                       ('cuStreamCreate', 1), ('cuModuleLoadData', 1), ('cuDevicePrimaryCtxRetain', 1)):
        problem = None
        for n in range(1, most + 1):
            status, text = tests.run(run, {'SG_STUB_FAIL': f'{call}:{n}'})
            if status == 5 and 'error:' in text:
                continue
            if status == 0 and n > 1:          # there are fewer calls than that
                break
            problem = f'call {n}: exit {status}: {text}'
            break
        tests.expect(f'{call} fails', problem)
    ranks = [tests.tool('sg-run'), '-q', at('all.txt'), '--inputs', at('all{r}.safetensors'), '--backend', 'cuda']
    status, text = tests.run(ranks, {'SG_STUB_DEVICES': '1', 'SG_STUB_FAIL': 'cuModuleLoadData:2'})
    tests.expect('kernels are loaded once a device', status and f'exit {status}: {text}')
    for name, command, said in (('through the host', ranks, ''), ('NCCL', [*ranks, '--comm', 'nccl'], 'EAGER'),
                                ('NCCL, one rank of a process', [*run, '--comm', 'nccl'], '')):
        status, text = tests.run(command, {'SG_STUB_LOADING': at('loading')})
        with open(at('loading'), encoding='utf-8') as f:
            how = f.read()
        tests.expect(f'when code is loaded, {name}', (status or how != said) and f'exit {status}, {how}: {text}')


def chains(tests, at):
    """Chains of pointwise ops as generated text: bits of the interpreter, code kept on disk, and what else compiles the texts."""
    if not tests.args.stub:
        print('SKIPPED texts of chains: they are looked at with stand-ins')
        return
    folder, cache = at('texts'), at('cache')
    os.mkdir(folder)
    env = {'SG_STUB_NVRTC': '1', 'SG_STUB_NVRTC_KEEP': folder, 'SG_CUDA_CACHE': cache}
    run = [tests.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda',
           '--explain', '--expect', tests.same_out(at), '--bitwise']
    begin = time.monotonic()
    status, text = tests.run(run, env)
    made = sorted(os.listdir(folder))
    tests.expect('chains, compiled', (status or not made or f'{len(made)} compiled ({len(made)} kernels), 0 interpreted' not in text) and f'exit {status}, {made}: {text}',
                 time.monotonic() - begin)
    status, text = tests.run(run, env)
    tests.expect('chains, from the cache',
                 (status or sorted(os.listdir(folder)) != made) and f'exit {status}: {text}')
    kept = [os.path.join(cache, name) for name in os.listdir(cache)]
    with open(kept[0], 'r+b') as f:
        f.seek(100)
        f.write(b'damaged')
    status, text = tests.run(run, env)
    tests.expect('chains, a damaged file of the cache',
                 (status or len(os.listdir(folder)) != len(made) + 1) and f'exit {status}: {text}')
    status, text = tests.run(run, {**env, 'SG_STUB_NVRTC_FAIL': '1', 'SG_CUDA_CACHE': ''})
    tests.expect('chains that do not compile',
                 (status or 'interpreted: NVRTC' not in text) and f'exit {status}: {text}')
    for name in made:
        compile_text(tests, os.path.join(folder, name))


NEAR = ('exp', 'tanh', 'sigmoid', 'silu', 'gelu', 'gelu_tanh', 'silu_backward', 'gelu_backward', 'gelu_tanh_backward')


def near(tests, at):
    """Activations of halves, by fewer instructions: the processor's but for near ties. Those of f32 are not, converted or not."""
    lines = ['sg 1.0', 'graph rank *', '  input %x : f32[40, 1000] "x"', '  input %b : bf16[40, 1000] "b"', '  input %h : f16[40, 1000] "h"']
    for op in NEAR:
        name, by = op.replace('_tanh', ''), ', approximate="tanh"' if '_tanh' in op else ''
        for given in 'bh':
            operands = f'%{given}, %{given}' if 'backward' in op else f'%{given}'
            lines.append(f'  %{op}_{given} = aten.{name}({operands}{by})')
    lines += ['  %exp_x = aten.exp(%x)', '  %cast = aten._to_copy(%exp_x, dtype=bf16)', '  %twice = aten.neg(%cast)']
    lines += [f'  output %{op}_{given}' for op in NEAR for given in 'bh'] + ['  output %twice']
    with open(at('near.txt'), 'w', encoding='utf-8') as f:
        f.write('\n'.join(lines) + '\n')
    run = [tests.tool('sg-run'), at('near.txt'), '--init', 'seed:5', '-q']
    status, text = tests.run([*run, '--outputs', at('near.out')])
    tests.expect('near: the processor', status and f'exit {status}: {text}')
    folder = at('near-texts')
    os.mkdir(folder)
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', at('near.out'), '--rtol', '0.008', '--atol', '1e-6'],
                             {'SG_STUB_NVRTC': '1', 'SG_STUB_NVRTC_KEEP': folder, 'SG_CUDA_CACHE': ''} if tests.args.stub else {})
    tests.expect('near: one unit in the last place', status and f'exit {status}: {text}')
    if not tests.args.stub:
        print('SKIPPED texts of activations: they are looked at with stand-ins')
        return
    made = ''
    for name in os.listdir(folder):
        with open(os.path.join(folder, name, 'chain.cc'), encoding='utf-8') as f:
            made += f.read()
    counts = {op: made.count(f'near_{op}(') for op in NEAR}
    tests.expect('near: the texts', (set(counts.values()) != {2} or made.count('real_exp<float>(') != 1) and str(counts))


def compile_text(tests, folder):
    """By the real NVRTC, which needs no GPU, for sm_90 and as PTX of the oldest GPU."""
    if not os.path.exists(tests.args.nvrtc):
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
    nvrtc, problem = ctypes.CDLL(tests.args.nvrtc), None
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
    tests.expect('a chain by NVRTC, sm_90 and PTX', problem)


SWAP = '''sg 1.0
graph rank *
  buffer %a : f32[1000, 1000] "a"
  buffer %b : f32[1000, 1000] "b"
  %sum = aten.sum(%a)
  %top = aten.amax(%a)
  %least = aten.amin(%b)
  %mean = aten.mean(%b)
  output %sum
  output %top
  output %least
  output %mean
  update %b of %a
  update %a of %b
'''


def carried_buffers(tests, at):
    """Buffers that a recorded step swaps: of each a copy is kept for a moment, in memory that is used again."""
    with open(at('swap.txt'), 'w', encoding='utf-8') as f:
        f.write(SWAP)
    run = [tests.tool('sg-run'), at('swap.txt'), '--init', 'seed:0', '--steps', '60']
    status, text = tests.run([*run, '-q', '--outputs', at('swap.out')])
    tests.expect('buffers that are swapped: the processor', status and f'exit {status}: {text}')
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', at('swap.out'), '--rtol', '1e-5'], {'SG_STUB_MEMORY': '200000000'})
    tests.expect('buffers that are swapped', status and f'exit {status}: {text}')


def recording(tests, at):
    """Segments of launches that are recorded: what splits them, and draws that are new in each step."""
    graph, host = at('recorded.txt'), at('by_host.txt')
    run = [tests.tool('sg-run'), graph, '--inputs', at('a.safetensors'), '--steps', '6']
    status, text = tests.run([*run, '-q', '--outputs', at('recorded{step}.out')])
    tests.expect('recording: the processor', status and f'exit {status}: {text}')
    held = [*run, '--backend', 'cuda', '--explain', '--expect', at('recorded{step}.out'), '--rtol', '1e-6',
            '--atol', '1e-6']
    status, text = tests.run(held, {'SG_STUB_CAPTURES': at('captures')})
    said = 'recorded as 2 segments' in text and re.search(r'split by numbers for the host: 1 item, first %n\b',
                                                          text)
    tests.expect('recorded segments', (status or not said) and f'exit {status}: {text}')
    status, text = tests.run(held, {'SG_CUDA_RECORD': '0'})
    tests.expect('nothing recorded', (status or 'nothing is recorded: SG_CUDA_RECORD says so' not in text) and f'exit {status}: {text}')
    if tests.args.stub:
        with open(at('captures'), encoding='utf-8') as f:
            counts = [int(line) for line in f]
        tests.expect('recorded launches', (len(counts) != 2 or min(counts) < 3) and str(counts))
        for call in ('cuStreamBeginCapture_v2', 'cuStreamEndCapture', 'cuGraphInstantiateWithFlags',
                     'cuGraphLaunch'):
            status, text = tests.run(held, {'SG_STUB_FAIL': call + ':1'})
            tests.expect(f'{call} fails', (status != 5 or 'error:' not in text) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), '-q', host, '--inputs', at('a.safetensors'), '--outputs',
                              at('by_host.out')])
    tests.expect('by the host: the processor', status and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), host, '--inputs', at('a.safetensors'), '--backend', 'cuda',
                              '--expect', at('by_host.out'), '--bitwise', '--steps', '4', '--explain'])
    said = '1 nodes are computed by the host, for which the device waits: aten.linalg_matrix_exp.default' in text and 'split by ops for which the host takes part' in text
    tests.expect('by the host', (status or not said) and f'exit {status}: {text}')
