"""Collectives of torch.distributed that write in place (all_reduce, all_gather_into_tensor, ...) return handles of this
process, which a graph cannot hold. While a step is traced each is replaced by the functional collective, followed, where
it is waited for, by a copy into the tensors it was given. Messages between two ranks are in messages.py.

Collectives that nobody waits for are waited for at the end of the step. Calls without a rule are left for world.py to
refuse.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat, messages, source, world
from .errors import CaptureError

Finish = Callable[[], Optional[List[Tensor]]]  # returns what has been written
Rule = Callable[["_Call"], Optional[Finish]]


def functional() -> Any:
    """A context in which in-place collectives are traced as functional ones."""
    return _functional() if world.is_distributed() and compat.can_box_work() else nullcontext()


@contextmanager
def _functional() -> Iterator[None]:
    pending: List[compat.Handle] = []

    def handle(finish: Finish) -> compat.Handle:
        pending.append(compat.Handle(finish))
        return pending[-1]

    ours: Dict[str, Callable[..., Any]] = {
        "all_to_all_single": partial(_all_to_all_single, handle),
        "batch_isend_irecv": _batch_isend_irecv,
        "monitored_barrier": lambda *_, **__: None,
        **{name: partial(_of_objects, name) for name in _OF_OBJECTS if hasattr(torch.distributed, name)},
    }
    before = {name: getattr(torch.distributed, name) for name in ours}
    try:
        for name, function in ours.items():
            setattr(torch.distributed, name, function)
        reductions = compat.Reductions()
        with reductions.noted(), _Functional(reductions, handle):
            yield
            for work in pending:
                work.wait()
    finally:
        for name, function in before.items():
            setattr(torch.distributed, name, function)


if torch.distributed.is_available():
    _exchange_in_place = torch.distributed.all_to_all_single


def _all_to_all_single(
    handle: Callable[[Finish], Any], output: Tensor, input: Tensor, output_split_sizes: Any = None,
    input_split_sizes: Any = None, group: Any = None, async_op: bool = False,
) -> Any:  # fmt: skip
    """The original takes no symbols: data-dependent counts would become those of the example."""
    counts = [*(output_split_sizes or ()), *(input_split_sizes or ()), output.shape[0], input.shape[0]]
    if not any(isinstance(count, torch.SymInt) for count in counts):
        return _exchange_in_place(output, input, output_split_sizes, input_split_sizes, group, async_op)
    group = group or torch.distributed.group.WORLD
    received = output_split_sizes or [output.shape[0] // group.size()] * group.size()
    sent = input_split_sizes or [input.shape[0] // group.size()] * group.size()
    with torch.no_grad():
        launched = compat.launch_all_to_all(input, received, sent, group.group_name)
    work = handle(_into([output], [launched]))
    if async_op:
        return work
    work.wait()


_OF_OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list",
)  # fmt: skip


def _of_objects(name: str, *_: Any, **__: Any) -> Any:
    line = source.user_line()
    place = f" at {line['file']}:{line['line']}" if line else ""
    raise CaptureError(
        f"{name}() is called{place}: what it sends is Python's, not a tensor, so no graph can hold it. "
        "Send a tensor, or call it before the step"
    )


def _batch_isend_irecv(p2p_op_list: List[Any]) -> List[Any]:
    """Launches the messages one by one, like a backend that cannot batch them; no launch blocks."""
    works = [op.op(op.tensor, op.peer, op.group, op.tag) for op in p2p_op_list]
    return [work for work in works if work is not None]


def _into(outputs: Sequence[Tensor], launched: Sequence[Tensor], parts: Any = None) -> Finish:
    """What remains to do at the wait: copies each launch's result, or `parts` of all results, to its output."""
    if not all(map(compat.is_fake, outputs)):
        line = source.user_line()
        place = f" at {line['file']}:{line['line']}" if line else ""
        raise CaptureError(
            f"a collective writes{place} into a tensor that was there before the step, which a graph would "
            "hold as a constant: make it (torch.empty) in each step"
        )

    def finish() -> List[Tensor]:
        with torch.no_grad(), compat.version_kept(outputs):
            given = [compat.wait(tensor) for tensor in launched]
            for output, value in zip(outputs, parts(*given) if parts is not None else given):
                output.copy_(value if value.shape == output.shape else value.reshape(output.shape))
        return list(outputs)

    return finish


def _split(outputs: Sequence[Tensor]) -> Callable[[Tensor], Sequence[Tensor]]:
    sizes = [output.numel() for output in outputs]
    return lambda flat: flat.split(sizes)


class _Functional(TorchDispatchMode):
    supports_higher_order_operators = True  # flex attention passes

    def __init__(self, reductions: compat.Reductions, handle: Callable[[Finish], Any]) -> None:
        super().__init__()
        self._reductions, self._handle = reductions, handle

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        is_ours = isinstance(func, torch._ops.OpOverload) and func.namespace == "c10d"
        rule = _RULES.get(func._schema.name.rpartition("::")[2]) if is_ours else None
        finish = rule(_Call(func, args, kwargs or {}, self._reductions)) if rule is not None else None
        if finish is None:
            return func(*args, **(kwargs or {}))
        work = self._handle(finish).boxed()
        return work if len(func._schema.returns) == 1 else (args[0], work)


class _Call:
    """The arguments of a call by name."""

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
        return compat.launch_all_to_all(rows, received, sent, self.group.group_name)


