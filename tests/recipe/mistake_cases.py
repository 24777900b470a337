"""Cases of run_recipes.py: mistakes, all at once and each with its place."""
import os
import re

from support import GRAPH, RECIPE, case, expect, given, read, sg, states, write


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
    write("dot.yaml", "parameters: {a.b: 1}\nstages:\n  - clean: {}\n")
    expect(sg("sg-recipe", "check", "dot.yaml"), 1, r"dot.yaml:1:14: error: a parameter's name has no dot: `a.b`")
    text = open("bad.yaml").read().replace("stagess: []\n", "").replace("  - {clean: {}, remat: {}}\n", "").replace("$polcy", "full")
    write("bad.yaml", text)
    done = expect(sg("sg-recipe", "check", "bad.yaml"), 1)
    for line in (r"bad.yaml:3:39: error: sg-import has no option `spnd`",
                 r"bad.yaml:4:10: error: no such file: missing.sg",
                 r"bad.yaml:6:5: error: there is no pass `claen`", r"did you mean `clean`",
                 r"bad.yaml:7:21: error: sg-remat: `policy` takes one of",
                 r"bad.yaml:7:52: error: sg-remat: `tag-only` is a flag",
                 r"bad.yaml:8:11: error: no stage or input `clean` comes before",
                 r"there is no metric `peek`", r"did you mean `peak`", r"`3 stones` is not a value of this metric",
                 r"`peak` is not an assertion",
                 r"sg-run has no option `innit`", r"no stage or input `setp` comes before"):
        assert re.search(line, done.message), f"no /{line}/ in\n{done.message}"
    assert not os.path.exists("cache")
    expect(sg("sg-recipe", "run", "bad.yaml"), 3, "bad.yaml has [0-9]+ mistakes")
    for command, code in (("check", 1), ("run", 3)):
        done = expect(sg("sg-recipe", command, "none.yaml"), code)
        assert done.message == "sg-recipe: none.yaml: error: no such file\n", done.message
    write("graph.txt", GRAPH)
    expect(sg("sg-parse", "graph.txt", "-o", "graph.sg", "-q"), 0)
    for graph in ("graph.txt", "graph.sg"):
        done = expect(sg("sg-recipe", "run", graph), 3, f"^sg-recipe: {graph}: error: this is a graph, not a recipe$")
        assert "inputs: {step: " + graph in done.message and done.message.count("error:") == 1, done.message
    write("no.yaml", "stages: [clean\n")
    expect(sg("sg-recipe", "check", "no.yaml"), 1, r"no.yaml:2:1: error: .*\[yaml\]")
    write("empty.yaml", "")
    expect(sg("sg-recipe", "check", "empty.yaml"), 1, "the recipe has no stages")
    expect(sg("sg-recipe", "chekc", "no.yaml"), 2, "did you mean `check`")
    expect(sg("sg-recipe"), 2, "which command")
    expect(sg("sg-recipe", "run"), 2, "which recipe")


@case
def a_mistyped_key_hides_no_other_mistake():
    write("g.txt", GRAPH)
    write("r.yaml", """paramters: {p: full}
inputs: {g: g.txt, h: {imprt: x}}
stages:
  - remat: {policy: $p, budgt: 0.5}
    from: g
    asert: [peek < 1MiB, step_time < 5]
  - chunk: {modules: 'a..b', chunks: two}
  - overlap: {from: nosuch, machine: h1000}
    from: nosuch
    output: $q/out.sg
  - {clean: {}, bucket: {}}
  - from: h
    name: nothing
  - remat: {budget: 2}
    from: nothing
    run: {init: 'seed:x', bitwise_to: $q}
    expect: $q/out.sg
  - bukcet: {plan: auto}
  - chunk: {chunks: 2, auto: $q}
    modules: a
""")
    done = expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml has 19 mistakes")
    said = re.findall(r"^sg-recipe: r.yaml:(\d+:\d+): error: (.*) \[", done.message, re.M)
    wanted = [("1:1", "a recipe has no `paramters`"), ("2:23", "an input is a graph's file"), ("4:25", "sg-remat has no option `budgt`"),
              ("6:5", "a stage has no `asert`"), ("6:13", "there is no metric `peek`"), ("6:26", "`5` needs a unit"),
              ("7:38", "sg-chunk: `chunks` takes a whole number"), ("8:15", "sg-overlap has no option `from`"),
              ("9:11", "no stage or input `nosuch`"), ("10:13", "no parameter `q`"), ("11:17", "a stage has one tool: `clean` or `bucket`"),
              ("12:5", "the stage has no tool"), ("14:21", "sg-remat: --budget takes"), ("16:10", "sg-run: "), ("16:39", "no parameter `q`"), ("17:13", "no parameter `q`"),
              ("18:5", "there is no pass `bukcet`"), ("19:30", "no parameter `q`"), ("20:5", "a stage has one tool: `chunk` or `modules`")]
    assert len(said) == len(wanted) == 19, done.message
    for place, what in wanted:
        assert any(at == place and re.search(what, words) for at, words in said), (place, what, done.message)
    assert "`from:` stands beside the pass" in done.message, done.message


