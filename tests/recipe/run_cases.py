"""Cases of run_recipes.py: equal bytes however a recipe runs, what is said meanwhile, how it ends."""
import json
import os
import signal
import subprocess
import time

from support import CAPTURE, GRAPH, RECIPE, ROOT, case, expect, given, read, sg, states, write


@case
def the_same_bytes_in_process_by_pipes_and_in_a_shell():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0, r"^remat +made .*nodes recomputed")
    here = read("out/default.sg")
    os.remove("out/default.sg")
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache", "--pipes"), 0)
    assert read("out/default.sg") == here
    pipe = f"sg-import -q '{CAPTURE}' | sg-clean -q | sg-remat -q --policy default > shell.sg"
    subprocess.run(pipe, shell=True, check=True, env=dict(os.environ, PATH=given.bin + os.pathsep + os.environ["PATH"]))
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
                   env=dict(os.environ, PATH=given.bin + os.pathsep + os.environ["PATH"]))
    for more in ([], ["--pipes"]):
        expect(sg("sg-recipe", "run", "r.yaml", "--no-cache", *more), 0)
        assert read("whole.sg") == read("shell.sg"), more
        os.remove("whole.sg")


@case
def nothing_is_written_over_what_is_read():
    write("g.txt", GRAPH)
    for more in ("output: g.txt", "expect: a.sg.txt\n    output: a.sg.txt",
                 "run: {expect: v.safetensors, init: 'seed:0'}\n    output: v.safetensors"):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    " + more + "\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, "use the same file: ")
    for first, second in (("r{r}.sg", "r0.sg"), ("r0.sg", "r{r}.sg")):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    output: " + first + "\n  - remat: {policy: full}\n"
                        "    output: " + second + "\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml:5:.*`clean` and `remat` use the same file: ")
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:0', profile: p.json}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "in a recipe sg-run takes no `profile`(.|\n)*sg-run --profile by hand")
    write("r.yaml",
          "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:0', bitwise_to: g, bitwise: true}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "leave out `bitwise`")


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
def the_number_of_ranks_is_asked_for():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', ranks: 4, bitwise_to: input}\n")
    expect(sg("sg-recipe", "run", "r.yaml"), 1, r"r.yaml:4:10: error: clean: the job has 1 rank, the recipe says 4")
    write("r.yaml", open("r.yaml").read().replace("ranks: 4", "ranks: 1"))
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    write("r.yaml", open("r.yaml").read().replace("ranks: 1", "ranks: four"))
    expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:4:34: error: `ranks` takes the number of ranks of the job")


@case
def a_stage_that_fails_stops_its_own_branch_only():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - concretize: {bind: s9=4}\n  - clean\n  - clean:\n    from: g\n    name: other\n    output: other.sg\n")
    done = sg("sg-recipe", "run", "r.yaml", "--json")
    assert done.code in (2, 4), done.message
    assert states(done) == {"g": "made", "concretize": "failed", "clean": "skipped", "other": "made"}, done.out
    assert os.path.exists("other.sg") and "s9" in done.message, done.message


@case
def endings_leave_no_folder_behind():
    write("r.yaml", RECIPE + "    run: {init: 'seed:0', steps: 100000}\n")
    os.makedirs("tmp")
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"), TMPDIR=os.path.abspath("tmp"))
    endings = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    ours = lambda: [signal.signal(s, signal.SIG_DFL) for s in endings]  # whoever runs the test may ignore them
    for number in endings:
        runner = subprocess.Popen([os.path.join(given.bin, "sg-recipe"), "run", "r.yaml", "--no-cache"], env=env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ours)
        while not os.listdir("tmp") and runner.poll() is None:
            time.sleep(0.005)
        runner.send_signal(number)
        assert runner.wait(timeout=30) == -number
        assert os.listdir("tmp") == [], number


@case
def an_ending_takes_along_what_a_command_has_started():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    ours = lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)
    runner = subprocess.Popen([os.path.join(given.bin, "sg-recipe"), "bisect", "r.yaml", "--fails", "sleep 100 & echo $! > asked.new; mv asked.new asked; wait #"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ours)
    while not os.path.exists("asked") and runner.poll() is None:
        time.sleep(0.005)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(timeout=30) == -signal.SIGTERM
    with open("asked", encoding="utf-8") as f:
        started = int(f.read())
    for _ in range(1000):  # whoever inherits it may not have waited for it yet
        try:
            with open(f"/proc/{started}/stat", encoding="utf-8") as f:
                if f.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.005)
    raise AssertionError("the command's child lives on")


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
def the_published_schema_is_that_of_the_tools():
    with open(os.path.join(ROOT, "schema", "recipe.schema.json")) as f:
        assert f.read() == expect(sg("sg-recipe", "schema"), 0).out, "sg-recipe schema -o schema/recipe.schema.json"
    write("schema/recipe.schema.json", "")         # a folder that is called as the command is no input
    expect(sg("sg-recipe", "schema", "-o", "schema/recipe.schema.json"), 0)
    assert json.loads(read("schema/recipe.schema.json"))
