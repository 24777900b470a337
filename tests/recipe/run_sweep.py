#!/usr/bin/env python3
"""Tests of sg-sweep: points and front against the tools, search, failures, killed sweeps, pictures, docs/sweep.md.

run_sweep.py --bin DIR [--kills N] [--update] [NAME...]
  --update rewrites what the commands of docs/sweep.md print.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

from support import CAPTURE, CASES, ROOT, Done, case, expect, given, sg, write

RECIPE = f"""recipe: moe
parameters: {{policy: default, chunks: 2}}
inputs: {{step: {{import: '{CAPTURE}'}}}}
stages:
  - clean
  - remat: {{policy: $policy}}
  - chunk: {{modules: 'layers.*.moe', chunks: $chunks}}
"""
BUDGET = RECIPE.split("  - chunk")[0].replace("policy: default, chunks: 2", "policy: all")


def environment():
    return dict(os.environ, PATH=given.bin + os.pathsep + os.environ["PATH"], STEPGRAPH_CACHE=os.path.abspath("cache"))


def run(*words, code=0, error=None, **more):
    return expect(sg(*words, **more), code, error).out


def shell(command, **more):
    """What it prints, with the tools on the PATH."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(), timeout=120, **more)
    return expect(Done(done), 0).out


def sweep(*words, **more):
    return json.loads(run("sg-sweep", *words, "--json", "-q", **more))


def lines_of(path):
    with open(path) as f:
        return f.readlines()


def front_by_force(points):
    """Names of the points that no other beats, from their numbers alone; of equal ones the first."""
    known = {}
    for p in points:
        if p["state"] == "measured":
            known.setdefault((p["step_seconds"], p["peak_bytes"]), name_of(p))
    return {n for (t, m), n in known.items() if not any(t2 <= t and m2 <= m and (t2, m2) != (t, m) for t2, m2 in known)}


def name_of(point):
    return ",".join(f"{k}={v}" for k, v in point["values"].items()) or "as it is"


@case
def a_grid_is_what_the_tools_say():
    write("r.yaml", RECIPE)
    report = sweep("r.yaml", "--over", "policy=default,full", "--over", "chunk.chunks=2..4", "--plot", "p.svg")
    assert (report["schema"], report["version"], report["score"], report["machine"]) == ("sg-sweep", 1, "sim", "h100-8")
    assert len(report["points"]) == 6 and len({p["key"] for p in report["points"]}) == 6
    assert set(report["front"]) == front_by_force(report["points"]) and report["front"]
    kept = [json.loads(line) for line in lines_of("r.yaml.sweep.jsonl")]
    assert sorted(map(name_of, kept)) == sorted(map(name_of, report["points"]))
    for point in report["points"]:
        policy, chunks = point["values"]["policy"], point["values"]["chunk.chunks"]
        step = "out.sg"
        write("one.yaml", RECIPE.rstrip() + f"\n    output: {step}\n")
        run("sg-recipe", "run", "one.yaml", "-q", "--set", f"policy={policy}", "--set", f"chunk.chunks={chunks}")
        sim = json.loads(run("sg-sim", step, "--machine", "h100-8", "--json"))
        stat = json.loads(run("sg-stat", step, "--json"))
        assert abs(sim["makespan_us"] * 1e-6 - point["step_seconds"]) < 1e-12, (point, sim["makespan_us"])
        assert stat["memory"]["peak_bytes"] == point["peak_bytes"], point
    # The fastest is a command that runs.
    text = run("sg-sweep", "r.yaml", "--over", "policy=default,full", "--over", "chunk.chunks=2..4", "-q")
    shell(re.search(r"(?m)^fastest: (.*)$", text)[1])
    assert "6 known before" in text
    # A machine of the recipe; another one makes other points.
    write("m.yaml", RECIPE + "machine: h200-8\n")
    assert sweep("m.yaml")["machine"] == "h200-8" and sweep("m.yaml", "-m", "b200-8")["machine"] == "b200-8"
    assert len(lines_of("m.yaml.sweep.jsonl")) == 2


