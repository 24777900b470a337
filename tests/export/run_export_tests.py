#!/usr/bin/env python3
"""run_export_tests.py --bin BIN [--ranks] [--only TEXT]: exported modules, run by PyTorch, give what the capture gives.

Each shared source with values is imported and exported: as functions, as a torch.fx graph, again after sg-clean, after sg-remat
as far as policies and budgets go (what is drawn at random comes out as without recomputation), after sg-offload, and with the
sizes of the capture in the place of symbols. The module's step() must
give, bit for bit, what PyTorch gives when it runs the capture's JSON node by node (replay.py), or the exported program, in the
same process. The values recorded with the capture must come out too: the same bits where this machine's kernels make them (said
for each), else within the tolerance of the narrowest float, or of what the recorded values themselves are off from
the step in double. --ranks: the captures of 4 ranks, over gloo (minutes).
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "capture")]
from interpreter import use_python_with_torch  # noqa: E402

use_python_with_torch()

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import cases  # noqa: E402
from harness import skip  # noqa: E402
from replay import Replay  # noqa: E402

RANKS = 4
# Scores of experts are bf16 here: where this machine's kernels round one otherwise than those of the recording machine, a token
# goes to another expert and whole rows of gradients differ (shared/traces/README.md). The recorded loss must come out.
ROUTED_IN_BF16 = {"multi/dsv3-ep4", "multi/dsv3-ep4-eagerchunk2", "peer/dsv3-ep4-eagerchunk2/eagerchunk",
                  "peer/dsv3-ep4/default",
                  "peer/dsv3-ep4/full", "peer/dsv3-ep4/graphchunk", "peer/dsv3-ep4/graphchunk/00-traced.json.gz"}
# PyTorch drew other numbers when the capture was made; replay and module draw the same.
DRAWS_RANDOM = {"single/gpt2-tiny-dropout"}
# Passes and their options, and options of sg-export.
FORMS = {"functions": ([], []), "fx": ([], ["--fx"]), "cleaned": ([["sg-clean"]], []), "default": ([["sg-remat"]], []),
         "all": ([["sg-remat", "--policy", "all"]], ["--fx"]),
         "tightest": ([["sg-clean"], ["sg-remat", "--budget", "0"]], []),
         "offloaded": ([["sg-remat", "--policy", "full"], ["sg-offload", "--all", "--least", "64"]], []),
         "concrete": ([["sg-concretize"], ["sg-clean"], ["sg-remat", "--policy", "full"]], [])}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stdout}{done.stderr}")


def export(bin_folder, case, folder):
    """The modules of a case, by form."""
    tool = lambda name: os.path.join(bin_folder, name)  # noqa: E731
    stem = os.path.join(folder, "".join(c if c.isalnum() else "_" for c in case.name))
    run(tool("sg-import"), "-q", case.source, "-o", stem + ".sg", *case.options)
    paths = {}
    for form, (passes, options) in FORMS.items():
        graph = stem + ".sg"
        for name, *words in passes:
            run(tool(name), "-q", graph, *words, "-o", f"{stem}_{name}.sg")
            graph = f"{stem}_{name}.sg"
        paths[form] = f"{stem}_{form}.py"
        run(tool("sg-export"), graph, "-o", paths[form], *options)
    return paths


def module_at(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_bits(a, b):
    if not torch.is_tensor(a):
        a, b = torch.tensor(a), torch.tensor(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    same = (a == b) | ((a != a) & (b != b))
    return bool(same.all())


def is_close(value, expected):
    """To the tolerance of bf16, which many captures compute in on the way, of the tensor's largest magnitude."""
    if value.dtype != expected.dtype or value.shape != expected.shape:
        return False
    if not value.is_floating_point() and not value.is_complex():
        return True   # an index may flip with the last bit of a score; the replay holds it to the bit
    largest = expected.abs().max().item() if expected.numel() else 0.0
    return torch.allclose(value, expected, rtol=1.6e-2, atol=5e-2 * largest + 1e-12, equal_nan=True)


def is_rounding(value, recorded, exact):
    """Does the recorded value's own error explain where it lies? The gradient of a key's bias, on which no probability
    depends, cancels to nothing: what is left is rounding, and each processor has its own."""
    if value.dtype != recorded.dtype or value.shape != recorded.shape:
        return False
    between, error = ((recorded.to(exact.dtype) - other.to(exact.dtype)).abs().max().item() for other in (value, exact))
    return between <= 3 * error


