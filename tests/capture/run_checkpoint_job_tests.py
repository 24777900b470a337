#!/usr/bin/env python3
"""run_checkpoint_job_tests.py --bin BIN [--all] [JOB...]: jobs with activation checkpoints on 2 ranks, over gloo.

The first step's expected values, and what sg-run's own training gives after some steps, are those of the job as PyTorch
runs it. --all: every job of checkpoint_jobs.py, otherwise the first.
"""

import argparse
import json
import os
import re
import sys
import tempfile

from interpreter import use_python_with_torch
from harness import SKIPPED, Failure, Tally, run, skip  # noqa: E402

use_python_with_torch()

from run_job_tests import SHARDS_ON_CPUS, capture_job, check_answers  # noqa: E402

RANKS = 2
STEPS, RATE = 3, 0.5  # as checkpoint_jobs.py has them
ALL = (
    "wrapped_then_sharded",
    "wrapped_then_sharded_bf16",
    "sharded_within",
    "sharded_within_reentrant",
    "tensor_parallel",
)


def check_document(folder, rank, name):
    """A gather and a reduction a parameter, no constant. Reentrant checkpoints, whose forward has no autograd, gather once
    more."""
    with open(os.path.join(folder, f"rank{rank}", "step.json")) as file:
        document = json.load(file)
    constants = [entry["name"] for entry in document["inputs"] if entry["kind"] == "constant"]
    if constants:
        raise Failure(f"rank {rank}: constants {constants}")
    if not any(node["phase"] == "backward" and node["op"] == "aten.gelu.default" for node in document["nodes"]):
        raise Failure(f"rank {rank}: nothing is computed again in backward")
    parameters = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "parameter"]
    again = sum(fqn.startswith("layers.") for fqn in parameters) if "reentrant" in name else 0
    wanted = {"all_gather_into_tensor": len(parameters) + again, "reduce_scatter_tensor": len(parameters)}
    for op, number in wanted.items() if "sharded" in name else ():
        count = sum(node["op"] == f"_c10d_functional.{op}.default" for node in document["nodes"])
        if count != number:
            raise Failure(f"rank {rank}: {count} nodes of {op}, not {number}")


def check_run(bin_folder, graph, inputs, expected, *more):
    tool = os.path.join(bin_folder, "sg-run")
    said = run(tool, graph, "--inputs", inputs, "--expect", expected, *more).stdout
    if len(re.findall("compared values? (?:is|are) as expected", said)) != RANKS:
        raise Failure(f"sg-run did not compare {RANKS} ranks: {said}")


def check_job(name, bin_folder, folder):
    capture_job(name, RANKS, folder, "checkpoint_jobs.py")
    for rank in range(RANKS):
        check_answers(folder, rank)
        check_document(folder, rank, name)
    each, graph = os.path.join(folder, "rank{r}"), os.path.join(folder, "step.sg")
    run(os.path.join(bin_folder, "sg-import"), "-q", f"{each}/step.json", "-o", graph)
    run(os.path.join(bin_folder, "sg-check"), graph)
    check_run(bin_folder, graph, f"{each}/inputs.safetensors", f"{each}/expected.safetensors")
    training = ("--steps", str(STEPS), "--optimizer", f"sgd:lr={RATE}")
    check_run(bin_folder, graph, f"{each}/inputs.safetensors", f"{folder}/trained{{r}}.safetensors", *training)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    tally = Tally()
    for name in options.names or (ALL if options.all else ALL[:1]):
        if "sharded" in name and not SHARDS_ON_CPUS:
            skip(f"{name}: this torch has no fully_shard on CPUs")
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally.say_held(f"{name} on {RANKS} ranks", check_job, name, os.path.abspath(options.bin), folder)
    return tally.finish() if tally.passed or tally.failed else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
