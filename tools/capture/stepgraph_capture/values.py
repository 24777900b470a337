"""The values of a capture: the inputs, and PyTorch's results for the user's model (not for the graph)."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence

import torch
from torch import Tensor, fx

from . import compat, draws, recorder
from .errors import CaptureError
from .recorder import Recorder
from .step import Slot, Step

SEED = 0  # for random ops, so that captures are reproducible


@dataclass
class Answers:
    """The results of one run: the outputs in the graph's order, and the inputs as the run left them. `written`: which
    inputs it wrote to, even with the same values."""

    outputs: List[Optional[Tensor]]
    inputs: List[Tensor]
    written: Sequence[bool] = ()


def given(step: Step, with_gaps: bool = True) -> List[Tensor]:
    """Fresh copies of the step's inputs, so that a run leaves the user's tensors unchanged."""
    return [given_for(slot, with_gaps) for slot in step.tensors]


def given_for(slot: Slot, with_gaps: bool = True) -> Tensor:
    copy = laid_copy(slot.local, with_gaps).requires_grad_(slot.requires_grad)
    return compat.as_written(copy, slot.value)


def laid_copy(tensor: Tensor, with_gaps: bool = True) -> Tensor:
    """A copy with the same strides. Memory between the elements (of a column of a matrix) is copied as well, or gets
    other values without `with_gaps`: a graph's input has no data there."""
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
    before = [tensor._version for tensor in tensors]
    with seeded(), step.generators.set_aside(), compat.eager_everywhere():
        result = step.run(tensors, Recorder(step.model), is_traced=False)
    return Answers(result.outputs, tensors, [tensor._version != then for tensor, then in zip(tensors, before)])


def of_the_graph(step: Step, module: fx.GraphModule) -> Answers:
    """The results of the traced graph, to compare with the model's."""
    return of_the_graph_on(given(step, with_gaps=False), module)


def of_the_graph_on(
    tensors: List[Tensor], module: fx.GraphModule, see: Callable[[fx.Node, Any], None] = lambda node, result: None
) -> Answers:
    """The same with these inputs, which it may write. see: is called with what each node makes."""
    before = [tensor._version for tensor in tensors]
    with seeded(), torch.no_grad(), compat.as_recorded():
        results = AsTraced(module, see).run(*tensors)
        outputs = [None if result is None else result.detach() for result in results]  # some are views written to since
    told = {memory for node in module.graph.nodes for memory in compat.written_by(node)}  # some ops count no versions
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    written = [t._version != then or node in told for t, then, node in zip(tensors, before, inputs)]
    return Answers(outputs, tensors, written)


class AsTraced(fx.Interpreter):
    """Runs a graph with the strides that tracing predicts, which may differ from those of eager ops: a view may be
    possible with one and not with the other."""

    def __init__(self, module: fx.GraphModule, see: Callable[[fx.Node, Any], None] = lambda node, result: None) -> None:
        super().__init__(module)
        self._draws, self._see = draws.Replay(module.graph), see

    def run_node(self, n: fx.Node) -> Any:
        try:
            result = self._draws.run(n, super().run_node)
        except torch.linalg.LinAlgError as error:
            self.extra_traceback = False  # the message is for users
            place, words = recorder.place(recorder.origin_of(n), n.graph), str(error).partition("\n")[0].rstrip(".")
            raise CaptureError(_CAUGHT.format(f" at {place}" if place else "", words)) from error
        self._see(n, result)
        if not isinstance(n.target, torch._ops.OpOverload) or any(r.alias_info for r in n.target._schema.returns):
            return result
        return as_traced(result, n.meta.get("val"))


_CAUGHT = (
    "the step's graph fails{}, where the step itself goes on ({}): it catches the error, and an error is no value that a "
    "graph could decide by: ask torch.linalg.cholesky_ex or inv_ex for `info`, and choose by torch.where"
)


def as_traced(result: Any, traced: Any) -> Any:
    """The result, copied if the traced strides differ at the example's sizes."""
    if isinstance(result, (tuple, list)) and isinstance(traced, (tuple, list)):
        return type(result)(as_traced(one, other) for one, other in zip(result, traced))
    if not isinstance(result, Tensor) or not isinstance(traced, Tensor):
        return result
    wanted = tuple(map(compat.example, traced.stride()))
    if wanted == result.stride() or None in (*wanted, *map(compat.example, traced.shape)):
        return result
    return torch.empty_strided(result.shape, wanted, dtype=result.dtype, device=result.device).copy_(result)


