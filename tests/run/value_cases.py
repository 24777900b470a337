"""Cases of run_data_tests.py: files in and out: names, what fits, what is expected, made up, written whole."""
import os
import pickle
import subprocess

from support import case, given, graph, inputs, load, run, safetensors


@case
def inputs_must_fit_the_graph():
    graph()
    for change, code, message in [
            ({"x": None, "labels": None}, 3, r"2 graph inputs have no value: `x` \(%x\), `labels` \(%labels\)"),
            ({"layer.wieght": ("F32", [1], [0])}, 3, r"no input `layer.wieght`(.|\n)*layer.weight"),
            ({"w": ("F32", [3, 4], [0] * 12)}, 3, "the same graph input"),
            ({"x": ("F64", [2, 3], [0] * 6)}, 3,
             r"`x` \(%x\) is f32\[s0 = 2, 3\] in the graph, f64\[2, 3\] in the file"),
            ({"layer.weight": ("F32", [4, 3], [0] * 12)}, 3, r"is f32\[3, 4\] in the graph, f32\[4, 3\] in the file"),
            ({"x": ("F32", [3, 3], [0] * 9)}, 4, r"the graph needs s0 == s1; the inputs make it 3 and 2"),
            ({"labels": ("I64", [2], [0, 4])}, 4, r"(out of|outside|range)"),
    ]:
        safetensors("in", inputs(**change))
        run("--inputs", "in", code=code, message=message)
    run("--inputs", "none", code=3, message="none: error: no such file")


@case
def broken_files_are_unreadable_with_their_place():
    graph()
    safetensors("in", inputs())
    whole = open("in", "rb").read()
    for size in (0, 7, 8, 100, len(whole) - 1):
        with open("cut", "wb") as f:
            f.write(whole[:size])
        run("--inputs", "cut", code=3, message=r"cut:@\d+: (\S+ )?error: ")
    safetensors("in", {}, header='{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}')
    run("--inputs", "in", code=3, message=r"in:@\d+: \S+ error: the tensor ends at byte 24 of the data, which has 0")


@case
def outputs_are_what_is_expected_of_the_same_run():
    graph()
    safetensors("in", inputs())
    run("--inputs", "in", "--outputs", "out/of/run")
    values = load("out/of/run")
    assert sorted(values) == ["mutated.count", "out0", "out1"] and values["mutated.count"] == (6,)
    run("--inputs", "in", "--expect", "out/of/run", "--bitwise", out="all 3 compared values are as expected")
    safetensors("e", {"loss": ("F32", [], values["out0"]), "gradient:layer.weight": ("F32", [3, 4], values["out1"])})
    run("--inputs", "in", "--expect", "e", out="all 2 compared values are as expected, 1 not in the file")


@case
def what_is_written_into_a_conjugate_is_its_conjugate_in_memory():
    """v.conj().mul_(w) and v.conj()[1:].copy_(w), as PyTorch traces them; then v, and v.conj() * w."""
    with open("g.txt", "w") as f:
        f.write("""sg 1.0 world 1

graph rank *
  input %x : f32[3, 2] "x"
  input %y : f32[3, 2] "y"
  forward -
    %own = aten.clone(%x)
    %v = aten.view_as_complex(%own)
    %w = aten.view_as_complex(%y)
    %c = aten._conj(%v)
    %copy = aten.clone(%c)
    %product = aten.mul_.Tensor(%copy, %w)
    %same = aten.copy_(%c, %product)
    %tail = aten.slice.Tensor(%same, 0, 1, 3)
    %source = aten.slice.Tensor(%w, 0, 0, 2)
    %more = aten.copy_(%tail, %source)
    %all = aten.view_as_real(%v)
    %later = aten.mul.Tensor(%same, %w)
    %seen = aten.view_as_real(%later)
  output %all
  output %seen
""")
    v, w = [1 + 2j, 3 - 1j, -2 + 0.5j], [0.5 + 1j, -1 - 3j, 2j]
    seen = [v[0].conjugate() * w[0], w[0], w[1]]
    pairs = lambda numbers: ("F32", [3, 2], [part for n in numbers for part in (n.real, n.imag)])  # noqa: E731
    safetensors("in", {"x": pairs(v), "y": pairs(w)})
    safetensors("e", {"out0": pairs([n.conjugate() for n in seen]), "out1": pairs([a * b for a, b in zip(seen, w)])})
    run("--inputs", "in", "--expect", "e", out="all 2 compared values are as expected")
    for words in (["sg-clean"], ["sg-remat", "--policy", "all"]):
        subprocess.run([os.path.join(given.bin, words[0]), *words[1:], "-q", "g.txt", "-o", "c.txt"], check=True)
        run("--inputs", "in", "--expect", "e", out="all 2 compared values are as expected", graph="c.txt")


