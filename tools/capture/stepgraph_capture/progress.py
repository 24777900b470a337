"""What a capture is at, for who waits: one line of a terminal, which is gone when the capture has ended."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, TextIO

Say = Optional[Callable[[str], None]]  # takes what begins now, "traces the step"


@contextmanager
def line(stream: TextIO, name: str) -> Iterator[Say]:
    """Of a terminal alone: a file, or a pipe, gets nothing."""
    if not stream.isatty():
        yield None
        return
    begin = time.monotonic()

    def say(what: str) -> None:
        stream.write(f"\r\033[K{name}: {what} (at {time.monotonic() - begin:.0f} s)")
        stream.flush()

    try:
        yield say
    finally:
        stream.write("\r\033[K")
        stream.flush()
