#include "libgraph/export/python_runtime.h"

namespace sg::python {

constexpr std::string_view kRuntimeNames =
    "argparse arrived ctypes glob hashlib math operator os sys torch dist fx inf nan Callable Dict NamedTuple "
    "Optional Tuple Builder GROUP GROUPS GivenTwice MissingInputs PROGRAMS Program WORLD arguments compare "
    "deterministic_scatter_add draw_again find_constants fits g graph_module graph_modules held_constants inputs "
    "laid_out load_expected load_inputs main offload open_groups pack program_of refuse_twice random_state needs "
    "NotCaptured reload set_random_state skip_draw stand_in step unpack values_of";

constexpr std::string_view kImports = R"py(import argparse
import ctypes
import glob
import hashlib
import math
import os
import sys
from math import inf, nan
from typing import Callable, Dict, NamedTuple, Optional, Tuple

import torch
)py";

constexpr std::string_view kProgramClass = R"py(
class Program(NamedTuple):
    """What a rank runs, and what goes in and comes out."""

    run: Callable                       # takes the inputs in their order, returns the outputs in theirs
    inputs: Dict[str, Optional[str]]    # name -> what the model calls it
    outputs: Tuple[Optional[str], ...]  # "loss", "gradient:INPUT", ...; None = there is no value
    optional: Tuple[str, ...] = ()      # inputs that nothing uses
    numbers: Tuple[str, ...] = ()       # inputs that are Python numbers
    written: Tuple[str, ...] = ()       # inputs that the step writes in place
    constants: Dict[str, str] = {}      # input -> digest of its bytes, held by a safetensors file
    held: Dict[str, Tuple[str, torch.dtype, Tuple[int, ...]]] = {}  # input -> its bytes, element type and shape
    devices: Dict[str, str] = {}        # of inputs that are not on the CPU
    ones: Dict[str, torch.dtype] = {}   # what comes in as the gradient of the loss: 1 where nobody gives it
    sizes: Dict[str, Tuple[str, int]] = {}  # number -> whose size it is, and along which dimension
    strides: Optional[Callable] = None  # inputs -> strides of those that do not lie contiguously
)py";

constexpr std::string_view kBuilderClass = R"py(
class Builder:
    """A torch.fx graph under construction. Sizes are computed on proxies, as they are written."""

    def __init__(self):
        self.root = torch.nn.Module()
        self.tracer = fx.proxy.GraphAppendingTracer(fx.Graph())

    def node(self, kind, target, args, kwargs, name=None):
        return self.tracer.create_proxy(kind, target, args, kwargs, name=name)

    def input(self, name):
        return self.node("placeholder", name, (), {}, name)

    def call(self, name, function, /, *args, **kwargs):
        return self.node("call_function", function, args, kwargs, name)

    def items(self, value, *names):
        """One node a result; None for a name makes no node."""
        return [name and self.call(name, operator.getitem, value, i) for i, name in enumerate(names)]

    def body(self, build):
        """The graph that `build` builds, as a submodule that nodes refer to."""
        if not hasattr(self.root, build.__name__):
            self.root.add_module(build.__name__, build())
        return self.node("get_attr", build.__name__, (), {})

    def call_body(self, name, build, /, *args):
        if not hasattr(self.root, build.__name__):
            self.root.add_module(build.__name__, build())
        return self.node("call_module", build.__name__, args, {}, name)

    def size(self, value, dimension):
        return self.call(None, torch.ops.aten.sym_size.int, value, dimension)

    def max(self, *sizes):
        largest = sizes[0]
        for size in sizes[1:]:
            largest = self.call(None, torch.sym_max, largest, size)
        return largest

    def min(self, *sizes):
        smallest = sizes[0]
        for size in sizes[1:]:
            smallest = self.call(None, torch.sym_min, smallest, size)
        return smallest

    def finish(self, values):
        graph = self.tracer.graph
        graph.output(self.tracer.create_arg(values))
        graph.lint()
        return fx.GraphModule(self.root, graph)
)py";