@case
def what_differs_is_exit_1_worst_first():
    graph()
    safetensors("in", inputs())
    run("--inputs", "in", "--outputs", "out")
    values = load("out")
    wrong = list(values["out1"])
    wrong[7] += 0.5
    safetensors("e", {"out0": ("F32", [], [values["out0"][0] * (1 + 5e-4)]), "out1": ("F32", [3, 4], wrong),
                      "mutated.count": ("I64", [], [7])})
    done = run("--inputs", "in", "--expect", "e", code=1, out=r"3 of 3 compared values are not as expected")
    lines = [line for line in done.stdout.splitlines() if "FAIL" in line]
    assert "out1" in lines[0] and "[1, 3]" in lines[0] and "gradient of layer.weight" in lines[0], lines
    run("--inputs", "in", "--expect", "e", "--rtol", "1e-3", code=1, out="2 of 3")
    run("--inputs", "in", "--expect", "e", "--rtol", "1e-3", "--atol", "0.6", code=1, out="1 of 3")
    safetensors("e", {"out0": ("F32", [1], values["out0"])})
    run("--inputs", "in", "--expect", "e", code=1, out=r"is f32\[\], expected f32\[1\]")
    safetensors("e", {"out2": ("F32", [], [0])})
    run("--inputs", "in", "--expect", "e", code=3, message="the graph has no output `out2`")


@case
def made_up_inputs_are_the_same_every_time():
    graph()
    run("--init", "seed:1", "--outputs", "a", message=r"`labels` \(%labels\): integers in \[0, 4\): classes of %p")
    run("--init", "seed:1", "--outputs", "b", "--threads", "2")
    with open("g.txt") as f:                                               # two programs, each line once
        text = f.read()
    with open("g.txt", "w") as f:
        f.write(text.replace("world 1", "world 2").replace("rank *", "rank 0") + text[text.index("graph rank *"):].replace("rank *", "rank 1"))
    done = run("--init", "seed:1", "--outputs", "r{r}")
    assert done.stderr.count("`labels`") == 1 and load("r0") == load("r1") == load("a")
    graph()
    run("--init", "seed:2", "--outputs", "c")
    assert load("a") == load("b") and load("a")["out1"] != load("c")["out1"]
    safetensors("in", {"x": inputs()["x"], "labels": inputs()["labels"]})
    run("--init", "seed:1", "--inputs", "in", "--outputs", "d")
    assert load("d")["out1"] != load("a")["out1"]
    for bad in ("1", "seed:", "seed:-1", "seed:x"):
        run("--init", bad, code=2, message="is not seed:N")


@case
def many_ranks_of_which_the_same_is_said_share_a_line():
    graph(world=12)
    done = run("--init", "seed:1", "--outputs", "out{r}", out=r"(?m)^ranks 0 to 11  loss [0-9.]+$")
    assert done.stdout.count("loss") == 1, done.stdout
    safetensors("out7", {"out0": ("F32", [], [0.0])})
    done = run("--init", "seed:1", "--expect", "out{r}", code=1, out="(?m)^ranks 0 to 6  ")
    assert [word for word in ("rank 7  ", "ranks 8 to 11  ") if word not in done.stdout] == [], done.stdout


