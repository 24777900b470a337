"""Tensors that a step must not read, and stand-ins for them whose reads end the capture with a message. Among them:
the .grad of parameters that a train_step has kept from before the step, as the captured step leaves its gradients
elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Set

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from .errors import CaptureError


class _Unreadable(Tensor):
    """Reading it ends the capture with `message`."""

    message: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = next(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, _Unreadable))
        raise CaptureError(found.message)


def unreadable(tensor: Tensor, message: str) -> Tensor:
    """What stands in for the tensor, and refuses to be read. Must be created outside of tracing."""
    like = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)
    found = like.as_subclass(_Unreadable)  # also for a sharded tensor, whose type it need not have
    found.message = message
    return found


def unreadable_gradients(parameters: Mapping[str, Tensor]) -> Dict[str, Tensor]:
    """By the parameter's name, what stands in for its gradient in `gradients_refused`."""
    message = (
        "the step reads the gradient of {} by a parameter kept from before it, where the step that is captured leaves "
        "none: call model.parameters() in the step"
    )
    return {name: unreadable(parameter, message.format(name)) for name, parameter in parameters.items()}


@contextmanager
def gradients_refused(
    parameters: Mapping[str, Tensor], stand_ins: Mapping[str, Tensor], read_only: Set[int]
) -> Iterator[None]:
    """In this context reads of these parameters' gradients are refused, as are optimizers that update them: the step has
    other tensors in their place. read_only: lists in groups of optimizers that the step does not step, by id; the other
    tensors are there."""
    ours: Set[int] = {id(parameter) for parameter in parameters.values()}

    def check(optimizer: Optimizer, *_: Any) -> None:
        lists = [group["params"] for group in optimizer.param_groups]
        if any(id(one) in read_only or any(id(parameter) in ours for parameter in one) for one in lists):
            raise CaptureError(
                f"the step calls {type(optimizer).__name__}.step(), whose parameters are those from before it: give "
                "it to capture as optimizer=, or leave it out, as sg-run --optimizer updates parameters after the step"
            )

    before = {name: parameter.grad for name, parameter in parameters.items()}
    hook = register_optimizer_step_pre_hook(check)
    try:
        for name, parameter in parameters.items():
            parameter.grad = stand_ins[name]
        yield
    finally:
        hook.remove()
        for name, parameter in parameters.items():
            parameter.grad = before[name]
