"""Makes the files of this example anew: python make_files.py (torch 2.6 or newer, safetensors)."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import torch
from safetensors.torch import save_file

from model import Step, batch


def compile_traced():
    """In a process of its own, with TORCH_TRACE set: one compiled training step."""
    step = torch.compile(Step(), backend="aot_eager")
    step(*batch()).backward()


def fx_text():
    """The joint graph as FX prints it."""
    from torch._functorch.aot_autograd import aot_export_joint_simple
    step = Step()
    names, values = zip(*step.named_parameters())

    def loss_of(*args):
        return (torch.func.functional_call(step, dict(zip(names, args)), args[len(names):]),)
    graph = aot_export_joint_simple(loss_of, [*values, *batch()], trace_joint=True)
    return graph.print_readable(print_output=False)


def without_places(text):
    """Source files by their names in this folder, or in PyTorch's: where they lay when this ran is nobody's business."""
    for folder in (os.getcwd(), os.path.dirname(os.path.dirname(torch.__file__))):
        text = text.replace(folder + "/", "")
    return text


def write_archive(program):
    torch.export.save(program, "step.pt2")
    with zipfile.ZipFile("step.pt2") as archive:
        files = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile("step.pt2", "w") as archive:
        for info, data in files:
            archive.writestr(info, without_places(data.decode()).encode() if info.filename.endswith(".json") else data)


def write_trace(log):
    """Of the log what has to do with graphs: the rest is long and says where this ran."""
    entries = re.split(r"(?m)^(?=V\d{4} )", open(log).read())
    kept = [e for e in entries if re.search(r'"aot_(joint|forward|backward)_graph"|dynamo_start|dynamo_output_graph', e)]
    with open("step.trace.log", "w") as out:
        out.write(without_places("".join(kept)))


def main():
    tokens, targets = batch()
    step = Step()
    save_file({"tokens": tokens, "targets": targets}, "batch.safetensors")
    write_archive(torch.export.export(step, (tokens, targets)))
    loss = step(tokens, targets)
    loss.backward()
    save_file({"loss": loss.detach()}, "expected.safetensors")
    with open("step.fx.txt", "w") as out:
        out.write(without_places(fx_text()))
    with tempfile.TemporaryDirectory() as folder:
        code = "import make_files; make_files.compile_traced()"
        subprocess.run([sys.executable, "-c", code], env=dict(os.environ, TORCH_TRACE=folder), check=True)
        write_trace(glob.glob(folder + "/*.log")[0])


if __name__ == "__main__":
    main()
