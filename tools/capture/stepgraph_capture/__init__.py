"""Writes one PyTorch training step as a capture that Stepgraph's sg-import reads. See docs/capture.md."""
from .annotate import annotate
from .capture import capture
from .errors import CaptureError

__all__ = ["CaptureError", "annotate", "capture"]
__version__ = "0.1.0"
