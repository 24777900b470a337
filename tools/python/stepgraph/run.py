"""What sg-run gave: the outputs of each rank, what was compared, and what was said."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .tools import Scratch, ToolError, tool
from .values import read_values, write_values

Values = Union[None, str, os.PathLike, Mapping[str, Any], Sequence[Any]]


class Run:
    """Outputs by the names of docs/run-data.md: out0, out1, ..., mutated.NAME."""

    def __init__(self, folder: Any, report: Dict[str, Any], said: str) -> None:
        self._folder, self.report, self.said = folder, report, said

    @property
    def world(self) -> int:
        return len(glob.glob(os.path.join(glob.escape(self._folder.name), "out*.safetensors")))

    def of_rank(self, rank: int, torch: bool = False) -> Dict[str, Any]:
        return read_values(os.path.join(self._folder.name, f"out{rank}.safetensors"), torch)

    @property
    def outputs(self) -> Dict[str, Any]:
        """Of rank 0, as numpy arrays."""
        return self.of_rank(0)

    @property
    def tensors(self) -> Dict[str, Any]:
        """Of rank 0, as torch tensors."""
        return self.of_rank(0, torch=True)

    @property
    def losses(self) -> List[float]:
        """Of each rank, in the last step."""
        return [rank["losses"][-1] for rank in self.report["ranks"] if rank["losses"]]

    def __repr__(self) -> str:
        losses = ", ".join(f"{loss:.6f}" for loss in self.losses)
        compared = sum(len(rank["expected"]) for rank in self.report["ranks"])
        ranks = f"{self.world} rank{'s' * (self.world > 1)}"
        return f"<a run on {ranks}, loss {losses or 'unknown'}{', as expected' if compared else ''}>"


def files_of(values: Values, folder: str, stem: str) -> List[str]:
    """What --inputs and --expect take: paths as they are; tensors written, those of several ranks a file each."""
    if values is None:
        return []
    if isinstance(values, (str, os.PathLike)):
        return [os.fspath(values)]
    if isinstance(values, Mapping):
        write_values(os.path.join(folder, stem + ".safetensors"), values)
        return [os.path.join(folder, stem + ".safetensors")]
    if all(isinstance(v, (str, os.PathLike)) for v in values):
        return [os.fspath(v) for v in values]
    for rank, part in enumerate(values):
        write_values(os.path.join(folder, f"{stem}{rank}.safetensors"), part)
    return [os.path.join(folder, stem + "{r}.safetensors")]


def run(path: str, inputs: Values = None, expect: Values = None, **options: Any) -> Run:
    folder = Scratch()
    words: List[str] = []
    for name in files_of(inputs, folder.name, "given"):
        words += ["--inputs", name]
    expected = files_of(expect, folder.name, "expected")
    if len(expected) > 1:
        raise ValueError("expect= takes one file: of several ranks a pattern ('expected{r}.safetensors'), or a list of values")
    for name in expected:
        words += ["--expect", name]
    outputs = os.path.join(folder.name, "out{r}.safetensors")
    done = tool("run", path, *words, outputs=outputs, json=True, codes=(0, 1), **options)
    report = json.loads(done.output)
    if done.code == 0:
        return Run(folder, report, done.said)
    raise ToolError(["sg-run", path, *words], 1, "\n".join(filter(None, [done.said, report["text"].strip()])))
