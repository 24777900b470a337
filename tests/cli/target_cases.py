"""Cases of run_cli_tests.py: files that a command reads are never replaced, and no two outputs are one file."""
import hashlib
import os
import shutil
import struct

from support import DATA, case, expect, read, run, small_binary, write
from tensor_files import write_tensors

RECIPE = b"inputs: {step: g.sg}\nmachine: m.yaml\nstages:\n  - clean: {}\n    expect: gold.sg\n"
WITH_CONSTANT = """sg 1.0 world 1
graph rank *
  constant %%c : f32[80] data sha256:%s
  %%y = aten.relu.default(%%c) : f32[80]
  output %%y
"""
OTHER_KIND = "in-place.* another kind"


def content():
    return {name: read(name) for name in os.listdir(".") if os.path.isfile(name)}


def refused(command, message="would replace|is the input|which is read|both write"):
    before = content()
    expect(run(command), 2, message)
    assert content() == before, command


def inputs_of_the_small_step():
    numbers = struct.pack("<12f", *range(12)), struct.pack("<8f", *range(8))
    return {"layer.weight": ("F32", [4, 3], numbers[0]), "x": ("F32", [2, 4], numbers[1])}


def write_recipe():
    write("g.sg", small_binary())
    write("m.yaml", b"name: mine\nbase: h100-8\n")
    write("r.yaml", RECIPE)
    expect(run("sg-clean -q g.sg -o gold.sg"), 0)


@case
def a_report_never_takes_the_place_of_the_graph():
    write("g.sg", small_binary())
    write("r.yaml", b"inputs: {step: g.sg}\nstages: [clean]\n")
    for tool in ("sg-check", "sg-stat", "sg-sim", "sg-log", "sg-view", "sg-export", "sg-print", "sg-explain",
                 "sg-run --init seed:0", "sg-diff g.sg", "sg-import"):
        refused(f"{tool} g.sg --in-place", OTHER_KIND)
        refused(f"{tool} g.sg --in-place -o g.sg", OTHER_KIND)
    for command in ("sg-recipe schema --in-place", "sg-sweep r.yaml --in-place", "sg-doctor --in-place"):
        refused(command, OTHER_KIND)
    for tool in ("sg-clean", "sg-parse", "sg-remat", "sg-pipe --pass clean"):
        expect(run(f"{tool} -q g.sg --in-place && sg-check g.sg"), 0)


@case
def a_word_that_names_no_file_protects_none():
    write("g.sg", small_binary())
    for command in ("sg-pipe -q g.sg --pass clean -o clean", "sg-pipe -q g.sg --pass 'remat --policy full' -o full",
                    "sg-sim g.sg -m h100-8 -o h100-8", "sg-diff g.sg g.sg -m none -o none"):
        for _ in range(2):
            expect(run(command), 0)
    write("m.yaml", b"base: h100-8\n")
    for command in ("sg-pipe g.sg --pass 'overlap --strategy model --machine m.yaml' -o m.yaml",
                    "sg-pipe g.sg --pass 'overlap --strategy model -mm.yaml' -o m.yaml", "sg-sim g.sg -m m.yaml -o m.yaml"):
        refused(command)
    write("breaks.sh", b"#!/bin/sh\nsg-check -q \"$1\"\n")
    os.chmod("breaks.sh", 0o755)
    refused("sg-reduce g.sg --fails ./breaks.sh -o breaks.sh")


@case
def a_run_keeps_the_files_that_patterns_stand_for():
    write("g.sg", small_binary())
    for name in ("i0.st", "s0.st", "s1.st"):
        write_tensors(name, inputs_of_the_small_step())
    os.symlink("i0.st", "link.st")
    for target in ("-o i0.st", "--outputs i0.st", "--outputs link.st", "--profile i0.st", "--dump-nodes i0.st",
                   ">> i0.st", "--outputs 'i{step}.st'"):
        refused(f"sg-run g.sg --inputs 'i{{r}}.st' {target}")
    refused("sg-run g.sg --inputs 's{step}.st' --steps 2 -o s1.st")
    refused("sg-run g.sg --inputs 's{step}.st' --steps 2 >> s1.st")
    expect(run("sg-run -q g.sg --inputs 's{step}.st' --outputs s1.st"), 0)  # which one step does not read
    expect(run("sg-run -q g.sg --inputs 'i{r}.st' --outputs 'i{r}-out.st' && test -s i0-out.st"), 0)


@case
def a_run_keeps_the_graph_that_it_compares_with():
    write("g.txt", b"sg 1.0 world 2\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.relu(%x) : f32[4]\n  output %y\n")
    expect(run("sg-parse g.txt -o h.sg && sg-parse g.txt -o 'h{r}.sg'"), 0)
    refused("sg-run g.txt --init seed:0 --compare h.sg -o h.sg")
    for target in ("-o h1.sg", "--profile h1.sg", ">> h1.sg", "--outputs 'h{r}.sg'"):
        refused(f"sg-run g.txt --init seed:0 --compare 'h{{r}}.sg' {target}")


