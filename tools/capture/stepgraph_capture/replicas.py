"""DistributedDataParallel, at the top of the model or inside it; elsewhere it is refused. Its reducer is C++ code that
no tracer follows. During a step here, its forward broadcasts buffers and then calls the module's forward. Its gradients
are averaged at the end, or, in a step that calls backward itself, after each backward that the reducer is prepared for.

Its settings are respected: no_sync(), ignored parameters and buffers, parameters that a rank does not use. Settings
that a graph of plain all-reduces cannot represent are refused by wrappers.py.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import torch
from torch import Tensor, nn

from . import compat, sharding
from .errors import CaptureError
from .recorder import Recorder


class Copies:
    """One DistributedDataParallel module."""

    def __init__(self, name: str, parallel: Any) -> None:
        self.name = name  # the module's name in the model, "" for the model itself
        self.parallel = parallel
        self.group = parallel.process_group
        self._parameters = reduced_parameters(parallel)
        self.fqns: Set[str] = set()  # names of the parameters whose gradients it averages
        self._averages = False  # in this step
        self._is_prepared = False  # to average after the next backward
        self._broadcasts = False

    def name_parameters(self, model: nn.Module) -> None:
        """Looks up parameter names in the model; during a step other tensors replace its parameters."""
        ours = {id(parameter) for parameter in self._parameters}
        self.fqns = {fqn for fqn, parameter in compat.named_parameters(model) if id(parameter) in ours}

    @property
    def tolerates_unused(self) -> bool:
        return bool(self.parallel.find_unused_parameters or self.parallel.static_graph)

    def begin(self) -> None:
        self._averages = self._is_prepared = False
        self._broadcasts = bool(self.parallel.require_forward_param_sync)

    def averages(self, fqn: str) -> bool:
        """Whether this step averages the gradient: not if all its forwards ran under no_sync()."""
        return self._averages and fqn in self.fqns

    def forward(self, recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
        if recorder.in_backward:
            raise CaptureError(
                f"{self.name or 'the model'} is a DistributedDataParallel within an activation checkpoint, which would "
                "run its forward again in backward: put the checkpoint inside it"
            )
        inner, synchronizes = self.parallel.module, torch.is_grad_enabled() and self.parallel.require_backward_grad_sync
        if self._broadcasts and compat.syncs_buffers(self.parallel):
            self._broadcast_buffers(recorder)
        output = inner(*args, **kwargs)
        if synchronizes:
            self.prepare_for_backward()
        self._broadcasts = synchronizes
        return output

    def prepare_for_backward(self, *_: Any) -> None:
        """Named like the reducer's method, which a pipeline schedule calls itself before its last backward."""
        self._averages = self._is_prepared = True

    def is_due(self, reached: Set[str]) -> bool:
        """Whether it averages after the backward that reached these parameters. Called once per backward."""
        found = self._is_prepared and bool(self.fqns & reached)
        self._is_prepared = self._is_prepared and not found
        return found

    def _broadcast_buffers(self, recorder: Recorder) -> None:
        """Broadcasts the buffers of the group's first rank to the others."""
        ignored = self.parallel.parameters_to_ignore
        buffers = [(name, b) for name, b in compat.named_buffers(self.parallel.module) if name not in ignored]
        parts = [sharding.local(buffer) for _, buffer in buffers]
        with torch.no_grad(), compat.version_kept(parts):
            for (name, _), part in zip(buffers, parts):
                with recorder.inside(".".join(filter(None, (self._inner_name, name.rpartition(".")[0])))):
                    part.copy_(compat.broadcast(part, self.group))

    @property
    def _inner_name(self) -> str:
        return f"{self.name}.module" if self.name else ""

    def average(self, gradient: Tensor) -> Tensor:
        """Averages like DistributedDataParallel: divides first, then sums; in the type of its communication hook."""
        sent = gradient.to(sent_type(self.parallel) or gradient.dtype)
        return compat.all_reduce(sent / self.group.size(), self.group).to(gradient.dtype)