constexpr std::string_view kGroups = R"py(
def open_groups():
    """Makes the process groups of the step. All ranks call this, after torch.distributed.init_process_group."""
    if dist.get_world_size() != WORLD:
        raise RuntimeError(f"the step runs on {WORLD} ranks, not on {dist.get_world_size()}")
    for name, families in GROUPS.items():
        for ranks in families:
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                GROUP[name] = group.group_name
)py";

constexpr std::string_view kDraws = R"py(
def random_state():
    """Of all generators that the step may draw from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def set_random_state(state):
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def draw_again(state, function, /, *args, **kwargs):
    """What the function draws in that state; the generators go on from where they are."""
    now = random_state()
    set_random_state(state)
    try:
        return function(*args, **kwargs)
    finally:
        set_random_state(now)


def skip_draw(function, /, *args, **kwargs):
    """The state before a draw that comes later; the generators go on as if it had been made here."""
    state = random_state()
    function(*args, **kwargs)
    return state


def stand_in(shape, stride, dtype, device):
    """For a tensor of which a draw takes no more than shape and layout."""
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(1)
)py";

constexpr std::string_view kConditions = R"py(
def fits(name, tensor, shape):
    """Refuses an input of other sizes than the step is for. None: any size."""
    if len(tensor.shape) != len(shape) or any(size not in (None, given) for size, given in zip(shape, tensor.shape)):
        raise NotCaptured(f"{name} has the shape {list(tensor.shape)}, and the step is for {['any' if size is None else size for size in shape]}")


def needs(holds, condition, /, **sizes):
    """Refuses sizes, or data, under which the step would have been another one."""
    if not holds:
        found = ", ".join(f"{name} is {int(size)}" for name, size in sizes.items())
        raise NotCaptured(f"the step was captured for {condition}, but {found}: capture it for these sizes, or this data")
)py";

constexpr std::string_view kLayout = R"py(
def laid_out(value, strides):
    """The value in memory as the step has it: a view of it counts on that, and not every eager kernel lays it out so."""
    if value.stride() == strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
)py";

constexpr std::string_view kProgramOf = R"py(
class MissingInputs(KeyError):
    pass


class NotCaptured(ValueError):
    """The inputs have sizes or data that the step was not captured for."""


class GivenTwice(ValueError):
    """One input by two names, or in two files."""


def program_of(rank=None):
    if rank is None:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else min(PROGRAMS)
    if rank not in PROGRAMS:
        raise RuntimeError(f"this module has no rank {rank}; it was exported with {sorted(PROGRAMS)}")
    return PROGRAMS[rank]


def held_constants(program, inputs):
    """The constants that travel with the graph, but for those that `inputs` has by name or as the model calls them."""
    return {
        name: torch.tensor(list(bytes.fromhex(data)), dtype=torch.uint8).view(dtype).reshape(shape).to(program.devices.get(name))
        for name, (data, dtype, shape) in program.held.items()
        if name not in inputs and program.inputs[name] not in inputs
    }


def refuse_twice(program, inputs):
    """An input that is given by its name, and once more by what the model calls it: which of the two is meant?"""
    called = list(program.inputs.values())
    for name, known_as in program.inputs.items():
        if name in inputs and known_as in inputs and known_as not in program.inputs and called.count(known_as) == 1:
            raise GivenTwice(f"{name} and {known_as} are the same input, and both are given: leave one out")


def arguments(program, inputs):
    """What the program takes, in its order: inputs by name, or by what the model calls them, and what they leave to it."""
    refuse_twice(program, inputs)
    names = {name: name if name in inputs else known_as for name, known_as in program.inputs.items()}
    known = {name: torch.ones((), dtype=dtype, device=program.devices.get(name)) for name, dtype in program.ones.items() if names[name] not in inputs}
    known.update(held_constants(program, inputs))
    known.update((name, inputs[names[of]].shape[axis]) for name, (of, axis) in program.sizes.items() if names[name] not in inputs and names[of] in inputs)
    missing = [name for name, key in names.items() if key not in inputs and name not in program.optional and name not in known]
    if missing:
        raise MissingInputs(f"missing inputs: {', '.join(missing)}")
    return [known.get(name, inputs.get(key)) for name, key in names.items()]
)py";

constexpr std::string_view kStep = R"py(

@torch.no_grad()
def step(inputs, rank=None):
    """Runs the step on inputs by name, or by what the model calls them; returns the outputs as out0, out1, ...

    Inputs that the step writes in place are written. `rank`: whose program; by default this process's.
    """
    program = program_of(rank)
    values = arguments(program, inputs)
    if GROUPS and not GROUP:
        open_groups()
    outputs = program.run(*values)
    return {f"out{i}": value for i, value in enumerate(outputs) if value is not None}
)py";

constexpr std::string_view kGraphStep = R"py(

def graph_module(rank=None):
    """A new torch.fx.GraphModule of the step; its inputs and outputs are in the order of `program_of(rank)`."""
    if GROUPS and not GROUP:
        open_groups()
    return program_of(rank).run()


graph_modules = {}


@torch.no_grad()
def step(inputs, rank=None):
    """Runs the step on inputs by name, or by what the model calls them; returns the outputs as out0, out1, ...

    Inputs that the step writes in place are written. `rank`: whose program; by default this process's.
    """
    program = program_of(rank)
    values = arguments(program, inputs)
    if program.run not in graph_modules:
        graph_modules[program.run] = graph_module(rank)
    outputs = graph_modules[program.run](*values)
    return {f"out{i}": value for i, value in enumerate(outputs) if value is not None}
)py";

constexpr std::string_view kMain = R"py(
def find_constants(program, inputs, folder):
    """Adds constants and weights that `inputs` lacks, found by their digest in the safetensors files of a folder."""
    from safetensors import safe_open

    wanted = {}
    for name, digest in program.constants.items():
        if name not in inputs:
            wanted.setdefault(digest, []).append(name)
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.safetensors"))) if wanted else ():
        with safe_open(path, "pt") as file:
            for key in file.keys():
                value = file.get_tensor(key).contiguous()
                data = ctypes.string_at(value.data_ptr(), value.numel() * value.element_size())
                for name in wanted.pop("sha256:" + hashlib.sha256(data).hexdigest(), ()):
                    inputs[name] = value.clone()


def load_inputs(paths, rank=None, folder=None):
    """The inputs in a safetensors file, or in several, as the step takes them: constants added, strides as captured."""
    from safetensors.torch import load_file

    program = program_of(rank)
    inputs = {}
    for path in [paths] if isinstance(paths, str) else paths:
        # in memory of their own: a file's lie anywhere, and some kernels add up in another order by where a row begins
        given = load_file(path)
        if again := sorted(given.keys() & inputs.keys()):
            raise GivenTwice(f"{again[0]} is given twice, the second time by {path}: leave one out")
        inputs.update((name, value.clone()) for name, value in given.items())
    refuse_twice(program, inputs)
    for name, known_as in program.inputs.items():
        if name not in inputs and known_as in inputs:
            inputs[name] = inputs.pop(known_as)
    inputs.update(held_constants(program, inputs))
    find_constants(program, inputs, folder or os.path.dirname(os.path.abspath(__file__)))
    for name in program.numbers:
        if name in inputs:
            inputs[name] = inputs[name].item()
    for name, device in program.devices.items():
        if name in inputs:
            inputs[name] = inputs[name].to(device)
    for name, strides in (program.strides(inputs) if program.strides else {}).items():
        if name in inputs:
            value = inputs[name]
            inputs[name] = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
            once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)  # broadcast: one place, many indices
            inputs[name][once].copy_(value[once])
    return inputs


def load_expected(path):
    """Expected values by name, and what the file says of the run that made them: threads, torch."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


