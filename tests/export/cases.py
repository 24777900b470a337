"""The shared sources with values: captures of one rank and of four, exported programs, a TORCH_TRACE log."""
import glob
import os
from typing import List, NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, "..", "..", "..", "shared", "traces"))


class Case(NamedTuple):
    name: str
    source: str       # what sg-import reads; {r} is the rank, here and below
    truth: str        # what PyTorch runs beside the module: a capture's JSON, a .pt2; empty = only the recorded values
    inputs: str
    expected: str
    options: List[str] = []

    def of_rank(self, pattern, rank):
        return pattern.replace("{r}", str(rank))


def single():
    for source in sorted(glob.glob(f"{TRACES}/single/*/step.json*")):
        folder = os.path.dirname(source)
        if os.path.exists(f"{folder}/inputs.safetensors"):
            yield Case(os.path.relpath(folder, TRACES), source, source, f"{folder}/inputs.safetensors",
                       f"{folder}/expected.safetensors")


    for source in sorted(glob.glob(f"{TRACES}/formats/*/*.pt2")) + sorted(glob.glob(f"{TRACES}/formats/*/torch_trace.log")):
        folder = os.path.dirname(source)
        yield Case(os.path.relpath(source, TRACES), source, source if source.endswith(".pt2") else "",
                   f"{folder}/inputs.safetensors",
                   f"{folder}/expected.safetensors")


def several():
    folders = sorted(glob.glob(f"{TRACES}/multi/*")) + sorted(glob.glob(f"{TRACES}/peer/*/*"))
    for folder in folders:
        for source in glob.glob(f"{folder}/rank0/step.json*") + glob.glob(f"{folder}/rank0/final.json*"):
            ranks = f"{folder}/rank{{r}}"
            source = f"{ranks}/{os.path.basename(source)}"
            yield Case(os.path.relpath(folder, TRACES), source, source, f"{ranks}/inputs.safetensors",
                       f"{ranks}/expected.safetensors")
            traced = f"{folder}/00-traced.json.gz"
            if os.path.exists(traced) and os.path.exists(f"{folder}/rank0/expected_traced.safetensors"):
                yield Case(os.path.relpath(traced, TRACES), traced, traced, f"{ranks}/inputs.safetensors",
                           f"{ranks}/expected_traced.safetensors", ["--spmd"])
