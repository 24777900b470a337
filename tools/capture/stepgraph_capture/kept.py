"""Tensors that a step must not read, and marks that refuse such reads by name. Among them: the .grad of parameters that
a train_step has kept from before the step, as the captured step leaves its gradients elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Set

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from .errors import CaptureError


class _Mark(Tensor):
    """Reading it ends the capture with an error."""

    words: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = next(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, _Mark))
        raise CaptureError(found.words)


def mark(tensor: Tensor, words: str) -> Tensor:
    """A mark that stands in for the tensor. Must be created outside of tracing."""
    like = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)
    found = like.as_subclass(_Mark)  # also for a sharded tensor: the mark need not have its type
    found.words = words
    return found


def marks(parameters: Mapping[str, Tensor]) -> Dict[str, Tensor]:
    """The marks for `refused`."""
    words = (
        "the step reads the gradient of {} by a parameter kept from before it, where the step that is captured leaves "
        "none: call model.parameters() in the step"
    )
    return {name: mark(parameter, words.format(name)) for name, parameter in parameters.items()}


@contextmanager
def refused(parameters: Mapping[str, Tensor], marks: Mapping[str, Tensor]) -> Iterator[None]:
    """Refuses reads of these parameters' gradients, and optimizers that update them: other tensors replace them."""
    ours: Set[int] = {id(parameter) for parameter in parameters.values()}

    def check(optimizer: Optimizer, *_: Any) -> None:
        if any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
            raise CaptureError(
                f"the step calls {type(optimizer).__name__}.step(), whose parameters are those from before it: give "
                "it to capture as optimizer=, or leave it out, as sg-run --optimizer updates parameters after the step"
            )

    before = {name: parameter.grad for name, parameter in parameters.items()}
    hook = register_optimizer_step_pre_hook(check)
    try:
        for name, parameter in parameters.items():
            parameter.grad = marks[name]
        yield
    finally:
        hook.remove()
        for name, parameter in parameters.items():
            parameter.grad = before[name]