@contextmanager
def seeded() -> Iterator[None]:
    """Random ops draw the same numbers in each run; the user's generators are restored."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed would also seed unused GPUs
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(SEED)
        yield


def check_same(names: Sequence[str], model: Answers, graph: Answers, noise: Sequence[Optional[float]]) -> None:
    """Checks that the graph computes what the model does; a wrong capture would be worse than none.

    noise: how far rounding alone may move each value."""
    for name, left, right, moved in zip(names, model.outputs, graph.outputs, noise):
        if (left is None) != (right is None):
            raise CaptureError(f"{name} is None in the model's run or in the graph's, and not in the other")
        if left is not None and right is not None:
            check_close(name, left, right, moved)


def settled_by_gradients(value: Tensor, other: Tensor, gradient: Tensor, other_gradient: Tensor) -> Tensor:
    """An updated parameter, with the elements of `value` where the gradients, the same as a whole, are next to 0 and not
    the same: an optimizer that divides by their size steps one way or the other there."""
    if not gradient.shape == other_gradient.shape == value.shape == other.shape:
        return other
    is_chance = (gradient - other_gradient).abs() > _CHANCE * gradient.abs()
    return torch.where(is_chance, value, other)


def is_same_update(before: Tensor, one: Tensor, other: Tensor) -> bool:
    """Whether both updates change the value by the same amount, up to rounding: as a whole, for an optimizer that divides
    by gradients makes much of the rounding of one that is next to 0."""
    if one.numel() == 0:
        return True
    wide = torch.complex128 if one.is_complex() else torch.float64
    rounding = 4 * torch.finfo(one.dtype).eps
    before, one, other = (tensor.to(wide) for tensor in (before, one, other))
    if farthest(one, other) == math.inf:
        return False
    return _length(one - other) <= 1e-3 * _length(one - before) + rounding * _length(one)


def _length(tensor: Tensor) -> float:
    """As a vector, of its finite numbers."""
    return torch.linalg.vector_norm(tensor.nan_to_num(0, 0, 0)).item()


def _largest(tensor: Tensor) -> float:
    """The largest finite magnitude."""
    return tensor.abs().nan_to_num(posinf=0).max().item() if tensor.numel() else 0.0


def farthest(left: Tensor, right: Tensor) -> float:
    """The largest distance between two corresponding elements; infinite if only one side has a NaN or an infinity."""
    if left.numel() == 0:
        return 0.0
    if not torch.equal(left.isnan(), right.isnan()):
        return math.inf
    same = (left == right) | left.isnan()  # includes equal infinities
    return (left - right).abs().masked_fill(same, 0).nan_to_num(math.inf, math.inf).max().item()


_CHANCE = 0.05  # relative distance of two gradients that are nothing but rounding
SLACK = 3  # multiples of the noise that are accepted, as in sg-run


def tolerance(dtype: torch.dtype) -> float:
    """Of results that are the same but for rounding, relative to the largest."""
    return 1e-4 if dtype in (torch.float32, torch.float64, torch.complex64) else 2e-2


def check_close(name: str, left: Tensor, right: Tensor, noise: Optional[float] = None) -> None:
    if left.shape != right.shape or left.dtype != right.dtype:
        raise CaptureError(
            f"{name} is {left.dtype} {tuple(left.shape)} when the model runs, and {right.dtype} "
            f"{tuple(right.shape)} when the graph does: the model's code depends on values"
        )
    wide = torch.complex128 if left.is_complex() else torch.float64
    scale, difference = _largest(left.to(wide)), farthest(left.to(wide), right.to(wide))
    if difference > max(tolerance(left.dtype) * (scale + 1e-3), SLACK * (noise or 0.0)):
        raise CaptureError(
            f"{name} differs by {difference:.3g} (largest value {scale:.3g}) between the model's run and the graph's: "
            "the model's code depends on values, or on what no graph holds (state that is no parameter or buffer, a seed "
            "set in the step, random numbers of Python or NumPy, type() of its tensors)"
        )
