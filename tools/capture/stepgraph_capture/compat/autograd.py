"""Autograd's nodes, hooks, backward passes and version counters."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Sequence, Set

import torch
from torch import Tensor, overrides

from .. import release


def sequence_number() -> int:
    """The number of the last autograd node created, which is that of the op being traced."""
    return torch.autograd._get_sequence_nr() - 1


def gradient_hooks(tensor: Tensor) -> List[Callable[..., Any]]:
    """What register_hook() calls with the tensor's gradient."""
    return list((tensor._backward_hooks or {}).values())


def accumulation_hooks(tensor: Tensor) -> List[Callable[..., Any]]:
    """What register_post_accumulate_grad_hook() calls after a backward has added to the tensor's `.grad`."""
    return list((getattr(tensor, "_post_accumulate_grad_hooks", None) or {}).values())


def hooks_of(tensor: Tensor) -> List[Callable[..., Any]]:
    return gradient_hooks(tensor) + accumulation_hooks(tensor)


def hook_tables(tensor: Tensor) -> List[Dict[int, Callable[..., Any]]]:
    """The dicts that hold them, if there are any."""
    both = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return [hooks for hooks in both if hooks]


def node_sequence_number(node: Any) -> int:
    return node._sequence_nr()


ENGINE = torch.autograd.graph._engine_run_backward.__code__  # what runs in a backward pass was called by this


@contextmanager
def _engine_within(around: Callable[[Sequence[Any], bool], ContextManager[Any]]) -> Iterator[None]:
    """Runs each backward pass within `around(roots, create_graph)`."""
    original = torch.autograd._engine_run_backward

    def run(roots: Sequence[Any], grads: Any, retain_graph: bool, create_graph: bool, *args: Any, **kwargs: Any) -> Any:
        with around(roots, create_graph):
            return original(roots, grads, retain_graph, create_graph, *args, **kwargs)

    torch.autograd._engine_run_backward = run
    try:
        yield
    finally:
        torch.autograd._engine_run_backward = original


def backward_within(around: Callable[[Sequence[Any]], ContextManager[Any]]) -> ContextManager[None]:
    """Runs each backward() of user code, and each grad() without create_graph, within `around(roots)`."""
    return _engine_within(lambda roots, create_graph: nullcontext() if create_graph else around(roots))


def modes_in_backward() -> ContextManager[None]:
    """Keeps the function modes that are set now while a backward runs. PyTorch leaves them as it calls grad() or
    backward(), and what a checkpoint computes again there would be traced otherwise than it was forward."""
    modes = list(overrides._get_current_function_mode_stack())
    return _engine_within(lambda roots, create_graph: _modes_again(modes))


@contextmanager
def _modes_again(modes: Sequence[Any]) -> Iterator[None]:
    within = overrides._get_current_function_mode_stack()
    with ExitStack() as again:
        for mode in modes:
            if not any(mode is other for other in within):
                again.enter_context(mode)
        yield


def autograd_nodes(*roots: Any) -> Iterator[Any]:
    """The nodes reachable from these, each once, without leaves (which run nothing)."""
    seen, waiting = set(), list(roots)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or hasattr(node, "variable"):
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def leaves(root: Any) -> Iterator[Tensor]:
    """The tensors that a backward from `root` computes gradients for, each once."""
    seen: Set[int] = set()
    for node in autograd_nodes(root):
        for following, _ in node.next_functions:
            leaf = getattr(following, "variable", None)
            if leaf is not None and id(leaf) not in seen:
                seen.add(id(leaf))
                yield leaf


def has_reentrant_checkpoint(loss: Tensor) -> bool:
    """Whether part of the model ran under checkpoint(use_reentrant=True)."""
    from torch.utils.checkpoint import CheckpointFunction

    kind = getattr(CheckpointFunction, "_backward_cls", None)
    return kind is not None and any(isinstance(node, kind) for node in autograd_nodes(loss.grad_fn))


def as_written(tensor: Tensor, other: Tensor) -> Tensor:
    """The tensor, now written as often as the other one: a module may go by `weight._version`."""
    if not other.is_inference() and not tensor.is_inference():
        several = release.of(torch.__version__) >= (2, 7)
        given: Any = ((tensor,), (other._version,)) if several else (tensor, other._version)
        torch._C._autograd._unsafe_set_version_counter(*given)
    return tensor


@contextmanager
def version_kept(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Lets these tensors be written although autograd has saved them."""
    with ExitStack() as each:
        for tensor in tensors:  # several at once only since 2.7
            each.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
        yield