def _all_reduce(call: _Call) -> Optional[Finish]:
    reduction, tensors = call.reduction, call["tensors"]
    if reduction is None or call.given.get("sparse_indices") is not None:
        return None
    launched = [compat.launch_all_reduce(tensor.contiguous(), call.group, reduction) for tensor in tensors]
    return _into(tensors, launched)


def _reduce(call: _Call) -> Optional[Finish]:
    """On ranks other than the root the tensors are undefined afterwards; here they keep their values."""
    reduction, tensors = call.reduction, call["tensors"]
    if reduction is None:
        return None
    launched = [compat.launch_all_reduce(tensor.contiguous(), call.group, reduction) for tensor in tensors]
    return _into(tensors if call.rank == call["root_rank"] else [], launched)


def _broadcast(call: _Call) -> Optional[Finish]:
    tensors = call["tensors"]
    return _into(tensors, [compat.launch_broadcast(tensor, call.group, call["root_rank"]) for tensor in tensors])


def _gathered(call: _Call, tensor: Tensor) -> Tensor:
    return compat.launch_all_gather(tensor.reshape(1, *tensor.shape), call.group)


def _all_gather_base(call: _Call) -> Optional[Finish]:
    return _into([call["output_tensor"]], [_gathered(call, call["input_tensor"])])


def _all_gather_coalesced(call: _Call) -> Optional[Finish]:
    return _into(call["outputs"], [_gathered(call, tensor) for tensor in call["inputs"]])


def _all_gather(call: _Call) -> Optional[Finish]:
    lists, tensors = call["output_tensors"], call["input_tensors"]
    if any(output.shape != tensor.shape for outputs, tensor in zip(lists, tensors) for output in outputs):
        return None
    launched = [_gathered(call, tensor) for tensor in tensors]
    outputs = [output for outputs in lists for output in outputs]
    return _into(outputs, launched, lambda *wholes: [part for whole in wholes for part in whole.unbind()])


def _scattered(call: _Call, tensor: Tensor, reduction: str) -> Tensor:
    return compat.launch_reduce_scatter(tensor.reshape(call.count, -1).contiguous(), call.group, reduction)


def _reduce_scatter_base(call: _Call) -> Optional[Finish]:
    reduction = call.reduction
    if reduction is None:
        return None
    return _into([call["output_tensor"]], [_scattered(call, call["input_tensor"], reduction)])


def _reduce_scatter_coalesced(call: _Call) -> Optional[Finish]:
    reduction = call.reduction
    if reduction is None:
        return None
    return _into(call["outputs"], [_scattered(call, tensor, reduction) for tensor in call["inputs"]])


def _reduce_scatter(call: _Call) -> Optional[Finish]:
    reduction = call.reduction
    if reduction is None:
        return None
    stacks = [torch.stack(list(tensors)) for tensors in call["input_tensors"]]
    return _into(call["output_tensors"], [_scattered(call, stack, reduction) for stack in stacks])


def _all_to_all_base(call: _Call) -> Optional[Finish]:
    """Exchanges rows; without counts the same number with every rank."""
    output, tensor = call["output"], call["input"]
    received, sent = list(call["output_split_sizes"]), list(call["input_split_sizes"])
    received = received or [output.shape[0] // call.count] * call.count
    sent = sent or [tensor.shape[0] // call.count] * call.count
    return _into([output], [call.exchange(tensor, received, sent)])


def _all_to_all(call: _Call) -> Optional[Finish]:
    outputs, tensors = call["output_tensors"], call["input_tensors"]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    numbers = [output.numel() for output in outputs], [tensor.numel() for tensor in tensors]
    return _into(outputs, [call.exchange(flat, *numbers)], _split(outputs))


def _scatter(call: _Call) -> Optional[Finish]:
    """Only the root sends, but every rank takes part in the exchange."""
    (output,), root = call["output_tensors"], call["root_rank"]
    size = output.numel()
    received = [size if rank == root else 0 for rank in range(call.count)]
    if call.rank == root:
        flat, sent = torch.cat([part.reshape(-1) for part in call["input_tensors"][0]]), [size] * call.count
    else:
        flat, sent = output.new_empty(0), [0] * call.count
    return _into([output], [call.exchange(flat, received, sent)])


def _gather(call: _Call) -> Optional[Finish]:
    (tensor,), root = call["input_tensors"], call["root_rank"]
    size, at_root = tensor.numel(), call.rank == root
    sent = [size if rank == root else 0 for rank in range(call.count)]
    flat = call.exchange(tensor.reshape(-1), [size if at_root else 0] * call.count, sent)
    outputs = call["output_tensors"][0] if at_root else []
    return _into(outputs, [flat], _split(outputs) if at_root else None)


def _send(call: _Call) -> Optional[Finish]:
    launched = [messages.launch_send(tensor, call.group, call["dst"], call["tag"]) for tensor in call["tensors"]]
    return _into([], launched)


def _receive(call: _Call) -> Optional[Finish]:
    tensors = call["tensors"]
    return _into(tensors, [messages.launch_receive(t, call.group, call["src"], call["tag"]) for t in tensors])


def _nothing(_: _Call) -> Optional[Finish]:
    """A barrier does not change results."""
    return lambda: None


_RULES: Dict[str, Rule] = {
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
    "send": _send,
    "recv_": _receive,
    "barrier": _nothing,
}