@case
def a_matrix_is_swept_over():
    write("r.yaml", RECIPE + "matrix: {policy: [full, none]}\n")
    assert [p["values"]["policy"] for p in sweep("r.yaml")["points"]] == ["full", "none"]
    assert [name_of(p) for p in sweep("r.yaml", "--set", "policy=full")["points"]] == ["as it is"]
    assert [name_of(p) for p in sweep("r.yaml", "-x", "policy=default")["points"]] == ["policy=default"]


@case
def points_that_cannot_be_are_kept_and_not_fatal():
    write("b.yaml", BUDGET)
    words = ["b.yaml", "--set", "policy=all", "-x", "remat.peak=256KiB,512KiB,2MiB,3MiB"]
    report = sweep(*words)
    states = [p["state"] for p in report["points"]]
    assert states == ["failed", "failed", "measured", "measured"], states
    failed = report["points"][0]
    assert failed["exit"] == 4 and "out of reach" in failed["error"] and failed["place"] == "b.yaml:6:5", failed
    text = run("sg-sweep", *words, "-q")
    assert re.search(r"(?m)^failed\n  remat.peak=256KiB.*\n    b.yaml:6:5: sg-remat: ", text), text
    assert len(lines_of("b.yaml.sweep.jsonl")) == 4                     # known: not tried again
    none = run("sg-sweep", "b.yaml", "-x", "remat.peak=256KiB,512KiB", "-q", code=4)
    assert re.match(r"2 points, .*, 2 failed\nfailed\n", none), none          # a front of none is not announced
    # A limit: the fastest point below it, or none.
    assert sweep(*words, "--peak", "2.5MiB")["best"] == "remat.peak=2MiB"
    assert sweep(*words, "--peak", "1MiB", code=1)["best"] is None
    # What the recipe asks for has to hold with --checks.
    write("c.yaml", BUDGET + "    assert: peak < 2.5MiB\n")
    words[0] = "c.yaml"
    assert [p["state"] for p in sweep(*words)["points"]][2:] == ["measured", "measured"]
    checked = sweep(*words, "--checks")["points"]
    assert checked[3]["exit"] == 1 and "peak < 2.5MiB: it is" in checked[3]["error"], checked[3]
    assert checked[2]["state"] == "measured"


@case
def of_equal_points_the_first_is_on_the_front():
    write("e.yaml", BUDGET.replace("  - clean\n", "  - clean: {drop-asserts: true}\n  - clean:\n    name: again\n"))
    report = sweep("e.yaml", "--over", "again.drop-asserts=true,false", "--over", "remat.budget=0,1")
    assert len({(p["step_seconds"], p["peak_bytes"]) for p in report["points"]}) == 2 and len(report["points"]) == 4
    assert set(report["front"]) == front_by_force(report["points"]) and len(report["front"]) <= 2, report["front"]


@case
def the_search_goes_where_it_says():
    write("b.yaml", BUDGET)
    words = ["b.yaml", "--over", "remat.budget=0,1", "--search", "6"]
    report = sweep(*words, "-j1")
    names = [float(p["values"]["remat.budget"]) for p in report["points"]]
    assert names[:3] == [0, 1, 0.5] and sorted(names[3:5]) == [0.25, 0.75] and len(names) == 8, names
    assert set(report["front"]) == front_by_force(report["points"])
    os.rename("b.yaml.sweep.jsonl", "kept")
    again = sweep(*words, "-j4", "--no-cache")
    assert [p["values"] for p in again["points"]] == [p["values"] for p in report["points"]]
    # With a limit the pair around it is halved first.
    os.remove("b.yaml.sweep.jsonl")
    bound = sweep(*words, "--peak", "3MiB", "--fresh")
    peaks = sorted(p["peak_bytes"] for p in bound["points"])
    below = max(p for p in peaks if p <= 3 << 20)
    assert min(p for p in peaks if p > 3 << 20) - below < (peaks[-1] - peaks[0]) / 20, peaks
    # Whole numbers end where nothing is between them; words have no middle.
    write("a.yaml", BUDGET.split("  - remat")[0] + "  - chunk: {auto: true, min-output: 1KiB}\n")
    whole = sweep("a.yaml", "-x", "chunk.chunks=2,8", "--search", "50")
    assert 4 <= len(whole["points"]) <= 7 and all(p["values"]["chunk.chunks"].isdigit() for p in whole["points"])
    assert len(sweep("b.yaml", "-x", "policy=default,full", "--search", "5")["points"]) == 2
    # From the smallest point towards the failed one beside it.
    low = sweep("b.yaml", "-x", "remat.peak=512KiB,2048KiB", "--search", "3")
    assert [p["values"]["remat.peak"] for p in low["points"]][2] == "1280KiB", low["points"]


