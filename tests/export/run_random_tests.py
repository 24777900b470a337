#!/usr/bin/env python3
"""run_random_tests.py --bin BIN [--seeds N]: random jobs as modules. Wild ones (odd names and ops, every kind of argument) are Python
or are refused with a node; those that sg-run can run give in PyTorch what sg-run gives, as functions and as a torch.fx graph."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "capture"))
from interpreter import use_python_with_torch  # noqa: E402

use_python_with_torch()

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from run_export_tests import module_at  # noqa: E402


class Job:
    """One random job: its files, and the tools run on it."""

    def __init__(self, bin_folder, folder, seed):
        self.bin_folder, self.stem = bin_folder, os.path.join(folder, f"job{seed}")

    def file(self, ending):
        return self.stem + ending

    def tool(self, name, *words):
        return subprocess.run([os.path.join(self.bin_folder, name), *words], capture_output=True, text=True)

    def make(self, seed, *options):
        done = self.tool("make_job", "--seed", str(seed), *options, "-o", self.file(".sg"))
        assert done.returncode == 0, done.stderr

    def export(self, *options):
        return self.tool("sg-export", self.file(".sg"), "-o", self.file(".py"), *options)


def check_wild(job, seed, option):
    """Whether it was exported; what is refused names its node, and what is written is Python."""
    job.make(seed, "--nodes", "80")
    done = job.export(*option)
    if done.returncode == 4 and re.search(r"graph .*, node %.*: error: ", done.stderr):
        return False
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    with open(job.file(".py"), encoding="utf-8", errors="surrogateescape") as file:
        compile(file.read(), f"job{seed}.py", "exec")
    return True


def check_equal(job, seed):
    """Whether the job runs; then PyTorch's values are sg-run's."""
    job.make(seed, "--nodes", "60", "--plain", "--bare", "--world", "1", "--inputs", job.file(".in"))
    ran = job.tool("sg-run", "-q", job.file(".sg"), "--inputs", job.file(".in"), "--outputs", job.file(".out"))
    if ran.returncode != 0:
        return False   # an assertion of the graph fails on these inputs, or an op is made up
    expected = load_file(job.file(".out"))
    for option in ([], ["--fx"]):
        done = job.export(*option)
        assert done.returncode == 0, done.stderr
        module = module_at(job.file(".py"))
        if "random numbers" in module.__doc__:
            return False
        inputs = module.load_inputs(job.file(".in"))
        values = module.values_of(module.program_of(), inputs, module.step(inputs))
        wrong = {name: module.compare(values[name], value, 1e-3, 1e-4) for name, value in expected.items()}
        assert not any(wrong.values()), f"{option}: {wrong}"
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seeds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = written = equal = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            job = Job(options.bin, folder, seed)
            try:
                written += check_wild(job, seed, ["--fx"] if seed % 2 else [])
                equal += check_equal(job, seed)
            except Exception as error:
                failed += 1
                print(f"FAIL  seed {seed}: {type(error).__name__}: {error}")
    print(f"{written} wild jobs are Python, {equal} jobs run as sg-run runs them, {failed} of {options.seeds} seeds failed")
    if min(written, equal) < options.seeds // 6:
        print("FAIL: too few to tell anything")
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
