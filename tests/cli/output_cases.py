"""Cases of run_cli_tests.py: outputs, whole or not at all, where they were asked for, the same bytes every time."""
import os
import re
import signal
import subprocess

from support import DATA, ROOT, given, case, environment, expect, read, run, small_binary, small_text, write


@case
def full_disk_and_bad_targets():
    write("g.sg", small_binary())
    for command in ("sg-print g.sg > /dev/full", "sg-parse g.sg > /dev/full", "sg-print g.sg -o /dev/full",
                    "sg-check g.sg > /dev/full", "sg-print --help > /dev/full", "sg-print g.sg >&-"):
        done = expect(run(command), 5, "error: cannot write")
        assert "nothing was replaced" not in done.message, done.message    # there was nothing to replace
    for target in ("g.sg/out.sg", "/proc/out.sg", "no/such/folder/out.sg"):
        done = expect(run(["sg-parse", "g.sg", "-o", target]), 5, re.escape(target))
        assert done.out == b""
    done = expect(run(["sg-parse", "absent.sg", "-o", "no/folder/out.sg"]), 5, "no/folder/out.sg: error: cannot write")  # before all work
    assert "hint: mkdir -p no/folder" in done.message and "absent.sg" not in done.message, done.message
    inputs = "".join(f"  input %x{i} : f32[4]\n" for i in range(999))
    write("large.txt", "sg 1.0 world 1\ngraph rank *\n" + inputs + "  output %x1\n")
    for command in ("sg-print large.txt -o small.txt", "sg-parse large.txt > small.sg"):  # bash counts in KiB
        expect(run(["bash", "-c", "ulimit -f 4; " + command]), 5, "error: cannot write: File too large")
    assert not os.path.exists("small.txt")
    write("old.txt", "old")
    expect(run(["bash", "-c", "ulimit -f 4; sg-print large.txt -o old.txt"]), 5, "hint: nothing was replaced")
    assert read("old.txt") == b"old"
    os.mkdir("out")
    expect(run(["sg-parse", "g.sg", "-o", "out"]), 5, "out: error: cannot write")
    expect(run(["sg-parse", "g.sg", "-o", "/dev/null"]), 0)
    expect(run("mkfifo p; (cat p > q &) ; sg-parse g.sg -o p && sleep 0.2 && cmp g.sg q"), 0)


@case
def the_input_is_never_appended_to():
    write("g.sg", small_binary())
    for command in ("sg-clean g.sg >> g.sg", "sg-print g.sg >> g.sg", "sg-clean < g.sg >> g.sg", "sg-check g.sg >> g.sg"):
        expect(run(command), 2, "standard output is .*, which is read")
        assert read("g.sg") == small_binary(), command
    expect(run("sg-clean g.sg >> other.sg && sg-check other.sg"), 0)


@case
def the_input_is_never_replaced_by_accident():
    text = small_text()
    write("t.txt", text)
    os.symlink("t.txt", "link.txt")
    os.link("t.txt", "hard.txt")
    for target in ("t.txt", "./t.txt", "link.txt", "hard.txt"):
        expect(run(["sg-parse", "t.txt", "-o", target]), 2, "--in-place")
        assert read("t.txt") == text
    expect(run(["sg-parse", "t.txt", "--in-place", "--text"]), 0)
    assert read("t.txt") == text
    os.chmod("t.txt", 0o640)
    expect(run(["sg-parse", "link.txt", "--in-place"]), 0)      # the link stays, what it names is replaced
    assert os.path.islink("link.txt") and read("t.txt") in (small_binary(), text) and os.stat("t.txt").st_mode & 0o777 == 0o640
    expect(run(["sg-parse", "--in-place"], text), 2, "one named input")


@case
def nothing_that_a_command_reads_is_replaced():
    write("g.sg", small_binary())
    write("w.txt", b"sg 1.0 world 2\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.relu(%x) : f32[4]\n  output %y\n")
    write("m.yaml", b"name: mine\nbase: h100-8\n")
    expect(run(["sg-parse", "w.txt", "-o", "rank{r}.sg"]), 0)
    before = {name: read(name) for name in os.listdir(".")}
    for command in ("sg-clean 'rank{r}.sg' -o rank0.sg", "sg-clean 'rank{r}.sg' -o './rank{r}.sg'",
                    "sg-clean rank1.sg -o 'rank{r}.sg'", "sg-clean - -o g.sg < g.sg", "sg-clean -o g.sg < g.sg",
                    "sg-sim g.sg --trace g.sg", "sg-sim g.sg -m m.yaml --trace m.yaml", "sg-sim g.sg -m m.yaml -o m.yaml",
                    "sg-sim g.sg --json -o same.json --trace same.json", "sg-overlap g.sg -m m.yaml -o m.yaml",
                    "sg-bucket g.sg --plan per-module:m.yaml -o m.yaml", "sg-pipe g.sg --pass 'overlap -m m.yaml' -o m.yaml",
                    "sg-diff g.sg g.sg -o g.sg"):
        expect(run(command), 2, "replace|is the input|both write")
        assert before == {name: read(name) for name in os.listdir(".")}, command
    expect(run("sg-clean - -o /dev/null < g.sg"), 0)
    expect(run("sg-clean 'rank{r}.sg' -o 'new{r}.sg' && sg-clean w.txt -o new0.sg"), 0)
    expect(run(["sg-clean", "g.sg", "-o", "auto"]), 0)
    expect(run(["sg-bucket", "g.sg", "--plan", "auto", "-o", "auto"]), 0)  # a word, not that file


