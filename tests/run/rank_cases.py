"""Cases of run_data_tests.py: ranks that talk, with races under chaos and links that take their time."""
import hashlib
import json
import os
import struct

from support import case, graph, inputs, run, safetensors

# What --chaos is for. The verifier knows what overlaps only where types are equal: %buf and %rest see a part of what is in flight.
RACE = """sg 1.0 world 2
group @g [0 1]
graph rank *
  input %x : f32[4] "x"
  %buf   = aten.zeros([12], dtype=f32, device=cpu, pin_memory=false)
  %low   = aten.slice.Tensor(%buf, 0, 0, 8)
  %rest  = aten.slice.Tensor(%buf, 0, 6, 12)
  %first = aten.slice.Tensor(%buf, 0, 0, 4)
LINES
"""
GATHER = "  %out = _c10d_functional.all_gather_into_tensor_out(%x, 2, @g, out=%low)\n"
REDUCE = "  %out = _c10d_functional.all_reduce(%low, \"sum\", @g)\n"
WAIT = "  %w = _c10d_functional.wait_tensor(%out)\n"
READ = "  %y = aten.add.Tensor(%buf, 1.0)\n"
WRITE = "  %y = aten.add_.Tensor(%rest, 1.0)\n"


def race(*lines):
    with open("g.txt", "w") as f:
        f.write(RACE.replace("LINES", "".join(lines) + "  output %y\n  output %w"))


@case
def a_rank_finds_its_constants_in_the_folder_of_its_graph():
    for rank in range(2):
        numbers = [float(rank + i) for i in range(80)]
        digest = hashlib.sha256(struct.pack("<80f", *numbers)).hexdigest()
        os.makedirs(f"rank{rank}")
        with open(f"rank{rank}/g.txt", "w") as f:
            f.write(f"sg 1.0 world 2\ngraph rank {rank}\n  constant %c : f32[80] data sha256:{digest}\n"
                    "  %y = aten.neg(%c)\n  output %y\n")
        safetensors(f"rank{rank}/values.safetensors", {"anything": ("F32", [80], numbers)})
    run("--outputs", "out{r}", graph="rank{r}/g.txt")
    os.makedirs("graphs")
    for rank in range(2):
        os.rename(f"rank{rank}/g.txt", f"graphs/{rank}.txt")
    for place in "rank{r}", "rank{r}/values.safetensors":
        run("--data", place, "--expect", "out{r}", "--bitwise", graph="graphs/{r}.txt")
    run(graph="graphs/{r}.txt", code=3, message="1 graph input has no value: %c(.|\n)*--data FOLDER finds")
    run("--data", "no{r}", graph="graphs/{r}.txt", code=3, message="no0: error: --data: no such file or folder")
    os.remove("rank1/values.safetensors")
    run("--data", "rank{r}/values.safetensors", graph="graphs/{r}.txt", code=3, message="rank1/values.safetensors: .*cannot read")


@case
def a_missing_wait_shows_under_chaos():
    race(GATHER, WAIT, READ)
    run("--init", "seed:0", "--outputs", "out{r}")
    for seed in range(5):
        run("--init", "seed:0", "--expect", "out{r}", "--bitwise", "--chaos", str(seed), out="rank 1  all 2 compared")
    race(GATHER, READ, WAIT)
    for seed in range(5):
        run("--init", "seed:0", "--expect", "out{r}", "--bitwise", "--chaos", str(seed), code=1, out="FAIL +out0")
    run("--init", "seed:0", "--watch", "nan", "--chaos", "1", code=1, message="%y has 8 NaN of 12 elements")
    for launch, what in ((GATHER, "result"), (REDUCE, "input")):
        race(launch, WRITE, WAIT)
        run("--init", "seed:0", "--chaos", "1", code=1,
            message=f"%w = _c10d_functional.wait_tensor.default: the {what} of %out was written between its launch and its wait")
        race(launch, WAIT, WRITE)
        run("--init", "seed:0", "--chaos", "1")
    run("--init", "seed:0", "--chaos", "x", code=2, message="--chaos")


@case
def a_body_waits_for_what_it_is_given():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0 world 2
group @g [0 1]
graph rank *
  input %x : f32[4] "x"
  %a = _c10d_functional.all_gather_into_tensor(%x, 2, @g) : f32[8]
  %c, = sg.call(graph:body, [%a]) : f32[8]
  output %c
