#!/usr/bin/env python3
"""run_refusal_tests.py --bin BIN: jobs that cannot be captured are refused in one line, on all ranks, leaving nothing.

The steps of refused_steps.py, in one job of 4 ranks; and from the command line, where one rank alone is refused.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Failure, Tally  # noqa: E402

use_python_with_torch()

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 400  # seconds: a rank that waits for another is the failure looked for


def torchrun(ranks, *command):
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.join(ROOT, "tools", "capture"),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    try:
        return subprocess.run([*start, *command], capture_output=True, text=True, env=environment, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"not done in {LIMIT} s: {error.stdout}") from error


def check_steps(folder):
    done = torchrun(4, f"{HERE}/refused_steps.py", os.path.join(folder, "steps"))
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if failed or done.returncode != 0:
        raise Failure("\n".join(failed) or done.stderr)
    if done.stdout.count(": captured\n") != 4:
        raise Failure(f"no capture at the end: {done.stdout}")


def check_command(folder):
    """One line a rank, of the rank that decides by a value; and no folder. torchrun ends the other ranks once the first
    has ended, so not all of them may come to say it."""
    output = os.path.join(folder, "of", "command")
    done = torchrun(3, "-m", "stepgraph_capture", f"{HERE}/refused_steps.py:one_rank_decides_step", "-o", output)
    said = [line for line in done.stderr.splitlines() if line.startswith("stepgraph_capture: ")]
    repeated = sum("error: rank 1: " in line for line in said)
    if not said or len(said) - repeated > 1 or repeated > 2:
        raise Failure(f"said {said}: {done.stderr}")
    for word in ("closed by peer", "Connection", "gloo", "terminate"):
        if word in done.stderr:
            raise Failure(f"says {word}: {done.stderr}")
    if os.listdir(folder) != ["steps"]:
        raise Failure(f"leaves {os.listdir(folder)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        tally.say_held("steps that are refused, on 4 ranks", check_steps, folder)
        tally.say_held("one rank alone is refused", check_command, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