@case
def each_rank_has_its_files():
    graph(world=2)
    safetensors("in0", inputs())
    run("--inputs", "in{r}", code=3, message="--inputs: no file for rank 1 of 2")
    safetensors("in1", inputs(x=("F32", [2, 3], [0.5] * 6)))
    run("--inputs", "in{r}", "--outputs", "out", code=2, message=r"put \{r\} into the name")
    run("--inputs", "in{r}", "--outputs", "out{r}")
    assert load("out0")["out1"] != load("out1")["out1"]
    run("--inputs", "in{r}", "--expect", "out{r}", "--bitwise", out="rank 1  all 3 compared")
    os.rename("out0", "other")
    os.rename("out1", "out0")
    os.rename("other", "out1")
    run("--inputs", "in{r}", "--expect", "out{r}", code=1)
    safetensors("in2", inputs())
    run("--inputs", "in{r}", code=3, message="a file for rank 2, but the job has 2 ranks")


@case
def outputs_appear_whole_or_not_at_all():
    graph()
    safetensors("in", inputs())
    run("--inputs", "in", "--outputs", "/dev/full", code=5, message="No space left")
    assert os.path.exists("/dev/full") and not os.path.isfile("/dev/full")
    run("--inputs", "in", "--outputs", "/dev/null")
    with open("out", "w") as f:
        f.write("old")
    safetensors("bad", inputs(labels=("I64", [2], [0, 9])))
    run("--inputs", "bad", "--outputs", "out", code=4)
    assert open("out").read() == "old"
    run("--inputs", "in", "--outputs", "in/x", code=5)
    assert sorted(os.listdir(".")) == ["bad", "g.txt", "in", "out"], os.listdir(".")


@case
def what_is_no_safetensors_file_is_named():
    graph()
    for start, message in ((b"PK\x03\x04" + bytes(30), "ZIP archive, as torch.save writes"),
                           (pickle.dumps({"w": [1.0] * 9}), "Python pickle"),
                           (b"\x93NUMPY" + bytes(30), "NumPy array")):
        with open("in", "wb") as f:
            f.write(start)
        run("--inputs", "in", code=3, message=message)


@case
def files_of_all_ranks_appear_or_none():
    graph(world=3)
    safetensors("in", inputs())
    os.mkdir("out2")                          # a folder where the file of rank 2 would be
    for old in ("out0", "kept"):
        with open(old, "w") as f:
            f.write("old")
    run("--inputs", "in", "--outputs", "out{r}", code=5)
    assert open("out0").read() == "old" and not os.path.exists("out1"), os.listdir(".")
    os.rmdir("out2")
    run("--inputs", "in", "--outputs", "out{r}")
    assert [sorted(load(f"out{r}")) for r in range(3)] == [["mutated.count", "out0", "out1"]] * 3
    assert sorted(os.listdir(".")) == ["g.txt", "in", "kept", "out0", "out1", "out2"], os.listdir(".")


@case
def a_view_may_end_where_a_node_computes():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0
graph rank *
  symbol rows input [2, inf] hint 11
  symbol m data [0, inf]
  input %x : f32[rows] "x"
  %n = aten.sym_size.int(%x, 0) : int rows
  %f = python.mul(%n, 0.4) : float
  %t = python.trunc(%f) : int m  binds [m]
  %s = aten.slice.Tensor(%x, 0, 0, %t) : f32[m]
  %y = aten.sum(%s)
  output %y
