"""Finds a Python that has torch, and runs the rest of the script with it. Without one the test is skipped, aloud."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, python_with, skip  # noqa: E402,F401


def use_python_with_torch():
    """Returns in a Python with torch; otherwise starts one in this one's place."""
    if os.environ.pop("SG_IN_PYTHON_WITH_TORCH", None):
        return
    python = python_with("torch", "safetensors")
    if python is None:
        sys.exit(skip("no Python has torch and safetensors; set STEPGRAPH_PYTHON, or make a venv beside the repository"))
    if python != sys.executable:
        os.execvpe(python, [python, *sys.argv], {**os.environ, "SG_IN_PYTHON_WITH_TORCH": "1"})