@case
def scored_by_runs():
    write("r.yaml", RECIPE)
    report = sweep("r.yaml", "-x", "policy=default,none", "--score", "run", "--run", "--init seed:1 --steps 2")
    points = {p["values"]["policy"]: p for p in report["points"]}
    assert report["score"] == "run" and "machine" not in report
    assert points["default"]["peak_bytes"] < points["none"]["peak_bytes"]
    assert all(0 < p["step_seconds"] < 60 for p in points.values())
    sweep("r.yaml", "-x", "policy=none", "--score", "run", "--run", "--init seed:1 --steps 2")
    assert len(lines_of("r.yaml.sweep.jsonl")) == 2
    failed = sweep("r.yaml", "--score", "run", "--run", "--init seed:1 --memory-limit 1KiB", code=1)
    assert failed["points"][0]["exit"] == 1 and "beyond its inputs" in failed["points"][0]["error"], failed
    run("sg-sweep", "r.yaml", "--run", "--steps 2", code=2, error="--score run")
    run("sg-sweep", "r.yaml", "--score", "run", "--run", "--json", code=2, error="is set by sg-sweep")
    run("sg-sweep", "r.yaml", "--score", "run", "--run=-oX.json", code=2, error="--run: --output is set by sg-sweep")
    run("sg-sweep", "r.yaml", "--score", "run", "--run=-h", code=2, error="--run must run the step, and --help does not")
    run("sg-sweep", "r.yaml", "--score", "run", "--run=--stpes 2", code=2, error="--run: unknown option `--stpes`")
    run("sg-sweep", "r.yaml", "--score", "run", "--run=--init seed:0 --outputs 'r{r}.st' --steps 2")
    assert os.path.exists("r3.st") and not os.path.exists("X.json")


