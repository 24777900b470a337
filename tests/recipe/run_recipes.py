#!/usr/bin/env python3
"""Tests of sg-recipe: messages, the cache, equal bytes however it runs, killed runners, goldens, locks, bisection.

run_recipes.py --bin DIR [--kills N] [NAME...]
"""
import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from harness import Cases  # noqa: E402

CAPTURE = os.path.join(ROOT, "examples", "04_run_a_moe_step", "capture", "rank{r}", "step.json.gz")
CASES = Cases()
case = CASES.add
BIN = None
KILLS = 30


class Done:
    def __init__(self, process):
        self.code, self.out, self.message = process.returncode, process.stdout.decode(), process.stderr.decode(errors="replace")


def sg(*words, cache="cache", **more):
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath(cache))
    return Done(subprocess.run([os.path.join(BIN, words[0]), *words[1:]], capture_output=True, env=env, timeout=120,
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


@case
def every_mistake_at_once():
    write("bad.yaml", """recipe: bad
stagess: []
inputs:
  step: {import: 'none/rank{r}.json', spnd: true}
  other: missing.sg
stages:
  - claen
  - remat: {policy: ful, save: [a, b], buget: 0.5, tag-only: 3}
    from: clean
    assert: [peek < 3GiB, peak < 3 stones, peak, nodes < 1k]
    run: {innit: 'seed:0', bitwise_to: setp}
  - {clean: {}, remat: {}}
  - remat: {policy: $polcy}
""")
    done = expect(sg("sg-recipe", "check", "bad.yaml"), 1)
    for line in (r"bad.yaml:2:1: error: a recipe has no `stagess`",
                 r"bad.yaml:12:17: error: a stage has one tool: `clean` or `remat`",
                 r"bad.yaml:13:21: error: the recipe has no parameter `polcy`"):
        assert re.search(line, done.message), done.message
    assert "stages`?" in done.message
    text = open("bad.yaml").read().replace("stagess: []\n", "").replace("  - {clean: {}, remat: {}}\n", "").replace("$polcy", "full")
    write("bad.yaml", text)
    done = expect(sg("sg-recipe", "check", "bad.yaml"), 1)
    for line in (r"bad.yaml:3:39: error: sg-import has no option `spnd`",
                 r"bad.yaml:4:10: error: no such file: missing.sg",
                 r"bad.yaml:6:5: error: there is no pass `claen`", r"did you mean `clean`",
                 r"bad.yaml:7:21: error: sg-remat: `policy` takes one of",
                 r"bad.yaml:7:52: error: sg-remat: `tag-only` is a flag",
                 r"bad.yaml:8:11: error: no stage or input `clean` stands before",
                 r"there is no metric `peek`", r"did you mean `peak`", r"`3 stones` is no number of that kind",
                 r"`peak` is no assertion",
                 r"sg-run has no option `innit`", r"no stage or input `setp` stands before"):
        assert re.search(line, done.message), f"no /{line}/ in\n{done.message}"
    assert not os.path.exists("cache")
    expect(sg("sg-recipe", "run", "bad.yaml"), 3, "bad.yaml has [0-9]+ mistakes")
    expect(sg("sg-recipe", "check", "none.yaml"), 1, "cannot read the recipe none.yaml")
    write("no.yaml", "stages: [clean\n")
    expect(sg("sg-recipe", "check", "no.yaml"), 1, r"no.yaml:2:1: error: .*\[yaml\]")
    write("empty.yaml", "")
    expect(sg("sg-recipe", "check", "empty.yaml"), 1, "the recipe has no stages")
    expect(sg("sg-recipe", "chekc", "no.yaml"), 2, "did you mean `check`")
    expect(sg("sg-recipe"), 2, "which command")
    expect(sg("sg-recipe", "run"), 2, "which recipe")


@case
def options_that_stand_beside_their_pass_are_told_where_they_go():
    for stage, place in (("- offload\n    budget: 1GiB", "3:11: error: illegal map value"),
                         ("- offload: budget: 1GiB", "2:20: error: illegal map value"),
                         ("- offload budget: 1GiB", "2:21: error: `offload budget` is followed by its options"),
                         ("- offload:\n    budget: 1GiB", "3:5: error: a stage has one tool: `offload` or `budget`")):
        write("beside.yaml", "stages:\n  " + stage + "\n")
        done = expect(sg("sg-recipe", "check", "beside.yaml"), 1, "beside.yaml:" + place)
        assert "- offload: {budget: 1GiB" in done.message, done.message


@case
def values_that_only_a_pass_or_the_disk_can_judge_are_mistakes_too():
    write("g.txt", GRAPH)
    write("mine.yaml", "name: mine\nbase: h100-8\nfoo: 3\n")
    write("values.yaml", """inputs: {g: g.txt}
stages:
  - remat: {budget: 2}
  - remat: {save: ['size>=lots']}
  - bucket: {plan: 'by-size:3 stones'}
  - overlap: {machine: h1000}
  - overlap: {machine: mine.yaml}
  - concretize: {bind: s0}
  - chunk: {modules: 'a..b'}
  - chunk: {auto: true, modules: a}
""")
    done = expect(sg("sg-recipe", "check", "values.yaml"), 1, "values.yaml has 8 mistakes")
    for line in (r"values.yaml:3:5: error: sg-remat: --budget takes a number from 0 to 1, not 2",
                 r"values.yaml:4:5: error: sg-remat: --save cannot read 'size>=lots'",
                 r"values.yaml:5:5: error: sg-bucket: --plan by-size: \"3 stones\" is no size",
                 r"values.yaml:6:5: error: sg-overlap: there is no machine `h1000`",
                 r"values.yaml:7:5: error: sg-overlap: mine.yaml:3:1: a machine has no `foo`",
                 r"values.yaml:8:5: error: sg-concretize: --bind cannot read 's0'",
                 r"values.yaml:9:5: error: sg-chunk: module pattern 'a..b'",
                 r"values.yaml:10:5: error: sg-chunk: --auto does not go with --modules"):
        assert re.search(line, done.message), f"no /{line}/ in\n{done.message}"
    expect(sg("sg-recipe", "run", "values.yaml"), 3)
    assert not os.path.exists("cache")
    write("files.yaml", """inputs: {g: g.txt}
stages:
  - bucket: {plan: 'per-module:none.txt'}
  - clean:
    run: {inputs: 'in{r}.safetensors', init: 'seed:0'}
""")
    done = expect(sg("sg-recipe", "check", "files.yaml"), 1, "files.yaml:3:5: error: `plan`: no such file: none.txt")
    assert "files.yaml:5:10: error: `inputs`: in{r}.safetensors: no file matches this rank pattern" in done.message, done.message
    expect(sg("sg-pipe", "g.txt", "--pass", "clean", "--pass", "remat --budget 2"), 2, "sg-remat: --budget takes")


@case
def files_inside_of_a_value_lie_beside_the_recipe_and_count_by_content():
    write("deep/groups.txt", "layers.0\nlayers.1\n")
    write("deep/mine.yaml", "name: mine\nbase: h100-8\n")
    write("deep/r.yaml", f"""inputs: {{step: {{import: '{CAPTURE}'}}}}
stages:
  - bucket: {{plan: 'per-module:groups.txt'}}
  - overlap: {{machine: mine.yaml}}
""")
    expect(sg("sg-recipe", "lock", "deep/r.yaml", "-q"), 0)
    os.chdir("deep")  # the same graphs, wherever it is run from
    expect(sg("sg-recipe", "verify", "r.yaml", "--no-cache", "-q"), 0)
    os.chdir("..")
    expect(sg("sg-recipe", "verify", "deep/r.yaml", "--no-cache", "--pipes", "-q"), 0)
    all_cached = {"step": "cached", "bucket": "cached", "overlap": "cached"}
    assert states(sg("sg-recipe", "run", "deep/r.yaml", "--json")) == all_cached
    write("deep/mine.yaml", "name: mine\nbase: h100-8\nnetwork: {exchange: {between_gbps: 1}}\n")
    expect(sg("sg-recipe", "plan", "deep/r.yaml"), 0, out=r"^run +overlap .*options were `--machine sha256:")
    assert states(sg("sg-recipe", "run", "deep/r.yaml", "--json")) == {**all_cached, "overlap": "made"}
    write("deep/base.yaml", "name: base\nbase: h100-8\n")
    write("deep/mine.yaml", "name: mine\nbase: base.yaml\n")
    expect(sg("sg-recipe", "run", "deep/r.yaml"), 0)
    assert states(sg("sg-recipe", "run", "deep/r.yaml", "--json")) == all_cached
    write("deep/base.yaml", "name: base\nbase: h100-8\nnetwork: {exchange: {between_gbps: 2}}\n")
    assert states(sg("sg-recipe", "run", "deep/r.yaml", "--json")) == {**all_cached, "overlap": "made"}
    write("deep/groups.txt", "layers.0 layers.1\n")
    made = states(sg("sg-recipe", "run", "deep/r.yaml", "--json"))
    assert made == {"step": "cached", "bucket": "made", "overlap": "made"}


@case
def includes():
    write("a/common.yaml", "parameters: {policy: default}\ninputs: {g: g.txt}\nstages: [clean]\n")
    write("a/g.txt", GRAPH)
    write("main.yaml", "include: a/common.yaml\nparameters: {policy: full}\nstages:\n  - remat: {policy: $policy}\n    output: out.sg.txt\n")
    expect(sg("sg-recipe", "plan", "main.yaml"), 0, out=r"^run     remat +sg-remat --policy full")
    expect(sg("sg-recipe", "run", "main.yaml"), 0)
    assert b"aten.mm" in read("out.sg.txt")
    write("loop.yaml", "include: loop.yaml\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "loop.yaml"), 1, "loop.yaml:1:10: error: loop.yaml includes itself")
    write("tree.yaml", "include: [a/common.yaml, a/common.yaml]\nmatrix: {policy: [full]}\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "tree.yaml"), 1, "there are two inputs `g`")
    write("a/axis.yaml", "include: common.yaml\nmatrix: {policy: [default, none]}\n")
    write("axis.yaml", "include: a/axis.yaml\nmatrix: {policy: [full]}\nstages:\n  - remat: {policy: $policy}\n")
    expect(sg("sg-recipe", "plan", "axis.yaml"), 0, out=r"^(run|cached) +policy=full/remat")
    write("gone.yaml", "include: none.yaml\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "gone.yaml"), 1, r"gone.yaml:1:10: error: cannot read the recipe none.yaml")


@case
def globs():
    write("whole.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "whole.yaml"), 0)
    whole = read("out/default.sg")
    write("glob.yaml", RECIPE.replace("rank{r}", "rank*"))
    expect(sg("sg-recipe", "run", "glob.yaml"), 0)
    assert read("out/default.sg") == whole
    write("none.yaml", RECIPE.replace("rank{r}", "rank[9]"))
    expect(sg("sg-recipe", "check", "none.yaml"), 1, r"none.yaml:4:18: error: no file matches .*rank\[9\]")
    for name in ("a.txt", "b.txt"):
        write(name, GRAPH)
    write("two.yaml", "inputs: {g: '?.txt'}\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "two.yaml"), 1, r"two.yaml:1:13: error: a graph is one file, .* 2 files match")
    os.remove("b.txt")
    expect(sg("sg-recipe", "run", "two.yaml"), 0)


@case
def a_folder_of_traces_is_a_source():
    log = read(os.path.join(ROOT, "examples/03_ways_in/step.trace.log")).decode()
    name = "trace/dedicated_log_torch_trace_x.log"
    write(name, log)
    write("folder.yaml", "inputs: {step: {import: trace}}\nstages: [clean]\n")
    expect(sg("sg-recipe", "run", "folder.yaml"), 0, "clean +made")
    expect(sg("sg-recipe", "run", "folder.yaml"), 0, "step +cached")
    write(name, log + "\n")
    expect(sg("sg-recipe", "run", "folder.yaml"), 0, "step +made")


@case
def the_same_bytes_in_process_by_pipes_and_in_a_shell():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0, r"^remat +made .*nodes recomputed")
    here = read("out/default.sg")
    os.remove("out/default.sg")
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache", "--pipes"), 0)
    assert read("out/default.sg") == here
    pipe = f"sg-import -q '{CAPTURE}' | sg-clean -q | sg-remat -q --policy default > shell.sg"
    subprocess.run(pipe, shell=True, check=True, env=dict(os.environ, PATH=BIN + os.pathsep + os.environ["PATH"]))
    assert read("shell.sg") == here
    assert not os.path.exists("cache")


@case
def the_whole_pipe():
    write("r.yaml", RECIPE.replace("    output: out/$policy.sg\n", "") + """  - chunk: {modules: 'layers.*.moe', chunks: 3}
  - overlap: {isolate-only: true}
  - bucket: {plan: per-block}
    output: whole.sg
""")
    pipe = (f"sg-import -q '{CAPTURE}' | sg-clean -q | sg-remat -q --policy default | sg-chunk -q --modules 'layers.*.moe' --chunks 3 |"
            " sg-overlap -q --isolate-only | sg-bucket -q --plan per-block > shell.sg")
    subprocess.run(["bash", "-o", "pipefail", "-c", pipe], check=True,
                   env=dict(os.environ, PATH=BIN + os.pathsep + os.environ["PATH"]))
    for more in ([], ["--pipes"]):
        expect(sg("sg-recipe", "run", "r.yaml", "--no-cache", *more), 0)
        assert read("whole.sg") == read("shell.sg"), more
        os.remove("whole.sg")


@case
def what_is_known_is_not_made_again():
    write("r.yaml", RECIPE)
    assert states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)) == {"step": "made", "clean": "made", "remat": "made"}
    first = read("out/default.sg")
    os.remove("out/default.sg")
    assert set(states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)).values()) == {"cached"}
    assert read("out/default.sg") == first
    expect(sg("sg-recipe", "plan", "r.yaml"), 0, out=r"^cached  remat")
    done = expect(sg("sg-recipe", "plan", "r.yaml", "--set", "policy=full"), 0, out=r"^cached  clean")
    assert "options were `--policy default`, are `--policy full`" in done.out, done.out
    assert states(expect(sg("sg-recipe", "run", "r.yaml", "--json", "--set", "policy=full"), 0)) == {"step": "cached", "clean": "cached", "remat": "made"}
    expect(sg("sg-recipe", "run", "r.yaml", "--set", "polici=full"), 3, "no parameter `polici`")


@case
def broken_entries_are_made_again():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    first = read("out/default.sg")
    rng = random.Random(1)
    for entry in glob.glob("cache/v1/*/*.sg"):
        data = bytearray(read(entry))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.5:
            data = data[:rng.randrange(len(data))]
        with open(entry, "wb") as f:
            f.write(data)
    assert set(states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)).values()) == {"made"}
    assert read("out/default.sg") == first
    # a cache that cannot be written costs nothing else
    expect(sg("sg-recipe", "run", "r.yaml", cache="/dev/null/none"), 0)
    assert read("out/default.sg") == first


