"""Where each node comes from: its module, phase, autograd number, source line and the user's annotations.

PyTorch's own records of these differ from release to release, so they are taken here while the step is being traced.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from torch import fx, nn
from torch.nn.modules import module as module_hooks

from . import compat, source
from .annotate import current as annotations_here

KEY = "stepgraph"  # in Node.meta


@dataclass
class Origin:
    """The origin of a node. A backward node takes module and annotations from its forward node, and the source where no
    line of the user's makes it."""

    phase: str
    seq: Optional[int]
    module: Optional[str]
    source: Optional[Dict[str, Any]]
    custom: Dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Writes an Origin into each node created in `recording()`."""

    def __init__(self, root: nn.Module, see: Callable[[fx.Node], None] = lambda node: None) -> None:
        """see: called with each of these nodes."""
        self._see = see
        # A module with several names has the first of them, as its parameters do.
        self._names = {id(module): name for name, module in root.named_modules()}
        self._modules: List[str] = []
        self._backward = self._updates = False
        self._running: List[int] = []  # numbers of the running autograd nodes

    @contextmanager
    def recording(self) -> Iterator[None]:
        enter = module_hooks.register_module_forward_pre_hook(self._enter)
        leave = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            with compat.observe_nodes(self._tag), compat.torch_annotations():
                yield
        finally:
            enter.remove()
            leave.remove()

    @contextmanager
    def inside(self, module: str) -> Iterator[None]:
        """Attributes nodes made here to `module`, though its forward does not run."""
        self._modules.append(module)
        try:
            yield
        finally:
            self._modules.pop()

    def inside_module(self, module: nn.Module) -> Any:
        """Same as inside(), given the module itself."""
        return self.inside(self._names.get(id(module), ""))

    @contextmanager
    def backward(self, roots: Sequence[Any]) -> Iterator[None]:
        """Attributes nodes made here to the backward pass that starts at these tensors or autograd edges."""
        handles = self._watch([getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots])
        before, self._backward = self._backward, True
        try:
            yield
        finally:
            self._backward = before
            for handle in handles:
                handle.remove()

    @property
    def in_backward(self) -> bool:
        """Whether backward runs: a module that runs now is recomputed by a checkpoint."""
        return self._backward

    @contextmanager
    def after_backward(self) -> Iterator[None]:
        """Attributes nodes made here to the backward pass, after its last autograd node."""
        before, self._backward = self._backward, True
        try:
            yield
        finally:
            self._backward = before

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Attributes nodes made here to an optimizer."""
        before, self._updates = self._updates, True
        try:
            yield
        finally:
            self._updates = before

    def _enter(self, module: nn.Module, _: Any) -> None:
        self._modules.append(self._names.get(id(module), self._modules[-1] if self._modules else ""))

    def _leave(self, *_: Any) -> None:
        self._modules.pop()

    def _watch(self, roots: List[Any]) -> List[Any]:
        """Hooks before and after each autograd node reachable from these. What runs between nodes is the summation of
        gradients, which belongs to no forward op."""
        handles = []
        for node in compat.autograd_nodes(*roots):
            number = compat.node_sequence_number(node)
            handles.append(node.register_prehook(lambda *_, number=number: self._running.append(number)))
            handles.append(node.register_hook(self._done))
        return handles

    def _done(self, *_: Any) -> None:
        self._running.pop()

    def _tag(self, node: fx.Node) -> None:
        if node.op not in ("placeholder", "output"):
            node.meta[KEY] = self.here()
            self._see(node)

    def here(self) -> Origin:
        """The origin of what is being traced now."""
        # In backward: of a backward() or a hook of the user's, or of the forward that a checkpoint computes again.
        line = source.user_line(within=compat.ENGINE if self._backward else None)
        running = self._running[-1] if self._running else None
        if not self._backward:
            running = compat.sequence_number()
        return Origin(
            phase="backward" if self._backward else "optimizer" if self._updates else "forward",
            seq=running,
            # In backward a module runs only if a checkpoint recomputes its forward.
            module=self._modules[-1] if self._modules else None,
            source=line,
            custom=dict(annotations_here()),
        )


def link(graph: fx.Graph) -> None:
    """Copies to each backward node the origin of the first forward node with its autograd number."""
    forward: Dict[int, Origin] = {}
    for node in graph.nodes:
        origin = node.meta.get(KEY)
        if origin is None:
            continue
        if origin.phase == "forward":
            origin.custom = {**(node.meta.get("custom") or {}), **origin.custom}
            forward.setdefault(origin.seq, origin)
        elif origin.seq in forward:
            known = forward[origin.seq]
            origin.custom = {**known.custom, **origin.custom}
            if origin.module is None:
                origin.module, origin.source = known.module, origin.source or known.source


def locate(graph: fx.Graph, decided_at: Mapping[Any, Optional[Origin]]) -> None:
    """Gives reads of numbers that no line of the user's makes (an optimizer's count, as the step begins) the line that
    first decides by the number. decided_at: by symbol."""
    for node in graph.nodes:
        origin = origin_of(node)
        for symbol in node.meta.get("unbacked_bindings") or ():
            decision = decided_at.get(symbol)
            if origin is not None and origin.source is None and decision is not None:
                origin.source = decision.source


def tell_optimizer(graph: fx.Graph) -> None:
    """Changes the phase of nodes after the last backward node to optimizer, if they depend on gradients or feed such
    nodes: a step that calls backward itself clips gradients and updates parameters. Messages to other ranks keep the
    phase that they were launched in."""
    nodes = [node for node in graph.nodes if origin_of(node) is not None]
    last = max((i for i, node in enumerate(nodes) if origin_of(node).phase == "backward"), default=len(nodes))
    behind = [node for node in nodes[last + 1 :] if not compat.is_exchange(node.target)]
    found: Set[fx.Node] = set()
    for node in behind:
        if _has_phase(node, "optimizer") or any(
            other in found or _has_phase(other, "backward") for other in node.all_input_nodes
        ):
            found.add(node)
    for node in reversed(behind):
        if any(user in found for user in node.users):
            found.add(node)
    for node in found:
        origin_of(node).phase = "optimizer"


def _has_phase(node: fx.Node, phase: str) -> bool:
    origin = origin_of(node)
    return origin is not None and origin.phase == phase


def origin_of(node: fx.Node) -> Optional[Origin]:
    return node.meta.get(KEY)


def place(origin: Optional[Origin], graph: fx.Graph) -> Optional[str]:
    """The user's line for an origin, for messages; that of a backward node is its forward node's."""
    if origin is None:
        return None
    line = origin.source
    if line is None and origin.phase == "backward":
        known = (origin_of(node) for node in graph.nodes)
        line = next((o.source for o in known if o and o.phase == "forward" and o.seq == origin.seq), None)
    return f"{line['file']}:{line['line']} in {line['function']}" if line else None