@case
def what_follows_from_a_mistake_is_not_told():
    write("g.txt", GRAPH)
    rest = "\nstages:\n  - remat: {policy: $p}\n    from: g\n    run: {init: 'seed:1', bitwise_to: clean}\n"
    for text, said in (("include: none.yaml" + rest, "1:10: error: cannot include none.yaml"),
                       ("inputs: g.txt\nparameters: {p: full}\nstages: [clean]\n", "1:9: error: `inputs` is a map"),
                       ("inputs: {g: g.txt}\nparameters: [p]" + rest, "2:13: error: `parameters` is a map"),
                       ("inputs: {g: [g.txt]}\nstages: [clean]\n", "1:13: error: an input is one word"),
                       ("inputs: {g: $q/g.txt}\nstages: [clean]\n", "1:13: error: the recipe has no parameter `q`"),
                       ("inputs: {g: g.txt}\nmachine: $q\nstages: [clean]\n", "2:10: error: the recipe has no parameter `q`"),
                       ("inputs: {g: g.txt}\nstages: ['']\n", "2:10: error: a stage is a tool's name"),
                       ("inputs: {g: g.txt}\nstages: [{chunk: {modules: a, chunks: two}}]\n", "`chunks` takes a whole number"),
                       ("inputs: {g: g.txt}\nstages: [{clean: {}, run: 3}]\n", "2:27: error: `run` is a map")):
        write("r.yaml", text)
        done = expect(sg("sg-recipe", "check", "r.yaml"), 1, said)
        assert done.message.count("error:") in (1, 2) and "r.yaml has 1 mistake" in done.message, (text, done.message)


@case
def a_command_that_is_no_pass_is_told_where_it_goes():
    write("g.txt", GRAPH)
    for command, goes in (("run", "below a pass: `- clean: {}`, and on the next line `run: {init: 'seed:0'}`"), ("sg-run", "it stands below a pass"),
                          ("import", "inputs: {step: {import: SOURCE}}"), ("diff", "`expect: GOLDEN`"), ("stat", "`assert: [nodes < 200k]`"),
                          ("sg-sim", "`assert: [exposed_comm < 5%]`"), ("print", "`output: FILE.txt`"), ("pipe", "`stages: [clean, remat]`"),
                          ("view", "stages are clean, remat, ")):
        write("r.yaml", f"inputs: {{g: g.txt}}\nstages:\n  - clean\n  - {command}\n")
        done = expect(sg("sg-recipe", "check", "r.yaml"), 1, f"r.yaml:4:5: error: `{command}` is a command, but no pass")
        assert goes in done.message and "r.yaml has 1 mistake" in done.message, done.message
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - run: {init: 'seed:0'}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "3:5: error: the stage has no tool(.|\n)*a pass comes first: `- clean: {}`")
    # What the hints say is right.
    write("r.yaml", """inputs: {g: g.txt}
stages:
  - clean: {}
    run: {init: 'seed:0'}
    assert: [nodes < 200k, exposed_comm < 5%]
    output: out.txt
""")
    expect(sg("sg-recipe", "check", "r.yaml"), 0)


@case
def options_that_a_command_has_no_use_for_are_refused():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    for command in ("run", "expect", "verify"):
        done = expect(sg("sg-recipe", command, "r.yaml", "-o", "out.sg"), 2, "only with --json or --dry-run")
        assert "`output: out.sg` in a stage" in done.message, done.message
    for words, said in ((["run", "r.yaml", "--bless"], "`run` does not take --bless(.|\n)*--bless is for expect"),
                        (["plan", "r.yaml", "--bless"], "does not take --bless"),
                        (["plan", "r.yaml", "--fails", "x"], "does not take --fails(.|\n)*for bisect"),
                        (["check", "r.yaml", "--pipes"], "run, expect, lock, verify and bisect"),
                        (["lock", "r.yaml", "--json"], "does not take --json"),
                        (["check", "r.yaml", "--no-cache"], "`check` does not take --no-cache"),
                        (["check", "r.yaml", "--cache", "c"], "`check` does not take --cache"),
                        (["schema", "--cache-size", "1GiB"], "`schema` does not take --cache-size"),
                        (["schema", "foo"], "unexpected argument `foo`\n.*`schema` takes no recipe"),
                        (["schema", "--set", "a=1"], "does not take --set"),
                        (["run", "r.yaml", "s.yaml"], "unexpected argument `s.yaml`\n.*`run` takes one recipe")):
        expect(sg("sg-recipe", *words), 2, said)
    assert not os.path.exists("cache") and not os.path.exists("out.sg")
    expect(sg("sg-recipe", "run", "r.yaml", "--json", "-o", "report.json"), 0)
    expect(sg("sg-recipe", "run", "r.yaml", "--dry-run", "-o", "plan.txt"), 0)
    assert os.path.exists("report.json")
    expect(sg("sg-recipe", "bisect", "r.yaml", "g", "clean", "more"), 2, "unexpected argument `more`")


