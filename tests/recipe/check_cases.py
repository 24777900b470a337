"""Cases of run_recipes.py: assertions, runs, goldens and locks that graphs are held against; bisection."""
import json
import os
import re
import sys

from support import GRAPH, RECIPE, case, expect, given, read, sg, states, write
from tensor_files import to_bytes, write_tensors


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
                      ("exposed_comm < 5", "`5` needs a unit"), ("host_wait <= 0", "units here are %"),
                      ("step_time < 5", "`5` needs a unit"), ("compute_time < 0.3", "units here are us, ms, s"),
                      ("step_time < 70GiB", "units here are us, ms, s"), ("peak < inf", "is not a value of this metric"),
                      ("nodes < 3GiB", "units here are k")):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    assert: ['" + bad + "']\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:4:14: error: .*|" + said)
        assert said in sg("sg-recipe", "check", "r.yaml").message, (bad, sg("sg-recipe", "check", "r.yaml").message)


@case
def an_assertion_names_ops_as_sg_remat_does():
    write("g.txt", GRAPH)
    recipe = "inputs: {g: g.txt}\nstages:\n  - clean:\n    assert: ['%s']\n"
    for held in ("op=mm == 1", "op=mm.default == 1", "op=*mm == 1", "op=aten.m* == 1", "op=aten.mm.default == 1",
                 "op=aten.* == 3", "no op=addmm", "op=add == 1"):
        write("r.yaml", recipe % held)
        done = expect(sg("sg-recipe", "run", "r.yaml"), 0)
        assert "warning" not in done.message, (held, done.message)
    for broken in ("no op=mm", "op=mm <= 0", "op=mm.default <= 0", "no op=*mm", "no op=aten.mm"):
        write("r.yaml", recipe % broken)
        expect(sg("sg-recipe", "run", "r.yaml"), 1, r"r.yaml:4:14: error: clean: .*: it is 1")
    write("r.yaml", recipe % "op=aten.mn == 0")
    done = expect(sg("sg-recipe", "check", "r.yaml"), 0, r"r.yaml:4:14: warning: .*no op in docs/ops.md is called `aten.mn`")
    assert "did you mean `aten.m" in done.message, done.message
    write("r.yaml", recipe % "op=mylib.none == 0")
    expect(sg("sg-recipe", "check", "r.yaml"), 0, "sg-stat --by op lists")
    for name in ("mm", "aten.m*", "*mm", "mm.default"):
        expect(sg("sg-remat", "g.txt", "--policy", "full", "--save", "op=" + name, "-o", "out.sg"), 0)


@case
def a_run_reads_a_file_for_each_step():
    write("g.txt", GRAPH)
    sizes = {"w": (8, 8), "x": (4, 8)}
    for step in range(3):
        write_tensors(f"x{step}.safetensors", {
            name: ("F32", shape, to_bytes("F32", [step + 0.5] * (shape[0] * shape[1]))) for name, shape in sizes.items()})
    run = "sg-run g.txt --inputs x{step}.safetensors --steps 2 -q --outputs".split()
    expect(sg(*run, "y{step}.safetensors"), 0)
    recipe = "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {inputs: 'x{step}.safetensors', steps: %d, expect: 'y{step}.safetensors'}\n"
    write("r.yaml", recipe % 2)
    expect(sg("sg-recipe", "check", "r.yaml"), 0)
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    os.replace("x2.safetensors", "x1.safetensors")  # what a step reads is part of what the check is known by
    expect(sg("sg-recipe", "run", "r.yaml"), 1, r"\[run\]")
    os.remove("x0.safetensors")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "`inputs`: no such file: x0.safetensors")


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
    assert b"\nfrom " not in read("golden/clean.sg.txt")       # of the history, that changes with each capture
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
def bless_does_not_hint_at_itself():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    expect: c.sg.txt\n    assert: nodes < 2\n")
    done = expect(sg("sg-recipe", "expect", "r.yaml", "--bless"), 1, "nodes < 2: it is 3")
    assert "--bless" not in done.message and "it was not blessed" in done.message, done.message
    assert not os.path.exists("c.sg.txt")


@case
def locks():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "verify", "r.yaml"), 3, "there is no lock")
    expect(sg("sg-recipe", "lock", "r.yaml"), 0)
    expect(sg("sg-recipe", "verify", "r.yaml", "--no-cache"), 0)
    expect(sg("sg-recipe", "verify", "r.yaml", "--set", "policy=full"), 1,
           "`remat` is sha256:.*, the lock says .*: `--policy default` is now `--policy full`")
    write("r.yaml", RECIPE + "  - overlap\n")
    expect(sg("sg-recipe", "verify", "r.yaml"), 1, "`overlap` is not in the lock")
    expect(sg("sg-recipe", "lock", "r.yaml"), 0)
    done = expect(sg("sg-recipe", "verify", "r.yaml", "--set", "clean.drop-asserts=true"), 1,
                  "`clean` is sha256:.*: `--drop-asserts` is new")
    assert "differs too: `remat`, `overlap` [lock]" in done.message and done.message.count("error:") == 2, done.message
    lock = read("r.yaml.lock").decode().splitlines(keepends=True)
    write("r.yaml.lock", "".join(line for line in lock if not line.startswith("#   ")))
    expect(sg("sg-recipe", "verify", "r.yaml"), 0)  # as an older version wrote it
    expect(sg("sg-recipe", "verify", "r.yaml", "--set", "policy=full"), 1, r"the lock says sha256:\w+ \[lock\]")


