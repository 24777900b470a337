"""The one exception that a user of this package has to know."""


class CaptureError(Exception):
    """A step that cannot be captured, with the reason and the remedy in one message."""
