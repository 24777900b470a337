"""FSDP2 models. `fully_shard` gathers parameters in hooks that move memory by hand, which no tracer can follow. While a
step is captured these hooks are disabled and the same communication is explicit: a gather of each parameter before its
module's forward, a reduce-scatter of each gradient in backward, as set_requires_gradient_sync() says.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import compat, sharding
from .errors import CaptureError
from .recorder import Recorder
from .shards import Running, Unit


class Gathers:
    """All FSDP units of a model during a step."""

    def __init__(self, units: List[Unit], state: Dict[str, Tensor], recorder: Recorder) -> None:
        self._recorder = recorder
        self._running = {id(unit): [Running(shard, state[shard.fqn]) for shard in unit.shards] for unit in units}

    def of(self, unit: Unit) -> List[Running]:
        return self._running[id(unit)]

    @property
    def _all(self) -> Iterator[Running]:
        return (one for running in self._running.values() for one in running)

    @contextmanager
    def shown_whole(self) -> Iterator[None]:
        """Shows the gathered parameters in the model, as backward recomputes checkpoints with them."""
        for one in self._all:
            if one.gathered is not None:
                one.show(one.gathered)
        try:
            yield
        finally:
            self.show_kept()

    def show_kept(self) -> None:
        for one in self._all:
            one.show(one.kept)

    def reduce_the_rest(self) -> None:
        """After a backward: reduces gradients of earlier backwards whose parameters this one did not reach."""
        with self._recorder.after_backward(), torch.no_grad():
            for one in self._all:
                waiting = one.take_unreduced()
                if waiting is not None:
                    with self._recorder.inside(one.shard.fqn.rpartition(".")[0]):
                        sharding.accumulate(one.kept, one.reduced(waiting))

    def check_reduced(self) -> None:
        left = next((one.shard.fqn for one in self._all if one.is_waiting), None)
        if left is not None:
            raise CaptureError(
                f"the step ends with a gradient of {left} that is not reduced: its last backward is to run with "
                "set_requires_gradient_sync(True), of copies also set_requires_all_reduce(True)"
            )


@contextmanager
def explicit(
    model: nn.Module, units: List[Unit], state: Dict[str, Tensor], recorder: Recorder, puts_back: bool
) -> Iterator[Gathers]:
    """The model has the tensors of `state`: this rank's shards of a unit's parameters, whole while its modules run, and
    shards again afterwards if `puts_back`."""
    gathers = Gathers(units, state, recorder)
    with compat.swapped(model, state), compat.fsdp_hooks_at_rest(model.modules(), gathers.reduce_the_rest):
        with _hooked(units, gathers, recorder, puts_back):
            yield gathers


@contextmanager
def beside_explicit(modules: Sequence[Tuple[str, nn.Module]], gathers: Gathers, recorder: Recorder) -> Iterator[None]:
    """The same for modules beside the model (a frozen teacher), with the tensors that they have now. `gathers` are those
    of the model. What is gathered already stays so, and its hooks do nothing."""
    units = compat.fsdp_units_beside(modules)
    state = {shard.fqn: shard.shown for unit in units for shard in unit.shards}
    theirs = Gathers(units, state, recorder)
    parts = [module for unit in units for module in unit.modules]
    with compat.fsdp_hooks_at_rest(parts, gathers.reduce_the_rest), _hooked(units, theirs, recorder, puts_back=True):
        try:
            yield
        finally:
            theirs.show_kept()


@contextmanager
def _hooked(units: Sequence[Unit], gathers: Gathers, recorder: Recorder, puts_back: bool) -> Iterator[None]:
    settings = [shard.settings.kept() for unit in units for shard in unit.shards]
    undo = [step for unit in units for step in _hooks(unit, gathers.of(unit), recorder, puts_back)]
    try:
        yield
    finally:
        for step in [*undo, *settings]:
            step()


def _hooks(unit: Unit, running: List[Running], recorder: Recorder, puts_back: bool) -> List[Callable[[], None]]:
    """Installs what a unit does around its modules; returns what removes it."""

    def before(_: nn.Module, args: Any, kwargs: Any) -> Tuple[Any, Any]:
        for one in running:
            if recorder.in_backward and one.is_gathered():
                continue  # a recomputed checkpoint uses what forward gathered, like the rest of backward
            with recorder.inside(one.shard.fqn.rpartition(".")[0]):
                one.gather()
        return _cast((args, kwargs), unit.input_dtype)

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        return _cast(output, unit.output_dtype)

    def last(module: nn.Module, args: Any, output: Any) -> Any:
        for one in running if puts_back and not unit.stays and not recorder.in_backward else ():
            one.show(one.kept)
        return after(module, args, output)

    undo: List[Callable[[], None]] = []
    for i, module in enumerate(unit.modules):
        # The modules of a unit run one after the other: the first gathers the parameters of all.
        hook = before if i == 0 else lambda _, args, kwargs: _cast((args, kwargs), unit.input_dtype)
        undo.append(module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True).remove)
        undo.append(module.register_forward_hook(last if i + 1 == len(unit.modules) else after).remove)
        undo += [_replace(module, *method, before, last, recorder) for method in compat.fsdp_methods(module)]
    return undo


def _replace(
    module: nn.Module, name: str, plain: Callable[..., Any], before: Any, after: Any, recorder: Recorder
) -> Callable[[], None]:
    """Makes a method (register_fsdp_forward_method) gather as forward does; returns what restores it."""
    registered = vars(module)[name]

    def method(*args: Any, **kwargs: Any) -> Any:
        with recorder.inside_module(module):
            args, kwargs = before(module, args, kwargs)
            return after(module, args, plain(*args, **kwargs))

    setattr(module, name, method)
    return lambda: setattr(module, name, registered)


def _cast(tree: Any, dtype: Optional[torch.dtype]) -> Any:
    if dtype is None:
        return tree

    def cast(value: Any) -> Any:
        return (
            value.to(dtype)
            if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype
            else value
        )

    return pytree.tree_map(cast, tree)