@case
def what_may_be_set_is_listed():
    write("g.txt", GRAPH)
    write("r.yaml", "parameters: {policy: full, chunks: 2}\nmatrix: {p: [1, 2]}\ninputs: {g: g.txt}\nstages: [clean, {remat: {policy: $policy}}]\n")
    write("bare.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    for recipe, setting, said in (("r", "foo=1", "no parameter `foo`\n.*hint: its parameters are chunks, policy, p$"),
                                  ("r", "polcy=1", "hint: did you mean `policy`"),
                                  ("r", "nostage.x=1", "no stage `nostage`\n.*hint: its stages are clean, remat$"),
                                  ("r", "remt.x=1", "hint: did you mean `remat`"),
                                  ("bare", "foo=1", "hint: it has none: options of stages are set by STAGE.OPTION=VALUE$")):
        expect(sg("sg-recipe", "check", recipe + ".yaml", "--set", setting), 2, said)


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
def parameters_stand_in_no_parameter():
    write("g.txt", GRAPH)
    write("r.yaml", "parameters: {x: $y, y: a}\nmatrix: {p: [full, $y]}\ninputs: {g: g.txt}\nstages:\n  - remat: {policy: $p}\n    output: $x.sg\n")
    done = expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:1:17: error: the value of a parameter holds no other: `\$y`")
    assert "r.yaml:2:20: error: the value of a parameter" in done.message, done.message
    write("r.yaml", "parameters: {x: a$$b}\ninputs: {g: g.txt}\nstages:\n  - clean:\n    output: $x.sg\n")
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    assert os.path.exists("a$b.sg")


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
  - remat: {budget: 0.5, peak: 3MiB}
  - remat: {policy: tags, save: [a]}
  - overlap: {assume: ['a=b']}
""")
    done = expect(sg("sg-recipe", "check", "values.yaml"), 1, "values.yaml has 11 mistakes")
    for line in (r"values.yaml:3:21: error: sg-remat: --budget takes a number from 0 to 1, not 2",
                 r"values.yaml:4:20: error: sg-remat: --save cannot read 'size>=lots'",
                 r"values.yaml:5:20: error: sg-bucket: --plan by-size: \"3 stones\" is not a size",
                 r"values.yaml:6:24: error: sg-overlap: there is no machine `h1000`",
                 r"values.yaml:7:24: error: sg-overlap: mine.yaml:3:1: a machine has no `foo`",
                 r"values.yaml:8:24: error: sg-concretize: --bind cannot read 's0'",
                 r"values.yaml:9:22: error: sg-chunk: module pattern 'a..b'",
                 r"values.yaml:10:13: error: sg-chunk: --auto cannot be combined with --modules",
                 r"values.yaml:11:21: error: sg-remat: --budget and --peak cannot be combined",
                 r"values.yaml:12:5: error: sg-remat: --save and --recompute cannot be combined with --policy tags",
                 r"values.yaml:13:24: error: sg-overlap: --assume cannot read 'a=b'"):
        assert re.search(line, done.message), f"no /{line}/ in\n{done.message}"
    expect(sg("sg-recipe", "run", "values.yaml"), 3)
    assert not os.path.exists("cache")
    write("files.yaml", """inputs: {g: g.txt}
stages:
  - bucket: {plan: 'per-module:none.txt'}
  - clean:
    run: {inputs: 'in{r}.safetensors', init: 'seed:0'}
