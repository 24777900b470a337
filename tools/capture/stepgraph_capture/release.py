"""The supported PyTorch releases, checked before importing any module that needs a newer one."""

from __future__ import annotations

from typing import Tuple

OLDEST = (2, 6)


def of(version: str) -> Tuple[int, ...]:
    """Parses "2.9.1+cpu" to (2, 9)."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def check(version: str) -> None:
    """Raises ImportError; with `name` the message is one line for `python -m`."""
    if of(version) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(
            f"PyTorch {version} is too old: stepgraph_capture needs {needed} or newer", name="stepgraph_capture"
        )
