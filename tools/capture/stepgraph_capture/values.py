"""The values of a capture: the inputs, and PyTorch's results for the user's model (not for the graph)."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Sequence

import torch
from torch import Tensor, fx

from . import compat
from .bits import changed
from .errors import CaptureError
from .recorder import Recorder
from .step import Step

SEED = 0  # of random ops, so that a capture is the same each time


@dataclass
class Answers:
    """Of one run: the outputs in the graph's order, and the inputs as the run left them. `written`: which of these it
    wrote to, with other values or the same; known of a graph alone."""

    outputs: List[Optional[Tensor]]
    inputs: List[Tensor]
    written: Sequence[bool] = ()


def given(step: Step, with_gaps: bool = True) -> List[Tensor]:
    """Fresh copies of the step's inputs: a run changes nothing of the user's."""
    return [laid_copy(slot.local, with_gaps).requires_grad_(slot.trainable) for slot in step.tensors]


def laid_copy(tensor: Tensor, with_gaps: bool = True) -> Tensor:
    """A copy of the same strides. What lies between the elements (a column of a matrix) is copied, too, or differs: a
    graph's input has nothing there."""
    tensor = tensor.detach()
    copy = tensor.clone()
    is_plain = copy.layout is torch.strided and copy.numel() > 0 and not tensor.is_conj() and not tensor.is_neg()
    if not is_plain or copy.stride() == tensor.stride():
        return copy
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = tensor.as_strided((extent,), (1,)).clone()
    if not with_gaps:
        between = torch.ones(extent, dtype=torch.bool, device=memory.device)
        between[torch.arange(extent, device=memory.device).as_strided(tensor.shape, tensor.stride())] = False
        is_wide = memory.is_floating_point() or memory.is_complex()
        memory[between] = memory.new_full((), math.nan) if is_wide else ~memory[between]
    return memory.as_strided(tensor.shape, tensor.stride())


def of_the_model(step: Step) -> Answers:
    """PyTorch's own results: eager forward, loss and autograd."""
    tensors = given(step)
    with seeded(), compat.eager_everywhere():
        result = step.run(tensors, Recorder(step.model), is_traced=False)
    return Answers(result.outputs, tensors)


def of_the_graph(step: Step, module: fx.GraphModule) -> Answers:
    """The results of the traced graph, to compare with the model's."""
    tensors = given(step, with_gaps=False)
    before = [tensor._version for tensor in tensors]
    with seeded(), torch.no_grad():
        results = AsTraced(module).run(*tensors)
        outputs = [None if result is None else result.detach() for result in results]  # some are views written to since
    told = {memory for node in module.graph.nodes for memory in compat.written_by(node)}  # some ops count no versions
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    written = [t._version != then or node in told for t, then, node in zip(tensors, before, inputs)]
    return Answers(outputs, tensors, written)


class AsTraced(fx.Interpreter):
    """Runs a graph with results that lie in memory as tracing says, which is not always as an eager op lays them: a
    view may be possible in the one and not in the other."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if not isinstance(n.target, torch._ops.OpOverload) or any(r.alias_info for r in n.target._schema.returns):
            return result
        return as_traced(result, n.meta.get("val"))


def as_traced(result: Any, traced: Any) -> Any:
    """The result, copied if the traced strides differ at the example's sizes."""
    if isinstance(result, (tuple, list)) and isinstance(traced, (tuple, list)):
        return type(result)(as_traced(one, other) for one, other in zip(result, traced))
    if not isinstance(result, Tensor) or not isinstance(traced, Tensor):
        return result
    shape, wanted = (tuple(compat.example(size) for size in sizes) for sizes in (traced.shape, traced.stride()))
    if None in (*shape, *wanted) or wanted == result.stride():
        return result
    return torch.empty_strided(result.shape, wanted, dtype=result.dtype, device=result.device).copy_(result)


@contextmanager
def seeded() -> Iterator[None]:
    """Random ops draw the same numbers in each run; the user's generators are restored."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed would seed GPUs that nobody uses, too
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(SEED)
        yield


def check_same(names: Sequence[str], model: Answers, graph: Answers, noise: Sequence[Optional[float]]) -> None:
    """The graph does what the model does, or is refused: a capture that lies is worse than none.

    noise: of each value, how far rounding alone may move it."""
    for name, left, right, moved in zip(names, model.outputs, graph.outputs, noise):
        if (left is None) != (right is None):
            raise CaptureError(f"{name} is None in the model's run or in the graph's, and not in the other")
        if left is not None and right is not None:
            check_close(name, left, right, moved)


def is_same_update(before: Tensor, one: Tensor, other: Tensor) -> bool:
    """Whether both updates change the value by the same amount, up to rounding."""
    if one.numel() == 0:
        return True
    wide = torch.complex128 if one.is_complex() else torch.float64
    rounding = 4 * torch.finfo(one.dtype).eps
    before, one, other = (tensor.to(wide) for tensor in (before, one, other))
    apart = _farthest(one, other)
    return apart < math.inf and apart <= 1e-3 * _farthest(one, before) + rounding * _largest(one)


def _largest(tensor: Tensor) -> float:
    """Of its numbers, the largest that is finite."""
    return tensor.abs().nan_to_num(posinf=0).max().item() if tensor.numel() else 0.0


def _farthest(left: Tensor, right: Tensor) -> float:
    """How far two of their numbers lie apart at most; a NaN, or an infinity, that only one side has is infinitely far."""
    if left.numel() == 0:
        return 0.0
    if not torch.equal(left.isnan(), right.isnan()):
        return math.inf
    same = (left == right) | left.isnan()  # infinities among them
    return (left - right).abs().masked_fill(same, 0).nan_to_num(math.inf, math.inf).max().item()


_SLACK = 3  # as sg-run has it: of the noise that is right


def check_close(name: str, left: Tensor, right: Tensor, noise: Optional[float] = None) -> None:
    if left.shape != right.shape or left.dtype != right.dtype:
        raise CaptureError(
            f"{name} is {left.dtype} {tuple(left.shape)} when the model runs, and {right.dtype} "
            f"{tuple(right.shape)} when the graph does: the model's code depends on values"
        )
    wide = torch.complex128 if left.is_complex() else torch.float64
    tolerance = 1e-4 if left.dtype in (torch.float32, torch.float64, torch.complex64) else 2e-2
    scale, difference = _largest(left.to(wide)), _farthest(left.to(wide), right.to(wide))
    if difference > max(tolerance * (scale + 1e-3), _SLACK * (noise or 0.0)):
        raise CaptureError(
            f"{name} differs by {difference:.3g} (largest value {scale:.3g}) between the model's run and the "
            "graph's: the model's code depends on values, or on state that is not a parameter or buffer"
        )