@case
def a_damaged_lock_is_unreadable():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    expect(sg("sg-recipe", "lock", "r.yaml"), 0)
    lock = read("r.yaml.lock").decode()
    for damaged, said in ((lock[:-3], r"\d:1: error: the lock is damaged: its last line is cut"), ("", "error: the lock is empty"),
                          ("hello\n", ":1:1: error: not a lock"), (lock + "junk\n", "not a digest and a name"),
                          (lock.replace("sha256:", "sha256:x", 1), ":2:1: error: the lock is damaged"),
                          (lock + lock, "`g` is there twice")):
        write("r.yaml.lock", damaged)
        expect(sg("sg-recipe", "verify", "r.yaml"), 3, said)
    write("r.yaml.lock", lock)
    expect(sg("sg-recipe", "verify", "r.yaml"), 0)


@case
def a_quiet_check_says_nothing_of_a_valid_recipe():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    assert expect(sg("sg-recipe", "check", "r.yaml"), 0).out == "r.yaml: valid, 1 stage\n"
    done = expect(sg("sg-recipe", "check", "r.yaml", "-q"), 0)
    assert done.out == "" and done.message == "", done.out + done.message


@case
def a_bisection_without_answers_says_so():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    expect(sg("sg-recipe", "bisect", "r.yaml", "--fails", "exit 125 #"), 4, "`g` cannot be judged: .*it exits 125")


@case
def bisection():
    write("r.yaml", RECIPE.replace("  - clean\n", "  - clean\n  - {clean: {drop-asserts: true}, name: second}\n  - {remat: {policy: none}, name: idle}\n")
          .replace("{policy: $policy}", "{policy: $policy, save: 'layers.*.attention'}") + "  - {clean: {}, name: last}\n")
    write("bad.sh", "sg-stat --json \"$1\" | python3 -c 'import json,sys; n=json.load(sys.stdin)[\"nodes\"]; sys.exit(not 1200 <= n < 1372)'\n")
    env_path = os.environ["PATH"]
    os.environ["PATH"] = given.bin + os.pathsep + env_path
    try:
        done = sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "sh bad.sh")
        expect(done, 1, out=r"the first bad one is remat \(r.yaml:9:5\); idle is good\n  without `--save layers.\*.attention` it is good\n"
               r"  it is bad if sg-remat may change [0-9]+ of [0-9]+ nodes: %\S+.* to %\S+.*; with one fewer at either end it is not$")
        done = sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "sh bad.sh", "--json")
        found = json.loads(done.out)
        assert done.code == 1 and [found[key] for key in ("schema", "bad", "at", "good")] == ["sg-recipe-bisect", "remat", "r.yaml:9:5", "idle"], found
        assert found["options"] == ["--save layers.*.attention"] and 0 < found["nodes"]["touched"] < found["nodes"]["of"], found
        assert found["nodes"]["first"]["name"][0] == found["nodes"]["last"]["name"][0] == "%", found
        expect(sg("sg-recipe", "bisect", "r.yaml", "clean", "--fails", "./none"), 2,
               r"the shell cannot run `./none`\n.*not found")
        expect(sg("sg-recipe", "bisect", "r.yaml", "clean", "second", "--fails", "sh bad.sh"), 4,
               "nothing to find: `second`, where the search ends, is good: `sh bad.sh` does not exit 0 for it")
        expect(sg("sg-recipe", "bisect", "r.yaml", "remat", "last", "--fails", "sh bad.sh"), 4,
               "`remat`, where the search begins, is bad: `sh bad.sh` exits 0 for it(.|\n)*name a good one")
        expect(sg("sg-recipe", "bisect", "r.yaml", "nothing"), 2, "no stage or input `nothing`")
        expect(sg("sg-recipe", "bisect", "r.yaml"), 4,          # passes are bitwise
               "nothing to find: `last` gives the same bits as `step`(.|\n)*--fails COMMAND asks another question")
    finally:
        os.environ["PATH"] = env_path


@case
def bisection_around_steps_that_cannot_be_judged():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n" + "".join(f"  - {{clean: {{}}, name: s{i}}}\n" for i in range(1, 7)))

    def found(answers, *words):
        """What is said where these are the answers for g and s1 to s6: good, bad, unknown."""
        code = {"g": 1, "b": 0, "u": 125}
        write("judge.sh", f"n=$('{given.bin}/sg-log' \"$1\" | grep -c sg-clean)\n"
              f"echo {' '.join(str(code[a]) for a in answers)} | cut -d' ' -f$((n + 1)) | {{ read code; exit $code; }}\n")
        return expect(sg("sg-recipe", "bisect", "r.yaml", "--fails", "sh judge.sh", *words), 1).out

    unsure = r"the first bad one is one of %s \(r.yaml:\d:6\) .. %s \(r.yaml:\d:6\); %s could not be judged; %s is good\n"
    for answers, first, bad, unjudged, good in (("guuuuub", "s1", "s6", "s1 to s5", "g"), ("gguuubb", "s2", "s5", "s2 to s4", "s1"),
                                                ("guubbbb", "s1", "s3", "s1 to s2", "g"), ("gggguub", "s4", "s6", "s4 to s5", "s3"),
                                                ("ggggubb", "s4", "s5", "s4", "s3"), ("gugugub", "s5", "s6", "s5", "s4")):
        out = found(answers)
        assert re.fullmatch(unsure % (first, bad, unjudged, good), out), (answers, out)
    for answers, bad, good in (("gguuugb", "s6", "s5"), ("gguugbb", "s5", "s4"), ("gbuuuub", "s1", "g"), ("ggbuuub", "s2", "s1")):
        out = found(answers)
        assert out.startswith(f"the first bad one is {bad} (") and f"; {good} is good\n" in out, (answers, out)
    said = json.loads(found("gguuubb", "--json"))
    assert [said[key] for key in ("bad", "good", "unjudged", "options", "nodes")] == ["s5", "s1", ["s2", "s3", "s4"], [], None], said
