"""The shared captures with values, as (name, graph source, capture of a rank, inputs, expected, options of sg-import)."""
import glob
import os
from typing import List, NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.normpath(os.path.join(HERE, "..", "..", "..", "shared", "traces"))


class Case(NamedTuple):
    name: str
    source: str       # what sg-import reads; {r} is the rank, here and below
    capture: str      # what the replay reads
    inputs: str
    expected: str
    options: List[str] = []

    def of_rank(self, pattern, rank):
        return pattern.replace("{r}", str(rank))


def single():
    for source in sorted(glob.glob(f"{TRACES}/single/*/step.json*")):
        folder = os.path.dirname(source)
        if os.path.exists(f"{folder}/inputs.safetensors"):
            yield Case(os.path.relpath(folder, TRACES), source, source, f"{folder}/inputs.safetensors", f"{folder}/expected.safetensors")


def several():
    folders = sorted(glob.glob(f"{TRACES}/multi/*")) + sorted(glob.glob(f"{TRACES}/peer/*/*"))
    for folder in folders:
        for source in glob.glob(f"{folder}/rank0/step.json*") + glob.glob(f"{folder}/rank0/final.json*"):
            ranks = f"{folder}/rank{{r}}"
            source = f"{ranks}/{os.path.basename(source)}"
            yield Case(os.path.relpath(folder, TRACES), source, source, f"{ranks}/inputs.safetensors", f"{ranks}/expected.safetensors")
            traced = f"{folder}/00-traced.json.gz"
            if os.path.exists(traced) and os.path.exists(f"{folder}/rank0/expected_traced.safetensors"):
                yield Case(os.path.relpath(traced, TRACES), traced, traced, f"{ranks}/inputs.safetensors",
                           f"{ranks}/expected_traced.safetensors", ["--spmd"])
