"""Cases of run_gpu_tests.py: usage, no driver, the bits of the processor, products, work that both share."""
import math
import os
import re
import shutil
import struct

from graphs import CLASSES, PRODUCTS, SHARED_WORK, STRIDED_PRODUCTS
from tensor_files import bf16, write_tensors


def class_inputs(path, targets):
    """What CLASSES is given."""
    write_tensors(path, {'a': ('F32', (6, 5), struct.pack('<30f', *(math.sin(i) for i in range(30)))),
                         't': ('I64', (6,), struct.pack('<6q', *targets))})


def usage(tests, at):
    graph = at('same.txt')
    for options, code, said in (
            (['--comm', 'nccl'], 2, 'needs --backend cuda'),
            (['--deterministic'], 2, '--deterministic is for --comm nccl'),
            (['--backend', 'cuda', '--numerics', 'f64'], 2, 'is what CPUs do'),
            (['--backend', 'cuda', '--chaos', '1'], 2, 'ranks on CPUs')):
        status, text = tests.run([tests.tool('sg-run'), graph, '--init', 'seed:0', *options])
        tests.expect(f'usage {" ".join(options)}', status != code or said not in text and f'exit {status}: {text}')


def absent(tests, at):
    """Without a driver: exit 5, what is missing, and the remedy."""
    if not tests.args.stub or shutil.which('nvidia-smi'):
        print('SKIPPED absent: this machine has a driver')
        return
    env = {'LD_LIBRARY_PATH': ''}
    status, text = tests.run([tests.tool('sg-run'), at('same.txt'), '--init', 'seed:0', '--backend', 'cuda'], env)
    tests.expect('no driver',
                 (status != 5 or 'finds no driver' not in text or 'hint:' not in text) and f'exit {status}: {text}')
    other_libraries(tests, at)
    for fault, said in (('cuInit:1', 'CUDA_ERROR_NO_DEVICE'), ):
        status, text = tests.run([tests.tool('sg-run'), at('same.txt'), '--init', 'seed:0', '--backend', 'cuda'],
                                 {'SG_STUB_FAIL': fault})
        tests.expect('a driver without a device', (status != 5 or said not in text) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('same.txt'), '--init', 'seed:0', '--backend', 'cuda'], {'SG_STUB_VERSION': '12080'})
    said = re.search(r'the driver is for CUDA 12.8, 13.0 is needed(.|\n)*hint:(.|\n)*cuda-compat-13-0', text)
    tests.expect('an old driver', (status != 5 or not said) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda'], {'SG_STUB_ARCHITECTURE': '75'})
    tests.expect('an old GPU', (status != 5 or 'has compute capability 7.5, and 8.0 is needed' not in text) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('all.txt'), '--init', 'seed:0', '--backend', 'cuda', '--comm', 'nccl'], {'SG_FAKE_NCCL_VERSION': '21000'})
    tests.expect('an old NCCL', (status != 5 or 'NCCL 2.10 is too old' not in text) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('all.txt'), '--inputs', at('all{r}.safetensors'), '--backend', 'cuda', '--comm', 'nccl'], {'SG_STUB_DEVICES': '2'})
    tests.expect('fewer GPUs than ranks', (status != 5 or 'ranks 0, 2 of this machine have the same' not in text) and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda'], {'SG_STUB_MEMORY': '100000'})
    tests.expect('a GPU without memory',
                 (status != 5 or 'no memory on the GPU' not in text) and f'exit {status}: {text}')


def other_libraries(tests, at):
    """Libraries of CUDA 12, beside some of 13 that do not load; and these alone."""
    stub, folder, run = os.path.abspath(tests.args.stub), at('libraries'), [tests.tool('sg-run'), at('same.txt'), '--inputs', at('same.safetensors'), '--backend', 'cuda', '--explain']
    os.mkdir(folder)
    os.symlink(os.path.join(stub, 'libcuda.so.1'), os.path.join(folder, 'libcuda.so.1'))
    for name in ('libcublasLt.so', 'libnvrtc.so'):
        with open(os.path.join(folder, name + '.13'), 'w', encoding='utf-8') as f:
            f.write('no library')
    env = {'LD_LIBRARY_PATH': folder, 'SG_STUB_NVRTC': '1', 'SG_CUDA_CACHE': ''}
    status, text = tests.run(run, env)
    said = re.search(r"the backend 'cuda' cannot load \S*libcublasLt\.so\.13: ", text)
    tests.expect('a library that does not load', (status != 5 or not said) and f'exit {status}: {text}')
    for name in ('libcublasLt.so', 'libnvrtc.so'):
        os.symlink(os.path.join(stub, name + '.13'), os.path.join(folder, name + '.12'))
    status, text = tests.run([*run, '--expect', tests.same_out(at), '--bitwise'], env)
    tests.expect('libraries of CUDA 12', (status or ' 0 interpreted' not in text) and f'exit {status}: {text}')


def same_bits(tests, at):
    run = [tests.tool('sg-run'), '-q', at('same.txt'), '--inputs', at('same.safetensors')]
    for options in ([], ['--watch', 'nan,inf'], ['--profile', at('profile.json')]):
        status, text = tests.run([*run, *options, '--backend', 'cuda', '--expect', tests.same_out(at), '--bitwise'])
        tests.expect(f'same bits {" ".join(options[:1])}', status and f'exit {status}: {text}')
    status, text = tests.run([tests.tool('sg-run'), at('pick.txt'), '--inputs', at('pick.safetensors'), '--backend',
                              'cuda'])
    tests.expect('an index out of range', (status != 4 or not re.search(r'rank 0, %rows = aten.embedding.default: index -?\d+ is out of range for size 6', text)) and f'exit {status}: {text}')


def products(tests, at):
    """Products that cuBLASLt has no algorithm for, or whose algorithm does not take them after all, are our own kernel's."""
    if not tests.args.stub:
        print('SKIPPED products without cuBLASLt: its stand-in refuses them')
        return
    run = [tests.tool('sg-run'), at('products.txt'), '--init', 'seed:0']
    with open(at('products.txt'), 'w', encoding='utf-8') as f:
        f.write(PRODUCTS)
    status, text = tests.run([*run, '-q', '--outputs', at('products.out')])
    tests.expect('products: the processor', status and f'exit {status}: {text}')
    cuda = [*run, '--backend', 'cuda', '--steps', '4', '--expect', at('products.out'), '--rtol', '0.01', '--atol', '0.01']
    # In 3 steps, of which the last is recorded: products by our own kernel; and what is added, copied into the result by one:
    # a column, and two biases where no algorithm adds them.
    for said, own, copies in (('', 0, 3), ('no_bias', 0, 9), ('none', 21, 9), ('refuses', 21, 9)):
        log = at('kernels-' + said)
        status, text = tests.run([*cuda, '--explain'], {'SG_STUB_LT': said, 'SG_STUB_KERNELS': log})
        told = 'products that cuBLASLt has no algorithm for: ' in text
        names = open(log, encoding='utf-8').read().split() if os.path.exists(log) else []
        counts = names.count('matmul_elements'), sum(name.startswith('work_move') for name in names)
        tests.expect(f'products, cuBLASLt {said}', (status or counts != (own, copies) or told != (said != '')) and f'exit {status}, {counts}: {text}')
    status, text = tests.run(cuda, {'SG_STUB_LT': 'fails'})
    strided_products(tests, at)
    tests.expect('products that fail', (status != 5 or 'cublasLtMatmul failed with cuBLAS status 13' not in text) and f'exit {status}: {text}')


def strided_products(tests, at):
    """Operands that cuBLASLt does not take as they lie are copied for it; small products, of which --explain speaks, are not."""
    names = ('x', (64, 80)), ('w', (40, 64)), ('g', ())
    inputs = {name: ('F32', shape, struct.pack(f'<{math.prod(shape)}f', *(math.sin(7 * i) for i in range(math.prod(shape)))))
              for name, shape in names}
    inputs['h'] = ('BF16', (4, 16, 24, 8), bf16([math.cos(3 * i) for i in range(4 * 16 * 24 * 8)]))
    tests.against_processor('strided products', at, STRIDED_PRODUCTS, inputs, ['--rtol', '1e-2', '--atol', '1e-3'], kernels={'matmul_elements': 2})
    status, text = tests.run([tests.tool('sg-run'), at('held.txt'), '--inputs', at('held.safetensors'), '--backend', 'cuda', '--explain'])
    said = 'products of floats without cuBLASLt, a lane for each element: 2 nodes' in text
    tests.expect('strided products: what is said', (status or not said) and f'exit {status}: {text}')


def shared_work(tests, at):
    """Ops whose work is written once for both, and classes that the data names: not by the host, as the processor has them."""
    classes = at('classes.safetensors')
    for name, text, inputs, held in (('work', SHARED_WORK, at('same.safetensors'), ['--bitwise']),
                                     ('classes', CLASSES, classes, ['--rtol', '1e-6', '--atol', '1e-6'])):
        graph = at(name + '.txt')
        with open(graph, 'w', encoding='utf-8') as f:
            f.write(text)
        class_inputs(classes, [0, 4, 2, 1, 2, 3])
        run = [tests.tool('sg-run'), graph, '--inputs', inputs]
        status, text = tests.run([*run, '-q', '--outputs', at(name + '.out')])
        tests.expect(f'{name} that both share: the processor', status and f'exit {status}: {text}')
        status, text = tests.run([*run, '--backend', 'cuda', '--expect', at(name + '.out'), *held])
        tests.expect(f'{name} that both share', (status or 'computed by the host' in text) and f'exit {status}: {text}')
    class_inputs(classes, [0, 4, 2, 1, 5, 3])
    status, text = tests.run([tests.tool('sg-run'), at('classes.txt'), '--inputs', classes, '--backend', 'cuda'])
    said = re.search(r'rank 0, %whole = aten.cross_entropy_loss.default: index 5 is out of range for size 5', text)
    tests.expect('a class out of range', (status != 4 or not said) and f'exit {status}: {text}')
