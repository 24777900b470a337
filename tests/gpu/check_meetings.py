#!/usr/bin/env python3
"""check_meetings.py --bin BIN --stub DIR --vectors RUN_VECTORS --cxx CXX --cuda INCLUDE: each meeting of lanes is needed, and missed.

Takes out the meetings of the kernels (block.sync(), __syncthreads(), wait_for_copies()) one by one, builds the stand-in whose lanes run for
themselves, and runs what run_gpu_tests.py has for it. One that no case misses is a hole in the cases, or a meeting too many.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from harness import skip  # noqa: E402

KERNELS = 'librun/cuda/kernels'
CASES = ('attention_by_lanes', 'attention_masks_by_lanes', 'long_sums', 'sorts_by_lanes', 'ctc_by_lanes', 'groups_by_lanes', 'choices_by_lanes', 'conformance')
MEETING = re.compile(r'^ .*((?:block\.sync|__syncthreads|(?<!void )(?<!::)wait_for_copies)\(\);)(?! \})', re.M)  # none that defines another


def build(args, tree, out):
    os.makedirs(out, exist_ok=True)
    sources = [os.path.join(tree, 'tests/gpu/stub', name) for name in ('cuda_stub.cc', 'lanes.cc')]
    subprocess.run([args.cxx, '-std=c++20', '-O1', '-w', '-fPIC', '-shared', '-ffp-contract=off', '-fvisibility=hidden',
                    '-DSG_LANE_KERNELS', '-I' + tree, '-I' + ROOT, '-isystem', args.cuda, *sources, '-ldl', '-pthread',
                    '-Wl,-soname,libcuda.so.1', '-o', os.path.join(out, 'libcuda.so.1')], check=True)


def is_missed(args, lanes, only):
    command = [sys.executable, os.path.join(HERE, 'run_gpu_tests.py'), '--bin', args.bin, '--stub', lanes + ':' + args.stub,
               '--vectors', args.vectors, '--only', only]
    for order in ('up', 'down'):
        done = subprocess.run(command, capture_output=True, timeout=900, env={**os.environ, 'SG_STUB_LANES': order})
        if done.returncode:
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('bin', 'stub', 'vectors', 'cxx', 'cuda'):
        parser.add_argument('--' + name, required=True)
    parser.add_argument('--only', default='', metavar='PART', help='of the names of the kernels\' files')
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.bin, '../lib/stepgraph/libsg_backend_cuda.so')):
        return skip('built without the cuda backend (nvcc was not found)')
    unmissed = taken = 0
    with tempfile.TemporaryDirectory() as folder:
        tree, lanes = os.path.join(folder, 'tree'), os.path.join(folder, 'lanes')
        for part in ('librun/cuda', 'librun/work', 'tests/gpu/stub'):
            shutil.copytree(os.path.join(ROOT, part), os.path.join(tree, part))
        build(args, tree, lanes)
        if any(is_missed(args, lanes, only) for only in CASES):
            print('FAILED as it is: nothing was taken out yet')
            return 1
        for path in sorted(glob.glob(os.path.join(ROOT, KERNELS, '*.h'))):
            name = os.path.basename(path)
            if args.only not in name:
                continue
            with open(path, encoding='utf-8') as f:
                text = f.read()
            for at in MEETING.finditer(text):
                with open(os.path.join(tree, KERNELS, name), 'w', encoding='utf-8') as f:
                    f.write(text[:at.start(1)] + text[at.end(1):])
                build(args, tree, lanes)
                missed = any(is_missed(args, lanes, only) for only in CASES)
                taken, unmissed = taken + 1, unmissed + (not missed)
                line = text.count('\n', 0, at.start(1)) + 1
                print(f'{"missed    " if missed else "NOT MISSED"} {KERNELS}/{name}:{line}', flush=True)
            shutil.copy(path, os.path.join(tree, KERNELS, name))
    print(f'{taken} taken out, {unmissed} not missed')
    return 1 if unmissed or not taken else 0


if __name__ == '__main__':
    sys.exit(main())