def beyond_rounding(names, case, values, recorded):
    """Of the names of values that are not near the recorded ones, those for which that is no rounding."""
    if not names or torch.distributed.is_initialized() or not case.truth.endswith((".json", ".json.gz")):
        return names   # the replay in double would wait for ranks that have no such value
    exact = Replay(case.truth, in_double=True).run(load_file(case.inputs))
    return [name for name in names if name not in exact or not is_rounding(values[name], recorded[name], exact[name])]


def values_of_module(path, case, rank):
    module = module_at(path)
    weights = [path[:path.rindex("_")] + ".safetensors"] if case.source.endswith(".pt2") else []
    inputs = module.load_inputs([*weights, case.of_rank(case.inputs, rank)], rank)
    torch.manual_seed(0)
    outputs = module.step(inputs, rank)
    return module.values_of(module.program_of(rank), inputs, outputs)


def truth(case, rank):
    """What PyTorch gives beside the module, and which of it are losses."""
    torch.manual_seed(0)
    inputs = load_file(case.of_rank(case.inputs, rank))
    if case.truth.endswith(".pt2"):
        with torch.no_grad():
            return {"out0": torch.export.load(case.truth).module()(*inputs.values())}, {"out0"}
    if not case.truth:
        return {}, set()
    replay = Replay(case.of_rank(case.truth, rank))
    return replay.run(inputs), {f"out{i}"
                                for i, output in enumerate(replay.capture["outputs"]) if output["kind"] == "loss"}


def check(case, paths, rank):
    """The complaints about one rank of a case, and whether the recorded bits came out."""
    reference, losses = truth(case, rank)
    recorded = {} if case.name in DRAWS_RANDOM else load_file(case.of_rank(case.expected, rank))
    near = losses if case.name in ROUTED_IN_BF16 else set(recorded)
    complaints, is_recorded = [], True
    for form, path in paths.items():
        values = values_of_module(path, case, rank)
        complaints += [f"{form}: no value {name}" for name in reference if name not in values]
        complaints += [f"{form}: {name} is not what PyTorch computes" for name, value in reference.items()
                       if name in values and not same_bits(values[name], value)]
        far = [name for name, value in recorded.items() if name in near and not is_close(values[name], value)]
        complaints += [f"{form}: {name} is not near the recorded value"
                       for name in beyond_rounding(far, case, values, recorded)]
        is_recorded &= all(same_bits(values[name], value) for name, value in recorded.items())
    return complaints, is_recorded


def run_case(case, paths, rank):
    try:
        return check(case, paths, rank)
    except Exception:
        return [traceback.format_exc()], False


def work(rank, todo, folder):
    """One rank: all cases in turn, over one process group."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{folder}/meet")
    found = [run_case(case, paths, rank) for case, paths in todo]
    torch.save(found, os.path.join(folder, f"found{rank}.pt"))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def check_ranks(todo, folder):
    """By case, the findings of all ranks together."""
    torch.multiprocessing.spawn(work, (todo, folder), nprocs=RANKS)
    ranks = [torch.load(os.path.join(folder, f"found{rank}.pt"), weights_only=True) for rank in range(RANKS)]
    return [([f"rank {rank}: {text}" for rank, found in enumerate(ranks) for text in found[i][0]],
             all(found[i][1] for found in ranks))
            for i in range(len(todo))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not os.path.isdir(cases.TRACES):
        return skip("../shared/traces is absent, nothing is held against PyTorch")
    torch.set_num_threads(1)
    failed, passed, began = 0, 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [case for case in (cases.several() if options.ranks else cases.single()) if options.only in case.name]
        todo = [(case, export(options.bin, case, folder)) for case in chosen]
        results = check_ranks(todo, folder) if options.ranks else [run_case(case, paths, 0) for case, paths in todo]
        for (case, _), (complaints, is_recorded) in zip(todo, results):
            failed, passed = failed + bool(complaints), passed + (not complaints)
            bits = "its own random numbers" if case.name in DRAWS_RANDOM else "recorded bits" if is_recorded else "bits of this machine's PyTorch"
            print(f"FAIL  {case.name}" if complaints else f"ok    {case.name:45} {bits}")
            print("".join(f"      {text}\n" for text in complaints[:12]), end="")
    print(f"{passed} passed, {failed} failed, {time.time() - began:.0f} s")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