@case
def a_rank_pattern_is_a_file_a_rank_in_other_forms_too():
    write("g.txt", b"sg 1.0 world 2\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.relu(%x) : f32[4]\n  output %y\n")
    expect(run(["sg-print", "g.txt", "-o", "out/rank{r}.sg.txt"]), 0)
    expect(run(["sg-export", "g.txt", "-o", "out/rank{r}.py"]), 0)
    assert sorted(os.listdir("out")) == ["rank0.py", "rank0.sg.txt", "rank1.py", "rank1.sg.txt"]
    expect(run(["sg-diff", "g.txt", "out/rank{r}.sg.txt"]), 0)
    for command in (["sg-stat", "g.txt"], ["sg-view", "g.txt"], ["sg-print", "g.txt", "--node", "y"]):
        expect(run([*command, "-o", "out/{r}.txt"]), 2, "has {r}, but this report is a single file for all ranks")
    expect(run(["sg-diff", "g.txt", "g.txt", "-o", "out/{r}.txt"]), 2)
    assert len(os.listdir("out")) == 4


@case
def a_failed_run_keeps_the_old_output():
    write("out.sg", b"old")
    write("bad.txt", small_text().replace(b"aten.mm", b"aten mm"))
    expect(run(["sg-parse", "bad.txt", "-o", "out.sg"]), 3)
    expect(run("sg-import missing.json | sg-parse -o out.sg"), 3)
    assert read("out.sg") == b"old"
    assert sorted(os.listdir(".")) == ["bad.txt", "out.sg"]


@case
def outputs_of_one_command_are_placed_together():
    """One that cannot be written leaves the old files of all others, whichever is first."""
    write("g.sg", small_binary())
    write("step.txt", b"sg 1.0 world 2\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.relu(%x) : f32[4]\n  output %y\n")
    program = os.path.join(ROOT, "tests", "data", "pt2_versions", "torch_2_15", "encoder", "model.pt2")
    old = ("out", "other", "out0", "out1", "dump0", "dump1")
    for name in old:
        write(name, b"old")
    for command in ("sg-sim g.sg --trace other -o no/x", "sg-sim g.sg --trace other -o /dev/full", "sg-sim g.sg --trace other > /dev/full",
                    "sg-sim g.sg --trace no/x -o other", "sg-clean g.sg -o other --json > /dev/full",
                    "sg-clean step.txt -o 'out{r}' --json > /dev/full",
                    f"sg-import {program} --data other > /dev/full", f"sg-import {program} --data other -o no/x",
                    "sg-run step.txt --init seed:0 --outputs 'out{r}' --profile /dev/full",
                    "sg-run step.txt --init seed:0 --outputs 'out{r}' --profile no/x -o other",
                    "sg-run step.txt --init seed:0 --outputs 'out{r}' --profile other -o no/x",
                    "sg-run step.txt --init seed:0 --outputs 'out{r}' > /dev/full",
                    "sg-run step.txt --init seed:0 --dump-nodes 'dump{r}' --profile other --json > /dev/full",
                    "sg-run step.txt --init seed:0 --compare step.txt --outputs 'out{r}' --json > /dev/full"):
        expect(run(command), 5, "cannot write")
        assert all(read(name) == b"old" for name in old), command
        assert sorted(os.listdir(".")) == sorted((*old, "g.sg", "step.txt")), command
    expect(run("sg-sim g.sg --trace other -o out"), 0)
    assert read("other") != b"old" != read("out")


@case
def a_reader_that_has_enough_fails_no_file():
    write("g.sg", small_binary())
    for command in ("sg-sim g.sg --trace other", "sg-clean g.sg -o other --json", "sg-sim g.sg --trace other -o /dev/stdout"):
        write("other", b"old")
        done = run(["bash", "-c", f"(sleep 0.5; {command}) | true; exit ${{PIPESTATUS[0]}}"])
        assert done.code == 128 + signal.SIGPIPE and read("other") != b"old" and done.err == b"", (command, done.code, done.err)
        assert sorted(os.listdir(".")) == ["g.sg", "other"]


@case
def a_killed_run_keeps_the_old_output():
    if not given.probe:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        write("out", b"old")
        process = subprocess.Popen([given.probe, "half", "-o", "out"], stderr=subprocess.PIPE, env=environment())
        assert process.stderr.readline() == b"half written\n"
        assert read("out") == b"old" and len(os.listdir(".")) == 2
        process.send_signal(number)
        assert process.wait(timeout=30) == -number
        process.stderr.close()
        assert read("out") == b"old" and os.listdir(".") == ["out"]


@case
def our_own_bugs_leave_a_bundle():
    if not given.probe:
        return
    for what in ("throw", "bug"):
        done = expect(run([given.probe, what]), 70, "internal error: .* on purpose; this is a bug")
        name = re.search(r"sg-probe-bug-\d+\.txt", done.message).group(0)
        assert f"{what}" in read(name).decode() and "sg-probe (Stepgraph)" in read(name).decode()
        os.remove(name)
    expect(run([given.probe, "bad-alloc"]), 5, "out of memory")
    assert os.listdir(".") == []


@case
def same_bytes_every_time_and_in_every_locale():
    once = small_binary()
    for env in ({}, {"LC_ALL": "de_DE.UTF-8"}, {"LC_ALL": "C"}, {"TZ": "Asia/Tokyo", "LANG": "tr_TR.UTF-8"}):
        done = expect(run(["sg-import", os.path.join(DATA, "step.json"), "-q"], env=env), 0)
        assert done.out == once
        assert run(["sg-print", "-j", "1"], once, env=env).out == small_text()