graph rank * nested body
  input %a : f32[8]
  %w = _c10d_functional.wait_tensor(%a) : f32[8]
  %n = aten.neg(%w) : f32[8]
  output %n
""")
    for seed in range(3):
        run("--init", "seed:0", "--watch", "nan", "--chaos", str(seed))


LINKS = """sg 1.0 world 2
group @g [0 1]
group @h [0 1]
graph rank *
  input %x : f32[1000] "x"
  %a = _c10d_functional.all_reduce(%x, "sum", @g)
  %b = _c10d_functional.all_reduce(%x, "sum", @SECOND)
  %v = _c10d_functional.wait_tensor(%a)
  %w = _c10d_functional.wait_tensor(%b)
  output %v
  output %w
"""


@case
def a_link_takes_its_time_and_groups_have_links_of_their_own():
    def seconds(group, link):
        with open("g.txt", "w") as f:
            f.write(LINKS.replace("SECOND", group))
        lines = run("--init", "seed:0", "--json", "--link", link).stdout
        return json.loads(lines)["step_seconds"][0]
    assert 0.8 <= seconds("g", "400ms,1GiB/s") < 60
    assert 0.4 <= seconds("h", "400ms,1GiB/s") < 0.8, "links of two groups work at the same time"
    assert 0.2 <= seconds("h", "0,20KB/s") < 60, "4000 bytes go out"
    for wrong in ("50us", "50,1GiB", "1ms,0", "1ms,fast", "-1ms,1GiB", "9999s,1GiB", ""):
        run("--init", "seed:0", "--link", wrong, code=2, message="--link takes a latency and a bandwidth")


@case
def one_file_of_another_size_for_all_ranks_is_told_to_be_that():
    graph(2)
    safetensors("in", inputs(**{"layer.weight": ("F32", [2, 4], [0.0] * 8)}))
    run("--inputs", "in", code=3, message="in is given to all 2 ranks: a file a rank is named with .r., as 'rank.r..safetensors'")


@case
def the_rank_that_failed_is_named_not_one_that_waited_for_it():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0 world 3
group @g [0 1 2]
graph rank *
  input %x : f32[4] "x"
  input %i : i64[1] "i"
  %a = aten.index_select(%x, 0, %i)
  %r = _c10d_functional.all_reduce(%a, "sum", @g)
  %w = _c10d_functional.wait_tensor(%r)
  output %w
""")
    for rank in range(3):
        safetensors(f"in{rank}", {"x": ("F32", [4], [0.0] * 4), "i": ("I64", [1], [9 if rank == 1 else 0])})
    for _ in range(5):
        run("--inputs", "in{r}", code=4, message="error: rank 1, %a = aten.index_select.default: index 9")


@case
def one_file_for_all_ranks_is_warned_about_where_parameters_are_in_shards():
    with open("g.txt", "w") as f:
        f.write('sg 1.0 world 2\nmesh [fsdp 2]\ngraph rank *\n  param %w : f32[4] "m.w" shard [8] fsdp S(0)\n'
                '  param %b : f32[4] "m.b" shard [4] fsdp R\n  %y = aten.add.Tensor(%w, %b)\n  output %y\n')
    values = {"m.w": ("F32", [4], [1, 2, 3, 4]), "m.b": ("F32", [4], [0] * 4)}
    for rank in range(2):
        os.makedirs(f"rank{rank}")
        safetensors(f"rank{rank}/in", values)
    done = run("--inputs", "rank0/in", message=r"rank0/in: warning: one file gives all 2 ranks the same values of `m.w`, ")
    assert "--inputs 'rank{r}/in'" in done.stderr and done.stderr.count("warning") == 1, done.stderr
    assert "warning" not in run("--inputs", "rank{r}/in").stderr
    safetensors("replica", {"m.b": values["m.b"]})
    assert "warning" not in run("--inputs", "replica", "--init", "seed:0").stderr
    with open("g.txt") as f:
        text = f.read()
    one = text.replace("mesh [fsdp 2]", "mesh [dp 1, fsdp 2]").replace("shard [8] fsdp S(0)", "shard [4] dp S(0), fsdp R")
    with open("g.txt", "w") as f:
        f.write(one)
    assert "warning" not in run("--inputs", "rank0/in").stderr, "an axis of one rank cuts nothing"