def values_of(program, inputs, outputs):
    """Everything that the step gave, by each name that a file of expected values may use."""
    values = {f"mutated.{name}": inputs[name] for name in program.written if name in inputs}
    for i, label in enumerate(program.outputs):
        if f"out{i}" in outputs:
            values.setdefault(label, outputs[f"out{i}"])
    if len(program.outputs) == 1:
        values.setdefault("loss", outputs.get("out0"))
    return {name: value if torch.is_tensor(value) else torch.tensor(value) for name, value in {**values, **outputs}.items() if value is not None}


def compare(value, expected, rtol, atol):
    """None when equal (NaN equals NaN), else what differs."""
    value = value.cpu()
    if value.dtype != expected.dtype or value.shape != expected.shape:
        return f"{value.dtype} {list(value.shape)} instead of {expected.dtype} {list(expected.shape)}"
    if torch.allclose(value, expected, rtol, atol, equal_nan=True) if rtol or atol else value.numel() == 0:
        return None
    same = (value == expected) | ((value != value) & (expected != expected))
    if same.all():
        return None
    kind = torch.complex128 if value.is_complex() else torch.float64
    distance = (value.to(kind) - expected.to(kind)).abs()
    return f"{int((~same).sum())} of {value.numel()} elements differ, by up to {distance.nan_to_num(inf).max().item():.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="+", help="safetensors files with the inputs by name; {r} stands for the rank")
    parser.add_argument("--expect", metavar="FILE", help="compare with out{i}, loss, gradient:INPUT, mutated.INPUT of this file")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative tolerance; without one and --atol: equal bits")
    parser.add_argument("--atol", type=float, default=0.0, help="absolute tolerance")
    parser.add_argument("-o", "--outputs", metavar="FILE", help="write the outputs, and the inputs that the step wrote")
    parser.add_argument("--data", metavar="FOLDER", help="where constants are found by digest; default: beside this file")
    parser.add_argument("--threads", type=int, help="of PyTorch; some sums depend on their number. Default: as many as made --expect")
    options = parser.parse_args()
    rank = int(os.environ.get("RANK", min(PROGRAMS)))
    expected, made_by = load_expected(options.expect.replace("{r}", str(rank))) if options.expect else ({}, {})
    threads = options.threads or int(made_by.get("threads", 0))
    if threads:
        torch.set_num_threads(threads)
    if GROUPS:
        if "RANK" not in os.environ:
            sys.exit(f"the step runs on {WORLD} ranks: torchrun --nproc-per-node {WORLD} {sys.argv[0]} ...")
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    program = program_of(rank)
    try:
        inputs = load_inputs([path.replace("{r}", str(rank)) for path in options.inputs], rank, options.data)
        outputs = step(inputs, rank)
    except MissingInputs as error:
        sys.exit(f"rank {rank}: {error.args[0]} (a tangent is what came back for an output that is not the loss; zeros where nothing uses it)")
    except (GivenTwice, NotCaptured) as error:
        sys.exit(f"rank {rank}: {error}")
    values = values_of(program, inputs, outputs)
    if options.outputs:
        from safetensors.torch import save_file

        kept = {name: values[name] for name in values if name in outputs or name.startswith("mutated.")}
        save_file({name: value.clone().contiguous() for name, value in kept.items()}, options.outputs.replace("{r}", str(rank)))
    failed = 0
    if options.expect:
        unknown = sorted(set(expected) - set(values))
        if unknown:
            sys.exit(f"rank {rank}: the step gives no {', '.join(unknown)}")
        for name, value in sorted(expected.items()):
            difference = compare(values[name], value, options.rtol, options.atol)
            if difference:
                failed += 1
                print(f"rank {rank}: {name}: {difference}")
        print(f"rank {rank}: {len(expected) - failed} of {len(expected)} values are as expected")
        if failed and not options.rtol and not options.atol:
            here = f"{torch.get_num_threads()} threads, torch {torch.__version__.split('+')[0]}"
            then = f"{made_by.get('threads', '?')} threads, torch {made_by.get('torch', '?')}"
            print(f"rank {rank}: compared to the bit. Sums round by threads, kernels and machine, and by how an importer took composite")
            print(f"    ops apart (here: {here}; expected: {then}). --rtol 1e-4 --atol 1e-5 compares them as numbers")
    elif not options.outputs:
        for name, value in outputs.items():
            shape = list(value.shape) if torch.is_tensor(value) else []
            label = program.outputs[int(name[3:])] or ""
            print(f"rank {rank}: {name} {label} {value.item() if not shape and torch.is_tensor(value) else shape or value}")
    if GROUPS:
        torch.distributed.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
)py";

}  // namespace sg::python
