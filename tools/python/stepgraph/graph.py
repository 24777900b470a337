"""Graph: a .sg file and what the tools do with it. It never changes; a pass returns another one."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
from typing import Any, Callable, Dict, Optional, Sequence, Union

from . import run as running
from .page import Page
from .tools import Done, Scratch, passes, tool

Words = Union[str, Sequence[str]]


class Graph:
    def __init__(self, folder: Any, said: str = "") -> None:
        """Made by `load` and by passes. `folder` has graph.sg, and its weights where it has any."""
        self._folder, self.said = folder, said
        self.path = os.path.join(folder.name, "graph.sg")

    # --- passes ---

    def apply(self, name: str, *words: Any, **options: Any) -> "Graph":
        """A pass by its name: apply("remat", "--policy", "full"), or apply("remat", policy="full")."""
        folder = Scratch()
        done = tool(name, self.path, *words, output=os.path.join(folder.name, "graph.sg"), **options)
        if os.path.exists(_weights_of(self.path)):
            weights = os.path.join(folder.name, os.path.basename(_weights_of(self.path)))
            try:
                os.link(_weights_of(self.path), weights)
            except OSError:  # a file system without hard links
                shutil.copy(_weights_of(self.path), weights)
        return Graph(folder, "\n".join(line for line in done.said.split("\n") if folder.name not in line))

    def pipe(self, *stages: Words) -> "Graph":
        """Several in one go: pipe("clean", "remat --policy full"), or pipe(["clean"], ["remat", "--peak", "2GiB"])."""
        words = [s if isinstance(s, str) else shlex.join(s) for s in stages]
        return self.apply("pipe", **{"pass": words})

    def __getattr__(self, name: str) -> Callable[..., "Graph"]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in passes():
            raise AttributeError(f"a graph has no `{name}`; the passes are {', '.join(passes())}")

        def run_pass(*words: Any, **options: Any) -> "Graph":
            return self.apply(name, *words, **options)

        run_pass.__name__, run_pass.__doc__ = name, tool(name, "--help").output.decode()
        return run_pass

    def __dir__(self) -> Any:
        return [*super().__dir__(), *passes()]

    # --- what it is ---

    @property
    def bytes(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    @property
    def text(self) -> str:
        return tool("print", self.path).output.decode()

    def report(self, name: str, *words: Any, **options: Any) -> Any:
        """What a tool says with --json: report("sim", machine="h200-8")."""
        return json.loads(tool(name, self.path, *words, json=True, **options).output)

    def stat(self, **options: Any) -> Dict[str, Any]:
        return self.report("stat", **options)

    def sim(self, **options: Any) -> Dict[str, Any]:
        return self.report("sim", **options)

    def explain(self, node: str) -> str:
        return tool("explain", self.path, node).output.decode()

    def log(self) -> str:
        return tool("log", self.path).output.decode()

    def diff(self, other: "Graph", **options: Any) -> str:
        """What sg-diff says; empty = the same."""
        said = tool("diff", self.path, other.path, codes=(0, 1), **options).output.decode()
        return said.replace(self.path, "before").replace(other.path, "after")

    def save(self, path: str) -> str:
        """A .sg file, with its weights beside it; text where the name ends in .txt."""
        tool("parse", self.path, "-q", output=path)
        if os.path.exists(_weights_of(self.path)):
            shutil.copy(_weights_of(self.path), _weights_of(os.fspath(path)))
        return path

    def __eq__(self, other: Any) -> bool:
        """The same graph, as sg-diff sees it: how it came to be does not count."""
        return isinstance(other, Graph) and not self.diff(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return tool("check", self.path).output.decode().strip().replace(self.path, "graph")

    # --- what it does ---

    def run(self, inputs: running.Values = None, expect: running.Values = None, **options: Any) -> running.Run:
        """sg-run: values by name, a list of such (one a rank), or paths; a ToolError where `expect` does not hold."""
        return running.run(self.path, inputs, expect, **options)

    def export(self, **options: Any) -> Any:
        """The module of sg-export, loaded: `export().step(tensors)` runs the step in PyTorch (docs/export.md)."""
        path = os.path.join(self._folder.name, "step.py")
        tool("export", self.path, output=path, **options)
        spec = importlib.util.spec_from_file_location("stepgraph_step", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.graph = self  # its files live as long as the module
        return module

    def view(self, after: Optional["Graph"] = None, height: int = 600, **options: Any) -> Page:
        """The page of sg-view; with another graph, what changed."""
        words = [self.path] + ([after.path] if after is not None else [])
        return Page(tool("view", *words, output="-", **options).output.decode(), height)

    def _repr_html_(self) -> str:
        return self.view()._repr_html_()


def _new(fill: Callable[[str], Done]) -> Graph:
    folder = Scratch()
    done = fill(os.path.join(folder.name, "graph.sg"))
    return Graph(folder, done.said)


def _weights_of(path: str) -> str:
    """The file of a graph's weights: a.safetensors beside a.sg or a.sg.txt."""
    return path.removesuffix(".txt").removesuffix(".sg") + ".safetensors"


def _is_graph(path: str) -> bool:
    return path.endswith((".sg", ".sg.txt"))


def load(source: str, **options: Any) -> Graph:
    """A .sg file or its text (.sg.txt), a rank pattern of such, or whatever sg-import reads, with its options."""
    source = os.fspath(source)
    if not _is_graph(source):
        return _new(lambda path: tool("import", source, output=path, **options))
    graph = _new(lambda path: tool("parse", source, output=path, **options))
    if os.path.exists(_weights_of(source)):
        shutil.copy(_weights_of(source), _weights_of(graph.path))
    return graph


def text(source: str) -> Graph:
    """A graph written by hand: docs/text-format.md."""
    return _new(lambda path: tool("parse", "-", output=path, input=source.encode()))