@case
def the_cache_keeps_to_its_size():
    write("r.yaml", RECIPE)
    for policy in ("default", "full", "none"):
        expect(sg("sg-recipe", "run", "r.yaml", "--set", "policy=" + policy, "--cache-size", "1MiB"), 0)
    total = sum(os.path.getsize(p) for p in glob.glob("cache/v1/*/*"))
    assert total <= 1 << 20, total
    expect(sg("sg-recipe", "run", "r.yaml", "--cache-size", "big"), 2, "is no size")


@case
def a_matrix_shares_what_is_equal():
    write("r.yaml", RECIPE.replace("parameters: {policy: default}", "matrix: {policy: [default, full, none]}"))
    done = expect(sg("sg-recipe", "run", "r.yaml", "--json", "-j3"), 0)
    found = states(done)
    assert len(found) == 9 and list(found.values()).count("made") == 5, found      # import and clean once
    digests = {s["name"]: s["digest"] for s in json.loads(done.out)["steps"]}
    assert digests["policy=default/clean"] == digests["policy=full/clean"] and digests["policy=default/remat"] != digests["policy=full/remat"]
    one = expect(sg("sg-recipe", "run", "r.yaml", "--json", "-j1", "--no-cache"), 0)
    assert digests == {s["name"]: s["digest"] for s in json.loads(one.out)["steps"]}
    assert len(os.listdir("out")) == 3
    write("clash.yaml", open("r.yaml").read().replace("out/$policy.sg", "out/one.sg"))
    expect(sg("sg-recipe", "check", "clash.yaml"), 1, "have one file: out/one.sg")
    expect(sg("sg-recipe", "check", "r.yaml", "--set", "policy=full"), 0, out="valid, 2 stages$")