class Replicas:
    """All DistributedDataParallel modules of a model."""

    def __init__(self, given: nn.Module) -> None:
        self.given = given
        self.model = given.module if is_parallel(given) else given
        self._copies = [Copies("", given)] if is_parallel(given) else []
        self._copies += [Copies(name, module) for name, module in self.model.named_modules() if is_parallel(module)]
        for copies in self._copies:
            copies.name_parameters(self.model)
        # Parameters for which only other ranks compute a gradient. A first run of the step finds them.
        self.used_elsewhere: Set[str] = set()
        self._unused: Optional[Set[str]] = None  # in learning(): those without a gradient on this rank
        self._reached: Set[str] = set()  # parameters reached by the current backward
        self._check_apart()

    @contextmanager
    def explicit(self, recorder: Recorder) -> Iterator[None]:
        """Makes each forward plain, and records what must be averaged."""
        reducers = [copies.parallel.reducer for copies in self._copies]
        for copies in self._copies:
            copies.begin()
            copies.parallel.forward = lambda *args, copies=copies, **kwargs: copies.forward(recorder, *args, **kwargs)
            copies.parallel.reducer = copies
        try:
            with _others_refused():
                yield
        finally:
            for copies, reducer in zip(self._copies, reducers):
                del copies.parallel.forward
                copies.parallel.reducer = reducer

    @contextmanager
    def learning(self) -> Iterator[Set[str]]:
        """In this context it is unknown which parameters other ranks use, so all of them are averaged. Yields the set
        of parameters without a gradient on this rank."""
        self._unused = set()
        try:
            yield self._unused
        finally:
            self._unused = None

    def average(self, fqn: str, parameter: Tensor, gradient: Optional[Tensor]) -> Optional[Tensor]:
        """The gradient as it is after the step."""
        copies = self._averaging(fqn)
        return gradient if copies is None else self._averaged(copies, fqn, parameter, gradient)

    @contextmanager
    def watching(self, leaves: Dict[str, Tensor]) -> Iterator[None]:
        """Tracks which of these parameters each backward reaches."""
        ours = [fqn for copies in self._copies for fqn in copies.fqns]
        hooks = [
            leaves[fqn].register_post_accumulate_grad_hook(lambda _, fqn=fqn: self._reached.add(fqn)) for fqn in ours
        ]
        try:
            yield
        finally:
            self._reached.clear()
            for hook in hooks:
                hook.remove()

    def average_all(self, leaves: Dict[str, Tensor], recorder: Recorder) -> None:
        """After a backward: replaces the leaves' gradients by their means over the ranks."""
        for copies in self._copies:
            if copies.is_due(self._reached):
                for fqn, leaf in leaves.items():
                    if fqn in copies.fqns:
                        with recorder.inside(fqn.rpartition(".")[0]), torch.no_grad():
                            self._average_of(copies, fqn, leaf)
        self._reached.clear()

    def _average_of(self, copies: Copies, fqn: str, leaf: Tensor) -> None:
        mine = None if leaf.grad is None else sharding.as_laid_out(leaf.grad, leaf)
        mine = self._averaged(copies, fqn, sharding.local(leaf), mine)
        leaf.grad = None if mine is None else sharding.whole(mine, leaf)

    def _averaged(self, copies: Copies, fqn: str, parameter: Tensor, gradient: Optional[Tensor]) -> Optional[Tensor]:
        """A parameter that only other ranks used counts as having a zero gradient."""
        if gradient is None:
            if not copies.tolerates_unused:
                raise CaptureError(
                    f"{fqn} gets no gradient in this step, and DistributedDataParallel does not finish without: make "
                    "it with find_unused_parameters=True, or freeze the parameter before"
                )
            if self._unused is not None:
                self._unused.add(fqn)
            elif fqn not in self.used_elsewhere:
                return None
            gradient = torch.zeros_like(parameter.detach())
        return copies.average(gradient)

    def unused(self, fqns: List[str]) -> Dict[str, Tuple[int, ...]]:
        """The parameters without a gradient that another rank may have one for, with those ranks."""
        found = {}
        for fqn in fqns:
            copies = self._averaging(fqn)
            if copies is not None and copies.group.size() > 1:
                found[fqn] = tuple(compat.group_ranks(copies.group.group_name))
        return found

    def _averaging(self, fqn: str) -> Optional[Copies]:
        return next((copies for copies in self._copies if copies.averages(fqn)), None)

    def _check_apart(self) -> None:
        for i, copies in enumerate(self._copies):
            for other in self._copies[:i]:
                both = sorted(copies.fqns & other.fqns)
                if both:
                    raise CaptureError(
                        f"{both[0]} is averaged by two DistributedDataParallel, one of them {copies.name}: let the "
                        "outer one ignore it"
                    )


def is_parallel(module: nn.Module) -> bool:
    kind = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    return kind is not None and isinstance(module, kind)


def is_known_hook(hook: Any) -> bool:
    """Whether `average` does what the communication hook does."""
    return hook in _sent_types()


def sent_type(parallel: Any) -> Optional[torch.dtype]:
    """The element type in which its communication hook sends gradients; None for their own."""
    return next((_sent_types()[hook] for hook, _ in parallel._comm_hooks), None)


def _sent_types() -> Dict[Any, Optional[torch.dtype]]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return {
        default_hooks.allreduce_hook: None,
        default_hooks.bf16_compress_hook: torch.bfloat16,
        default_hooks.fp16_compress_hook: torch.float16,
    }


@contextmanager
def _others_refused() -> Iterator[None]:
    """Refuses wrappers outside of the model, whose reductions the capture would miss."""
    kind = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    if kind is None:
        yield
        return
    theirs = kind.forward

    def forward(parallel: Any, *args: Any, **kwargs: Any) -> Any:
        if parallel.process_group.size() > 1:
            raise CaptureError(
                f"the step calls a DistributedDataParallel of {type(parallel.module).__name__} that is not part of the "
                "model: give it to capture as model=, or as a module of the model, so that its all-reduces are seen"
            )
        return theirs(parallel, *args, **kwargs)

    kind.forward = forward
    try:
        yield
    finally:
        kind.forward = theirs


def reduced_parameters(parallel: Any) -> List[nn.Parameter]:
    """The parameters that its reducer handles. A parameter at the top is named `.weight` there, so ignoring `weight`
    has no effect: PyTorch's behaviour, kept here."""
    found: Dict[int, nn.Parameter] = {}
    for module_name, module in parallel.module.named_modules():
        for name, parameter in compat.named_parameters(module, recurse=False):
            if parameter.requires_grad and f"{module_name}.{name}" not in parallel.parameters_to_ignore:
                found[id(parameter)] = parameter
    return list(found.values())