""")
    done = expect(sg("sg-recipe", "check", "files.yaml"), 1, "files.yaml:3:20: error: `plan`: no such file: none.txt")
    assert "files.yaml:5:19: error: `inputs`: in{r}.safetensors: no file matches this rank pattern" in done.message, done.message
    expect(sg("sg-pipe", "g.txt", "--pass", "clean", "--pass", "remat --budget 2"), 2, "sg-remat: --budget takes")
    for nothing in ("null", "true", "false", ""):
        write("none.yaml", "inputs: {g: g.txt}\nstages:\n  - remat: {budget: " + nothing + "}\n")
        expect(sg("sg-recipe", "check", "none.yaml"), 1, "none.yaml:3:13: error: sg-remat: `budget` has no value(.|\n)*budget: F")


@case
def options_of_a_run_are_checked_before_anything_is_run():
    write("g.txt", GRAPH)
    for options, said in (("init: 'seed:x'", 'sg-run: .*"seed:x"|seed:N'), ("init: 'seed:1', rtol: -1", "sg-run: --rtol takes a number"),
                          ("init: 'seed:1', rtol: 0.1", "sg-run: --rtol needs --expect or --compare"),
                          ("init: 'seed:1', memory-limit: foo", 'sg-run: --memory-limit: "foo" is not a size'),
                          ("init: 'seed:1', link: fast", "sg-run: --link"), ("init: 'seed:1', watch: zero", "sg-run: --watch"),
                          ("init: 'seed:1', steps: 0", "sg-run: --steps takes 1 or more"),
                          ("init: 'seed:1', optimizer: 'sgd:x=1'", "sg-run: --optimizer"),
                          ("init: 'seed:1', comm: nccl", "sg-run: --comm nccl needs --backend cuda")):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {" + options + "}\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, r"r.yaml:4:\d+: error: " + said)
        expect(sg("sg-recipe", "run", "r.yaml"), 3, "r.yaml has 1 mistake")
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', steps: 0}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml:4:34: error: sg-run: --steps takes 1 or more")  # at its value
    write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', bind: [s0=2, s1]}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml:4:10: error: sg-run: --bind cannot read 's1'")  # one of several values
    assert not os.path.exists("cache")


@case
def a_run_that_cannot_tell_is_no_no():
    write("g.txt", GRAPH.replace("graph rank *", "graph rank *\n  symbol s0 input [1, 8] hint 4").replace("f32[4, 8]", "f32[s0, 8]"))
    bind = "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {init: 'seed:1', bind: %s}\n  - remat: {policy: none}\n    output: out.sg\n"
    write("r.yaml", bind % "[s0=2, s0=3]")             # they contradict each other: exit 2 of sg-run
    done = sg("sg-recipe", "run", "r.yaml", "--json")
    expect(done, 2, r"r.yaml:4:10: error: clean: sg-run fails \(exit 2\)")
    assert states(done) == {"g": "made", "clean": "made", "remat": "made"} and os.path.exists("out.sg")
    write("r.yaml", bind.replace("bind: %s", "backend: cuda"))
    if not os.path.exists(os.path.join(given.bin, "..", "lib", "stepgraph", "sg-backend-cuda.so")):
        expect(sg("sg-recipe", "run", "r.yaml"), 5, r"clean: sg-run fails \(exit 5\)")


@case
def no_output_is_a_file_that_the_recipe_consists_of():
    write("g.txt", GRAPH)
    os.symlink("g.txt", "link.txt")
    write("mine.yaml", "name: mine\nbase: h100-8\n")
    write("more.yaml", "parameters: {n: 2}\n")
    for output, who in (("r.yaml", "the recipe"), ("more.yaml", "the recipe"), ("mine.yaml", "`machine`"), ("link.txt", "`g`")):
        write("r.yaml", f"include: more.yaml\nmachine: mine.yaml\ninputs: {{g: g.txt}}\nstages:\n  - clean:\n    output: {output}\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, f"{who} and `clean` use the same file")


@case
def a_mistake_of_all_variants_is_told_once_and_a_failing_pass_has_its_line():
    write("g.txt", GRAPH)
    write("m.yaml", "matrix: {policy: [full, none], b: [0.2, 0.8, 2]}\ninputs: {g: g.txt}\nstages:\n"
                    "  - remat: {policy: $policy, budget: $b, save: ['size>=lots']}\n")
    done = expect(sg("sg-recipe", "check", "m.yaml"), 1, "m.yaml has 2 mistakes")
    assert re.findall(r"m.yaml:4:(\d+): error:", done.message) == ["38", "49"], done.message
    write("f.yaml", "inputs: {g: g.txt}\nstages:\n  - clean\n  - chunk: {modules: 'none.*'}\n")
    expect(sg("sg-recipe", "run", "f.yaml"), 4, r"f.yaml:4:5: error: chunk: --modules none.\* names no module")


@case
def a_parameter_in_braces_stands_in_quotes():
    for options in ("{policy: ${p}, chunks: 2}", "{policy: layers.${p}}", "[${p}, 1]"):
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - remat: " + options + "\n")
        expect(sg("sg-recipe", "check", "r.yaml"), 1, r"in braces a text with \$\{NAME\} stands in quotes")
    write("r.yaml", "inputs: {g: g.txt}\nparameters: {p: '${x}'}\nstages:\n  - remat: {policy: full\n")
    done = expect(sg("sg-recipe", "check", "r.yaml"), 1, "end of map")
    assert "stands in quotes" not in done.message, done.message


@case
def quotes_that_are_never_closed_are_told_where_they_begin():
    write("g.txt", GRAPH)
    rest = "\ninputs: {g: g.txt}\nstages:\n  - clean\n"
    for text, place in (("inputs: {g: g.txt}\nstages:\n  - 'clean\n  - remat\n", "3:5"), ("recipe: \"my" + rest, "1:9"),
                        ("about: !!str &a 'it''s" + rest, "1:8"), ("about: \"a \\\" b" + rest, "1:8"),
                        ("\ufeffabout: ä\r\n'recipe: x" + rest, "2:1")):
        write("r.yaml", text)
        expect(sg("sg-recipe", "check", "r.yaml"), 1, f"r.yaml:{place}: error: the quotes that begin here are never closed")
    for text in ("''", '""', "''''", "'it''s'", r'"\\"', r'''"\"a'b"''', "!!str 'x'", "it's", "'a\n\n  b'"):
        write("r.yaml", f"about: {text}{rest}")
        expect(sg("sg-recipe", "check", "r.yaml"), 0)
    write("part.yaml", "about: 'x\nparameters: {p: 1}\n")
    write("r.yaml", "include: part.yaml" + rest)
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "part.yaml:1:8: error: the quotes")


@case
def a_place_on_the_command_line_is_no_file_of_an_annotation():
    write("r.yaml", RECIPE)
    done = expect(sg("sg-recipe", "check", "r.yaml", "--set", "polcy=full", "--error-format=github"), 2)
    assert done.message.startswith("::error ::--set polcy=full: the recipe has no parameter"), done.message
    done = expect(sg("sg-recipe", "check", "r.yaml", "--set", "policy=ful", "--error-format=github"), 1)
    assert re.match(r"::error file=r.yaml,line=\d+,col=\d+,title=option::sg-remat", done.message), done.message


@case
def a_mistake_on_the_command_line_is_not_the_recipes():
    write("g.txt", GRAPH)
    write("r.yaml", "parameters: {p: full}\ninputs: {g: g.txt}\nstages:\n  - remat: {policy: $p}\n")
    for words, said in ((["foo=1"], r"^sg-recipe: --set foo=1: error: the recipe has no parameter `foo`$"),
                        (["foo"], "--set foo: error: --set takes NAME=VALUE"),
                        (["rmat.policy=full"], "no stage `rmat`(.|\n)*`remat`"),
                        (["remat.polcy=full"], "has no option `polcy`"),
                        (["remat.policy=foo"], "^sg-recipe: --set remat.policy: error: .*takes one of")):
        for command in ("run", "check", "plan"):
            done = expect(sg("sg-recipe", command, "r.yaml", "--set", *words), 2, said)
            assert done.message.count("error:") == 1, done.message
    expect(sg("sg-recipe", "run", "r.yaml", "--set", "foo=1", "--set", "bar=1"), 2, "the command line has 2 mistakes")
    write("r.yaml", "parameters: {p: full}\ninputs: {g: g.txt}\nstages:\n  - remat: {policy: ful}\n")
    expect(sg("sg-recipe", "run", "r.yaml", "--set", "remat.buget=1"), 3, "r.yaml has [12] mistake")


@case
def a_matrix_has_each_value_once():
    write("g.txt", GRAPH)
    write("r.yaml", "matrix: {p: [full, none, full]}\ninputs: {g: g.txt}\nstages:\n  - remat: {policy: $p}\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml:1:26: error: `p` has the value `full` twice")


@case
def orders_are_warned_of():
    write("g.txt", GRAPH)
    write("r.yaml", "inputs: {g: g.txt}\nstages: [remat, clean]\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 0, "warning: clean: sg-clean is meant to run before sg-remat")


@case
def a_second_document_is_no_part_of_the_recipe():
    write("g.txt", GRAPH)
    write("two.yaml", "recipe: two\ninputs: {step: g.txt}\nstages:\n  - clean\n---\nstages:\n  - nonsense\n")
    expect(sg("sg-recipe", "check", "two.yaml"), 1, "two.yaml:6:1: error: a second document begins here, and a file holds one")
