"""The exceptions that this package raises to its users."""

from typing import Sequence


class CaptureError(ValueError):
    """Something cannot be captured; the message has the reason and the remedy."""


class UnwritableError(CaptureError):
    """A folder or file of the capture cannot be written."""


class OutputTypeError(CaptureError, TypeError):
    """A chunked module returned something that cannot be concatenated."""


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


_MOST_NAMES = 8
