"""Where the tools are, and one of them run to its end. What it says on failure is the message of a ToolError."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence


class ToolError(RuntimeError):
    """A tool that ended with another code than 0: its own message, as it printed it."""

    def __init__(self, command: Sequence[str], code: int, message: str) -> None:
        super().__init__(message or f"{command[0]} ended with exit code {code}")
        self.command, self.code, self.message = list(command), code, message


class Scratch:
    """A folder of our own, gone when nobody holds it any more."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="stepgraph-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


class Done(NamedTuple):
    output: bytes
    said: str  # standard error
    code: int


def bin_folder() -> str:
    """$STEPGRAPH_BIN, else where sg-run is on the PATH, else build/bin of the checkout that this file lies in."""
    named = os.environ.get("STEPGRAPH_BIN")
    if named:
        return named
    found = shutil.which("sg-run")
    if found:
        return os.path.dirname(found)
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(here, "..", "..", "..", "build", "bin")
    if os.path.exists(os.path.join(built, "sg-run")):
        return os.path.normpath(built)
    raise FileNotFoundError(
        "the tools of Stepgraph are not on the PATH: install them, or set STEPGRAPH_BIN to their folder"
    )


def program(name: str) -> str:
    """The path of a tool: "clean" and "sg-clean" are the same."""
    path = os.path.join(bin_folder(), name if name.startswith("sg-") else "sg-" + name)
    if not os.path.exists(path):
        raise AttributeError(f"there is no tool {os.path.basename(path)}")
    return path


def option_words(options: Dict[str, Any]) -> List[str]:
    """policy="full", save=["a", "b"], drop_asserts=True as words of a command line; None and False are left out."""
    words = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not None and one is not False:
                words.append(f"{option}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return words


def tool(name: str, *words: Any, input: Optional[bytes] = None, codes: Sequence[int] = (0,), **options: Any) -> Done:
    """Runs a tool: tool("stat", "step.sg", json=True). Any code but `codes` is a ToolError."""
    command = [program(name), *map(str, words), *option_words(options)]
    stdin = None if input is not None else subprocess.DEVNULL
    done = subprocess.run(command, input=input, stdin=stdin, capture_output=True)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode not in codes:
        raise ToolError(command, done.returncode, said)
    return Done(done.stdout, said, done.returncode)


@functools.lru_cache(maxsize=None)
def _stages(folder: str) -> Dict[str, str]:
    schema = json.loads(tool("recipe", "schema").output)
    by_name, with_options = {}, {}  # a stage is a name, or a mapping from it to options
    for kind in schema["properties"]["stages"]["items"]["oneOf"]:
        if "enum" in kind:
            by_name = dict.fromkeys(kind["enum"])
        else:
            with_options = kind["properties"]
    return {name: with_options[name].get("description", "") for name in by_name}


def passes() -> Dict[str, str]:
    """The passes of these tools, in the order that is meant, each with what it does."""
    return _stages(bin_folder())
