#!/usr/bin/env python3
"""run_comm_tests.py --bin BIN [-v] [--ranks 2,4] [--keep DIR] [NAME...]: passes of communication on jobs captured here.

Each job of comm_jobs.py, captured under torchrun over gloo, runs as PyTorch ran it. Behind sg-bucket with each plan,
isolation, both strategies of sg-overlap and compositions with sg-clean, sg-remat and chunks, all ranks give the same
bits as before, under --chaos; behind sg-chunk --auto, what PyTorch gave. A pass may refuse (exit 4, with the node);
it never crashes, and never leaves a job that sg-check finds fault with.
"""

import argparse
import os
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Failure, Tally, run  # noqa: E402

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tests", "passes"))

import run_bucket  # noqa: E402
import run_job_tests  # noqa: E402

JOBS = (
    "two_stacks",
    "two_stacks_bf16",
    "shared",
    "shared_data_parallel",
    "statistics_over_ranks",
    "sequence_parallel",
    "loss_over_ranks",
    "split_head",
    "sharded_experts",
)
ANY_RANKS = {"sharded_experts": (3,)}  # besides those of --ranks
CLEAN, REMAT, ISOLATE = ("clean",), ("remat",), ("overlap", "--isolate-only")
BLOCKS, SIZE, AUTO = ("bucket",), ("bucket", "--plan", "by-size:512", "--prefetch", "2"), ("bucket", "--plan", "auto")
MODEL, REFERENCE = ("overlap",), ("overlap", "--strategy", "reference")
DENSE = ("overlap", "--strategy", "reference", "--dense-fsdp", "--best-effort")
# By job, the modules to be chunked.
MODULES = {
    "two_stacks": "decoder.*.ff",
    "two_stacks_bf16": "encoder.*.ff",
    "split_head": "mid",
    "sharded_experts": "layers.*.moe",
}
CHUNKS = {"sharded_experts": "3"}
CHAINS = (
    [BLOCKS],
    [SIZE],
    [AUTO],
    [MODEL],
    [REFERENCE],
    [DENSE],
    [CLEAN, REMAT, ISOLATE, BLOCKS, MODEL],
    [CLEAN, ("remat", "--policy", "full"), BLOCKS, DENSE],
    [ISOLATE, SIZE, REFERENCE, CLEAN],
    [("overlap", "--isolate-only", "--gathers"), AUTO, DENSE, MODEL],
)
HEADS = (2, 3)  # chunks of the loss head


class Job(run_bucket.BucketCase):
    """A job in a folder: in.sg, and what it gives."""

    def __init__(self, bin_folder, folder, captured):
        super().__init__(bin_folder, folder)
        self.values = ("--inputs", f"{captured}/rank{{r}}/inputs.safetensors")
        self.expected = f"{captured}/rank{{r}}/expected.safetensors"
        run(self.tool("sg-import"), "-q", f"{captured}/rank{{r}}/step.json", "-o", self.file("in.sg"))
        run(self.tool("sg-run"), self.file("in.sg"), *self.values, "--expect", self.expected)
        self.run_before(self.file("in.sg"), self.values)

    def hold_chain(self, chain, seed):
        after = self.file("after.sg")
        said = self.apply_files(self.file("in.sg"), chain, after)
        run(self.tool("sg-check"), "-q", after)
        if "would not agree" in said:
            raise Failure(said)
        before = ("--expect", self.file("before{r}.safetensors"), "--bitwise")
        run(self.tool("sg-run"), after, *self.values, *before, "--chaos", str(seed))
        return said

    def hold_chunks(self, chunk, chain):
        """Chunks add in another order: near, and passes behind them change no bit."""
        chunked, after, values = self.file("chunked.sg"), self.file("after.sg"), self.file("chunked{r}.safetensors")
        done = run(self.tool("sg-chunk"), self.file("in.sg"), *chunk, "-o", chunked)
        run(self.tool("sg-check"), "-q", chunked)
        run(self.tool("sg-run"), chunked, *self.values, "--expect", self.expected, "--outputs", values)
        said = self.apply_files(chunked, chain, after)
        run(self.tool("sg-run"), after, *self.values, "--expect", values, "--bitwise", "--chaos", "1")
        return done.stderr + said


def check_job(name, ranks, bin_folder, folder, say):
    captured = os.path.join(folder, "captured")
    if not os.path.exists(f"{captured}/rank0/step.json"):
        os.makedirs(captured, exist_ok=True)
        run_job_tests.capture_job(name, ranks, captured, "comm_jobs.py")
    job = Job(bin_folder, folder, captured)
    cases = [(chain, lambda c=chain, i=i: job.hold_chain(c, i + 1)) for i, chain in enumerate(CHAINS)]
    for count in HEADS:
        head = ("--auto", "--chunks", str(count), "--min-output", "1KiB")
        cases.append((head, lambda h=head: job.hold_chunks(h, [BLOCKS, MODEL])))
    modules = ("--modules", MODULES.get(name, "layers.*"), "--chunks", CHUNKS.get(name, "2"), "--best-effort")
    cases.append((modules, lambda: job.hold_chunks(modules, [ISOLATE, BLOCKS, DENSE])))
    for label, hold in cases:
        try:
            said = hold()
        except Failure as failure:
            raise Failure(f"{label}: {failure}") from failure
        say(f"      {label}: {' / '.join(line for line in said.splitlines() if 'wrote' not in line)}")


def check_in_folder(name, ranks, bin_folder, keep, say):
    with tempfile.TemporaryDirectory() as folder:
        if keep:
            folder = os.path.join(keep, f"{name}-{ranks}")
            os.makedirs(folder, exist_ok=True)
        check_job(name, ranks, bin_folder, folder, say)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--keep", default="")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    say = print if options.v else (lambda text: None)
    tally = Tally()
    for name in options.names or JOBS:
        for ranks in sorted({*map(int, options.ranks.split(",")), *ANY_RANKS.get(name, ())}):
            words = (name, ranks, os.path.abspath(options.bin), options.keep, say)
            tally.say_held(f"{name} on {ranks} ranks", check_in_folder, *words)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