@case
def mistakes_have_places():
    write("r.yaml", RECIPE)
    for words, code, error in (
            (["r.yaml", "-x", "polcy=full"], 2, "^sg-sweep: --over polcy: error: .*no parameter `polcy`(.|\n)*`policy`"),
            (["r.yaml", "-x", "policy=full,fll"], 3, r"r.yaml:6:21: error: sg-remat: `policy` takes one of"),
            (["r.yaml", "-x", "chnk.chunks=2"], 2, "no stage `chnk`(.|\n)*`chunk`"),
            (["r.yaml", "-x", "chunk.chnks=2,3"], 2, "^sg-sweep: --over chunk.chnks: error: sg-chunk has no option `chnks`"),
            (["r.yaml", "-x", "remat.budget=0.5,a"], 2, '^sg-sweep: --over remat.budget=a: error: sg-remat: .*not `a`'),
            (["r.yaml", "-x", "policy=all,full", "-x", "remat.budget=2"], 2, "^sg-sweep: --over remat.budget=2: error: "),
            (["r.yaml", "-x", "remat.policy=all", "-x", "remat.budget=2"], 2, "^sg-sweep: --over remat.budget=2: error: "),
            (["r.yaml", "-x", "remat.budget=0,2,a"], 2, "the command line has 2 mistakes"),
            (["r.yaml", "-x", "chunks=2", "-s", "remat.budget=2"], 2, "--set remat.budget: error: sg-remat: --budget takes"),
            (["r.yaml", "--stage", "remt"], 2, "--stage remt: error: .*no stage `remt`(.|\n)*`remat`"),
            (["r.yaml", "-x", "chunks"], 2, "NAME=VALUES"), (["r.yaml", "-x", "chunks=2,"], 2, "a value is empty"),
            (["r.yaml", "-x", "chunks=4..2"], 2, "range is empty"), (["r.yaml", "-x", "chunks=1..x"], 2, "of numbers"),
            (["r.yaml", "-x", "chunks=1GiB..2MiB"], 2, "one unit"), (["r.yaml", "-x", "chunks=0..1:0"], 2, "is empty"),
            (["r.yaml", "-x", "chunks=1..9999"], 2, "more than 1000"), (["r.yaml", "-x", "chunks=2,2"], 2, "twice"),
            (["r.yaml", "-x", "chunks=2", "-x", "chunks=3"], 2, "there twice"),
            (["r.yaml", "-x", "chunks=2", "-s", "chunks=3"], 2, "swept over and set"),
            (["r.yaml", "-x", "chunks=1..500", "-x", "policy=1..500"], 2, "10,000"),
            (["r.yaml", "--plot", "a.png"], 2, ".svg or .html"), (["r.yaml", "-m", "h1000"], 2, "h100"),
            (["none.yaml"], 3, "^sg-sweep: none.yaml: error: no such file$"), ([], 2, "which recipe"),
            (["r.yaml", "--points", "no/such/p.jsonl"], 5, "cannot write: No such file"),
            (["r.yaml", "--points", "r.yaml/p.jsonl"], 3, "cannot read: Not a directory")):
        run("sg-sweep", *words, code=code, error=error)
    assert not os.path.exists("cache")
    write("other.jsonl", '{"a": 1}\n')
    for words in (["--points", "other.jsonl"], ["--points", "other.jsonl", "--fresh"]):
        run("sg-sweep", "r.yaml", *words, code=2, error="does not hold points of sg-sweep")
        assert open("other.jsonl").read() == '{"a": 1}\n'
    run("sg-sweep", "r.yaml", "--points", "r.yaml", code=2, error="would replace r.yaml, which is the input")
    run("sg-sweep", "r.yaml", "--score", "run", "--run", "--init seed:0 --plan", code=2, error="--plan does not")
    # What the best point's command would refuse; of its data nothing is asked without --checks.
    write("never.yaml", RECIPE + "    run: {init: 'seed:0', rtol: 0.1}\n")
    run("sg-sweep", "never.yaml", "-x", "chunks=2", code=3, error="sg-run: --rtol needs --expect or --compare")
    write("full.yaml", RECIPE)
    run("sg-sweep", "full.yaml", "--points", "/dev/full", code=5, error="cannot write")


@case
def values_that_begin_alike_are_points_of_their_own():
    write("r.yaml", f"parameters: {{x: layers.0}}\ninputs: {{step: {{import: '{CAPTURE}'}}}}\nstages:\n  - remat: {{save: ['$x']}}\n")
    told = sweep("r.yaml", "--over", "x=layers.0,layers.0/y")
    assert [p["state"] for p in told["points"]] == ["measured", "failed"], told["points"]


@case
def numbers_of_a_range_keep_their_digits():
    write("r.yaml", BUDGET)
    done = sg("sg-sweep", "r.yaml", "--over", "remat.peak=1073741824..1073741826", "--dry-run")
    said = done.out + done.message
    for peak in ("1073741824", "1073741825", "1073741826"):
        assert f"remat.peak={peak}" in said, said


