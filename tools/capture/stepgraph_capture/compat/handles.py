"""The handles of torch.distributed's collectives: work, group and reduction."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional

import torch
from torch import Tensor


def can_box_work() -> bool:
    """Whether a collective can return a handle created here; not in torch 2.6."""
    return hasattr(torch.distributed.ProcessGroup, "unbox") and hasattr(torch._C._distributed_c10d, "FakeWork")


if torch.distributed.is_available():

    class Handle(torch._C._distributed_c10d.Work):
        """The handle of an asynchronous call; `finish` runs once, at the first wait or other use, and returns what the
        call has written."""

        def __init__(self, finish: Callable[[], Optional[List[Tensor]]]) -> None:
            super().__init__()
            self._finish: Optional[Callable[[], Optional[List[Tensor]]]] = finish
            self._written: List[Tensor] = []

        def wait(self, timeout: Any = None) -> bool:
            finish, self._finish = self._finish, None
            if finish is not None:
                self._written = finish() or []
            return True

        synchronize = block_current_stream = is_completed = is_success = wait

        def exception(self) -> None:
            return None

        def result(self) -> List[Tensor]:
            self.wait()
            return self._written

        def get_future(self) -> Any:
            future: Any = torch.futures.Future()
            future.set_result(self.result())
            return future


def unboxed_group(handle: Any) -> Any:
    return torch.distributed.ProcessGroup.unbox(handle)


class Reductions:
    """Finds the reduction of a collective, given the handle that its op receives. torch 2.11 cannot read a handle;
    there the reduction is taken from the options that torch.distributed creates right before the call."""

    def __init__(self) -> None:
        self._options: Any = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Records the options that torch.distributed creates."""
        from torch.distributed import distributed_c10d

        kinds = {name: kind for name, kind in vars(distributed_c10d).items() if name in _OPTIONS_OF_REDUCTIONS}
        for name, kind in kinds.items():
            setattr(distributed_c10d, name, lambda kind=kind: self._note(kind()))
        try:
            yield
        finally:
            for name, kind in kinds.items():
                setattr(distributed_c10d, name, kind)

    def _note(self, options: Any) -> Any:
        self._options = options
        return options

    def name(self, handle: Any) -> Optional[str]:
        """The reduction's name in functional collectives; None if they lack it."""
        from torch.distributed._functional_collectives import REDUCE_OP_TO_STR

        unbox = getattr(torch.distributed.ReduceOp, "unbox", None)
        options, self._options = self._options, None  # valid for one call: the next may not create options
        if unbox is None and options is None:
            return None
        kind = (unbox(handle) if unbox is not None else options.reduceOp).op
        return next((name for op, name in REDUCE_OP_TO_STR.items() if op == kind), None)


_OPTIONS_OF_REDUCTIONS = {"AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions"}
