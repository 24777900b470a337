"""python -m stepgraph_capture FILE.py:FUNCTION -o DIR: captures the step that a function describes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional

from .errors import CaptureError, UnwritableError

_HELP = """\
FUNCTION takes no arguments and returns the arguments of stepgraph_capture.capture() without out_dir, as a mapping:

    def step():
        model = torch.nn.Linear(8, 2)
        return dict(model=model, loss_fn=torch.nn.functional.cross_entropy,
                    inputs=torch.randn(4, 8), targets=torch.tensor([0, 1, 1, 0]))

or as a tuple (model, loss_fn, inputs). Under torchrun it is called on each rank, with the default process group already
made (gloo, unless --backend says another); each rank writes DIR/rank{r}/.
"""

_EXAMPLES = """\
examples:
  python -m stepgraph_capture train.py:step -o capture && sg-import capture/step.json -o step.sg
  torchrun --nproc-per-node 4 -m stepgraph_capture train.py:step -o capture
  sg-import capture -o step.sg

exit codes: 0 captured, 2 usage, 4 cannot be captured, 5 cannot be written
"""


_LONGEST = 400  # of the message of an error raised by the user's code


class UsageError(Exception):
    """The command line names a module or function that cannot be found."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stepgraph_capture",
        description="Writes one PyTorch training step as a capture for sg-import.\n\n" + _HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="a module's name, or the path of a .py file, and a function in it"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="where to write step.json, inputs.safetensors and expected.safetensors",
    )
    parser.add_argument(
        "--fake", action="store_true", help="without memory for values: nothing but step.json is written"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="torch.manual_seed before FUNCTION is called (0)"
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="the capture's title (the model's class)")
    parser.add_argument("--gzip", action="store_true", help="write step.json.gz")
    parser.add_argument("--backend", default="gloo", metavar="NAME", help="of the process group under torchrun (gloo)")
    parser.add_argument("--traceback", action="store_true", help="on failure, print Python's traceback too")
    return parser


def _find(spec: str) -> Callable[[], Any]:
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"'{spec}' is not MODULE:FUNCTION")
    if place.endswith(".py") and not os.path.isfile(place):
        raise UsageError(f"{place}: no such file")
    sys.path.insert(0, os.path.dirname(os.path.abspath(place)) if place.endswith(".py") else os.getcwd())
    try:
        module = importlib.import_module(os.path.basename(place)[:-3] if place.endswith(".py") else place)
    except ModuleNotFoundError as error:
        raise UsageError(f"cannot import {place}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{place} has no function {name}")
    return function


def _described(found: Any, spec: str) -> Dict[str, Any]:
    if isinstance(found, tuple) and len(found) == 3:
        return dict(zip(("model", "loss_fn", "inputs"), found))
    if isinstance(found, dict) and "model" in found and "inputs" in found:
        return {"loss_fn": None, **found}
    if isinstance(found, dict) and "model" in found:
        raise CaptureError(f"{spec} returned no `inputs`, but {', '.join(f'`{key}`' for key in found)}")
    raise CaptureError(
        f"{spec} returned {type(found).__name__}; it has to return (model, loss_fn, inputs) or a mapping with "
        "model, inputs and what else capture() takes"
    )


def _run(options: argparse.Namespace, function: Callable[[], Any]) -> str:
    import torch

    from . import progress, world
    from .capture import capture

    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group(options.backend)
    torch.manual_seed(options.seed)
    step = _described(function(), options.function)
    chosen = {"fake": options.fake, "title": options.title, "compress": options.gzip}
    step.update({key: value for key, value in chosen.items() if value})
    notes: List[str] = []
    with progress.line(sys.stderr, "stepgraph_capture") as say:
        path = capture(out_dir=options.output, **{"say": say if world.rank() == 0 else None, "tell": notes.append, **step})
    for note in notes if world.rank() == 0 else ():
        print(f"stepgraph_capture: note: {note}", file=sys.stderr)
    if torch.distributed.is_initialized():  # gloo aborts a rank whose peer has already exited
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return path


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        function = _find(options.function)
        print(f"stepgraph_capture: wrote {_run(options, function)}", file=sys.stderr)
        return 0
    except UsageError as error:
        return _fail(str(error), 2)
    except UnwritableError as error:
        return _fail(str(error), 5)
    except Exception as error:
        if options.traceback:
            traceback.print_exc()
        return _fail(str(error) if isinstance(error, CaptureError) else _of_the_users_code(error), 4)


def _of_the_users_code(error: Exception) -> str:
    """Describes an error raised by the user's code, with the user's line first. PyTorch's message is shortened: it may
    list every backend that lacks an op."""
    from .source import raised_at
    from .symbols import first_line

    place, said = raised_at(error), first_line(error)
    shown = said if len(said) <= _LONGEST else said[:_LONGEST] + " ..."
    more = "" if shown == str(error).strip() else " [--traceback: all of it]"
    return f"{place + ': ' if place else ''}{type(error).__name__}: {shown}{more}"


def _fail(message: str, code: int) -> int:
    print(f"stepgraph_capture: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