@case
def assertions_and_runs():
    write("g.txt", GRAPH)
    write("r.yaml", """inputs: {g: g.txt}
stages:
  - clean
    """.rstrip() + """
  - clean:
    name: again
    assert: [nodes < 3, peak <= 1MiB, op=aten.relu == 1, no op=aten.mm, step_time < 1s, collectives == 0]
    run: [{init: 'seed:1', bitwise_to: g}, {init: 'seed:2', bitwise_to: clean}]
""")
    done = expect(sg("sg-recipe", "run", "r.yaml"), 1, r"r.yaml:6:14: error: again: nodes < 3: it is 3 \[assert\]")
    assert "no op=aten.mm: it is 1" in done.message and done.message.count("[assert]") == 2 and "[run]" not in done.message, done.message
    write("changed.txt", GRAPH.replace("relu(%a)\n    %b2", "tanh(%a)\n    %b2"))
    write("s.yaml", "inputs: {g: g.txt, other: changed.txt}\nstages:\n  - clean:\n    from: other\n    run: {init: 'seed:1', bitwise_to: g}\n")
    expect(sg("sg-recipe", "run", "s.yaml"), 1,
           r"s.yaml:5:10: error: clean: the results differ from the reference's \(exit 1\)")
    write("n.txt", "sg 1.0\ngraph rank *\n  input %x : f32[4]\n  %a = aten.mul.Tensor(%x, nan)\n  %b = aten.neg(%a)\n  output %b\n")
    write("n.yaml", "inputs: {g: n.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', bitwise_to: g}\n")
    expect(sg("sg-recipe", "run", "n.yaml"), 1, r"n.yaml:4:10: error: clean: a comparison of nothing but NaN shows nothing")


