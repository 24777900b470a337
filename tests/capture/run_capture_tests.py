#!/usr/bin/env python3
"""run_capture_tests.py --bin BIN [--hub] [NAME...]: captures of models, through the tools, equal to PyTorch's answers.

Each model of models.py and quantization_models.py is captured; the capture imports, verifies, and sg-run's results are those of PyTorch.
--hub: the models of the transformers package (minutes); otherwise those of torch alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Failure, Tally, run, skip  # noqa: E402

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

import torch  # noqa: E402

import models  # noqa: E402
import quantization_models  # noqa: E402
import stepgraph_capture  # noqa: E402
from stepgraph_capture import values  # noqa: E402
from stepgraph_capture.step import Step  # noqa: E402


# Of models whose sizes are symbols: those of other runs, none larger than the captured. All but the first may be refused.
OTHER_SIZES = {models.gpt2: [(2, 7)], models.fractions_of_rows: [(19,), (13,)]}


def check_runs_equal(bin_folder, folder, inputs="inputs.safetensors", expected="expected.safetensors"):
    """The capture in `folder` as a graph gives what PyTorch gave."""
    tool = lambda name: os.path.join(bin_folder, name)  # noqa: E731
    graph = os.path.join(folder, "step.sg")
    run(tool("sg-import"), "-q", os.path.join(folder, "step.json"), "-o", graph)
    run(tool("sg-check"), graph)
    said = run(
        tool("sg-run"), graph, "--inputs", os.path.join(folder, inputs), "--expect", os.path.join(folder, expected)
    ).stdout
    if "values are as expected" not in said:
        raise Failure(f"sg-run compared nothing: {said}")


def write_other_sizes(folder, step, sizes):
    """Inputs of other sizes than those captured, and PyTorch's answers to them."""
    from safetensors.torch import save_file

    arguments = {name: tensor[tuple(slice(size) for size in sizes)] for name, tensor in step["inputs"].items()}
    again = Step(step["model"], step["loss_fn"], arguments, None, None)
    answers = values.of_the_model(again)
    save_file(
        {slot.name: slot.local.clone().contiguous() for slot in again.tensors},
        os.path.join(folder, "inputs2.safetensors"),
    )
    save_file(
        {f"out{i}": value.clone().contiguous() for i, value in enumerate(answers.outputs)},
        os.path.join(folder, "expected2.safetensors"),
    )


def check_model(make, bin_folder, folder):
    torch.manual_seed(0)
    step = make()
    stepgraph_capture.capture(out_dir=folder, **step)
    check_runs_equal(bin_folder, folder)
    for i, sizes in enumerate(OTHER_SIZES.get(make, [])):
        write_other_sizes(folder, step, sizes)
        if i > 0 and is_refused(bin_folder, folder):
            continue
        check_runs_equal(bin_folder, folder, "inputs2.safetensors", "expected2.safetensors")


def is_refused(bin_folder, folder):
    """Whether the capture says that it is not of these sizes: to torch 2.6 the smaller of two sizes is a branch."""
    command = [os.path.join(bin_folder, "sg-run"), "-q", os.path.join(folder, "step.sg"), "--inputs"]
    done = subprocess.run([*command, os.path.join(folder, "inputs2.safetensors")], capture_output=True, text=True)
    return done.returncode == 4 and "the graph needs" in done.stderr


def chosen(options):
    if not options.hub:
        return models.TORCH_MODELS + quantization_models.QUANTIZATION_MODELS
    try:
        import transformers
    except ImportError:
        sys.exit(skip("this Python has torch but not transformers"))
    transformers.logging.set_verbosity_error()
    return models.HUB_MODELS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--hub", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally = Tally(stepgraph_capture.CaptureError)
    for make in chosen(options):
        if options.names and make.__name__ not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally.say_held(make.__name__, check_model, make, options.bin, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
