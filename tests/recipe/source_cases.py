"""Cases of run_recipes.py: files, includes, globs, traces, standard input, a file a rank."""
import os

from support import CAPTURE, GRAPH, RECIPE, ROOT, case, expect, read, sg, states, write


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
    expect(sg("sg-recipe", "plan", "deep/r.yaml"), 0, out=r"^run +overlap .*`--machine sha256:[0-9a-f]+` is now `--machine sha256:")
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
    expect(sg("sg-recipe", "check", "gone.yaml"), 1, r"gone.yaml:1:10: error: cannot include none.yaml: no such file")


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
def a_glob_ends():
    write("walk.yaml", "inputs: {g: '/*/*/*/*/*/*/*/*/*/none'}\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "walk.yaml"), 1, "walk.yaml:1:13: error: (more than 100000 names are looked at|no file matches)")
    os.mkdir("many")
    for i in range(20):
        os.symlink(".", f"many/{i}")
    write("walk.yaml", "inputs: {g: 'many/*/*/*/*/*/none'}\nstages: [clean]\n")
    expect(sg("sg-recipe", "check", "walk.yaml"), 1, "walk.yaml:1:13: error: more than 100000 names are looked at for many/")


@case
def names_that_look_like_options_and_response_files():
    for name in "-g.txt", "@g.txt", "--help":
        write(name, GRAPH)
        write("r.yaml", f"inputs: {{g: '{name}'}}\nstages: [clean]\n")
        expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0, "clean +made")
    write("@mine.yaml", "name: mine\nbase: h100-8\n")
    write("r.yaml", "inputs: {g: '@g.txt'}\nstages:\n  - overlap: {machine: '@mine.yaml'}\n")
    for pipes in ([], ["--pipes"]):
        expect(sg("sg-recipe", "run", "r.yaml", "--no-cache", *pipes), 0, "overlap +made")


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
    os.mkfifo("trace/pipe")                        # nobody writes into it, and nobody reads it
    expect(sg("sg-recipe", "run", "folder.yaml"), 0, "step +made")


@case
def the_rank_of_a_trace_is_a_word_of_its_name():
    log = read(os.path.join(ROOT, "examples/03_ways_in/step.trace.log")).decode()
    for name, ranks in (("frank7/x.log", 1), ("rank3rd/x.log", 1), ("a/x_rank_1_y.log", 2), ("rank_1/x.log", 2)):
        write(name, log)
        expect(sg("sg-import", "-q", name, "-o", "g.sg"), 0)
        expect(sg("sg-check", "g.sg"), 0, out=f"{ranks} rank")
        assert sg("sg-check", "g.sg").out.count(" of ") == (ranks > 1), name


@case
def what_a_job_of_traces_comes_from_is_all_of_them():
    log = read(os.path.join(ROOT, "examples/03_ways_in/step.trace.log")).decode()
    def digest(*logs):
        for rank, text in enumerate(logs):
            write(f"t/rank{rank}/dedicated_log_torch_trace_x.log", text)
        expect(sg("sg-import", "-q", "t/rank{r}", "-o", "g.sg"), 0)
        return sg("sg-print", "g.sg").out.split("sha256:")[1].split()[0]
    assert len({digest(log, log), digest(log + "\n", log), digest(log, log + "\n")}) == 3


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
    expect(sg("sg-recipe", "check", "i.yaml", input=b""), 1, "i.yaml:1:10: error: cannot include <stdin>")


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
