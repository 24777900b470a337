"""Which PyTorch this package is for: asked before any module is imported that counts on more than an older one has."""

from __future__ import annotations

from typing import Tuple

OLDEST = (2, 6)


def of(version: str) -> Tuple[int, ...]:
    """Of "2.9.1+cpu" (2, 9)."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def check(version: str) -> None:
    """Raises ImportError. `name` lets `python -m` say it in one line."""
    if of(version) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(
            f"PyTorch {version} is too old: stepgraph_capture needs {needed} or newer", name="stepgraph_capture"
        )
