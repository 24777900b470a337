"""Cases of run_cli_tests.py: help, version, options; words from files, and what programs and shells read of a tool."""
import json
import os
import re
import shutil

from support import (DATA, READERS, ROOT, TOOLS, given, case, environment, expect, read, run, small_text, write,
                     write_small)

HELP = os.path.join(ROOT, "tests", "golden", "help")


@case
def help_is_golden():
    for tool in TOOLS:
        for flag, name in (("--help", tool), ("--help-all", tool + "-all")):
            done = expect(run([tool, flag]), 0)
            assert done.err == b"", tool
            path = os.path.join(HELP, name + ".txt")
            if given.update:
                os.makedirs(HELP, exist_ok=True)
                write(path, done.out)
            assert os.path.exists(path) and read(path) == done.out, f"{tool} {flag} differs from {path}: use --update"


@case
def tools_md_is_golden():
    path = os.path.join(ROOT, "docs", "tools.md")
    text = ("# The tools\n\nWritten by `make update` out of the tools' own tables (`--help-markdown`); what holds for all"
            " of them is in [cli.md](cli.md).\n\n")
    for tool in ["stepgraph"] + [t for t in TOOLS if t != "stepgraph"]:
        text += expect(run([tool, "--help-markdown"]), 0).text
    if given.update:
        write(path, text)
    assert os.path.exists(path) and read(path).decode() == text, "docs/tools.md is not what the tools say: use --update"


@case
def every_tool_is_a_command():
    commands = json.loads(run(["stepgraph", "--help-json"]).text)["commands"]
    listed = re.findall(r"^  (\w+)  ", run(["stepgraph", "--help"]).text.split("\nCommon options")[0], re.M)
    assert sorted(commands) == sorted(listed)
    tools = sorted(["sg-" + c for c in commands if c not in ("completions", "help")] + ["stepgraph"])
    assert tools == sorted(TOOLS) == sorted(f for f in os.listdir(given.bin) if re.fullmatch(r"sg-[a-z]+|stepgraph", f))


@case
def help_lines_fit_the_page():
    for tool in TOOLS:
        for line in run([tool, "--help-all"]).text.splitlines():
            assert len(line) <= 120, f"{tool}: {line}"


@case
def help_and_version_ignore_the_rest():
    for tool in TOOLS:
        first = run([tool, "--help"]).out
        assert expect(run([tool, "--no-such", "--help"]), 0).out == first
        assert expect(run([tool, "-h"]), 0).out == first
        done = expect(run([tool, "--version", "--no-such"]), 0, out=rf"^{tool} \(Stepgraph\) \d+\.\d+\.\d+\n")
        assert "schema: reads" in done.text and "build:" in done.text
        if tool in ("sg-diff", "sg-explain"):        # take two; every trouble of sg-diff is exit 2
            expect(run([tool, "--", "--help", "x"]), 2 if tool == "sg-diff" else 3, "--help: error: no such file")
        elif tool == "sg-recipe":    # the first word is a command
            expect(run([tool, "check", "--", "--help"]), 1, "cannot read the recipe --help")
        elif tool == "sg-reduce":    # nothing to do without a command
            expect(run([tool, "--fails", "true", "--", "--help"]), 3, "--help: error: no such file")
        elif tool == "sg-sweep":     # a recipe, which is read first
            expect(run([tool, "--", "--help"]), 3, "cannot read the recipe --help")
        elif tool == "sg-doctor":    # takes no file
            expect(run([tool, "--", "--help"]), 2, "one argument too many")
        elif tool != "stepgraph":
            expect(run([tool, "--", "--help"]), 3, "--help: error: no such file")


@case
def examples_of_the_help_run():
    shutil.copytree(DATA, "ex")
    expect(run("cd ex && sg-import step.json -o step.sg -q && sg-print step.sg -o step.sg.txt"), 0)
    write("ex/recipe.yaml", "parameters: {policy: default}\ninputs: {step: step.sg}\nstages:\n  - clean\n  - remat: {policy: $policy}\n")
    os.environ["STEPGRAPH_CACHE"] = os.path.abspath("cache")
    for tool in TOOLS:
        lines = run([tool, "--help"]).text.split("\nExamples:\n")[1].splitlines()
        commands = [line.strip() for line in lines if not line.startswith("  #")]
        assert len(commands) == 2, tool
        for command in commands:
            expect(run("set -e; cd ex; " + command.replace("| less", "| cat >/dev/null")), 0)


@case
def unknown_option_names_the_nearest():
    for tool in READERS:
        expect(run([tool, "--outptu=x"]), 2, r"unknown option `--outptu`\n.*hint: did you mean `--output`")
    done = expect(run(["sg-print", "--zzzzzzzzzz"]), 2, "sg-print --help")
    assert len(done.message.splitlines()) == 2 and done.out == b""
    expect(run(["sg-print", "--out", "x"]), 2, "unknown option `--out`")       # no abbreviations
    expect(run(["sg-print", "-Z"]), 2, "unknown option `-Z`")


@case
def option_syntax():
    for words in (["-o", "a", "t"], ["-oa", "t"], ["--output", "a", "t"], ["--output=a", "t"], ["t", "-o", "a"],
                  ["-qo", "a", "t"], ["-o", "a", "--", "t"]):
        write("t", small_text())
        expect(run(["sg-print"] + words), 0)
        assert read("a").startswith(b"sg 1.0"), words
        os.remove("a")