""")
    for rows, expected in ((11, 0 + 1 + 2 + 3), (20, sum(range(8)))):
        safetensors("in.safetensors", {"x": ("F32", [rows], range(rows))})
        run("-i", "in.safetensors", "--outputs", "out.safetensors")
        assert load("out.safetensors") == {"out0": (expected,)}, load("out.safetensors")


@case
def ctc_of_lengths_that_are_data_has_room_for_the_longest_row():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0
graph rank *
  input %s : f32[6, 2, 4] "s"
  input %l : i64[2, 3] "l"
  input %t : i64[2] "t"
  input %n : i64[2] "n"
  %p = aten._log_softmax(%s, 2, false)
  %a, %b = aten._ctc_loss.Tensor(%p, %l, %t, %n) : f32[2], f32[2, 6, 7]
  %c, %d = aten._ctc_loss(%p, %l, [6, 5], [2, 1]) : f32[2], f32[2, 6, 5]
  %o = aten.ones_like(%a)
  %x = aten._ctc_loss_backward.Tensor(%o, %p, %l, %t, %n, %a, %b, 0)
  %y = aten._ctc_loss_backward(%o, %p, %l, [6, 5], [2, 1], %c, %d, 0)
  output %a
  output %c
  output %x
  output %y
""")
    given = {"s": ("F32", [6, 2, 4], [0.1 * (7 * i % 11) for i in range(48)]), "l": ("I64", [2, 3], [1, 2, 3, 3, 1, 2]),
             "t": ("I64", [2], [6, 5]), "n": ("I64", [2], [2, 1])}
    safetensors("in.safetensors", given)
    run("-i", "in.safetensors", "--outputs", "out.safetensors")
    out = load("out.safetensors")
    assert out["out0"] == out["out1"] and out["out2"] == out["out3"] and any(out["out2"]), out
    for lengths, message in (([4, 1], "entry 0 has more labels than 'targets' holds"), ([3, 0], None)):
        safetensors("in.safetensors", {**given, "n": ("I64", [2], lengths)})
        run("-i", "in.safetensors", code=4 if message else 0, message=message)


@case
def dumped_inputs_give_the_same_bits_again():
    graph()
    safetensors("in", {"x": inputs()["x"]})
    run("--inputs", "in", "--init", "seed:3", "--dump-inputs", "made/in", "--outputs", "out", "--steps", "3",
        "--optimizer", "sgd:lr=0.1")
    made = load("made/in")
    assert sorted(made) == ["count", "labels", "w", "x"] and made["x"] == load("in")["x"], made
    assert made["count"] == (0,), made["count"]          # what the step began with, not what it wrote
    run("--inputs", "made/in", "--expect", "out", "--bitwise", "--steps", "3", "--optimizer", "sgd:lr=0.1")
    run("--inputs", "made/in", "--dump-inputs", "again")
    assert open("made/in", "rb").read() == open("again", "rb").read()
    run("--init", "seed:3", "--compare", "g.txt", "--dump-inputs", "both")
    assert sorted(load("both")) == sorted(made)
    graph(world=2)
    run("--init", "seed:3", "--dump-inputs", "one", code=2, message="--dump-inputs")
    run("--init", "seed:3", "--dump-inputs", "r{r}", "--outputs", "out{r}")
    run("--inputs", "r{r}", "--expect", "out{r}", "--bitwise", out="rank 1  all 3 compared")
    run("--init", "seed:3", "--plan", "--dump-inputs", "r{r}", code=2, message="--plan runs nothing")


@case
def views_are_dumped_in_their_turn():
    with open("g.txt", "w") as f:
        f.write("sg 1.0\ngraph rank *\n  input %x : f32[2, 3] \"x\"\n  forward m\n    %t = aten.t(%x)\n    %s = aten.select.int(%t, 0, 1)\n"
                "    %a = aten.neg(%t)\n    %l, %r = aten.split.Tensor(%a, 2)\n    %w = aten.mul_.Tensor(%a, 2.0)\n"
                "    %v = aten.t(%w)\n  output %v\n  output %l\n  output %s\n")
    safetensors("in", {"x": ("F32", [2, 3], [1, 2, 3, 4, 5, 6])})
    run("--inputs", "in", "--dump-nodes", "some", "--nodes", "t", "--nodes", "v")
    assert load("some") == {"t": (1, 4, 2, 5, 3, 6), "v": (-2, -4, -6, -8, -10, -12)}, load("some")
    run("--inputs", "in", "--dump-nodes", "all")
    assert sorted(load("all")) == ["a", "l", "r", "s", "t", "v", "w"], load("all")
    assert load("all")["l"] == (-1, -4, -2, -5) and load("all")["s"] == (2, 5)   # before the memory is written


