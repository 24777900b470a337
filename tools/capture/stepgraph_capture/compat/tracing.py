"""The tracer, and PyTorch settings while it runs."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

import torch
from torch import Tensor, fx
from torch.fx.experimental import proxy_tensor
from torch.utils.weak import TensorWeakRef

from .. import flex, jagged, release
from .control_flow import control_flow_as_python
from .nested import attention_over_pieces
from .sizes import is_of_data

_RELEASE = release.of(torch.__version__)


def trace(function: Callable[..., Any], arguments: Sequence[Tensor], fake_mode: Any, symbolic: bool) -> fx.GraphModule:
    """The ATen calls that `function` makes below autograd, as one graph. In-place ops stay as they are."""
    from torch._dispatch.python import enable_python_dispatcher

    tracer = proxy_tensor.make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)
    # Some composite ops take only plain sizes in C++; their implementations in Python accept symbols.
    from torch._functorch import config

    asks_python = symbolic or _RELEASE == (2, 8)  # its C++ code takes no index of a data-dependent size
    with fake_mode, eager_everywhere(), without_onednn(), casts_keep_strides(), casts_once_a_block(), (
        enable_python_dispatcher() if asks_python else nullcontext()
    ):
        # Takes effect where real tensors are alongside the fake ones.
        with config.patch(generate_fake_kernels_from_real_mismatches=True):
            return tracer(*arguments)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Disables oneDNN, so that recurrent layers are traced as plain ops."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def as_recorded() -> Iterator[None]:
    """In this context a graph runs as it stands, whatever the user's autocast: it holds the casts already."""
    with ExitStack() as off:
        for device in ("cpu", "cuda"):
            off.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def casts_once_a_block() -> Iterator[None]:
    """Keeps autocast's cache, which the tracer would disable: a weight is cast once in a block, however often it is
    used, and its gradients are summed in the narrow type."""
    disable = proxy_tensor.disable_autocast_cache
    proxy_tensor.disable_autocast_cache = nullcontext
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        proxy_tensor.disable_autocast_cache = disable
        torch.clear_autocast_cache()  # of fake tensors


@contextmanager
def casts_keep_strides() -> Iterator[None]:
    """For narrow floats PyTorch computes a result's strides in Python, from operands cast to a wider type. The cast
    would materialize expanded operands, and the strides would differ from those of the eager op; here a cast operand
    stays expanded."""
    from torch._prims_common import wrappers

    convert = wrappers._maybe_convert_to_dtype

    def keeping(a: Any, dtype: torch.dtype) -> Any:
        if not isinstance(a, Tensor) or a.dtype == dtype:
            return convert(a, dtype)
        once = a
        for axis, (size, stride) in enumerate(zip(a.shape, a.stride())):
            if isinstance(stride, int) and stride == 0 and not is_of_data(size) and size != 0:
                once = once.narrow(axis, 0, 1)
        return convert(a, dtype) if once is a else convert(once, dtype).expand(a.shape)

    wrappers._maybe_convert_to_dtype = keeping
    try:
        yield
    finally:
        wrappers._maybe_convert_to_dtype = convert


@contextmanager
def eager_everywhere() -> Iterator[None]:
    """Runs torch.compile'd parts as plain Python, backward on this thread, as modes are per thread, and attention over
    pieces of rows as attention over padded ones."""
    from torch._dynamo import config

    with torch.compiler.set_stance("force_eager"), config.patch(
        error_on_nested_fx_trace=False
    ), torch.autograd.set_multithreading_enabled(False), control_flow_as_python(), flex.with_operands(), attention_over_pieces(jagged.attention):
        yield


@contextmanager
def observe_nodes(callback: Callable[[fx.Node], None]) -> Iterator[None]:
    """Calls `callback` with each FX node when it is created, the only time its module and line are on the stack."""
    original = fx.Graph.create_node

    def create_node(self: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        node = original(self, *args, **kwargs)
        callback(node)
        return node

    fx.Graph.create_node = create_node  # type: ignore[method-assign]
    try:
        yield
    finally:
        fx.Graph.create_node = original  # type: ignore[method-assign]


@contextmanager
def torch_annotations() -> Iterator[None]:
    """Lets torch.fx.traceback.annotate(), where this PyTorch has it, reach Node.meta['custom']."""
    from torch.fx import traceback

    with traceback.preserve_node_meta() if hasattr(traceback, "annotate") else nullcontext():
        yield


@contextmanager
def without_batch_limits() -> Iterator[None]:
    """Disables NNPACK. A convolution would ask whether the batch is large enough for NNPACK (16 or more), and so add a
    guard on a choice of kernels that the graph does not contain."""
    with torch.backends.nnpack.flags(enabled=False):
        yield


@contextmanager
def with_eager_checkpoints() -> Iterator[None]:
    """Makes selective checkpoints (`create_selective_checkpoint_contexts`) recompute as in eager mode. In a tracer they
    keep every result for a compiler to choose from, and fail if an in-place op has written to one."""
    from torch.utils import checkpoint

    before = checkpoint._is_compiling
    checkpoint._is_compiling = lambda *_: False
    try:
        yield
    finally:
        checkpoint._is_compiling = before


_UNHEARD = {
    "torch.fx.experimental.symbolic_shapes": logging.ERROR,  # logs each answer of a real tensor as a guard
    "torch.fx.experimental.recording": logging.CRITICAL,  # logs each question that fake tensors cannot answer
    "torch._subclasses.fake_tensor": logging.CRITICAL,  # logs each failing op with a traceback before it raises
}


@contextmanager
def without_notices() -> Iterator[None]:
    """Silences PyTorch's logs: their content is in the capture, or in the error's message."""
    loggers = {logging.getLogger(name): level for name, level in _UNHEARD.items()}
    before = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


@contextmanager
def data_assigned_by_copies() -> Iterator[None]:
    """In this context, which is that of a whole step, `tensor.data = value`, which tracing does not see, copies the value
    into the tensor. If the value is kept it is the tensor's memory from then on: as the step ends, or the tensor is
    assigned another one, it gets what the tensor has. The same for all that does not look at the old memory, or at the
    value before that. Another shape or type is assigned as usual.
    """
    data = torch._C.TensorBase.data
    kept: Dict[int, Tuple[TensorWeakRef, TensorWeakRef]] = {}  # tensor and value, by the tensor's id

    def assign(tensor: Tensor, value: Tensor) -> None:
        if tensor.shape == value.shape and tensor.dtype == value.dtype and tensor.device == value.device:
            part(id(tensor))
            data.__get__(tensor).copy_(value.detach())
            kept[id(tensor)] = TensorWeakRef(tensor), TensorWeakRef(value)
        else:
            data.__set__(tensor, value)

    def part(of: int) -> None:
        tensor, value = (one() for one in kept.pop(of, (lambda: None, lambda: None)))
        if tensor is not None and value is not None and value is not tensor:
            data.__get__(value).copy_(data.__get__(tensor))

    torch.Tensor.data = property(data.__get__, assign)
    try:
        yield
        for tensor in list(kept):
            part(tensor)
    finally:
        del torch.Tensor.data
