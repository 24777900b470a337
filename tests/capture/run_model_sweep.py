#!/usr/bin/env python3
"""run_model_sweep.py --bin BIN [--write FILE] [NAME...]: models of many kinds through capture, import, check, run and back.

Each model of the other files *_models.py and of models.py (those of transformers and torchvision where they
are at hand) is captured with random weights. Then sg-import and sg-check take the capture, sg-run --expect holds it against
PyTorch's answers, and the module that sg-export makes of it, run by PyTorch, gives the bits of its eager run. A table says how far
each came. NAME: a part of a name.
--write FILE: the table as Markdown. --keep FOLDER: captures stay there and are not made again.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings

from interpreter import ROOT, use_python_with_torch

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

import torch  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

import hub_models  # noqa: E402
import matrix_models  # noqa: E402
import models  # noqa: E402
import plain_models  # noqa: E402
import quantization_models  # noqa: E402
import style_models  # noqa: E402
from stepgraph_capture import CaptureError, capture  # noqa: E402

LIMIT_S = 300  # of one model's capture

# What is refused, and why that is right: the model, and a part of the message.
REFUSED = {
    # Its backward runs a forward of its own through torch.autograd, which the eager run and the traced one do not do alike.
    "ReformerForMaskedLM": "differs by",
}


HEAD = """# Models, captured and run

Written by `tests/capture/run_model_sweep.py --write` with torch {torch} on a CPU: {done} of {all} models of torch, torchvision and transformers, tiny and with random
weights, are captured, imported, checked, run by `sg-run` as PyTorch computed them, exported, and run by PyTorch again. *In double only*: in f32 a value next to 0 falls to the
other side of a ReLU; `--numerics f64` is as expected. *Captured in
double*: so many values of f32 stand next to 0 that PyTorch and `sg-run` each put one on the side where double does not have it; the same model captured in float64
is as expected. *All but N*: values of which the exported module, in PyTorch, gives other bits than the eager model.

"""


class Stopped(Exception):
    """At a stage, with the reason."""


def all_makers():
    of_torch = (models.TORCH_MODELS + plain_models.PLAIN_MODELS + matrix_models.MATRIX_MODELS + style_models.STYLE_MODELS +
                quantization_models.QUANTIZATION_MODELS)
    yield from ((make.__name__, make) for make in of_torch)
    yield from plain_models.vision_makers()
    try:
        import transformers
    except ImportError:
        return
    transformers.logging.set_verbosity_error()
    yield from ((make.__name__, make) for make in models.HUB_MODELS)
    yield from hub_models.makers()


def in_double(job):
    wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x  # noqa: E731
    return {key: value.double() if key == "model" else tree_map(wide, value) for key, value in job.items()}


def captured(make, folder, is_wide):
    if os.path.exists(os.path.join(folder, "step.json")):
        return
    torch.manual_seed(0)

    def stop(*_):
        raise Stopped(f"more than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        capture(out_dir=folder, **(in_double(make()) if is_wide else make()))
    finally:
        signal.alarm(0)


def tool(options, *command):
    done = subprocess.run([os.path.join(options.bin, command[0]), *command[1:]], capture_output=True, text=True)
    if done.returncode != 0:
        raise Stopped((done.stderr or done.stdout).strip() or f"exit {done.returncode}")
    return done.stdout


def in_pytorch(path, folder):
    """What of the expected values the exported module does not give to the bit."""
    spec = importlib.util.spec_from_file_location("step", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = module.load_inputs(os.path.join(folder, "inputs.safetensors"))
    torch.manual_seed(0)
    values = module.values_of(module.program_of(), inputs, module.step(inputs))
    expected = module.load_expected(os.path.join(folder, "expected.safetensors"))[0]
    wrong = {name: module.compare(values[name], value, 0.0, 0.0) for name, value in expected.items()}
    return {name: text for name, text in wrong.items() if text}


def run(at, options):
    command = ["sg-run", at("step.sg"), "--inputs", at("inputs.safetensors"), "--expect", at("expected.safetensors")]
    try:
        said, how = tool(options, *command), "as expected"
    except Stopped:  # rounding, or wrong? In double it has to be right
        said, how = tool(options, *command, "--numerics", "f64"), "in double only"
    if "values are as expected" not in said:
        raise Stopped(f"nothing was compared: {said}")
    return how


def through(make, folder, options, row, is_wide=False):
    """Takes the model as far as it comes; `row` says how far."""
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    row["stage"] = "capture"
    captured(make, folder, is_wide)
    row["stage"] = "import"
    tool(options, "sg-import", "-q", at("step.json"), "-o", at("step.sg"))
    row["nodes"] = json.loads(tool(options, "sg-stat", at("step.sg"), "--json"))["nodes"]
    row["stage"] = "check"
    tool(options, "sg-check", at("step.sg"))
    row["stage"] = "run"
    try:
        row["run"] = run(at, options) + (", captured in double" if is_wide else "")
    except Stopped:
        if is_wide:
            raise
        return through(make, os.path.join(folder, "wide"), options, row, is_wide=True)
    row["stage"] = "export"
    tool(options, "sg-export", at("step.sg"), "-o", at("step.py"))
    wrong = in_pytorch(at("step.py"), folder)
    row["bits"] = "all" if not wrong else f"all but {len(wrong)}"
    row["stage"] = "done"


def one_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    chosen = next((line for line in lines if "FAILED" in line or "error:" in line),
                  lines[0] if lines else type(error).__name__)
    return " ".join(chosen.split())[:300]


def table(rows):
    yield "| model | nodes | `sg-run --expect` | bits of `step.py` | stopped at |"
    yield "|---|---|---|---|---|"
    for row in rows:
        stage = "" if row["stage"] == "done" else f"{row['stage']}: {row.get('why', '')}".replace("|", "\\|")
        yield f"| {row['name']} | {row.get('nodes', '')} | {row.get('run', '')} | {row.get('bits', '')} | {stage} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--write")
    parser.add_argument("--keep")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name, make in all_makers():
        if options.names and not any(part in name for part in options.names):
            continue
        row, began = {"name": name}, time.time()
        rows.append(row)
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(options.keep, name.replace(" ", "-")) if options.keep else scratch
            try:
                through(make, folder, options, row)
            except (Stopped, CaptureError) as error:
                row["why"] = one_line(error)
            # noqa: BLE001: whatever a model's code or an exported module raises ends its row alone
            except Exception as error:
                row["why"] = f"{type(error).__name__}: {one_line(error)}"
        row["expected"] = name in REFUSED and REFUSED[name] in row.get("why", "")
        word = "ok   " if row["stage"] == "done" else "known" if row["expected"] else "FAIL "
        print(f"{word} {name:45} {row.get('nodes', ''):>6} {row['stage']:8} {row.get('run', '')} {row.get('bits', row.get('why', ''))} "
              f"({time.time() - began:.0f} s)", flush=True)  # fmt: skip
    failed = [row for row in rows if row["stage"] != "done" and not row["expected"]]
    print(f"{sum(row['stage'] == 'done' for row in rows)} of {len(rows)} models come all the way, {len(failed)} stop unexpectedly")
    if options.write:
        with open(options.write, "w") as file:
            done = sum(row["stage"] == "done" for row in rows)
            file.write(HEAD.format(done=done, all=len(rows), torch=torch.__version__.split("+")[0]) + "\n".join(table(rows)) + "\n")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
