#!/usr/bin/env python3
"""run_job_tests.py --bin BIN [--all] [JOB...]: captures of distributed jobs, really run over gloo.

Each job of jobs.py is captured under torchrun. The expected values of each rank are those of the job as PyTorch runs it
(fully_shard with its own hooks, DistributedDataParallel with its own reducer), and sg-run gives them on all ranks.
--all: every job, in worlds of 2 and 4; otherwise one of them on 2 ranks.
"""

import argparse
import json
import os
import re
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Failure, Tally, run, skip  # noqa: E402

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

import torch  # noqa: E402
from torch.distributed.tensor._ops import _view_ops  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from stepgraph_capture import compat  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = (
    ("data_parallel", 2),
    ("fsdp", 2),
    ("fsdp_bf16", 2),
    ("fsdp_wider_gradients", 2),
    ("tensor_parallel", 2),
    ("dynamic_tensor_parallel", 2),
    ("sequence_parallel", 3),
    ("bits_on_one_rank", 2),
    ("zeros_to_receive", 2),
    ("data_parallel", 4),
    ("fsdp_uneven", 4),
    ("fsdp_f16_sums", 4),
    ("fsdp_methods", 2),
    ("hybrid_fsdp", 4),
    ("fsdp_over_several_meshes", 4),
    ("fsdp_with_tensor_parallel", 4),
    ("expert_parallel", 4),
    ("expert_parallel_in_chunks", 4),
)
PARALLEL = (  # of data_parallel_jobs.py
    ("not_outermost", 2),
    ("micro_batches", 2),
    ("buffers", 2),
    ("buffers_read", 3),
    ("buffers_left_alone", 2),
    ("no_sync", 2),
    ("ignored", 2),
    ("unused", 3),
    ("unused_in_a_static_graph", 2),
    ("plain_hook", 3),
    ("hook_that_sends_bfloat16", 2),
    ("lazy_cache", 2),
)
BY_HAND = (  # of by_hand_jobs.py
    ("in_place", 3),
    ("experts_in_place", 3),
    ("neighbours", 3),
    ("several_at_once", 2),
    ("pipeline", 3),
    ("ring_both_ways", 3),
    ("send_and_receive", 3),
)
PIPELINES = (  # of pipeline_jobs.py
    ("two_stages", 2),
    ("one_forward_one_backward", 4),
    ("gpipe", 2),
    ("schedule_1f1b", 3),
    ("interleaved", 2),
    ("zero_bubble", 2),
    ("looped", 2),
    ("zero_bubble_v", 2),
    ("dual_pipe_v", 2),
)
OWN_STEPS = (  # of own_step_jobs.py
    ("ddp_clipped", 2),
    ("ddp_accumulates", 3),
    ("ddp_each_time", 2),
    ("ddp_unused", 3),
    ("ddp_updates", 2),
    ("ddp_optimizer", 2),
    ("ddp_stage", 4),
    ("fsdp_taught", 2),
    ("fsdp_taught_from_outside", 2),
    ("fsdp_clipped", 2),
    ("fsdp_accumulates", 2),
    ("fsdp_accumulates_bf16", 4),
    ("fsdp_checkpointed", 2),
    ("fsdp_unused_at_last", 2),
    ("fsdp_read_behind_forward", 2),
    ("fsdp_updates", 3),
    ("fsdp_followed", 3),
    ("fsdp_optimizer", 3),
    ("ddp_scaled", 2),
    ("fsdp_scaled", 3),
    ("fsdp_skipped", 3),
    ("fsdp_stage", 4),
    ("hybrid_accumulates", 4),
    ("tensor_parallel_clipped", 2),
    ("fsdp_with_tensor_parallel_clipped", 4),
)
SOURCES = {
    **{case: "data_parallel_jobs.py" for case in PARALLEL},
    **{case: "by_hand_jobs.py" for case in BY_HAND},
    **{case: "pipeline_jobs.py" for case in PIPELINES},
    **{case: "own_step_jobs.py" for case in OWN_STEPS},
}
SHORT = (("fsdp", 2), ("fsdp_accumulates", 2))
SCHEDULED = {"ddp_stage", "fsdp_stage", "gpipe", "schedule_1f1b", "interleaved", "zero_bubble", "looped", "zero_bubble_v", "dual_pipe_v"}
PIPELINED = {name for name, _ in PIPELINES}
# Collectives through handles.
IN_PLACE = {"in_place", "experts_in_place", "neighbours", "several_at_once", "ring_both_ways", "send_and_receive"}
IN_PLACE |= PIPELINED | {"ddp_stage", "fsdp_stage"}
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# torch 2.6 has fully_shard on GPUs alone, and gloo of 2.8 sums where it asks for the mean; a capture has the mean.
SHARDS_ON_CPUS = VERSION >= (2, 11)
FREE_BATCH = {"dynamic_tensor_parallel"}  # a graph for batches of any size
VIEWS_CAN_ASK_LESS = hasattr(_view_ops, "_ViewShardingPropagator")  # see compat/views.py
NO_ROUNDING = {"bits_on_one_rank"}  # a rank has no step in double; then none has


