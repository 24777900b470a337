"""A step captured in this process: its graph, and PyTorch's values for it."""

from __future__ import annotations

import os
from typing import Any, Optional

from .graph import Graph, load
from .run import Run
from .tools import Scratch


class Captured:
    """graph: the step. inputs, expected: safetensors files with what went in and what PyTorch computed."""

    def __init__(self, folder: Any, graph: Graph) -> None:
        self._folder, self.graph = folder, graph
        self.folder = folder if isinstance(folder, str) else folder.name
        self.inputs = os.path.join(self.folder, "inputs.safetensors")
        self.expected = os.path.join(self.folder, "expected.safetensors")

    def check(self, graph: Optional[Graph] = None, **options: Any) -> Run:
        """Runs the graph, or another of this step, on the captured inputs; a ToolError where it gives other values."""
        return (graph or self.graph).run(inputs=self.inputs, expect=self.expected, **options)


def capture(model: Any, loss_fn: Any, inputs: Any, out_dir: Optional[str] = None, **more: Any) -> Captured:
    """One training step of a model: the arguments of stepgraph_capture.capture (docs/capture-reference.md).

    Without `out_dir` the files live as long as what is returned.
    """
    try:
        from stepgraph_capture import capture as write_capture
    except ImportError as error:
        raise ImportError(f"capturing needs PyTorch, safetensors and tools/capture ({error})") from error
    folder = out_dir or Scratch()
    path = write_capture(model, loss_fn, inputs, folder if isinstance(folder, str) else folder.name, **more)
    return Captured(folder, load(path))
