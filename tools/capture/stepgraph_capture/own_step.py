"""A step that calls backward itself, and interleaves it freely with forward and its own collectives.

Such a step sees in its model what the real job's step would: parameters that are leaves, sharded ones as DTensor, and
after each backward gradients in `.grad`, reduced over the ranks or not yet, according to the settings of
DistributedDataParallel and fully_shard.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from torch import Tensor

from . import compat, fsdp, scalers, sharding
from .errors import CaptureError
from .recorder import Recorder
from .replicas import Replicas


class Backwards:
    """Runs what has to happen before and after each backward of the step."""

    def __init__(
        self,
        recorder: Recorder,
        gathers: fsdp.Gathers,
        replicas: Replicas,
        leaves: Dict[str, Tensor],
        bindings: scalers.Bindings,
    ) -> None:
        """bindings: the places where the step keeps state outside its optimizers."""
        self._recorder, self._gathers, self._replicas, self._leaves = recorder, gathers, replicas, leaves
        self._bindings = bindings
        self._versions = [leaf._version for leaf in leaves.values()]
        self._has_run = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        with compat.backward_within(self._around), self._replicas.watching(self._leaves):
            with scalers.without_conditions(self._bindings):
                yield
        self._gathers.check_reduced()

    def check_trained(self) -> None:
        """Refuses a step that trains nothing; gradients and updates may also be made without backward()."""
        leaves = self._leaves.values()
        are_written = any(leaf._version != before for leaf, before in zip(leaves, self._versions))
        if not self._has_run and not are_written and all(leaf.grad is None for leaf in leaves):
            raise CaptureError(
                "the train_step calls no backward(), and leaves parameters as they are: a train_step computes "
                "gradients itself; to give only a loss, use loss_fn="
            )

    @contextmanager
    def _around(self, roots: Sequence[Any]) -> Iterator[None]:
        self._has_run = True
        if self._recorder.in_backward:  # a reentrant checkpoint's, inside that of the step
            with self._recorder.backward(roots):
                yield
            return
        with self._gathers.shown_whole(), self._recorder.backward(roots):
            yield
        with self._recorder.after_backward():
            self._gathers.reduce_the_rest()
            self._replicas.average_all(self._leaves, self._recorder)


def take_gradients(
    leaves: Mapping[str, Tensor], like: Sequence[Tensor], taken: Mapping[str, Tensor]
) -> List[Optional[Tensor]]:
    """The gradients left in the leaves, or found there by an optimizer: this rank's parts, laid out like `like`."""
    found: List[Optional[Tensor]] = []
    for (fqn, leaf), value in zip(leaves.items(), like):
        gradient = taken.get(fqn) if leaf.grad is None else leaf.grad
        found.append(None if gradient is None else sharding.as_laid_out(gradient, value))
        leaf.grad = None
    return found


def check_loss(loss: Any) -> None:
    if loss is not None and (not isinstance(loss, Tensor) or loss.numel() != 1):
        raise CaptureError(
            "train_step returned no tensor of one number: it returns the loss, (loss, more tensors), or None on a "
            "rank that has none"
        )
