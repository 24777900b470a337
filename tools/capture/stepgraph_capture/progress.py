"""Progress of a capture: one line on a terminal, erased when the capture ends."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, TextIO

Say = Optional[Callable[[str], None]]  # takes the name of the stage that begins: "traces the step"


@contextmanager
def line(stream: TextIO, name: str) -> Iterator[Say]:
    """Only on a terminal: nothing is written to a file or a pipe."""
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
