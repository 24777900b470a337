"""Cases of run_gpu_tests.py: attention with masks, biases and dropout."""
import math
import os
import random
import struct

from graphs import BIASED, DROPOUT, MASKED
from tensor_files import write_tensors


def masked(tests, at):
    rng = random.Random(3)
    noise = lambda *shape: ('F32', shape, struct.pack(f'<{math.prod(shape)}f', *(rng.gauss(0, 1) for _ in range(math.prod(shape)))))
    rows = [[rng.randrange(3) for _ in range(7)] for _ in range(3)] + [[0] * 7, [1] * 7]
    write_tensors(at('masked.safetensors'), {'q': noise(1, 2, 5, 8), 'k': noise(1, 2, 7, 8),
                                             'n': ('I64', (5, 7), struct.pack('<35q', *sum(rows, [])))})
    with open(at('masked.txt'), 'w', encoding='utf-8') as f:
        f.write(MASKED)
    run = [tests.tool('sg-run'), '-q', at('masked.txt'), '--inputs', at('masked.safetensors')]
    status, text = tests.run([*run, '--outputs', at('masked.out')])
    tests.expect('queries that see nothing: the processor', status and f'exit {status}: {text}')
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', at('masked.out'), '--rtol', '1e-5', '--atol', '1e-6'])
    tests.expect('queries that see nothing', status and f'exit {status}: {text}')

    for shape in ((2, 4, 5, 7), (1, 4, 5, 7), (2, 1, 1, 7), (5, 7)):
        with open(at('biased.txt'), 'w', encoding='utf-8') as f:
            f.write(BIASED.replace('TYPE', f'f32{list(shape)}'))
        write_tensors(at('biased.safetensors'), {'q': noise(2, 4, 5, 8), 'k': noise(2, 4, 7, 8), 'b': noise(*shape)})
        run = [tests.tool('sg-run'), at('biased.txt'), '--inputs', at('biased.safetensors')]
        status, text = tests.run([*run, '-q', '--outputs', at('biased.out')])
        tests.expect(f'a bias of {shape}: the processor', status and f'exit {status}: {text}')
        status, text = tests.run([*run, '--backend', 'cuda', '--expect', at('biased.out'), '--rtol', '1e-5', '--atol', '1e-6'],
                                 {'SG_STUB_KERNELS': at('kernels')})
        tests.expect(f'a bias of {shape}', status and f'exit {status}: {text}')
        if tests.args.stub:
            with open(at('kernels'), encoding='utf-8') as f:
                count = f.read().count('attention_mask_gradients')
            os.remove(at('kernels'))
            tests.expect(f'a bias of {shape}: on the device', count != 2 and str(count))


def dropout(tests, at):
    with open(at('dropout.txt'), 'w', encoding='utf-8') as f:
        f.write(DROPOUT)
    run = [tests.tool('sg-run'), '-q', at('dropout.txt'), '--init', 'seed:1', '--steps', '5']
    status, text = tests.run([*run, '--outputs', at('dropout{step}')])
    tests.expect('dropout inside attention: the processor', status and f'exit {status}: {text}')
    held = ['--backend', 'cuda', '--expect', at('dropout{step}'), '--rtol', '1e-5', '--atol', '1e-5']
    status, text = tests.run([*run, *held], {'SG_STUB_KERNELS': at('kernels'), 'SG_STUB_CAPTURES': at('drawn')})
    tests.expect('dropout inside attention', status and f'exit {status}: {text}')
    if tests.args.stub:
        with open(at('kernels'), encoding='utf-8') as f:
            names = f.read().split()
        with open(at('drawn'), encoding='utf-8') as f:
            recorded = len(f.read().split())
        os.remove(at('kernels')), os.remove(at('drawn'))
        # 3 times for each of 2 batch entries; launched in 2 steps, then recorded: 2 steps are drawn by the recording
        counts = [names.count('attention_drop'), names.count('work_draw_key'), recorded]
        tests.expect('dropout inside attention: the kernels', counts != [18, 3, 1] and str(counts))
    files = [open(at(f'dropout{step}'), 'rb').read() for step in range(5)]
    tests.expect('each step drops others', len(set(files)) != 5 and 'equal files')
