"""Writes one PyTorch training step as a capture that Stepgraph's sg-import reads. See docs/capture.md."""

import torch

from . import release

release.check(torch.__version__)

from .annotate import annotate  # noqa: E402
from .capture import capture  # noqa: E402
from .chunking import eager_chunk  # noqa: E402
from .errors import CaptureError, OutputTypeError  # noqa: E402

__all__ = ["CaptureError", "OutputTypeError", "annotate", "capture", "eager_chunk"]
__version__ = "0.1.0"
