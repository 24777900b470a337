"""Refuses, by name, wrappers of distributed training and settings of them that a graph cannot represent: ignoring them
would give results other than the job's.
"""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch
from torch import nn

from . import compat, sharding
from .errors import CaptureError
from .replicas import is_known_hook, is_parallel, reduced_parameters


def check(model: nn.Module, is_own: bool) -> None:
    """Raises CaptureError for the first of them. is_own: the step calls backward, and may change settings."""
    for name, module in model.named_modules():
        kind = compat.unknown_wrapper(module)
        if kind is not None:
            raise CaptureError(
                f"{_words(name, kind)} is not supported: use fully_shard (FSDP2) or DistributedDataParallel"
            )
        if is_parallel(module):
            for is_set, reason in _of_data_parallel(module):
                if is_set:
                    raise CaptureError(f"{_words(name, 'DistributedDataParallel')} {reason}")
    is_spread = any(map(is_parallel, model.modules())) or any(True for _ in compat.fsdp_groups(model))
    for name, parameter in compat.named_parameters(model):
        _check_hooks(name, parameter, is_own, is_spread)
        if parameter.requires_grad and compat.has_own_grad_dtype(parameter):
            raise CaptureError(f"{name}.grad_dtype is set: leave it, and cast what the step makes of the gradient")
    names = {id(module): name for name, module in model.named_modules()}
    for module, group in compat.fsdp_groups(model):
        for is_set, reason in [*([] if is_own else _of_accumulation(group)), *_of_fully_shard(group)]:
            if is_set:
                raise CaptureError(f"{_words(names.get(id(module), ''), 'fully_shard')} {reason}")


def _check_hooks(name: str, parameter: torch.Tensor, is_own: bool, is_spread: bool) -> None:
    if (is_spread or sharding.is_sharded(parameter)) and compat.hooks_of(parameter):
        raise CaptureError(
            f"{name} has a hook of its own (register_hook, register_post_accumulate_grad_hook), of which it is not said "
            "whether it comes before the ranks' gradients are reduced: capture without"
        )
    if not is_own and compat.accumulation_hooks(parameter):
        raise CaptureError(
            f"{name} has a hook of its own (register_post_accumulate_grad_hook), which runs behind a backward(): give the "
            "whole step as train_step="
        )


def _words(name: str, kind: str) -> str:
    return f"{kind} of {name}" if name else kind


def _of_data_parallel(parallel: Any) -> Iterator[Tuple[bool, str]]:
    """Unsupported settings: whether each is set, and the reason."""
    yield parallel.mixed_precision is not None, "has mixed_precision: use torch.autocast around capture()"
    yield bool(parallel._delay_all_reduce_params), "has delay_all_reduce_named_params: make it without"
    log = parallel._get_ddp_logging_data() if parallel.logger is not None else {}
    hook = _hook_of(parallel, log)
    yield hook != "", f"has the communication hook {hook}: capture without it, as plain all-reduces"
    yield hasattr(parallel, "buffer_hook"), "has a communication hook of buffers: capture without it"
    yield (
        parallel._use_python_reducer,
        "was made for the reducer in Python: let torch._dynamo.config.optimize_ddp be True",
    )
    yield parallel._join_config.enable, "is within join(): capture outside of it"
    yield (
        getattr(parallel, "_require_manual_backward_finalization", False),
        "has require_manual_backward_finalization: capture without it",
    )
    count = log.get("num_parameter_tensors", 0)
    now = len(reduced_parameters(parallel))
    yield count not in (0, now), (
        f"was made with {count} parameters that require a gradient, and {now} do now: freeze them before it is made"
    )


def _hook_of(parallel: Any, log: Any) -> str:
    """The communication hook's name; "" if there is none, or one that is known."""
    for hook, state in parallel._comm_hooks:
        group = torch.distributed.group.WORLD if state is None else state
        if not is_known_hook(hook) or group is not parallel.process_group:
            return getattr(hook, "__qualname__", type(hook).__name__)
    name = log.get("comm_hook") or ""
    return "" if parallel._comm_hooks or name == str(torch.distributed.BuiltinCommHookType.ALLREDUCE) else name


def _of_accumulation(group: Any) -> Iterator[Tuple[bool, str]]:
    accumulates = (
        "leaves gradients unreduced for a later step ({}(False)): capture with True, or all its backwards as a train_step"
    )
    yield not group.reduce_grads, accumulates.format("set_requires_gradient_sync")
    replicates = getattr(group.mesh_info, "replicate_process_group", None) is not None
    yield replicates and not group.all_reduce_grads, accumulates.format("set_requires_all_reduce")


def _of_fully_shard(group: Any) -> Iterator[Tuple[bool, str]]:
    all_reduce_hook = getattr(group, "_all_reduce_hook", None)
    yield all_reduce_hook is not None, "has an all-reduce hook (set_all_reduce_hook): capture without it"
    yield (
        getattr(group, "reduce_scatter_unused_params", False),
        "reduces unused parameters (set_reduce_scatter_unused_params(True)): capture with False",
    )
    for which in ("_all_gather_comm", "_reduce_scatter_comm"):
        kind = type(getattr(group, which, None))
        yield (
            not kind.__module__.startswith(("torch.", "builtins")),
            f"has a communication of its own ({kind.__name__}): capture without it",
        )
    for param in group.fsdp_params:
        yield (
            hasattr(getattr(param, "_sharded_local_tensor", None), "fsdp_pre_all_gather"),
            f"gathers {param._module_info.param_name} through an extension of its tensor (fsdp_pre_all_gather): "
            "capture with plain tensors",
        )
