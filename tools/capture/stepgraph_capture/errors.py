"""The exceptions that this package raises to its users."""


class CaptureError(ValueError):
    """Something cannot be captured; the message has the reason and the remedy."""


class UnwritableError(CaptureError):
    """A folder or file of the capture cannot be written."""


class OutputTypeError(CaptureError, TypeError):
    """A chunked module returned something that cannot be concatenated."""