@case
def a_run_goes_on_from_the_state_of_another():
    graph()
    safetensors("in", inputs())
    safetensors("batch", {name: given for name, given in inputs().items() if name in ("x", "labels")})
    sgd = ["--optimizer", "sgd:lr=0.5"]
    run("--inputs", "in", "--steps", "5", "--outputs", "whole", "--dump-state", "end", *sgd)
    run("--inputs", "in", "--steps", "3", "--dump-state", "made/half", *sgd)
    assert sorted(load("made/half")) == ["count", "w"], load("made/half")   # a batch is no state
    assert load("made/half")["w"] != load("in")["layer.weight"]
    for before in (["--inputs", "batch"], ["--inputs", "in"], ["--inputs", "batch", "--init", "seed:9"]):  # a state goes before them
        run(*before, "--state", "made/half", "--steps", "2", "--expect", "whole", "--bitwise", "--dump-state", "two", *sgd)
        assert open("two", "rb").read() == open("end", "rb").read()
    run("--inputs", "in", "--inputs", "made/half", code=3, message="are the same graph input(.|\n)*--state FILE")
    run("--inputs", "in", "--state", "none", code=3, message="none: error: no such file")
    run("--inputs", "in", "--steps", "3", "--dump-state", "wide", "--numerics", "f64", *sgd)
    assert max(abs(a - b) for a, b in zip(load("wide")["w"], load("made/half")["w"])) < 1e-5
    run("--inputs", "in", "--steps", "3", "--compare", "g.txt", "--dump-state", "both", *sgd)
    assert open("both", "rb").read() == open("made/half", "rb").read()
    run("--inputs", "in", "--dump-state", "-", code=2, message="would both write standard output")
    run("--inputs", "in", "--plan", "--dump-state", "x", code=2, message="--plan runs nothing")
    graph(world=2)
    run("--init", "seed:3", "--dump-state", "one", code=2, message="--dump-state")
    run("--init", "seed:3", "--dump-state", "r{r}", *sgd)
    run("--init", "seed:3", "--steps", "3", "--dump-state", "after{step}.{r}", *sgd)
    assert os.path.exists("after2.1") and not os.path.exists("after0.1")
    run("--state", "r{r}", "--inputs", "batch", code=0)
    os.rename("after2.1", "r1")
    run("--state", "r{r}", "--inputs", "batch", code=3, message=r"r1: error: it was left before step 3, that of another rank before step 1")


