"""Writes the files of a capture under temporary names and renames them, so that nobody reads a partial file."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

import torch
from torch import Tensor

from .errors import UnwritableError

_LISTS = ("inputs", "nodes", "outputs", "groups", "symbols", "guards")


@contextmanager
def empty_folders_removed(path: str) -> Iterator[None]:
    """Removes the folders created for a capture that fails."""
    missing = []
    while path and not os.path.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # not empty: files of another rank, or of the user
                os.rmdir(folder)
        raise


def make_folder(path: str) -> None:
    """Creates the folder up front: a failure should come before minutes of tracing, not after."""
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UnwritableError(f"cannot write into {path}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _replace(path: str, fill: Callable[[str], None]) -> None:
    aside = f"{path}.{os.getpid()}.partial"
    try:
        fill(aside)
        os.chmod(aside, 0o666 & ~_umask())  # safetensors creates files that only the owner can read
        os.replace(aside, path)
    except OSError as error:
        raise UnwritableError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if os.path.exists(aside):
            os.remove(aside)


def capture_json(path: str, capture: Mapping[str, Any], compress: bool) -> None:
    text = render(capture).encode()

    def fill(aside: str) -> None:
        with open(aside, "wb") as file:
            # No time stamp: the same step gives the same bytes.
            file.write(gzip.compress(text, mtime=0) if compress else text)

    _replace(path, fill)


def render(capture: Mapping[str, Any]) -> str:
    """Writes one input, node or output per line, for grep and diff."""
    parts = []
    for key, value in capture.items():
        if key in _LISTS and value:
            lines = ",\n".join("  " + _line(entry) for entry in value)
            parts.append(f' "{key}": [\n{lines}\n ]')
        elif key == "graphs" and value:
            inner = ",\n".join(f'  "{name}": {_line(graph)}' for name, graph in value.items())
            parts.append(f' "{key}": {{\n{inner}\n }}')
        else:
            parts.append(f' "{key}": {_line(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def tensors(path: str, values: Dict[str, Tensor], notes: Optional[Dict[str, str]] = None) -> None:
    """A safetensors file, with `notes` as its metadata; each tensor contiguous and in memory of its own."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def own(value: Tensor) -> Tensor:
        resolved = value.detach().cpu().resolve_conj().resolve_neg()
        return resolved.clone(memory_format=torch.contiguous_format)

    def fill(aside: str) -> None:
        try:
            save_file({name: own(value) for name, value in values.items()}, aside, notes or None)
        except SafetensorError as error:  # also of a full disk
            raise UnwritableError(f"cannot write {path}: {error}") from error

    _replace(path, fill)
