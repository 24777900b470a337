"""Cases of run_gpu_tests.py: gradients of classes and casts that a softmax makes itself."""
import random
import struct

from graphs import CLASS_GRADIENT, HALVES
from tensor_files import bf16, write_tensors


def class_gradients(tests, at):
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
                write_tensors(at('classes.safetensors'), {
                    'x': (dtype.upper(), (9, 700), numbers(6300)), 't': ('I64', (9,), struct.pack('<9q', *targets)),
                    'w': (dtype.upper(), (700,), numbers(700)), 'g': (dtype.upper(), (9,) if rows == 9 else (), numbers(rows))})
                run = [tests.tool('sg-run'), at('classes.txt'), '--inputs', at('classes.safetensors'), '--backend', 'cuda']
                status, text = tests.run([*run, '-q', '--watch', 'nan', '--outputs', at('classes.out')])
                tests.expect(f'{name}: each node by itself', status and f'exit {status}: {text}')
                status, text = tests.run([*run, '--steps', '4', '--expect', at('classes.out'), '--bitwise', '--explain'])
                fused = 'gradients of losses that the softmax before them makes itself: 1' in text
                tests.expect(name, (status or not fused) and f'exit {status}: {text}')


def halves(tests, at):
    """A softmax that casts by itself has the bits of a cast before it."""
    rng = random.Random(17)
    numbers = lambda n: [rng.gauss(0, 3) for _ in range(n)]
    for dtype, words in (('bf16', bf16), ('f16', lambda x: struct.pack(f'<{len(x)}e', *x))):
        apart, folded, inputs, out = at('apart.txt'), at('folded.txt'), at('halves.safetensors'), at('halves.out')
        with open(apart, 'w', encoding='utf-8') as f:
            f.write(HALVES.replace('TYPE', dtype))
        write_tensors(inputs, {'x': (dtype.upper(), (3, 7, 300), words(numbers(6300))), 'g': ('F32', (21, 300), struct.pack('<6300f', *numbers(6300)))})
        status, text = tests.run([tests.tool('sg-clean'), apart, '--fold-casts', '-o', folded])
        tests.expect(f'casts of {dtype} folded', (status or '2 casts folded' not in text) and f'exit {status}: {text}')
        run = ['--inputs', inputs, '--backend', 'cuda']
        status, text = tests.run([tests.tool('sg-run'), '-q', apart, *run, '--outputs', out])
        tests.expect(f'casts of {dtype} before softmax', status and f'exit {status}: {text}')
        status, text = tests.run([tests.tool('sg-run'), folded, *run, '--expect', out, '--bitwise'])
        tests.expect(f'casts of {dtype} by softmax', status and f'exit {status}: {text}')
