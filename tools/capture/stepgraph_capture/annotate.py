"""User annotations on a part of a step: `with annotate(role="dispatch"): ...`.

They become the `custom` of every node traced inside, and of the backward nodes of those.
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import Any, Dict, List, Optional

from .errors import CaptureError

ROLES = ("dispatch", "combine", "compute")
STEPS = ("token_exchange", "token_exchange_wait", "token_count_exchange", "token_count_sync")

_state = threading.local()


def current() -> Dict[str, Any]:
    """The annotations in effect; read-only."""
    return getattr(_state, "custom", {})


class annotate(ContextDecorator):  # named like the verb that it is at its place of use
    """A context manager, or a decorator of a function.

    role   the part of an expert-parallel region: dispatch, combine or compute
    step   what the part does: token_exchange, token_exchange_wait, token_count_exchange, token_count_sync
    words  anything else, as keyword arguments; values that JSON can hold
    """

    def __init__(self, role: Optional[str] = None, step: Optional[str] = None, **words: Any) -> None:
        if role is not None and role not in ROLES:
            raise CaptureError(f"annotate: role {role!r} is none of {', '.join(ROLES)}")
        if step is not None and (role is None or step not in STEPS):
            raise CaptureError(f"annotate: step {step!r} needs a role, and is one of {', '.join(STEPS)}")
        self.words = dict(words)
        if role is not None:
            self.words["EP"] = role
        if step is not None:
            self.words[f"EP_{step}"] = role
        self._outer: List[Dict[str, Any]] = []  # a stack: one object may be entered again inside of itself

    def __enter__(self) -> "annotate":
        self._outer.append(current())
        _state.custom = {**current(), **self.words}
        return self

    def __exit__(self, *_: Any) -> None:
        _state.custom = self._outer.pop()
