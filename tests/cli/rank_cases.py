"""Cases of run_cli_tests.py: rank patterns, a file a rank; threads and phases."""
import gzip
import os
import re
import shutil

from support import DATA, case, copy_ranks, expect, read, run, write, write_small


@case
def a_rank_set_becomes_one_job_and_back():
    copy_ranks(12)      # two digits: rank10 is not rank1
    expect(run(["sg-import", "d/rank{r}/step.json", "-o", "job.sg"]), 0, "12 ranks running one program")
    expect(run(["sg-parse", "job.sg", "-o", "out/deep/rank{r}.sg"]), 0)
    assert sorted(os.listdir("out/deep")) == sorted(f"rank{r}.sg" for r in range(12))
    expect(run(["sg-print", "out/deep/rank3.sg"]), 0, out=r"graph rank 3\n")
    assert expect(run(["sg-parse", "out/deep/rank{r}.sg"]), 0).out == read("job.sg")
    expect(run(["sg-check", "out/deep/rank{r}.sg"]), 0, out="valid, .*12 ranks")
    expect(run(["sg-parse", "job.sg", "--text", "-o", "txt/rank{r}.sg.txt"]), 0)
    assert expect(run(["sg-parse", "txt/rank{r}.sg.txt"]), 0).out == read("job.sg")


@case
def a_folder_stands_for_the_capture_in_it():
    copy_ranks(3)
    whole = expect(run(["sg-import", "d/rank{r}/step.json"]), 0).out
    expect(run(["sg-import", "d"]), 3, "d: error: a folder of unknown kind")     # d/step.json or d/rank0/step.json?
    os.remove("d/step.json")
    for folder in ("d", "d/"):
        assert expect(run(["sg-import", folder]), 0, "read d/?: .*3 ranks").out == whole
    one = expect(run(["sg-import", "--spmd", "d/rank1/step.json"]), 0).out
    assert expect(run(["sg-import", "--spmd", "d/rank1"]), 0).out == one
    write("d/rank1/step.json.gz", gzip.compress(read("d/rank1/step.json")))
    os.remove("d/rank1/step.json")
    expect(run(["sg-import", "--spmd", "d/rank1"]), 0, "read d/rank1/step.json.gz")
    shutil.rmtree("d/rank1")
    expect(run(["sg-import", "d"]), 3, "d/rank1/step.json: error: rank 1 is missing")
    os.mkdir("none")
    expect(run(["sg-import", "none"]), 3, "none: error: a folder of unknown kind")


@case
def a_gap_in_a_rank_set_is_an_error():
    copy_ranks(4)
    expect(run(["sg-import", "d/rank{r}/step.json", "-o", "job.sg"]), 0)
    expect(run(["sg-parse", "job.sg", "-o", "rank{r}.sg"]), 0)
    os.remove("rank2.sg")
    shutil.rmtree("d/rank2")
    expect(run(["sg-check", "rank{r}.sg"]), 3, "rank2.sg: error: rank 2 is missing")
    expect(run(["sg-import", "d/rank{r}/step.json"]), 3, "d/rank2/step.json: error: rank 2 is missing")
    os.rename("d/rank1/step.json", "d/other")         # each rank's inputs are found by the name
    os.rename("d/rank0/step.json", "d/rank1/step.json")
    os.rename("d/other", "d/rank0/step.json")
    expect(run(["sg-import", "d/rank{r}/step.json", "--best-effort"]), 3, "d/rank0/step.json: error: this is rank 1, and its name says rank 0")
    shutil.rmtree("d/rank0")
    os.remove("d/step.json")
    expect(run(["sg-import", "d"]), 3, "d/rank0/step.json: error: rank 0 is missing")
    expect(run(["sg-check", "none{r}.sg"]), 3, "no file matches")
    expect(run(["sg-check", "nofolder/rank{r}.sg"]), 3, "folder")
    shutil.copy("rank0.sg", "rank2.sg")
    expect(run(["sg-check", "rank{r}.sg"]), 3, "rank2.sg: error: rank 0 comes twice")


@case
def best_effort_leaves_ranks_out():
    copy_ranks(4)
    expect(run(["sg-import", "d/rank{r}/step.json", "-o", "rank{r}.sg"]), 0)
    os.remove("rank1.sg")
    write("rank3.sg", "nothing")
    shutil.rmtree("d/rank2")
    expect(run(["sg-check", "rank{r}.sg", "--best-effort"]), 0, "rank1.sg: warning: no file of rank 1; left out", "valid, .* 4 ranks in 1 program")
    expect(run(["sg-check", "rank{r}.sg", "--best-effort"]), 0, r"rank3.sg.*warning: not a graph.*; the file is left out")
    expect(run(["sg-print", "rank{r}.sg", "--best-effort"]), 0, out="graph rank 0 2\n")
    expect(run(["sg-import", "d/rank{r}/step.json", "--best-effort", "--text"]), 0, "no file of rank 2; left out", "graph rank 0 1 3\n")
    expect(run(["sg-check", "rank3.sg", "--best-effort"]), 3, "not a graph")      # one file cannot be left out


@case
def threads_change_nothing_but_the_time():
    copy_ranks(4)
    write_small()
    write("bad.txt", "sg 1.0 world 3\n" + "".join(
        f"graph rank {r}\n  input %x : f32[{r + 1}]\n  %y = aten.tanh(%x) : f32[7]\n  output %y\n" for r in range(3)))
    for command in (["sg-import", "d/rank{r}/step.json", "--text"], ["sg-check", "bad.txt", "small.txt", "small.sg", "missing.sg"],
                    ["sg-check", "bad.txt", "--max-findings", "2"], ["sg-print", "bad.txt"]):
        one, many = run(command + ["-j1"]), run(command + ["-j8"])
        assert (one.code, one.out, one.err) == (many.code, many.out, many.err), f"{command}: {many.message}"
    assert one.message.count("[inferred-type]") == 3, one.message


@case
def verbose_tells_phases():
    write_small()
    for command, phases in ((["sg-import", os.path.join(DATA, "step.json"), "-o", "a.sg"], ["read", "import", "verify", "write"]),
                            (["sg-print", "small.txt"], ["read", "verify", "write"]), (["sg-stat", "small.txt"], ["read", "verify", "count", "write"])):
        done = expect(run(command + ["-v"]), 0)
        told = re.findall(r"^sg-\w+: (\w+): .*\d\.\d\d\d s$", done.message, re.M)
        assert told == phases, done.message
        assert " s\n" not in run(command).message
    expect(run(["sg-check", "-v", "small.txt"]), 0, r"read \d\.\d{3} s, verify \d\.\d{3} s")