@case
def assertions_mean_what_they_say():
    write("g.txt", GRAPH)
    for bad, said in (("op= <= 4", "`op=` names an op"), ("no op=", "`no op=` names an op"),
                      ("exposed_comm < 5", "units here are %"),
                      ("step_time < 70GiB", "units here are us, ms, s"), ("peak < inf", "is no number"),
                      ("nodes < 3GiB", "units here are k")):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    assert: ['" + bad + "']\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:4:14: error: .*|" + said)
        assert said in sg("sg-recipe", "check", "r.yaml").message, (bad, sg("sg-recipe", "check", "r.yaml").message)


@case
def nothing_is_written_over_what_is_read():
    write("g.txt", GRAPH)
    for more in ("output: g.txt", "expect: a.sg.txt\n    output: a.sg.txt",
                 "run: {expect: v.safetensors, init: 'seed:0'}\n    output: v.safetensors"):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    " + more + "\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, "have one file: ")
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:0', profile: p.json}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "sg-run has no option `profile`")
    write("r.yaml",
          "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:0', bitwise_to: g, bitwise: true}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "leave out `bitwise`")


@case
def a_check_is_known_by_which_file_stands_where():
    write("g.txt", GRAPH)
    expect(sg("sg-run", "g.txt", "--init", "seed:1", "--outputs", "a.safetensors", "-q"), 0)
    expect(sg("sg-run", "g.txt", "--init", "seed:2", "--outputs", "b.safetensors", "-q"), 0)
    recipe = "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: [{init: 'seed:1', expect: %s}, {init: 'seed:2', expect: %s}]\n"
    write("r.yaml", recipe % ("a.safetensors", "b.safetensors"))
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    write("r.yaml", recipe % ("b.safetensors", "a.safetensors"))
    expect(sg("sg-recipe", "run", "r.yaml"), 1, r"\[run\]")
    write("q.yaml", "inputs: {g: g.txt}\nstages:\n  - remat: {policy: none, save: 'layer:mm'}\n")
    expect(sg("sg-recipe", "run", "q.yaml"), 0)
    write("q.yaml", "inputs: {g: g.txt}\nstages:\n  - remat: {save: 'layer:mm --policy none'}\n")
    assert states(sg("sg-recipe", "run", "q.yaml", "--json"))["remat"] != "cached"


@case
def goldens_are_blessed_only_when_the_rest_holds():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    expect: golden/clean.sg.txt\n    run: {init: 'seed:1', bitwise_to: g}\n")
    expect(sg("sg-recipe", "run", "r.yaml"), 1, "there is no golden golden/clean.sg.txt")
    expect(sg("sg-recipe", "expect", "r.yaml", "--bless"), 0, "new golden")
    expect(sg("sg-recipe", "expect", "r.yaml"), 0)
    write("g.txt", GRAPH.replace("aten.tanh(%x)", "aten.tanh(%x)\n    %e    = aten.neg(%x)").replace("%b, %b2", "%b, %e").replace("f32[4, 8]", "f32[8, 8]"))
    done = expect(sg("sg-recipe", "run", "r.yaml"), 1, "the result differs from golden/clean.sg.txt")
    assert "aten.neg" in done.message, done.message
    before = read("golden/clean.sg.txt")
    write("bad.txt", GRAPH)
    write("b.yaml", open("r.yaml").read().replace("{g: g.txt}", "{g: g.txt, bad: bad.txt}").replace("- clean:", "- clean:\n    from: bad").replace("    from: bad\n", "", 1)
          .replace("    expect", "    from: g\n    expect").replace("bitwise_to: g", "bitwise_to: bad"))
    expect(sg("sg-recipe", "expect", "b.yaml", "--bless"), 1)
    assert read("golden/clean.sg.txt") == before


@case
def a_golden_that_is_no_text_is_refused_with_its_line():
    write("g.txt", GRAPH)
    write("bad.sg.txt", GRAPH.replace("aten.relu(%a)\n    %b2", "aten.relu(%aa)\n    %b2"))
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    expect: bad.sg.txt\n")
    done = expect(sg("sg-recipe", "run", "r.yaml"), 1, r"bad.sg.txt:9:23: error: clean: there is no %aa")
    expect(done, 1, r"r.yaml:3:5: error: clean: .*not a valid text: 1 error")


@case
def what_a_tool_says_is_passed_on_whole():
    write("g.txt", GRAPH)
    expect(sg("sg-run", "g.txt", "--init", "seed:1", "--outputs", "a.safetensors", "-q"), 0)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:2', expect: a.safetensors}\n")
    alone = sg("sg-run", "g.txt", "--init", "seed:2", "--expect", "a.safetensors")
    done = expect(sg("sg-recipe", "run", "r.yaml"), 1,
                  r"^sg-recipe: r.yaml:4:10: error: clean: sg-run fails \(exit 1\) \[run\]$")
    for line in alone.message.splitlines() + alone.out.splitlines():
        if not line.startswith(("step ", "memory ")):      # the time; the graph is another one
            assert f"\n  {line}\n" in done.message, (line, done.message)
    assert "FAIL" in done.message, done.message


@case
def bless_does_not_hint_at_itself():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    expect: c.sg.txt\n    assert: nodes < 2\n")
    done = expect(sg("sg-recipe", "expect", "r.yaml", "--bless"), 1, "nodes < 2: it is 3")
    assert "--bless" not in done.message and "it was not blessed" in done.message, done.message
    assert not os.path.exists("c.sg.txt")


@case
def the_number_of_ranks_is_asked_for():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', ranks: 4, bitwise_to: input}\n")
    expect(sg("sg-recipe", "run", "r.yaml"), 1, r"r.yaml:4:10: error: clean: the job has 1 rank, the recipe says 4")
    write("r.yaml", open("r.yaml").read().replace("ranks: 4", "ranks: 1"))
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    write("r.yaml", open("r.yaml").read().replace("ranks: 1", "ranks: four"))
    expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:4:34: error: `ranks` is how many ranks")


def as_nobody():
    """Root may write anywhere."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


@case
def a_read_only_cache_serves_and_is_left_alone():
    write("r.yaml", RECIPE.replace("    output: out/$policy.sg\n", ""))
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    os.chmod(".", 0o755)
    for folder, _, files in os.walk("cache"):
        os.chmod(folder, 0o555)
        for f in files:
            os.chmod(os.path.join(folder, f), 0o444)
    before = sorted(glob.glob("cache/v1/*/*"))
    try:
        done = expect(sg("sg-recipe", "run", "r.yaml", "--json", preexec_fn=as_nobody), 0)
        assert set(states(done).values()) == {"cached"}
        done = expect(sg("sg-recipe", "run", "r.yaml", "--json", "--set", "policy=full", "--cache-size", "1KiB",
                         preexec_fn=as_nobody), 0)
        assert states(done) == {"step": "cached", "clean": "cached", "remat": "made"}, done.out
        assert sorted(glob.glob("cache/v1/*/*")) == before
    finally:
        for folder, _, _ in os.walk("cache"):
            os.chmod(folder, 0o755)


@case
def a_full_disk_under_the_cache_costs_nothing_else():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0)
    whole = read("out/default.sg")
    run = f"STEPGRAPH_CACHE=full/cache exec {os.path.join(BIN, 'sg-recipe')} run r.yaml --json"
    os.mkdir("full")
    disk = "mount -t tmpfs -o size=300k none full"
    if subprocess.run(["unshare", "-rm", "sh", "-c", disk], stderr=subprocess.DEVNULL).returncode != 0:
        print("SKIPPED: a_full_disk_under_the_cache: no disk can be mounted here")
        return

    def on_full_disk(script):
        return Done(subprocess.run(["unshare", "-rm", "sh", "-c", f"{disk} && {script}"], capture_output=True,
                                   timeout=120))

    done = expect(on_full_disk(f"({run}) && find full -type f >&2"), 0)
    assert set(states(done).values()) == {"made"} and read("out/default.sg") == whole
    assert not re.search(r"\.(tmp|part)", done.message), done.message
    # A result that has no room is an error that says so, and what stood there before is as it was.
    write("o.yaml", RECIPE.replace("output: out/$policy.sg", "output: full/out.sg"))
    done = on_full_disk(f"echo old > full/out.sg && head -c 200000 /dev/zero > full/else && (cd . && {run.replace('r.yaml', 'o.yaml --no-cache')}); echo $? >&2; cat full/out.sg >&2")
    assert "No space left" in done.message and done.message.endswith("5\nold\n"), done.message


@case
def locks():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "verify", "r.yaml"), 3, "there is no lock")
    expect(sg("sg-recipe", "lock", "r.yaml"), 0)
    expect(sg("sg-recipe", "verify", "r.yaml", "--no-cache"), 0)
    expect(sg("sg-recipe", "verify", "r.yaml", "--set", "policy=full"), 1,
           "`remat` is sha256:.*, the lock says .*: options were `--policy default`, are `--policy full`")
    write("r.yaml", RECIPE + "  - overlap\n")
    expect(sg("sg-recipe", "verify", "r.yaml"), 1, "`overlap` is not in the lock")
    expect(sg("sg-recipe", "lock", "r.yaml"), 0)
    done = expect(sg("sg-recipe", "verify", "r.yaml", "--set", "clean.drop-asserts=true"), 1,
                  "`clean` is sha256:.*: options were ``, are `--drop-asserts`")
    assert "differs too: `remat`, `overlap` [lock]" in done.message and done.message.count("error:") == 2, done.message
    lock = read("r.yaml.lock").decode().splitlines(keepends=True)
    write("r.yaml.lock", "".join(line for line in lock if not line.startswith("#   ")))
    expect(sg("sg-recipe", "verify", "r.yaml"), 0)  # as an older version wrote it
    expect(sg("sg-recipe", "verify", "r.yaml", "--set", "policy=full"), 1, r"the lock says sha256:\w+ \[lock\]")


@case
def endings_leave_no_folder_behind():
    write("r.yaml", RECIPE + "    run: {init: 'seed:0', steps: 100000}\n")
    os.makedirs("tmp")
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"), TMPDIR=os.path.abspath("tmp"))
    endings = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    ours = lambda: [signal.signal(s, signal.SIG_DFL) for s in endings]  # whoever runs the test may ignore them
    for number in endings:
        runner = subprocess.Popen([os.path.join(BIN, "sg-recipe"), "run", "r.yaml", "--no-cache"], env=env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ours)
        while not os.listdir("tmp") and runner.poll() is None:
            time.sleep(0.005)
        runner.send_signal(number)
        assert runner.wait(timeout=30) == -number
        assert os.listdir("tmp") == [], number


@case
def a_stage_that_fails_stops_its_own_branch_only():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - concretize: {bind: s9=4}\n  - clean\n  - clean:\n    from: g\n    name: other\n    output: other.sg\n")
    done = sg("sg-recipe", "run", "r.yaml", "--json")
    assert done.code in (2, 4), done.message
    assert states(done) == {"g": "made", "concretize": "failed", "clean": "skipped", "other": "made"}, done.out
    assert os.path.exists("other.sg") and "s9" in done.message, done.message


@case
def the_published_schema_is_that_of_the_tools():
    with open(os.path.join(ROOT, "schema", "recipe.schema.json")) as f:
        assert f.read() == expect(sg("sg-recipe", "schema"), 0).out, "sg-recipe schema -o schema/recipe.schema.json"


@case
def a_mistake_of_all_variants_is_told_once_and_a_failing_pass_has_its_line():
    write("g.txt", GRAPH)
    write("m.yaml", "matrix: {policy: [full, none], b: [0.2, 0.8, 2]}\ninputs: {g: g.txt}\nstages:\n"
                    "  - remat: {policy: $policy, budget: $b, save: ['size>=lots']}\n")
    done = expect(sg("sg-recipe", "check", "m.yaml"), 1, "m.yaml has 2 mistakes")
    assert done.message.count("m.yaml:4:5: error:") == 2, done.message
    write("f.yaml", "inputs: {g: g.txt}\nstages:\n  - clean\n  - chunk: {modules: 'none.*'}\n")
    expect(sg("sg-recipe", "run", "f.yaml"), 4, r"f.yaml:4:5: error: chunk: --modules none.\* names no module")


@case
def a_recipe_comes_from_standard_input():
    write("r.yaml", RECIPE)
    given = lambda *words: sg("sg-recipe", *words, input=read("r.yaml"))
    expect(given("check", "-"), 0, out="<stdin>: valid, 2 stages")
    expect(given("run", "-"), 0)
    expect(given("lock", "-"), 2, "standard input has no lock beside it")
    expect(given("verify", "-"), 2, "standard input has no lock beside it")
    expect(given("lock", "-", "-o", "-"), 0, out="sha256:")
    expect(sg("sg-recipe", "check", "-", input=b"stages:\n  - nothing\n"), 1, "<stdin>:2:5: ")
    write("i.yaml", "include: '<stdin>'\n")
    expect(sg("sg-recipe", "check", "i.yaml", input=b""), 1, "i.yaml:1:10: error: cannot read the recipe <stdin>")


@case
def a_parameter_in_braces_stands_in_quotes():
    for options in ("{policy: ${p}, chunks: 2}", "{policy: layers.${p}}", "[${p}, 1]"):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - remat: " + options + "\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, r"in braces a text with \$\{NAME\} stands in quotes")
    write("r.yaml", "inputs: {g: g.txt}\nparameters: {p: '${x}'}\nstages:\n  - remat: {policy: full\n")
    done = expect(sg("sg-recipe", "check", "r.yaml"), 1, "end of map")
    assert "stands in quotes" not in done.message, done.message


@case
def every_command_has_its_report_as_json():
    write("r.yaml", RECIPE)
    checked = json.loads(expect(sg("sg-recipe", "check", "r.yaml", "--json"), 0).out)
    assert checked == {"schema": "sg-recipe-check", "version": 1, "file": "r.yaml", "stages": 2, "variants": 1}
    expect(sg("sg-recipe", "lock", "r.yaml", "-o", "other.lock"), 0)
    assert not os.path.exists("r.yaml.lock") and b"sha256:" in read("other.lock")
    os.rename("other.lock", "r.yaml.lock")
    assert states(expect(sg("sg-recipe", "expect", "r.yaml", "--json"), 0))["remat"] == "cached"
    assert json.loads(expect(sg("sg-recipe", "verify", "r.yaml", "--json"), 0).out)["same"] is True
    other = expect(sg("sg-recipe", "verify", "r.yaml", "--json", "--set", "policy=full"), 1)
    assert json.loads(other.out)["same"] is False


@case
def a_place_on_the_command_line_is_no_file_of_an_annotation():
    write("r.yaml", RECIPE)
    done = expect(sg("sg-recipe", "check", "r.yaml", "--set", "polcy=full", "--error-format=github"), 1)
    assert done.message.startswith("::error title=recipe::--set polcy=full: the recipe has no parameter"), done.message
    done = expect(sg("sg-recipe", "check", "r.yaml", "--set", "policy=ful", "--error-format=github"), 1)
    assert re.match(r"::error file=r.yaml,line=\d+,col=\d+,title=option::sg-remat", done.message), done.message


@case
def a_rank_pattern_is_a_file_a_rank():
    write("r.yaml", f"inputs: {{step: {{import: '{CAPTURE}'}}}}\nstages:\n  - clean:\n    output: 'out/rank{{r}}.sg'\n"
                    "    expect: 'golden/rank{r}.sg.txt'\n")
    expect(sg("sg-recipe", "run", "r.yaml"), 1, r"there is no golden golden/rank\{r\}.sg.txt")
    expect(sg("sg-recipe", "expect", "r.yaml", "--bless"), 0, r"new golden golden/rank\{r\}.sg.txt")
    assert sorted(os.listdir("out")) == [f"rank{r}.sg" for r in range(4)]
    assert sorted(os.listdir("golden")) == [f"rank{r}.sg.txt" for r in range(4)]
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    write("next.yaml", "inputs: {step: 'out/rank{r}.sg'}\nstages: [remat]\n")
    expect(sg("sg-recipe", "run", "next.yaml"), 0)
    os.remove("golden/rank1.sg.txt")
    expect(sg("sg-recipe", "run", "r.yaml"), 1, "golden/rank1.sg.txt: rank 1 is missing, rank 3 is there")


@case
def orders_are_warned_of():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [remat, clean]\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 0, "warning: clean: sg-clean is meant to run before sg-remat")


@case
def two_runners_on_one_cache():
    write("r.yaml", RECIPE.replace("parameters: {policy: default}", "matrix: {policy: [default, full]}"))
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"))
    command = [os.path.join(BIN, "sg-recipe"), "run", "r.yaml", "--json", "-j2"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) for _ in range(2)]
    answers = [json.loads(p.communicate()[0]) for p in both]
    assert all(p.returncode == 0 for p in both)
    assert [[s["digest"] for s in a["steps"]] for a in answers][0] == [s["digest"] for s in answers[1]["steps"]]


@case
def a_killed_runner_leaves_nothing_broken():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0)
    whole = read("out/default.sg")
    began = time.time()
    expect(sg("sg-recipe", "run", "r.yaml", cache="other"), 0)
    length = time.time() - began
    rng = random.Random(7)
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"))
    for _ in range(KILLS):
        if rng.random() < 0.3:
            shutil.rmtree("cache", ignore_errors=True)
        if rng.random() < 0.5 and os.path.exists("out/default.sg"):
            os.remove("out/default.sg")
        runner = subprocess.Popen([os.path.join(BIN, "sg-recipe"), "run", "r.yaml"], stderr=subprocess.DEVNULL, env=env,
                                  start_new_session=True)
        time.sleep(rng.random() * length)
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
        assert not os.path.exists("out/default.sg") or read("out/default.sg") == whole
        for entry in glob.glob("cache/v1/*/*.sg"):
            subprocess.run([os.path.join(BIN, "sg-check"), "-q", entry], check=True, stdout=subprocess.DEVNULL)
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    assert read("out/default.sg") == whole


@case
def bisection():
    write("r.yaml", RECIPE.replace("  - clean\n", "  - clean\n  - {clean: {drop-asserts: true}, name: second}\n  - {remat: {policy: none}, name: idle}\n")
          .replace("{policy: $policy}", "{policy: $policy, save: 'layers.*.attention'}") + "  - {clean: {}, name: last}\n")
    write("bad.sh", "sg-stat --json \"$1\" | python3 -c 'import json,sys; n=json.load(sys.stdin)[\"nodes\"]; sys.exit(not 1200 <= n < 1372)'\n")
    env_path = os.environ["PATH"]
    os.environ["PATH"] = BIN + os.pathsep + env_path
    try:
        done = sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "sh bad.sh")
        expect(done, 1, out=r"the first bad one is remat \(r.yaml:9:5\); idle is good\n  without `--save layers.\*.attention` it is good\n"
               r"  it is bad where sg-remat may touch [0-9]+ of [0-9]+ nodes: %\S+.* to %\S+.*; with one less at either end it is not$")
        done = sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "sh bad.sh", "--json")
        found = json.loads(done.out)
        assert done.code == 1 and [found[key] for key in ("schema", "bad", "at", "good")] == ["sg-recipe-bisect", "remat", "r.yaml:9:5", "idle"], found
        assert found["options"] == ["--save layers.*.attention"] and 0 < found["nodes"]["touched"] < found["nodes"]["of"], found
        assert found["nodes"]["first"]["name"][0] == found["nodes"]["last"]["name"][0] == "%", found
        expect(sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "./none"), 2,
               r"the shell cannot run `./none`\n.*not found")
        expect(sg("sg-recipe", "bisect", "r.yaml", "clean", "second", "--fails", "sh bad.sh"), 4, "`second` is not bad")
        expect(sg("sg-recipe", "bisect", "r.yaml", "nothing"), 2, "no stage or input `nothing`")
        expect(sg("sg-recipe", "bisect", "r.yaml"), 4, "`last` is not bad")     # passes are bitwise
    finally:
        os.environ["PATH"] = env_path


def main():
    global BIN, KILLS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    BIN, KILLS = os.path.abspath(options.bin), options.kills
    return CASES.run(options.names)


if __name__ == "__main__":
    sys.exit(main())
