"""What the cases of run_recipes.py and run_sweep.py share: sg() and what is expected of it, a small graph, a recipe."""
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from harness import ROOT, Cases  # noqa: E402

CAPTURE = os.path.join(ROOT, "examples", "04_run_a_moe_step", "capture", "rank{r}", "step.json.gz")

CASES = Cases()
case = CASES.add
given = SimpleNamespace(bin=None, kills=None)  # on the command line


class Done:
    def __init__(self, process):
        self.code, self.out, self.message = process.returncode, process.stdout.decode(), process.stderr.decode(errors="replace")


def sg(*words, cache="cache", **more):
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath(cache))
    return Done(subprocess.run([os.path.join(given.bin, words[0]), *words[1:]], capture_output=True, env=env, timeout=120,
                               **more))


def expect(done, code, message=None, out=None):
    assert done.code == code, f"exit {done.code}, not {code}\n{done.out}{done.message}"
    for pattern, text in ((message, done.message), (out, done.out)):
        assert pattern is None or re.search(pattern, text, re.M), f"no /{pattern}/ in:\n{text}"
    return done


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def states(done):
    return {step["name"]: step["state"] for step in json.loads(done.out)["steps"]}


GRAPH = """sg 1.0 job "small" world 1
graph rank *
  param %w : f32[8, 8] "w"
  input %x : f32[4, 8] "x"

  forward layer
    %dead = aten.tanh(%x)
    %a    = aten.mm(%x, %w)
    %b    = aten.relu(%a)
    %b2   = aten.relu(%a)
    %c    = aten.add.Tensor(%b, %b2)

  output %c
"""

RECIPE = f"""recipe: moe
parameters: {{policy: default}}
inputs:
  step: {{import: '{CAPTURE}'}}
stages:
  - clean
  - remat: {{policy: $policy}}
    output: out/$policy.sg
"""