@case
def a_run_goes_on_with_the_moments_and_random_numbers_of_the_step_it_left():
    with open("g.txt", "w") as f:
        f.write('''sg 1.0 world 1

graph rank *
  param %w : f32[3, 4] "layer.w"
  param %h : bf16[4] "layer.h"
  param %z : c64[4] "layer.z"
  input %x : f32[3, 4] "x"
  forward m
    %d, %mask = aten.native_dropout(%x, 0.5, true) stream 1
    %m = aten.mul.Tensor(%w, %d)
    %a = aten.mul.Tensor(%m, %h)
    %loss = aten.sum(%a)
    %gw = aten.mul.Tensor(%d, %h)
    %g = aten.sum.dim_IntList(%m, [0])
    %gh = aten._to_copy(%g, dtype=bf16)
    %gz = aten.mul.Tensor(%z, %g)
  loss %loss
  grad %gw of %w
  grad %gh of %h
  grad %gz of %z
''')
    run("--init", "seed:1", "--dump-inputs", "in")
    for step in range(6):
        safetensors(f"x{step}", {"x": ("F32", [3, 4], [step * 0.1 + 0.01 * i for i in range(12)])})
    batches = ["--inputs", "x{step}", "--init", "seed:1"]
    for kind, kept in (("adamw:lr=0.01", {"exp_avg", "exp_avg_sq"}), ("sgd:lr=0.1,momentum=0.9,dampening=0.5", {"momentum_buffer"}),
                       ("sgd:lr=0.1", set())):
        train = [*batches, "--optimizer", kind]
        run(*train, "--steps", "6", "--outputs", "whole{step}", "--dump-state", "end")
        run(*train, "--steps", "2", "--dump-state", "half")
        names = {f"optimizer.{k}.{of}" for k in kept for of in "whz"} | {"optimizer.master.h"}
        assert set(load("half")) == names | set("whz"), load("half")
        run(*train, "--state", "half", "--steps", "1", "--dump-state", "more")
        run(*train, "--state", "more", "--steps", "3", "--expect", "whole{step}", "--bitwise", "--dump-state", "two", out="step 5")
        assert open("two", "rb").read() == open("end", "rb").read()
        run(*train, "--steps", "2", "--numerics", "f64", "--dump-state", "wide")
        assert set(load("wide")) == set(load("half"))
        run(*train, "--steps", "6", "--numerics", "f64", "--dump-state", "exact")
        run(*train, "--state", "wide", "--steps", "4", "--numerics", "f64", "--dump-state", "gone")
        for name in set(load("exact")) - {"h", "z", "optimizer.exp_avg.z", "optimizer.exp_avg_sq.z", "optimizer.momentum_buffer.z"}:
            assert max(abs(a - b) for a, b in zip(load("exact")[name], load("gone")[name])) < 1e-2, name
        run(*train, "--state", "half", "--steps", "4", "--compare", "g.txt", "--bitwise")
        run(*batches, "--state", "half")                       # moments are of no use without an optimizer
        run("--inputs", "half", "--inputs", "x0", "--dump-inputs", "again")  # and the values alone are inputs
        assert load("again")["w"] == load("half")["w"]
    run(*batches, "--state", "half", "--optimizer", "adamw", message="half has nothing that this optimizer keeps: it begins anew")
    run(*batches, "--optimizer", "adamw", "--dump-state", "half")
    whole = open("half", "rb").read()
    with open("cut", "wb") as f:
        f.write(whole.replace(b"optimizer.exp_avg_sq.h", b"optimizer.exp_avg_sq.i").replace(b"layer.h", b"layer.i"))
    run(*batches, "--state", "cut", "--optimizer", "adamw", code=3)
    for old, bad, message in ((b'"step":"1"', b'"step":"x"', "`step`: \"x\", which is not a number of steps"),
                              (b'"optimizer.updates":"1"', b'"optimizer.updates":"-"', "`optimizer.updates`: \"-\"")):
        assert old in whole
        with open("bad", "wb") as f:
            f.write(whole.replace(old, bad))
        run(*batches, "--state", "bad", "--optimizer", "adamw", code=3, message=message)
    tensors = {name: ("F32", [3, 4], [0.5] * 12) for name in ("w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w")}
    safetensors("part", tensors, metadata={"optimizer": "adamw", "optimizer.updates": "3", "step": "0"})
    run("--state", "part", *batches, "--optimizer", "adamw", code=3, message=r"part: error: it has no `exp_avg` of `layer.h` \(%h\)")


@case
def dumped_inputs_hold_numbers_and_are_there_when_a_watch_ends_the_run():
    with open("g.txt", "w") as f:
        f.write('sg 1.0 world 1\ngraph rank *\n  input %n : int "n"\n  input %f : float "f"\n  param %w : f32[4] stride [2] "m.w"\n'
                "  %a = aten.mul.Tensor(%w, %n)\n  %b = aten.add.Tensor(%a, %f)\n  %c = aten.log(%b)\n  output %c\n")
    safetensors("in", {"n": ("I64", [], [3]), "f": ("F64", [], [-0.5]), "m.w": ("F32", [4], [1, 2, 0, 4])})
    run("--inputs", "in", "--watch", "nan", "--dump-inputs", "seen", code=1, message="%c has 1 NaN")
    assert load("seen") == {"n": (3,), "f": (-0.5,), "w": (1, 2, 0, 4)}, load("seen")
    run("--inputs", "seen", "--watch", "nan", code=1, message="%c has 1 NaN")
