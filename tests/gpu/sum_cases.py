"""Cases of run_gpu_tests.py: sums and norms of long rows and columns, and running sums."""
import os
import struct

from graphs import LONG_NORMS, RUNNING
from tensor_files import bf16


def long_sums(tests, at):
    run = [tests.tool('sg-run'), '-q', at('sums.txt'), '--inputs', at('sums.safetensors')]
    status, text = tests.run([*run, '--outputs', at('sums.out')])
    tests.expect('long sums: the processor', status and f'exit {status}: {text}')
    status, text = tests.run([*run, '--backend', 'cuda', '--expect', at('sums.out'), '--rtol', '1e-6', '--atol', '1e-5'],
                             {'SG_STUB_KERNELS': at('kernels')})
    tests.expect('long sums', status and f'exit {status}: {text}')
    if tests.args.stub:
        with open(at('kernels'), encoding='utf-8') as f:
            names = [line.strip() for line in f]
        os.remove(at('kernels'))
        counts = {name: names.count(name) for name in ('column_parts', 'row_parts', 'norm_column_parts')}
        tests.expect('long sums by parts', list(counts.values()) != [2, 3, 1] and str(counts))
    inputs = {'x': ('F32', (300, 70), struct.pack('<21000f', *(0.01 * (i % 97) - 0.4 for i in range(21000)))),
              'h': ('BF16', (9000, 2), bf16([0.01 * (i % 89) - 0.4 for i in range(18000)]))}
    for way, env, kernels in (('alone', {'SG_CUDA_INTERPRET': '1'}, {'row_parts': 4, 'column_parts': 1, 'reduce_rows': 1}),
                              ('behind chains', {'SG_STUB_NVRTC': '1'}, {'reduce_rows': 1, 'finish_parts': 5})):
        tests.against_processor(f'long norms {way}', at, LONG_NORMS, inputs, ['--rtol', '1e-6', '--atol', '0'], env, kernels)
    for length in (1, 7, 8, 21, 512, 5001):  # the last two by blocks
        numbers = struct.pack(f'<{9 * length}q', *((i * i % 31) - 9 for i in range(9 * length)))
        tests.against_processor(f'running sums of {length}', at, RUNNING.replace('LENGTH', str(length)),
                                {'i': ('I64', (9, length), numbers)}, kernels={'scan_rows': 6 if length < 512 else 3, 'scan_long_rows': 0 if length < 512 else 3})
