"""Cases of run_gpu_tests.py: FlexAttention on the device, in one part and in many, recorded, and by the host."""
import math
import os
import random
import re
import struct
import time

from call_cases import compile_text
from graphs import FLEX
from tensor_files import bf16, write_tensors


def flex_inputs(path, rng, dtype, wide, queries=37):
    """What FLEX is given."""
    words = {'F32': lambda x: struct.pack(f'<{len(x)}f', *x), 'F64': lambda x: struct.pack(f'<{len(x)}d', *x),
             'F16': lambda x: struct.pack(f'<{len(x)}e', *x), 'BF16': bf16}
    noise = lambda kind, *shape: (kind, shape, words[kind]([rng.gauss(0, 1) for _ in range(math.prod(shape))]))
    write_tensors(path, {'q': noise(dtype, 2, 4, queries, 8), 'k': noise(dtype, 1, 2, 45, 8), 'v': noise(dtype, 1, 2, 45, 6),
                         'g': noise(dtype, 2, 4, queries, 6), 'gl': noise(wide, 2, 4, queries), 'table': noise(dtype, 2, 4, 7),
                         'doc': ('I32', (100,), struct.pack('<100i', *(i // 20 for i in range(100))))})


def flex(tests, at):
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
        run = [tests.tool('sg-run'), graph, '--inputs', inputs]
        cases = [(one, {}, 4), (one, {'SG_CUDA_FLEX_SCORES': '4000'}, 8), (one, {'SG_CUDA_FLEX_SCORES': '500'}, 64),
                 (lanes_alone, {}, 0)]
        for row, env, parts in cases[:4 if dtype == 'f32' else 2]:
            with open(graph, 'w', encoding='utf-8') as f:
                f.write(texts[row])
            status, text = tests.run([*run, '-q', '--outputs', out])
            tests.expect(f'flex attention {dtype}: the processor', status and f'exit {status}: {text}')
            same = ['--bitwise'] if parts == 0 else ['--rtol', rtol, '--atol', rtol]
            status, text = tests.run([*run, '--backend', 'cuda', '--expect', out, *same, '--explain'], {**env, 'SG_STUB_KERNELS': log})
            wrong = status or (by_host in text) != (parts == 0) or (dense in text) != (parts > 0)
            tests.expect(f'flex attention {dtype} in {parts} parts', wrong and f'exit {status}: {text}')
            if tests.args.stub:
                names = []
                if os.path.exists(log):
                    with open(log, encoding='utf-8') as f:
                        names = [line.strip() for line in f]
                    os.remove(log)
                counts = [names.count('attention_weights'), names.count('attention_seen')]
                tests.expect(f'flex attention {dtype}: the kernels', counts != [parts, parts // 2] and str(counts))
    flex_recorded(tests, at)
    flex_inputs(at('flex.safetensors'), rng, 'F32', 'F32', 200)  # more queries than there are documents for
    with open(at('flex.txt'), 'w', encoding='utf-8') as f:
        f.write(FLEX.replace('TYPE', 'f32').replace('WIDE', 'f32').replace('ROW', one).replace('[1, 100]', '[1, 300]'))
    status, text = tests.run([tests.tool('sg-run'), at('flex.txt'), '--inputs', at('flex.safetensors'), '--backend', 'cuda'])
    said = re.search(r'rank 0, %o = higher_order.flex_attention: index 1\d\d is out of range for size 100', text)
    tests.expect('flex attention: an index out of range', (status != 4 or not said) and f'exit {status}: {text}')


def flex_recorded(tests, at):
    """With compiled chains the host takes no part in it: both directions are recorded, and run right from recordings."""
    if not tests.args.stub or 'SG_STUB_LANES' in tests.env or 'SG_STUB_GUARD' in tests.env:  # generated code is for the plain one
        return
    graph, inputs, out = at('flex.txt'), at('flex.safetensors'), at('flex.out')
    flex_inputs(inputs, random.Random(6), 'F32', 'F32')
    with open(graph, 'w', encoding='utf-8') as f:
        f.write(FLEX.replace('TYPE', 'f32').replace('WIDE', 'f32').replace('s0', '37').replace('  symbol 37 input [1, 100] hint 37\n', '')
                .replace('ROW', 'aten.select.int(%row, 0, 1)').replace('  %dq', '  %g2 = aten.mul.Tensor(%g, 1.0)\n  %dq')
                .replace('%l, %g, %gl', '%l, %g2, %gl'))
    run = [tests.tool('sg-run'), graph, '--inputs', inputs]
    status, text = tests.run([*run, '-q', '--outputs', out])
    tests.expect('flex attention, recorded: the processor', status and f'exit {status}: {text}')
    begin, texts = time.monotonic(), at('flex-texts')
    os.mkdir(texts)
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', out, '--rtol', '1e-5', '--atol', '1e-5', '--steps', '4', '--explain'],
                             {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': at('flex-cache'), 'SG_STUB_NVRTC_KEEP': texts})
    said = '3 of them recorded as 1 segment' in text and 'split by' not in text
    tests.expect('flex attention, recorded', (status or not said) and f'exit {status}: {text}', time.monotonic() - begin)
    for name in os.listdir(texts):
        compile_text(tests, os.path.join(texts, name))
    tried = at('flex-tried')
    os.mkdir(tried)
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', out, '--rtol', '1e-5', '--atol', '1e-5', '--steps', '4'],
                             {'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': '', 'SG_STUB_NVRTC_FAIL': '1', 'SG_STUB_NVRTC_KEEP': tried})
    chains = []
    for name in os.listdir(tried):
        with open(os.path.join(tried, name, 'chain.cc'), encoding='utf-8') as f:
            chains.append(f.read())
    tests.expect('flex attention whose programs do not compile: each is tried once',
                 (status or not chains or len(set(chains)) != len(chains)) and f'exit {status}, {len(chains)} of {len(set(chains))} texts: {text}')
