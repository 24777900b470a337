"""The exceptions that a user of this package has to know."""


class CaptureError(ValueError):
    """What cannot be done, with the reason and the remedy in one message."""


class OutputTypeError(CaptureError, TypeError):
    """A chunked module returned something that cannot be concatenated."""