@case
def a_dry_run_finds_what_the_sweep_would():
    write("r.yaml", BUDGET)
    for dry in (("--dry-run",), ()):
        for wrong, message in ((("--stage", "nosuch"), "the recipe has no stage `nosuch`"), (("--over", "remat.nosuch=0,1"), "nosuch"),
                               (("--set", "abc"), "abc"), (("--cache-size", "abc"), "cache-size")):
            run("sg-sweep", "r.yaml", "--over", "remat.budget=0,1", *wrong, *dry, code=2, error=message)
        assert not dry or not os.path.exists("r.yaml.sweep.jsonl")
    told = json.loads(sg("sg-sweep", "r.yaml", "--over", "remat.budget=0,1", "--dry-run", "--json").out)
    assert [p["state"] for p in told["points"]] == ["planned", "planned"] and told["best"] is None, told


@case
def an_axis_that_decides_the_machine_is_refused():
    write("r.yaml", BUDGET.replace("policy: all", "policy: all, m: h100-8") + "machine: $m\n")
    run("sg-sweep", "r.yaml", "--over", "m=h100-8,h100-64", code=3, error="the axis decides the machine")


@case
def the_fastest_point_is_a_command_for_the_shell():
    write("r r.yaml", BUDGET)
    said = run("sg-sweep", "r r.yaml", "--over", "remat.budget=0.5")
    assert "fastest: sg-recipe run 'r r.yaml' --set remat.budget=0.5" in said, said


@case
def checks_are_known_again_in_another_sweep():
    write("r.yaml", BUDGET + "  - clean: {}\n")
    for over in ("0.5", "1,0.5"):
        run("sg-sweep", "r.yaml", "--over", "remat.budget=" + over, "--checks")
    assert len(lines_of("r.yaml.sweep.jsonl")) == 2, lines_of("r.yaml.sweep.jsonl")


@case
def options_of_stages_may_be_set():
    write("r.yaml", RECIPE.rstrip() + "\n    output: out.sg\n")
    run("sg-recipe", "run", "r.yaml", "-q", "--set", "chunk.chunks=3", "--set", "remat.policy=full")
    made = open("out.sg", "rb").read()
    run("sg-recipe", "run", "r.yaml", "-q", "--set", "chunks=3", "--set", "policy=full")
    assert open("out.sg", "rb").read() == made
    plan = run("sg-recipe", "plan", "r.yaml", "--set", "remat.tag-only=true", "--set", "chunk.chunks=-")
    assert "--policy default --tag-only" in plan and "--chunks" not in plan, plan
    plan = run("sg-recipe", "plan", "r.yaml", "--set", "remat.tag-only=false", "--set", "remat.policy=none")
    assert "--tag-only" not in plan and "--policy none" in plan
    run("sg-recipe", "check", "r.yaml", "--set", "remt.policy=none", code=2, error="no stage `remt`")


