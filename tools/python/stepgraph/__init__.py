"""Stepgraph's tools from Python. See docs/notebook.md.

    import stepgraph as sg
    step = sg.load("capture/step.json")
    lean = step.clean().remat(policy="full")
    lean.run(init="seed:0").outputs["out0"]

There is no second graph in here: a Graph is a .sg file, and everything that is done to it is done by the tools.
"""

from .captured import Captured, capture
from .graph import Graph, load, text
from .page import Page
from .run import Run
from .tools import ToolError, passes, tool
from .values import read_values, write_values

__all__ = [
    "Captured", "Graph", "Page", "Run", "ToolError", "capture", "load", "passes", "read_values", "text", "tool",
    "write_values",
]
__version__ = "0.1.0"
