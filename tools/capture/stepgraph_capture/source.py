"""Which line of the user's code asked for a node."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from types import CodeType
from typing import Any, Dict, Optional

import sympy
import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_SYMPY = os.path.dirname(os.path.abspath(sympy.__file__)) + os.sep  # PyTorch computes sizes with it
_LAYERS = os.path.join(_TORCH, "nn", "modules") + os.sep
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = os.path.abspath(sysconfig.get_paths()["stdlib"]) + os.sep
_PLUMBING = os.path.join(_LAYERS, "module.py")


@lru_cache(maxsize=None)
def _kind(file: str) -> str:
    """'user', 'layer' (torch.nn: second best), 'own' or 'torch'."""
    path = os.path.abspath(file)
    if path.startswith(_OWN):
        return "own"
    if path.startswith(_LAYERS) and path != _PLUMBING:
        return "layer"
    packages = "site-packages" in path or "dist-packages" in path
    if path.startswith((_TORCH, _SYMPY)) or file.startswith("<") or (path.startswith(_STDLIB) and not packages):
        return "torch"
    return "user"


@lru_cache(maxsize=None)
def _shown(file: str) -> str:
    """The path relative to its package or the working folder, never one of this machine."""
    path = os.path.abspath(file)
    for folder in sorted({os.path.abspath(entry or ".") for entry in sys.path}, key=len, reverse=True):
        if path.startswith(folder + os.sep):
            return os.path.relpath(path, folder).replace(os.sep, "/")
    return os.path.basename(path)


def raised_at(error: BaseException) -> Optional[str]:
    """The innermost line of the user's code that an exception passed through, else of a layer of torch.nn, for a
    message."""
    found: Dict[str, str] = {}
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        found[_kind(code.co_filename)] = f"{_shown(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return found.get("user", found.get("layer"))


def user_line(behind: Optional[str] = None, within: Optional[CodeType] = None) -> Optional[Dict[str, Any]]:
    """The innermost frame of the user's code, else of a layer of torch.nn; None when there is neither. behind: a file
    whose frames are passed over. within: a function whose callers are not asked."""
    frame = sys._getframe(1)
    layer = None
    while frame is not None:
        code = frame.f_code
        kind = _kind(code.co_filename)
        if code is within:
            break
        if code.co_filename == behind:
            pass
        elif kind == "user" or (kind == "layer" and layer is None):
            line = {"file": _shown(code.co_filename), "line": frame.f_lineno, "function": code.co_name}
            if kind == "user":
                return line
            layer = line
        elif kind == "own" and code.co_name == "traced_step":
            break  # frames outside called capture() and created no node
        frame = frame.f_back
    return layer
