"""Collectives of torch.distributed that write in place (all_reduce, all_gather_into_tensor, ...) work through handles
of this process, which no graph holds. While a step runs here each is the functional one of the same numbers, and a copy
into the tensors that it was given. async_op=True gives a handle whose wait has nothing left to do.

What two ranks alone say to each other (send, recv) has no form that runs, and stays as it is: world.py refuses it.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat, world


def functional() -> Any:
    """A context in which they are so."""
    return _functional() if world.is_distributed() and compat.can_box_work() else nullcontext()


@contextmanager
def _functional() -> Iterator[None]:
    ours = {"all_to_all_single": _all_to_all_single, "batch_isend_irecv": _batch_isend_irecv}
    before = {name: getattr(torch.distributed, name) for name in ours}
    try:
        for name, function in ours.items():
            setattr(torch.distributed, name, function)
        reductions = compat.Reductions()
        with reductions.noted(), _Functional(reductions):
            yield
    finally:
        for name, function in before.items():
            setattr(torch.distributed, name, function)


if torch.distributed.is_available():
    _exchange_in_place, _batch_in_place = torch.distributed.all_to_all_single, torch.distributed.batch_isend_irecv


def _all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
    group: Any = None, async_op: bool = False,
) -> Any:  # fmt: skip
    """Numbers that only the data knows would be the example's behind this call: the handle takes no symbols."""
    counts = [*(output_split_sizes or ()), *(input_split_sizes or ()), output.shape[0], input.shape[0]]
    if not any(isinstance(count, torch.SymInt) for count in counts):
        return _exchange_in_place(output, input, output_split_sizes, input_split_sizes, group, async_op)
    group = group or torch.distributed.group.WORLD
    received = output_split_sizes or [output.shape[0] // group.size()] * group.size()
    sent = input_split_sizes or [input.shape[0] // group.size()] * group.size()
    with torch.no_grad(), compat.version_kept([output]):
        output.copy_(compat.all_to_all(input, received, sent, group).reshape(output.shape))
    return compat.finished_work(boxed=False) if async_op else None


def _batch_isend_irecv(p2p_op_list: List[Any]) -> List[Any]:
    """One exchange, in which all ranks of the group take part, as in a ring: where some do not, they are found to
    launch other collectives than the rest."""
    group = p2p_op_list[0].group or torch.distributed.group.WORLD
    if len({op.tensor.dtype for op in p2p_op_list}) != 1 or any(op.group != p2p_op_list[0].group for op in p2p_op_list):
        return _batch_in_place(p2p_op_list)
    ranks = compat.group_ranks(group.group_name)

    def by_rank(kind: Any) -> List[Tensor]:
        ops = [op for op in p2p_op_list if op.op is kind]
        return [op.tensor for op in sorted(ops, key=lambda op: (ranks.index(op.peer), op.tag))]

    def counts(kind: Any) -> List[int]:
        ops = [op for op in p2p_op_list if op.op is kind]
        return [sum(op.tensor.numel() for op in ops if op.peer == rank) for rank in ranks]

    sent, received = by_rank(torch.distributed.isend), by_rank(torch.distributed.irecv)
    with torch.no_grad(), compat.version_kept(received):
        like = p2p_op_list[0].tensor
        flat = torch.cat([tensor.reshape(-1) for tensor in sent]) if sent else like.new_empty(0)
        numbers = counts(torch.distributed.irecv), counts(torch.distributed.isend)
        _copy_parts(received, compat.all_to_all(flat, *numbers, group))
    return [compat.finished_work(boxed=False)]


class _Functional(TorchDispatchMode):
    supports_higher_order_operators = True  # flex attention passes

    def __init__(self, reductions: compat.Reductions) -> None:
        super().__init__()
        self._reductions = reductions

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        is_ours = isinstance(func, torch._ops.OpOverload) and func.namespace == "c10d"
        rule = _RULES.get(func._schema.name.rpartition("::")[2]) if is_ours else None
        if rule is None or not rule(_Call(func, args, kwargs or {}, self._reductions)):
            return func(*args, **(kwargs or {}))
        returns = func._schema.returns
        work = compat.finished_work()
        return work if len(returns) == 1 else (args[0], work)


class _Call:
    """A call by the names of its arguments."""

    def __init__(
        self, func: Any, args: Sequence[Any], kwargs: Dict[str, Any], reductions: compat.Reductions
    ) -> None:
        self._reductions = reductions
        self.given = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
        self.group = compat.unboxed_group(self.given["process_group"])
        self.count, self.rank = self.group.size(), self.group.rank()

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def reduction(self) -> Optional[str]:
        return self._reductions.name(self.given["reduce_op"])

    def exchange(self, rows: Tensor, received: List[int], sent: List[int]) -> Tensor:
        return compat.all_to_all(rows, received, sent, self.group)


def _all_reduce(call: _Call) -> bool:
    reduction = call.reduction
    if reduction is None or call.given.get("sparse_indices") is not None:
        return False
    for tensor in call["tensors"]:
        tensor.copy_(compat.all_reduce(tensor.contiguous(), call.group, reduction))
    return True


def _reduce(call: _Call) -> bool:
    """The others' tensors are not said to be anything afterwards: they stay as they are."""
    reduction = call.reduction
    if reduction is None:
        return False
    for tensor in call["tensors"]:
        whole = compat.all_reduce(tensor.contiguous(), call.group, reduction)
        if call.rank == call["root_rank"]:
            tensor.copy_(whole)
    return True


def _broadcast(call: _Call) -> bool:
    for tensor in call["tensors"]:
        tensor.copy_(compat.broadcast(tensor, call.group, call["root_rank"]))
    return True


def _gather_into(call: _Call, output: Tensor, tensor: Tensor) -> None:
    parts = compat.all_gather(tensor.reshape(1, *tensor.shape), call.group)
    output.copy_(parts.reshape(output.shape))


def _all_gather_base(call: _Call) -> bool:
    _gather_into(call, call["output_tensor"], call["input_tensor"])
    return True


def _all_gather_coalesced(call: _Call) -> bool:
    for output, tensor in zip(call["outputs"], call["inputs"]):
        _gather_into(call, output, tensor)
    return True


def _all_gather(call: _Call) -> bool:
    pairs = list(zip(call["output_tensors"], call["input_tensors"]))
    if any(output.shape != tensor.shape for outputs, tensor in pairs for output in outputs):
        return False
    for outputs, tensor in pairs:
        parts = compat.all_gather(tensor.reshape(1, *tensor.shape), call.group)
        for output, part in zip(outputs, parts.unbind()):
            output.copy_(part)
    return True


def _scatter_sum(call: _Call, output: Tensor, tensor: Tensor, reduction: str) -> None:
    part = compat.reduce_scatter(tensor.reshape(call.count, -1).contiguous(), call.group, reduction)
    output.copy_(part.reshape(output.shape))


def _reduce_scatter_base(call: _Call) -> bool:
    reduction = call.reduction
    if reduction is None:
        return False
    _scatter_sum(call, call["output_tensor"], call["input_tensor"], reduction)
    return True


def _reduce_scatter_coalesced(call: _Call) -> bool:
    reduction = call.reduction
    if reduction is None:
        return False
    for output, tensor in zip(call["outputs"], call["inputs"]):
        _scatter_sum(call, output, tensor, reduction)
    return True


def _reduce_scatter(call: _Call) -> bool:
    reduction = call.reduction
    if reduction is None:
        return False
    for output, tensors in zip(call["output_tensors"], call["input_tensors"]):
        _scatter_sum(call, output, torch.stack(list(tensors)), reduction)
    return True


def _all_to_all_base(call: _Call) -> bool:
    """Rows; without counts as many for each rank."""
    output, tensor = call["output"], call["input"]
    received, sent = list(call["output_split_sizes"]), list(call["input_split_sizes"])
    received = received or [output.shape[0] // call.count] * call.count
    sent = sent or [tensor.shape[0] // call.count] * call.count
    output.copy_(call.exchange(tensor, received, sent).reshape(output.shape))
    return True


def _copy_parts(outputs: Sequence[Tensor], flat: Tensor) -> None:
    for output, part in zip(outputs, flat.split([output.numel() for output in outputs])):
        output.copy_(part.reshape(output.shape))


def _all_to_all(call: _Call) -> bool:
    outputs, tensors = call["output_tensors"], call["input_tensors"]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    numbers = [output.numel() for output in outputs], [tensor.numel() for tensor in tensors]
    _copy_parts(outputs, call.exchange(flat, *numbers))
    return True


def _scatter(call: _Call) -> bool:
    """Only the root sends; all exchange, as one that nobody sends to still takes part."""
    (output,), root = call["output_tensors"], call["root_rank"]
    size = output.numel()
    received = [size if rank == root else 0 for rank in range(call.count)]
    if call.rank == root:
        flat, sent = torch.cat([part.reshape(-1) for part in call["input_tensors"][0]]), [size] * call.count
    else:
        flat, sent = output.new_empty(0), [0] * call.count
    output.copy_(call.exchange(flat, received, sent).reshape(output.shape))
    return True


def _gather(call: _Call) -> bool:
    (tensor,), root = call["input_tensors"], call["root_rank"]
    size, at_root = tensor.numel(), call.rank == root
    sent = [size if rank == root else 0 for rank in range(call.count)]
    flat = call.exchange(tensor.reshape(-1), [size if at_root else 0] * call.count, sent)
    if at_root:
        _copy_parts(call["output_tensors"][0], flat)
    return True


def _nothing(_: _Call) -> bool:
    """Ranks that wait for each other compute what they would without."""
    return True


_RULES: Dict[str, Callable[[_Call], bool]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "reduce_": _reduce,
    "broadcast_": _broadcast,
    "_allgather_base_": _all_gather_base,
    "allgather_into_tensor_coalesced_": _all_gather_coalesced,
    "allgather_": _all_gather,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
    "reduce_scatter_": _reduce_scatter,
    "alltoall_base_": _all_to_all_base,
    "alltoall_": _all_to_all,
    "scatter_": _scatter,
    "gather_": _gather,
    "barrier": _nothing,
}
