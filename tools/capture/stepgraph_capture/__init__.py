"""Writes one PyTorch training step as a capture that Stepgraph's sg-import reads. See docs/capture.md."""

from .annotate import annotate
from .capture import capture
from .chunking import eager_chunk
from .errors import CaptureError, OutputTypeError

__all__ = ["CaptureError", "OutputTypeError", "annotate", "capture", "eager_chunk"]
__version__ = "0.1.0"