@case
def killed_sweeps_go_on():
    write("r.yaml", RECIPE)
    words = ["r.yaml", "-x", "policy=default,full,none", "-x", "chunks=2..7", "--search", "2", "-q", "--json"]
    begin = time.time()
    whole = json.loads(run("sg-sweep", *words, "--points", "whole.jsonl"))["points"]
    seconds = time.time() - begin
    rng = random.Random(11)
    shutil.rmtree("cache")
    command = [os.path.join(given.bin, "sg-sweep"), *words]
    for i in range(given.kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        time.sleep(rng.uniform(0, seconds / 2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if i % 3 == 2 and os.path.exists("r.yaml.sweep.jsonl"):         # and once in a while a line was cut
            with open("r.yaml.sweep.jsonl", "a") as f:
                f.write('{"schema":"sg-sweep-point","version":1,"valu')
    before = len([line for line in lines_of("r.yaml.sweep.jsonl") if line.endswith("}\n")])
    points = json.loads(run("sg-sweep", *words))["points"]
    assert points == whole, "a killed sweep ends with other points"
    good = [line for line in lines_of("r.yaml.sweep.jsonl") if line.startswith("{") and line.endswith("}\n")]
    assert len(good) >= before
    # Nothing is made again when all is known, and other people's lines do no harm.
    with open("r.yaml.sweep.jsonl", "a") as f:
        f.write("hello\n[]\n{}\n" + '{"schema":"sg-sweep-point","version":2}\n')
    size = os.path.getsize("r.yaml.sweep.jsonl")
    assert json.loads(run("sg-sweep", *words, "--no-cache"))["points"] == whole
    assert os.path.getsize("r.yaml.sweep.jsonl") == size
    # A point that cannot be is measured again.
    write("damaged.jsonl", re.sub(r'"step_seconds":[^,]+', '"step_seconds":-1', "".join(lines_of("whole.jsonl"))))
    assert json.loads(run("sg-sweep", *words, "--points", "damaged.jsonl"))["points"] == whole
    # Two at once.
    os.remove("r.yaml.sweep.jsonl")
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) for _ in range(2)]
    assert [json.loads(p.communicate(timeout=120)[0])["points"] for p in both] == [whole, whole]
    # The recipe's input changed: nothing stands for it.
    write("r.yaml", RECIPE.replace("  - clean\n", "  - clean: {drop-asserts: true}\n"))
    keys = {p["key"] for p in json.loads(run("sg-sweep", *words))["points"]}
    assert not keys & {p["key"] for p in whole}


@case
def pictures():
    write("b.yaml", BUDGET.replace("recipe: moe", "recipe: 'a < b & \"c\"'"))
    words = ["b.yaml", "-x", "remat.budget=0..1:0.25", "-x", "policy=all,full", "--peak", "2MiB"]
    report = sweep(*words, "--plot", "p.svg")
    root = ElementTree.parse("p.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    circles = root.findall(svg + "circle")
    measured = [p for p in report["points"] if p["state"] == "measured"]
    assert len(circles) == len(measured)
    assert len([c for c in circles if c.get("class") == "front"]) == len(report["front"])
    for c in circles:
        assert 0 < float(c.get("cx")) < 960 and 0 < float(c.get("cy")) < 560
    # More memory is to the right, more time is up.
    titles = {c.find(svg + "title").text.split(":")[0]: c for c in circles}
    a, b = titles["remat.budget=0,policy=all"], titles["remat.budget=1,policy=all"]
    assert float(a.get("cx")) < float(b.get("cx")) and float(a.get("cy")) < float(b.get("cy"))
    text = "".join(root.itertext())
    assert 'a < b & "c"' in text and "limit 2.00 MiB" in text and "peak, MiB" in text
    sweep(*words, "--plot", "p.html")
    page = open("p.html").read()
    assert "a &lt; b &amp; &quot;c&quot;" in page and page.count("<tr") == 1 + len(report["points"])
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "<script" not in page
    again = open("p.svg", "rb").read()
    sweep(*words, "--plot", "p.svg", "-j1")
    assert open("p.svg", "rb").read() == again
    # One point, and none.
    sweep("b.yaml", "--plot", "one.svg", "--points", "one")
    ElementTree.parse("one.svg")
    run("sg-sweep", "b.yaml", "-x", "remat.peak=1KiB", "--plot", "none.svg", "-q", code=4)
    ElementTree.parse("none.svg")


@case
def the_page_is_what_it_says():
    """Each `$ command` of docs/sweep.md in the examples' folder, with what it prints."""
    shutil.copytree(os.path.join(ROOT, "examples"), "examples")
    path = os.path.join(ROOT, "docs", "sweep.md")
    page = open(path).read()
    ran = 0
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", page):
        for command, printed in re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)", block):
            out = shell(command, cwd="examples/recipes")
            if given.update:
                page = page.replace(f"$ {command}\n{printed}", f"$ {command}\n{out}")
            else:
                assert out == printed, f"$ {command}\nprints\n{out}docs/sweep.md says\n{printed}"
            ran += 1
    assert ran >= 4
    if given.update:
        with open(path, "w") as f:
            f.write(page)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    given.bin, given.kills, given.update = os.path.abspath(args.bin), args.kills, args.update
    return CASES.run(args.names)


if __name__ == "__main__":
    sys.exit(main())
