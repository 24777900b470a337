"""capture(): one training step of a model, as files that sg-import reads."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn

from . import agreement, constants, document, later, progress, rehearsal, runs, symbols, trace, world, write
from .errors import CaptureError
from .step import Loss, Step


def capture(
    model: torch.nn.Module,
    loss_fn: Loss = None,
    inputs: Any = (),
    out_dir: str = "capture",
    dynamic: symbols.Dynamic = None,
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    targets: Any = None,
    train_step: Optional[Callable[..., Any]] = None,
    optimizer: Any = None,
    fake: bool = False,
    title: str = "",
    compress: bool = False,
    say: progress.Say = None,
    tell: Optional[Callable[[str], None]] = None,
) -> str:
    """Traces forward, loss and backward and writes the capture; returns the path of its JSON.

    model    any torch.nn.Module; DistributedDataParallel, DTensor parameters and fully_shard are understood
    loss_fn  takes the model's output (and `targets`, where given) and returns the loss, or (loss, more tensors).
             None: the model returns the loss itself, or something with `.loss` or ["loss"]
    inputs   a mapping (keyword arguments), a tuple or list (positional ones), or the only argument
    out_dir  gets step.json, inputs.safetensors and expected.safetensors; in a distributed job each rank its own, in
             rank{r}/ of it
    dynamic  which sizes of the inputs are symbols: {"input_ids": {0: "batch", 1: ("length", 2, 4096)}}; equal names are
             one symbol. True: all of them
    kwargs   keyword arguments beside positional `inputs`
    targets  what the loss function compares with; inputs of the graph like `inputs`
    train_step in place of a loss function: a whole step, of `inputs`, that calls backward itself, as a loop of
             micro-batches or a pipeline's schedule does; gradients are what it leaves in .grad. Returns the loss,
             (loss, more tensors), or None on a rank that has none. It runs twice before it is traced
    optimizer whose step() the train_step calls, or several: their state is inputs of the graph, which it writes
    fake     trace without memory, for a model that does not fit (its parameters may be on "meta", which is
             written as cpu); no values are written
    compress write step.json.gz
    say      called with what begins now ("traces the step"), as a large step takes minutes
    tell     called with the capture's note, if it has one: what the user should know of the graph

    Values are drawn from what the model, run eagerly, answers; the traced graph is run beside it and must agree.
    Raises CaptureError. The model, its buffers and the random generator are left as they were.
    """
    if not isinstance(model, nn.Module):
        raise CaptureError(f"the model has type {type(model).__name__}: wrap it in a torch.nn.Module, which has parameters")
    folder = os.path.join(out_dir, f"rank{world.rank()}") if world.size() > 1 else out_dir
    say = say or (lambda what: None)
    described = (model, loss_fn, inputs, kwargs, targets, train_step, optimizer)
    with write.empty_folders_removed(folder), _modes_kept(model), ExitStack() as at_end:
        world.of_each_rank(None)  # all have seen which folders are there, before one is made
        step = world.together(lambda: _made(folder, described))
        answers = None
        at_end.callback(step.made.forget)
        at_end.callback(step.empty_caches)
        at_end.callback(_put_back, [(buffer, buffer.clone()) for buffer in _buffers(step)])
        if not fake:
            if train_step is None and world.size() > 1:
                runs.check_that_ranks_meet(step, dynamic)
            say("runs the model" if train_step is None else "runs the step")
            answers = runs.answers(step, dynamic)
        else:
            step.take_in({name: place for name, place in step.reachable().places.items() if place.is_surely_state})
        say("traces the step")
        known = len(step.tensors)
        traced = world.together(lambda: trace.with_state(step, dynamic, fake))
        answers = answers if len(step.tensors) == known else None
        traced = _with_gradients_of_others(step, traced, dynamic, fake)
        say("describes the graph")
        declared = document.meshes_of(step)
        content, names = world.together(lambda: document.describe(step, traced, title, declared))
        document.add_notes(content, [_FILLED.format(slot.name) for slot, _ in step.filled])
        document.add_notes(content, _scheduled(step))
        constants.add_data(content["inputs"], traced.encoder.constants)
        world.check_messages(traced.graphs)
        world.check_agree(traced.graphs)
        if not fake:
            say("holds the graph against the model")
            with world.message_groups(traced.graphs):
                of_both = agreement.checked(step, traced, names, answers)
                document.add_notes(content, later.notes(step, traced, of_both[0]))
                document.add_notes(content, rehearsal.notes(step, traced, say))
                agreement.write_values(step, traced, folder, *of_both)
        say("writes the capture")
        path = os.path.join(folder, "step.json.gz" if compress else "step.json")
        write.capture_json(path, content, compress)
    if tell is not None and "note" in content:
        tell(content["note"])
    return path


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    """Restores training modes: a step may call model.eval() and fail before it calls train() again."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _buffers(step: Step) -> List[Tensor]:
    return [
        slot.local.detach()
        for slot in step.state
        if slot.kind == "buffer" and slot.local.layout is torch.strided and slot.local.device.type != "meta"
    ]


def _put_back(kept: List[Tuple[Tensor, Tensor]]) -> None:
    """A model that keeps views of its buffers writes through them to the user's own."""
    for buffer, was in kept:
        if not torch.equal(buffer, was):
            buffer.copy_(was)


def _made(folder: str, described: Tuple[Any, ...]) -> Step:
    write.make_folder(folder)
    return Step(*described)


def _scheduled(step: Step) -> List[str]:
    """A note on what each step has to be given."""
    of_tensors = step.optimizers.set_by_tensors
    names = [name for name in step.optimizers.scheduled if name not in of_tensors]
    words = ((_SCHEDULED, names), (_SET_BY_TENSORS, of_tensors))
    return [text.format(_first_of(some)) for text, some in words if some]


def _first_of(names: List[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


_FILLED = "{} is a cache that a first run fills, and begins as that leaves it"
_SCHEDULED = (
    "the train_step sets {} outside of step(), from numbers that no graph holds: an input, of which sg-run takes each "
    "step's (--inputs 'rate{{step}}.safetensors')"
)
_SET_BY_TENSORS = (
    "the train_step sets {} to a number that it takes out of its own tensors, and the graph has it as an input, with which "
    "all steps go on: a rate in a tensor (lr=torch.tensor(0.1)) that the step writes (group['lr'].copy_(rate)) is computed"
)


def _with_gradients_of_others(step: Step, traced: trace.Traced, dynamic: symbols.Dynamic, fake: bool) -> trace.Traced:
    """Traces again if other ranks average gradients of parameters that this rank does not use."""
    missing = [slot.name for slot, found in zip(step.trainable, traced.result.gradients) if found is None]
    used = runs.used_elsewhere(step, missing)
    if world.on_any_rank(bool(used)):
        step.replicas.used_elsewhere = used
        return world.together(lambda: trace.somehow(step, dynamic, fake) if used else traced)
    return traced
