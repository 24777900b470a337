"""Data parallel wrappers: DistributedDataParallel, fully_shard, and those that are refused."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch import nn

from .. import release
from ..errors import CaptureError

from .parameters import named_parameters

_RELEASE = release.of(torch.__version__)


def syncs_buffers(parallel: Any) -> bool:
    """Whether this DistributedDataParallel broadcasts buffers before its forward."""
    newer = getattr(parallel, "forward_sync_buffers", None)
    return bool(parallel.broadcast_buffers if newer is None else newer)


def spreads_states(optimizer: Any) -> bool:
    """Whether an optimizer gives each rank the states of some parameters (ZeRO's first stage)."""
    try:
        from torch.distributed.optim import ZeroRedundancyOptimizer
    except ImportError:  # a PyTorch without distributed
        return False
    return isinstance(optimizer, ZeroRedundancyOptimizer)


def unknown_wrapper(module: nn.Module) -> Optional[str]:
    """The name of a data parallel wrapper other than DistributedDataParallel and fully_shard."""
    try:
        from torch.distributed._composable.contract import _get_registry
        from torch.distributed.fsdp import FullyShardedDataParallel
    except ImportError:  # a PyTorch without distributed
        return None
    if isinstance(module, FullyShardedDataParallel):
        return "FSDP1 (FullyShardedDataParallel)"
    return "replicate" if "replicate" in (_get_registry(module) or {}) else None


def fsdp_groups(model: nn.Module) -> List[Tuple[nn.Module, Any]]:
    """PyTorch's own objects for what fully_shard manages, each with its first module."""
    found: Dict[int, Tuple[nn.Module, Any]] = {}
    for module in model.modules():
        state = _fsdp_state(module)
        for group in _groups_of(state) if state is not None else ():
            found.setdefault(id(group), (module, group))
    return list(found.values())


def _groups_of(state: Any) -> List[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is not None:
        return groups
    return [state._fsdp_param_group] if state._fsdp_param_group else []  # one at most, until 2.9


def _fsdp_state(module: nn.Module) -> Any:
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_state import _get_module_fsdp_state
    except ImportError:  # a PyTorch without distributed
        return None
    return _get_module_fsdp_state(module)


def fsdp_units(model: nn.Module) -> List[Any]:
    """What each call of fully_shard in this model manages, as shards.py describes it."""
    names = {id(parameter): name for name, parameter in named_parameters(model)}
    return _units_of(_fsdp_states(model.modules()), names)


def fsdp_units_beside(modules: Iterable[Tuple[str, nn.Module]]) -> List[Any]:
    """The same of modules beside the model. Without what is gathered at this time: it has plain parameters."""
    named = dict(modules)
    states = [state for state in _fsdp_states(named.values()) if all(map(_is_apart, _groups_of(state)))]
    parts = {id(module): name for name, module in named.items()}
    names = {}
    for param in (param for state in states for group in _groups_of(state) for param in group.fsdp_params):
        info = param._module_info
        path = parts.get(id(info.module))
        names[id(param.sharded_param)] = info.param_name if path is None else f"{path}.{info.param_name}"
    return _units_of(states, names)


def _is_apart(group: Any) -> bool:
    return all(param.sharded_state.name == "SHARDED" for param in group.fsdp_params)


def _fsdp_states(modules: Iterable[nn.Module]) -> List[Any]:
    found = {id(state): state for state in map(_fsdp_state, modules) if state is not None}
    return list(found.values())


def _units_of(states: List[Any], names: Dict[int, str]) -> List[Any]:
    from ..shards import Settings, Shard, Unit

    units = []
    for state in states:
        policy = state._mp_policy
        shards = [
            _shard_of(param, names, group, policy, Shard, Settings(group))
            for group in _groups_of(state)
            for param in group.fsdp_params
        ]
        input_dtype = policy.param_dtype if policy.cast_forward_inputs else None
        units.append(Unit(tuple(state._modules), shards, input_dtype, policy.output_dtype, _stays(state, states)))
    return units


def _stays(state: Any, all_of_them: Iterable[Any]) -> bool:
    """Whether its parameters stay gathered between forward and backward, as the outermost unit's do by default."""
    others = [inner for one in all_of_them if one is not state for top in one._modules for inner in top.modules()]
    is_outermost = not any(module is other for module in state._modules for other in others)
    if is_outermost and getattr(state, "_auto_reshard_after_forward", True):
        return True
    return all(group.post_forward_mesh_info is None for group in _groups_of(state))


def _shard_of(param: Any, names: Dict[int, str], group: Any, policy: Any, make: Any, settings: Any) -> Any:
    info, sharded = param._module_info, param.sharded_param
    if id(sharded) not in names:
        raise CaptureError("a fully_shard module has its parameters gathered: call reshard() on it before capturing")
    mesh_info = param.mesh_info
    replicas = getattr(mesh_info, "replicate_process_group", None)
    copies = mesh_info.shard_process_group.size() * (replicas.size() if replicas is not None else 1)
    factor = getattr(group, "gradient_divide_factor", None) or getattr(group, "reduce_scatter_divide_factor", None)
    spec = getattr(param, "_unsharded_dtensor_spec", None) or getattr(param, "_tp_spec", None)
    policy = getattr(param, "mp_policy", policy)  # with what param_dtype_override_fn says of this parameter
    reduce_dtype, grad_dtype = policy.reduce_dtype, None
    defers_upcast = False
    if _RELEASE >= (2, 15):  # as documented for MixedPrecisionPolicy; before, gradients had param_dtype
        reduce_dtype = grad_dtype = reduce_dtype or sharded.dtype
        is_wider = grad_dtype.itemsize > (policy.param_dtype or sharded.dtype).itemsize
        defers_upcast = is_wider and not param.may_reduce_grad_outside_dp
    return make(
        fqn=names[id(sharded)],
        places=[(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names)],
        size=param._orig_size,
        dim=param.fsdp_placement.dim,
        shards=mesh_info.shard_process_group,
        replicas=replicas,
        param_dtype=policy.param_dtype,
        reduce_dtype=reduce_dtype,
        grad_dtype=grad_dtype,
        defers_upcast=defers_upcast,
        divisor=float(factor or copies),
        settings=settings,
        layout=(
            (spec.mesh, spec.placements, spec.tensor_meta.shape, spec.tensor_meta.stride) if param.is_dtensor else None
        ),
    )


def has_own_grad_dtype(parameter: torch.Tensor) -> bool:
    """Whether its gradient is of a type that the user has set (newer versions of PyTorch)."""
    if hasattr(parameter, "_has_grad_dtype_override"):
        return bool(parameter._has_grad_dtype_override)
    return getattr(parameter, "grad_dtype", parameter.dtype) != parameter.dtype


def fsdp_methods(module: nn.Module) -> List[Tuple[str, Callable[..., Any]]]:
    """The original methods of a fully_shard module that register_fsdp_forward_method has wrapped."""
    found = []
    for name, value in vars(module).items():
        plain = value
        while _is_fsdp_method(plain):
            plain = plain.__wrapped__
        if plain is not value:
            found.append((name, plain))
    return found


def _is_fsdp_method(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and code.co_name == "wrapped_method" and "_fully_shard" in code.co_filename


@contextmanager
def fsdp_hooks_at_rest(modules: Iterable[nn.Module], finalize: Callable[[], None]) -> Iterator[None]:
    """Removes the hooks of fully_shard from the modules. The methods that a hook would call do nothing meanwhile, and
    `finalize` replaces the one that ends a backward manually."""
    taken: List[Tuple[Any, Any]] = []
    for module in modules:
        if _fsdp_state(module) is None:
            continue
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            taken.append((hooks, hooks.copy()))
            for key, hook in list(hooks.items()):
                if "_fully_shard" in (getattr(hook, "__module__", None) or ""):
                    del hooks[key]
    try:
        with _fsdp_methods_at_rest(finalize) if taken else nullcontext():
            yield
    finally:
        for hooks, all_of_them in taken:
            hooks.clear()
            hooks.update(all_of_them)


class _Done:
    """The handle of an asynchronous fully_shard call with nothing to wait for."""

    def wait(self) -> None:
        pass


@contextmanager
def _fsdp_methods_at_rest(finalize: Callable[[], None]) -> Iterator[None]:
    from torch.distributed.fsdp import FSDPModule

    def rest(self: Any, *_: Any, **__: Any) -> _Done:
        return _Done()

    def finalize_backward(self: Any, *_: Any, **__: Any) -> _Done:
        finalize()
        return _Done()

    ours = {"unshard": rest, "reshard": rest, "set_manual_backward_finalization": rest}
    ours["finalize_backward"] = finalize_backward
    before = {name: getattr(FSDPModule, name) for name in ours if hasattr(FSDPModule, name)}
    try:
        for name in before:
            setattr(FSDPModule, name, ours[name])
        yield
    finally:
        for name, method in before.items():
            setattr(FSDPModule, name, method)