@case
def a_run_keeps_the_constants_that_it_finds():
    numbers = struct.pack("<80f", *range(80))
    os.mkdir("c")
    write("c/g.txt", WITH_CONSTANT % hashlib.sha256(numbers).hexdigest())
    write_tensors("c/const.safetensors", {"c": ("F32", [80], numbers)})
    write_tensors("c/other.safetensors", {"d": ("F32", [1], b"1234")})
    kept = read("c/const.safetensors")
    for options in ("", "--data c", "--data c/const.safetensors"):
        for target in ("--outputs", "--profile", "--dump-nodes", "-o", ">>"):
            expect(run(f"sg-run c/g.txt {options} {target} c/const.safetensors"), 2, "const.safetensors, which")
            assert read("c/const.safetensors") == kept, (options, target)
    expect(run("sg-run -q c/g.txt --outputs c/other.safetensors"), 0)  # looked at, but nothing is taken from it


@case
def a_recipe_keeps_what_it_consists_of():
    write_recipe()
    os.symlink("g.sg", "link.svg")
    os.symlink("g.sg", "link.sg")
    for target in ("g.sg", "gold.sg", "m.yaml", "r.yaml", "link.sg"):
        for command in ("run r.yaml --json --no-cache", "lock r.yaml --no-cache", "plan r.yaml --no-cache", "check r.yaml"):
            refused(f"sg-recipe {command} -o {target}")
        refused(f"sg-recipe plan r.yaml >> {target}")
    sweep = "sg-sweep r.yaml --over clean.drop-asserts=true,false --no-cache --points points"
    for target in ("--json -o g.sg", "-o m.yaml", "--plot link.svg", ">> g.sg"):
        expect(run(f"{sweep} {target}"), 2, "would replace|which is read")
        assert read("g.sg") == small_binary() and read("m.yaml").startswith(b"name: mine"), target
    expect(run("sg-recipe run -q r.yaml --no-cache --json -o report.json"), 0)
    expect(run("sg-recipe expect -q r.yaml --no-cache --bless"), 0)  # makes its golden
    refused("sg-recipe expect r.yaml --no-cache --bless --json -o gold.sg")


@case
def stages_dumped_and_words_given_are_kept():
    write("01-clean.sg", small_binary())
    write("args", b"--policy full")
    os.mkdir("d")
    refused("sg-pipe 01-clean.sg -p clean -p remat --dump-to . -o y.sg")
    refused("sg-pipe 01-clean.sg -p clean -p remat --dump-to d/.. --in-place")
    refused("sg-remat 01-clean.sg @args -o args")
    expect(run("sg-pipe -q 01-clean.sg -p clean -p remat --dump-after remat --dump-to . -o y.sg && test -s 02-remat.sg"), 0)


@case
def no_two_outputs_are_one_file():
    write("g.sg", small_binary())
    shutil.copy(os.path.join(DATA, "step.json"), "source.json")
    os.mkdir("d")
    os.symlink("new.json", "dangling.json")
    for command in ("sg-run g.sg --init seed:0 --outputs 'x{r}.st' -o x0.st",
                    "sg-run g.sg --init seed:0 --outputs 'x{step}.st' -o ./x0.st",
                    "sg-run g.sg --init seed:0 --outputs 'x{r}.st' --dump-nodes 'x{step}.st'",
                    "sg-pipe g.sg -p clean --dump-to d -o d/01-clean.sg", "sg-pipe g.sg -p clean --dump-to d -o d/../d/01-clean.sg",
                    "sg-import source.json -o s.sg --data ./s.sg", "sg-sim g.sg --trace new.json -o dangling.json", "sg-sim g.sg --trace t.json -o ./t.json"):
        refused(command, "both write")
    assert sorted(os.listdir(".")) == ["d", "dangling.json", "g.sg", "source.json"] and os.listdir("d") == []


@case
def standard_output_is_for_one_output():
    write("g.sg", small_binary())
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        refused(f"sg-sim g.sg --trace {name}", "--output and --trace would both write standard output")
        refused(f"sg-run g.sg --init seed:0 --profile {name}", "--output and --profile would both write standard output")
        refused(f"sg-sim g.sg -o {name} --trace -", "both write standard output")
    refused(f"sg-import {DATA}/step.json --data - --text", "both write standard output")
    timeline = expect(run("sg-sim g.sg --trace - -o report.txt"), 0).out
    assert expect(run("sg-sim g.sg --trace t.json"), 0).out == read("report.txt") and read("t.json") == timeline
    assert expect(run("sg-run -q g.sg --init seed:0 --profile - -o r.txt"), 0).out.startswith(b"{")
    results = expect(run("sg-run -q g.sg --init seed:0 --outputs - -o r.txt"), 0).out
    assert expect(run("sg-run -q g.sg --init seed:0 --outputs f"), 0) and read("f") == results


@case
def an_output_may_be_a_pipe_by_any_name():
    write("g.sg", small_binary())
    clean = expect(run("sg-clean -q g.sg --text"), 0).out
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert run(f"sg-clean -q g.sg --text -o {name} | cat").out == clean
        assert run(f"sg-clean -q g.sg --text -o {name} > file").out == b"" and read("file") == clean
        assert expect(run(f"sg-clean g.sg --text --json -o {name}"), 0, "{").out == clean  # the report is not in between
    expect(run(["bash", "-c", "sg-clean -q g.sg --text -o >(cat > q; echo done > end); until test -e end; do sleep 0.1; done"]), 0)
    assert read("q") == clean
    expect(run("echo before > log; sg-check g.sg -o /dev/stdout >> log; sg-check g.sg >> log; wc -l < log"), 0, out="3")
    refused("sg-clean g.sg -o /dev/stdout >> g.sg")