@case
def option_values_are_checked():
    expect(run(["sg-print", "--output"]), 2, "`--output` needs a value")
    expect(run(["sg-print", "--quiet=yes"]), 2, "takes no value")
    expect(run(["sg-print", "-o", "a", "-o", "b"]), 2, "given twice")
    expect(run(["sg-print", "--rank", "x"]), 2, "whole number")
    expect(run(["sg-print", "--rank=-1"]), 2, "whole number")
    expect(run(["sg-print", "--rank=99999999999999999999"]), 2, "whole number")
    for seconds in ("nan", "-1", "0.5", "1e400"):   # not the default without a word
        expect(run(["sg-run", "--timeout", seconds]), 2, "whole number")
        expect(run(["sg-reduce", "--timeout", seconds]), 2, "whole number")
    expect(run(["sg-print", "-j0"]), 2, "at least 1")
    expect(run(["sg-print", "--color=alway"]), 2, "did you mean `always`")
    expect(run(["sg-print", "a", "b"]), 2, "one argument too many")
    expect(run(["sg-print", "-o", ""]), 2, "empty")


# --- words from files, and what programs and shells read ---

@case
def response_files():
    write_small()
    write("words", "# what is checked\n--max-findings 3\n'small.txt' \"small.sg\"\n")
    expect(run(["sg-check", "@words", "--json"]), 0, out=r'"verdict":"valid".*"verdict":"valid"')
    expect(run(["stepgraph", "check", "@words"]), 0, out="(.*: valid.*\n){2}")
    expect(run(["sg-check", "@missing"]), 2, "the response file: no such file")
    write("open", "'no end")
    expect(run(["sg-check", "@open"]), 2, "a ' has no end")
    shutil.copy("small.txt", "@name")
    expect(run(["sg-check", "--", "@name"]), 0, out="valid")
    expect(run(["sg-check", "./@name"]), 0, out="valid")
    write("nested", "@words")
    expect(run(["sg-check", "@nested"]), 3, "@words.*no such file")
    expect(run(["sg-check", "--help", "@missing"]), 0)


@case
def a_dry_run_writes_nothing():
    write_small()
    small, old = "small.sg", read("small.sg")
    for command in (f"sg-clean {small} -o new.sg", "sg-parse small.txt -o new.sg", f"sg-print {small} -o new.sg",
                    f"sg-stat {small} --json -o new.sg", f"sg-sim {small} --machine h100-8 --trace new.sg -q -o /dev/null",
                    f"sg-clean {small} --in-place", f"sg-export {small} -o new.sg", f"sg-view {small} -o new.sg",
                    f"sg-pipe {small} --pass clean --dump-after . --dump-to stages -o new.sg",
                    f"sg-run {small} --init seed:1 --outputs new.sg --profile new.json"):
        done = expect(run(command + " --dry-run"), 0, None if " -q " in command else "would ")
        assert done.out == b"", command
    assert not any(os.path.exists(name) for name in ("new.sg", "new.json", "stages")), os.listdir(".")
    assert read(small) == old and not [name for name in os.listdir(".") if name.startswith(".sg-")]
    done = expect(run(f"sg-clean {small} --dry-run"), 0, "would write standard output")
    assert done.out == b""
    assert run(f"sg-stat {small} --dry-run").out == run(f"sg-stat {small}").out    # an answer changes nothing
    expect(run(f"sg-clean {small} --dry-run -o /proc/no/new.sg"), 0)      # folders are made when it comes to that
    expect(run(f"sg-clean {small} --dry-run -o /proc/new.sg"), 5, "cannot write")
    expect(run(f"sg-run {small} --dry-run --init seed:1 -n 3"), 0, "would run 3 steps on 1 rank")
    expect(run(f"sg-run {small} --dry-run --inputs none.safetensors"), 3)
    ranks = expect(run(f"sg-clean {small} --dry-run -o 'r{{r}}.sg'"), 0, "would write r{r}.sg")
    assert ranks.out == b"" and not os.path.exists("r0.sg")


@case
def values_of_options_have_an_origin():
    write("more.txt", "--depth 2\n")
    done = expect(run(["sg-stat", "--by=op", "@more.txt", "--print-config"], env={"TMPDIR": "/there"}), 0)
    lines = {line.split()[0]: line.split()[1:] for line in done.text.splitlines()}
    assert lines["--by"] == ["op", "command", "line"] and lines["--depth"] == ["2", "@more.txt"], done.text
    assert lines["--rows"] == ["20", "default"] and lines["--quiet"] == ["no", "default"], done.text
    assert lines["TMPDIR"] == ["/there", "environment"] and lines["NO_COLOR"] == ["not", "set"], done.text
    settings = json.loads(run(["sg-stat", "-v", "-v", "--print-config", "--json"]).text)["settings"]
    assert {"name": "--verbose", "value": "yes", "origin": "command line"} in settings, settings
    expect(run(["sg-stat", "--print-config", "--nonsense"]), 2, "unknown option")


@case
def help_as_json():
    for tool in TOOLS:
        done = expect(run([tool, "--help-json", "--wrong"]), 0)
        document = json.loads(done.out)
        assert (document["schema"], document["version"], document["tool"]) == ("sg-help", 1, tool)
        page = run([tool, "--help-all"]).text
        names = [o["name"] for o in document["options"] + document["common_options"]]
        assert sorted(names) == sorted(re.findall(r"^ +(?:-\w, )?--([\w-]+)", page, re.M)), tool
        assert len(document["examples"]) == 2


@case
def completions_are_scripts():      # what they complete: run_shell_tests.py
    for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])):
        done = expect(run(["stepgraph", "completions", shell]), 0)
        for tool in TOOLS:
            assert tool in done.text, (shell, tool)
        write("c." + shell, done.out)
        if shutil.which(check[0]):
            expect(run(check + ["c." + shell]), 0)
        one = expect(run(["sg-print", "--completions", shell]), 0).text
        assert "sg-print" in one and "sg-check" not in one, shell
    expect(run(["stepgraph", "completions", "bsh"]), 2, "did you mean `bash`")
