"""Finds a Python that has torch, and runs the rest of the script with it. Without one the test is skipped, aloud."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, skip  # noqa: E402

_NEEDS = "import torch, safetensors"


def _has_torch(python):
    try:
        return subprocess.run([python, "-c", _NEEDS], capture_output=True).returncode == 0
    except OSError:
        return False


def use_python_with_torch():
    """Returns in a Python with torch; otherwise starts one in this one's place."""
    candidates = [os.environ.get("STEPGRAPH_PYTHON"), sys.executable]
    for folder in (ROOT, os.path.dirname(ROOT)):
        candidates += [os.path.join(folder, name, "bin", "python") for name in (".venv", "venv")]
    for python in filter(None, [*candidates, "python3"]):
        if python == sys.executable:
            try:
                import safetensors  # noqa: F401
                import torch  # noqa: F401

                return
            except ImportError:
                continue
        if _has_torch(python):
            os.execvp(python, [python, *sys.argv])
    sys.exit(skip("no Python with torch and safetensors; set STEPGRAPH_PYTHON, or make a venv beside the repository"))
