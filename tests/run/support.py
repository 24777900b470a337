"""What the cases of run_data_tests.py share: a step of training, files of tensors, and sg-run."""
import os
import re
import subprocess
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import Cases  # noqa: E402
from tensor_files import read_tensors, to_bytes, to_numbers, write_tensors  # noqa: E402

CASES = Cases()
case = CASES.add
given = SimpleNamespace(bin=None)  # on the command line

# Loss of a linear layer, its gradient, a counter; one guard between two sizes.
GRAPH = """sg 1.0 job "t" world %(world)d

graph rank *
  symbol s0 input [1, 64] hint 2
  symbol s1 input [1, 64] hint 2
  guard s0 == s1
  param %%w : f32[3, 4] "layer.weight"
  buffer %%count : i64[] "layer.count"
  input %%x : f32[s0, 3] "x"
  input %%labels : i64[s1] "labels"

  forward layer
    %%y = aten.mm(%%x, %%w)
    %%p = aten._log_softmax(%%y, 1, false)
    %%loss, %%total = aten.nll_loss_forward(%%p, %%labels, none, 1, -100)
    %%more = aten.add_.Tensor(%%count, 1)
  backward layer
    %%one = aten.ones_like(%%loss, pin_memory=false)
    %%d = aten.nll_loss_backward(%%one, %%p, %%labels, none, 1, -100, %%total)
    %%e = aten._log_softmax_backward_data(%%d, %%p, 1, f32)
    %%t = aten.t(%%x)
    %%g = aten.mm(%%t, %%e)

  loss %%loss
  grad %%g of %%w
"""


def safetensors(path, tensors, header=None, metadata=None):
    """tensors: {name: (dtype, shape, numbers)}"""
    as_bytes = {name: (dtype, shape, to_bytes(dtype, numbers)) for name, (dtype, shape, numbers) in tensors.items()}
    write_tensors(path, as_bytes, header, metadata)


def load(path):
    return {name: to_numbers(dtype, data) for name, (dtype, _, data) in read_tensors(path).items()}


def inputs(rows=2, **changes):
    out = {"layer.weight": ("F32", [3, 4], [0.1 * i - 0.5 for i in range(12)]), "count": ("I64", [], [5]),
           "x": ("F32", [rows, 3], [0.3 * i - 0.4 for i in range(3 * rows)]), "labels": ("I64", [rows], [1] * rows)}
    out.update(changes)
    return {name: value for name, value in out.items() if value is not None}


def graph(world=1):
    with open("g.txt", "w") as f:
        f.write(GRAPH % {"world": world})


def run(*args, code=0, message=None, out=None, graph="g.txt", **more):
    done = subprocess.run([os.path.join(given.bin, "sg-run"), graph, *args], capture_output=True, text=True, timeout=60, **more)
    said = f"\nstdout: {done.stdout[:800]}\nstderr: {done.stderr[:1200]}"
    assert done.returncode == code, f"exit {done.returncode}, not {code}{said}"
    assert message is None or re.search(message, done.stderr), f"no /{message}/ in stderr{said}"
    assert out is None or re.search(out, done.stdout), f"no /{out}/ in stdout{said}"
    return done
