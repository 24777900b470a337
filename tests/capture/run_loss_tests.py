#!/usr/bin/env python3
"""run_loss_tests.py --bin BIN [-v] [NAME...]: sg-chunk --auto on the losses of losses.py: PyTorch's numbers, or refused.

Each is captured with its backward. Chunks of even and uneven rows give the loss and the gradients that PyTorch gave,
and those of the whole step in f64 numerics to 1e-9; a refusal names a node and a rule. WHOLE says which losses are
refused, so that a rule that is lost shows.
"""

import argparse
import os
import re
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Failure, Tally, run  # noqa: E402

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

import torch  # noqa: E402

import losses  # noqa: E402
import stepgraph_capture  # noqa: E402

CHUNKS = (2, 3, 5)  # of 24 rows, or of 3 sequences, or along the 8 of each
# Left whole: no rule for the op (margin), rows that meet (over_all_tokens, batch_norm_of_logits, between_rows,
# preference), a gradient that needs the whole loss (square_of_the_loss, perplexity), a largest of all (loss_and_largest);
# nothing large is left by PyTorch's own chunks (chunked_by_pytorch).
WHOLE = {
    "margin",
    "preference",
    "square_of_the_loss",
    "perplexity",
    "loss_and_largest",
    "chunked_by_pytorch",
    "over_all_tokens",
    "batch_norm_of_logits",
    "between_rows",
}


def capture(loss, folder):
    torch.manual_seed(0)
    shape = (losses.BATCH, losses.LENGTH)
    labels = torch.randint(0, losses.VOCABULARY, shape)
    labels[0, 2], labels[2, 7] = -100, -100
    soft = torch.rand(*shape, losses.VOCABULARY)
    stepgraph_capture.capture(
        out_dir=folder,
        model=losses.Head(loss),
        loss_fn=lambda out: out,
        inputs={"x": torch.randn(*shape, losses.WIDTH), "labels": labels, "soft": soft / soft.sum(-1, keepdim=True)},
    )


def check_loss(loss, bin_folder, folder):
    """What happened, by number of chunks."""
    tool = lambda name: os.path.join(bin_folder, name)  # noqa: E731
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    capture(loss, folder)
    inputs = ("--inputs", path("inputs.safetensors"))
    run(tool("sg-import"), "-q", path("step.json"), "-o", path("step.sg"))
    run(tool("sg-run"), "-q", path("step.sg"), *inputs, "--expect", path("expected.safetensors"))
    run(tool("sg-run"), "-q", path("step.sg"), *inputs, "--numerics", "f64", "--outputs", path("exact.safetensors"))
    said = []
    for chunks in CHUNKS:
        auto = ("--auto", "--chunks", str(chunks), "--min-output", "1KiB")
        done = run(tool("sg-chunk"), path("step.sg"), *auto, "-o", path("chunked.sg"), ok=(0, 4))
        if done.returncode == 4:
            if not re.search(r"node %\S+.*: \S+ \[[a-z ]+\]: ", done.stderr):
                raise Failure(f"a refusal without node and rule: {done.stderr}")
            said.append("refused: " + done.stderr.strip().splitlines()[0])
            continue
        if "in chunks" not in done.stderr:
            said.append("whole: " + done.stderr.strip())
            continue
        run(tool("sg-check"), "-q", path("chunked.sg"))
        run(tool("sg-run"), "-q", path("chunked.sg"), *inputs, "--expect", path("expected.safetensors"))
        near = ("--rtol", "1e-9", "--atol", "1e-12")
        run(tool("sg-run"), "-q", path("chunked.sg"), *inputs, "--numerics", "f64", "--expect", path("exact.safetensors"), *near)
        said.append("equal: " + done.stderr.strip().splitlines()[-1])
    return said


def check_in_folder(loss, bin_folder, say):
    with tempfile.TemporaryDirectory() as folder:
        said = check_loss(loss, bin_folder, folder)
    is_whole = not all(text.startswith("equal") for text in said)
    if is_whole != (loss.__name__ in WHOLE):
        raise Failure(f"{'left whole' if is_whole else 'chunked'}, which is new: {said}")
    say("\n".join("      " + text for text in said))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("-v", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    say = print if options.v else (lambda text: None)
    tally = Tally(stepgraph_capture.CaptureError)
    for loss in losses.LOSSES:
        if not options.names or loss.__name__ in options.names:
            tally.say_held(loss.__name__, check_in_folder, loss, options.bin, say)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