def capture_job(name, ranks, folder, source="jobs.py"):
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.join(ROOT, "tools", "capture"),
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",  # where a rank was that a signal ended
        "JOB_ANSWERS": folder,
    }
    run(
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        "-m",
        "stepgraph_capture",
        f"{HERE}/{source}:{name}",
        "-o",
        folder,
        env=environment,
    )


def check_answers(folder, rank):
    """What the capture expects is what the job itself computed."""
    answers = load_file(os.path.join(folder, f"rank{rank}.safetensors"))
    expected = load_file(os.path.join(folder, f"rank{rank}", "expected.safetensors"))
    with open(os.path.join(folder, f"rank{rank}", "step.json")) as file:
        step = json.load(file)
    inputs = load_file(os.path.join(folder, f"rank{rank}", "inputs.safetensors"))
    found = {}
    for i, output in enumerate(step["outputs"]):
        if output["value"] is not None:
            found[output["of"] if output["kind"] == "gradient" else output["kind"]] = expected[f"out{i}"]
    for entry in step["inputs"]:
        if entry["kind"] == "buffer":
            name = entry["name"]
            found["buffer." + entry["fqn"]] = expected.get(f"mutated.{name}", inputs[name])
        after = expected.get(f"mutated.{entry['name']}") if entry["kind"] == "parameter" else None
        if after is not None and not torch.equal(after, inputs[entry["name"]]):
            found["parameter." + entry["fqn"]] = after
    if sorted(found) != sorted(answers):
        only = sorted(found.keys() - answers.keys()), sorted(answers.keys() - found.keys())
        raise Failure(f"rank {rank}: the graph alone has {only[0]}, the job alone {only[1]}")
    for name, value in found.items():
        try:
            torch.testing.assert_close(value, answers[name], rtol=1e-4, atol=1e-6)
        except AssertionError as error:
            raise Failure(f"rank {rank}: {name} is not what PyTorch's own job gives: {error}") from error


def _has_floats(value):
    return value.is_floating_point() and value.numel() > 0


def check_rounding(folder, rank, wanted):
    """Every value of floats comes with how far apart correct answers may be, or none does."""
    with safe_open(os.path.join(folder, f"rank{rank}", "expected.safetensors"), "pt") as file:
        notes = file.metadata()
        floats = {f"rounding.{key}" for key in file.keys() if _has_floats(file.get_tensor(key))}
    found = {key for key in notes if key.startswith("rounding.")}
    if found != (floats if wanted else set()):
        raise Failure(f"rank {rank}: roundings of {sorted(found)}, values {sorted(floats)}")


def check_guards(folder, rank):
    """Other guards may be there that hold for each batch."""
    with open(os.path.join(folder, f"rank{rank}", "step.json")) as file:
        guards = [guard["expr"] for guard in json.load(file)["guards"] if "Mod" in guard["expr"]]
    if guards:
        raise Failure(f"rank {rank}: the graph is for some sizes alone: {guards}")


def check_job(name, ranks, bin_folder, folder):
    capture_job(name, ranks, folder, SOURCES.get((name, ranks), "jobs.py"))
    has_answers = SHARDS_ON_CPUS or "fsdp" not in name
    if not has_answers:
        print(f"       {name}: held against itself, as this torch has no right fully_shard on CPUs", flush=True)
    for rank in range(ranks):
        if has_answers:
            check_answers(folder, rank)
        if name in FREE_BATCH and VIEWS_CAN_ASK_LESS:
            check_guards(folder, rank)
        check_rounding(folder, rank, name not in NO_ROUNDING)
    each, graph = os.path.join(folder, "rank{r}"), os.path.join(folder, "step.sg")
    run(os.path.join(bin_folder, "sg-import"), "-q", f"{each}/step.json", "-o", graph)
    run(os.path.join(bin_folder, "sg-check"), graph)
    said = run(
        os.path.join(bin_folder, "sg-run"),
        graph,
        "--inputs",
        f"{each}/inputs.safetensors",
        "--expect",
        f"{each}/expected.safetensors",
    ).stdout
    if len(re.findall("compared values? (?:is|are) as expected", said)) != ranks:
        raise Failure(f"sg-run did not compare {ranks} ranks: {said}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    tally = Tally()
    for name, ranks in ALL + PARALLEL + BY_HAND + PIPELINES + OWN_STEPS if options.all or options.names else SHORT:
        if options.names and name not in options.names:
            continue
        if name in IN_PLACE and not compat.can_box_work():
            skip(f"{name}: this torch has no handle that Python can make")
            continue
        if name in SCHEDULED and VERSION <= (2, 11):
            skip(f"{name}: the stages of this torch receive into what they made before the step")
            continue
        if name == "experts_in_place" and VERSION <= (2, 11):
            skip(f"{name}: this torch copies no tensors whose size the data decides")
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally.say_held(f"{name} on {ranks} ranks", check_job, name, ranks, os.path.abspath(options.bin), folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
