#!/usr/bin/env python3
"""Values in and out of sg-run, as a user meets them: files, names, exit codes. Needs nothing but Python.

run_data_tests.py --bin DIR [NAME...]      NAME runs only the cases whose name contains it.
"""
import argparse
import json
import os
import pickle
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import Cases  # noqa: E402

BIN = None
CASES = Cases()
case = CASES.add

# Loss of a linear layer, its gradient, a counter; one guard between two sizes.
GRAPH = """sg 1.0 job "t" world %(world)d

graph rank *
  symbol s0 input [1, 64] hint 2
  symbol s1 input [1, 64] hint 2
  guard s0 == s1
  param %%w : f32[3, 4] "layer.weight"
  buffer %%count : i64[] "layer.count"
  input %%x : f32[s0, 3] "x"
  input %%labels : i64[s1] "labels"

  forward layer
    %%y = aten.mm(%%x, %%w)
    %%p = aten._log_softmax(%%y, 1, false)
    %%loss, %%total = aten.nll_loss_forward(%%p, %%labels, none, 1, -100)
    %%more = aten.add_.Tensor(%%count, 1)
  backward layer
    %%one = aten.ones_like(%%loss, pin_memory=false)
    %%d = aten.nll_loss_backward(%%one, %%p, %%labels, none, 1, -100, %%total)
    %%e = aten._log_softmax_backward_data(%%d, %%p, 1, f32)
    %%t = aten.t(%%x)
    %%g = aten.mm(%%t, %%e)

  loss %%loss
  grad %%g of %%w
"""


def safetensors(path, tensors, header=None):
    """tensors: {name: (dtype, shape, numbers)}"""
    kinds = {"F32": "f", "F16": "e", "F64": "d", "I64": "q", "I32": "i", "BOOL": "?", "U8": "B"}
    entries, data = {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        if dtype == "BF16":
            piece = b"".join(struct.pack("<f", number)[2:] for number in numbers)
        else:
            piece = struct.pack(f"<{len(numbers)}{kinds[dtype]}", *numbers)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = (header or json.dumps(entries)).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as f:
        raw = f.read()
    size = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F32": ("f", 4), "F64": ("d", 8), "I64": ("q", 8), "I32": ("i", 4), "U64": ("Q", 8),
             "F16": ("e", 2), "BF16": ("H", 2)}                           # the latter as bits
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        letter, width = kinds[entry["dtype"]]
        begin, end = entry["data_offsets"]
        out[name] = struct.unpack(f"<{(end - begin) // width}{letter}", raw[8 + size + begin:8 + size + end])
    return out


def inputs(rows=2, **changes):
    out = {"layer.weight": ("F32", [3, 4], [0.1 * i - 0.5 for i in range(12)]), "count": ("I64", [], [5]),
           "x": ("F32", [rows, 3], [0.3 * i - 0.4 for i in range(3 * rows)]), "labels": ("I64", [rows], [1] * rows)}
    out.update(changes)
    return {name: value for name, value in out.items() if value is not None}


def graph(world=1):
    with open("g.txt", "w") as f:
        f.write(GRAPH % {"world": world})


def run(*args, code=0, message=None, out=None, graph="g.txt"):
    done = subprocess.run([os.path.join(BIN, "sg-run"), graph, *args], capture_output=True, text=True, timeout=60)
    said = f"\nstdout: {done.stdout[:800]}\nstderr: {done.stderr[:1200]}"
    assert done.returncode == code, f"exit {done.returncode}, not {code}{said}"
    assert message is None or re.search(message, done.stderr), f"no /{message}/ in stderr{said}"
    assert out is None or re.search(out, done.stdout), f"no /{out}/ in stdout{said}"
    return done


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
    run("--inputs", "none", code=3, message="none: error: cannot read")


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
    run("--inputs", "in", "--expect", "e", code=3, message="the graph has no `out2`")


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
def an_optimizer_lowers_the_loss_and_nothing_else_does():
    graph()
    safetensors("in", inputs())
    losses = {}
    for spec in (None, "sgd:lr=0.5", "adamw:lr=0.1,betas=0.9,0.95"):
        more = ["--optimizer", spec] if spec else []
        run("--inputs", "in", "--steps", "4", "--outputs", "s{step}", *more)
        losses[spec] = [load(f"s{step}")["out0"][0] for step in range(4)]
        assert [load(f"s{step}")["mutated.count"][0] for step in range(4)] == [6, 7, 8, 9]
    assert len(set(losses[None])) == 1
    for spec in ("sgd:lr=0.5", "adamw:lr=0.1,betas=0.9,0.95"):
        assert losses[spec][0] == losses[None][0] and sorted(losses[spec], reverse=True) == losses[spec], losses
    run("--inputs", "in", "--steps", "4", "--optimizer", "sgd:lr=0.5", "--numerics", "f64", "--outputs", "wide")
    run("--inputs", "in", "--steps", "4", "--optimizer", "sgd:lr=0.5", "--outputs", "last")
    assert abs(load("wide")["out0"][0] - load("last")["out0"][0]) < 1e-5
    for bad, message in (("adam", "there is no `adam`"), ("sgd:rate=1", "no option of sgd"),
                         ("sgd:lr=x", "not a number")):
        run("--inputs", "in", "--optimizer", bad, code=2, message=message)


@case
def steps_may_have_files_of_their_own():
    graph()
    first = inputs()
    safetensors("in0", first)
    safetensors("in1", {"x": ("F32", [2, 3], [1, 0, 0, 0, 1, 0])})          # the rest stays
    safetensors("in2", inputs(**{"x": ("F32", [2, 3], [1, 0, 0, 0, 1, 0])}))
    run("--inputs", "in{step}", "--steps", "2", "--outputs", "out{step}")
    run("--inputs", "in2", "--outputs", "alone")
    assert load("out1")["out1"] == load("alone")["out1"] != load("out0")["out1"]
    safetensors("in1", {"x": ("F32", [3, 3], [0] * 9)})
    run("--inputs", "in{step}", "--steps", "2", code=3, message="another shape than at step 0")


def steps_of(text, tensors, count, *options):
    """The last `output`s of each step, as lists; what else it gives (updates, gradients) comes before them."""
    with open("h.txt", "w", encoding="utf-8") as f:
        f.write("sg 1.0\ngraph rank *\n" + text)
    safetensors("h.in", {name: (*(dtype or ["F32"]), shape, numbers) for name, (shape, numbers, *dtype) in tensors.items()})
    run("--inputs", "h.in", "--outputs", "h.{step}", "--steps", str(count), *options, graph="h.txt")
    last = text.count("\n  output ")
    return [[list(values) for _, values in sorted(load(f"h.{step}").items())][-last:] for step in range(count)]


@case
def buffers_are_carried_as_the_step_left_them():
    two = {"a": ([2], [1, 2]), "b": ([2], [3, 4])}
    head = '  buffer %a : f32[2] "a"\n  buffer %b : f32[2] "b"\n'
    # Values that are other buffers: both are read before either is written.
    swapped = steps_of(head + "  update %b of %a\n  update %a of %b\n  output %a\n  output %b\n", two, 3)
    assert swapped == [[[1, 2], [3, 4]], [[3, 4], [1, 2]], [[1, 2], [3, 4]]], swapped
    delayed = steps_of(head + "  %n = aten.add.Tensor(%a, %a) : f32[2]\n  update %n of %a\n  update %a of %b\n  output %b\n", two, 4)
    assert delayed == [[[3, 4]], [[1, 2]], [[2, 4]], [[4, 8]]], delayed
    # A view of itself lies in the same place, and is another value.
    turned = steps_of('  buffer %m : f32[2, 2] "m"\n  %t = aten.t(%m) : f32[2, 2] stride [1, 2]\n'
                      '  %c = aten.clone(%m, memory_format=contiguous_format) : f32[2, 2]\n  update %t of %m\n  output %c\n', {"m": ([2, 2], [1, 2, 3, 4])}, 3)
    assert turned == [[[1, 2, 3, 4]], [[1, 3, 2, 4]], [[1, 2, 3, 4]]], turned


@case
def gradients_are_what_the_step_left_too():
    """One that lies in a buffer is read before the buffer is carried on."""
    text = ('  param %w : f32[2] "w"\n  buffer %b : f32[2] "b"\n  %n = aten.add.Tensor(%b, 10) : f32[2]\n'
            '  %o = aten.mul.Tensor(%w, 1.0) : f32[2]\n  backward -\n    %g = aten.view(%b, [2]) : f32[2]\n'
            '  update %n of %b\n  grad %g of %w\n  output %o\n')
    seen = steps_of(text, {"w": ([2], [0, 0]), "b": ([2], [1, 2])}, 3, "--optimizer", "sgd:lr=1")
    assert [step[0] for step in seen] == [[0, 0], [-1, -2], [-12, -14]], seen


@case
def a_narrow_parameter_that_somebody_writes_stays_written():
    """The wider copy that an optimizer keeps of it counts for as long as nobody else has written."""
    text = ('  param %w : DTYPE[2] "w"\n  input %x : f32[2] "x"\n  %o = aten._to_copy(%w, dtype=f32) : f32[2]\n'
            '  %c = aten.mul_.Scalar(%w, 0.5) : DTYPE[2]\n  backward -\n    %g = aten._to_copy(%x, dtype=DTYPE) : DTYPE[2]\n'
            '  grad %g of %w\n  output %o\n')
    values = lambda dtype, *w: {"w": ([2], w, dtype), "x": ([2], [1, 1])}
    right = [[16, 32], [7, 15], [2.5, 6.5], [0.25, 2.25]]
    for dtype in ("f32", "bf16", "f16"):
        seen = steps_of(text.replace("DTYPE", dtype), values(dtype.upper(), 16, 32), 4, "--optimizer", "sgd:lr=1")
        assert [step[0] for step in seen] == right, (dtype, seen)
    # Small updates are not lost to the narrow type: 256 steps of 1/256 from -1 are -2.
    small = steps_of(text.replace("DTYPE", "bf16").replace("mul_.Scalar(%w, 0.5)", "mul_.Scalar(%w, 1.0)"),
                     values("BF16", -1, -1), 257, "--optimizer", "sgd:lr=0.00390625")
    assert small[256][0] == [-2, -2], small[256]


@case
def steps_are_compared_at_the_last_of_them():
    text = '  param %w : f32[2] "w"\n  input %x : f32[2] "x"\n  %y = aten.mul.Tensor(%w, %x) : f32[2]\n  backward -\n    %g = aten.mul.Tensor(%x, 1.0) : f32[2]\n  grad %g of %w\n  output %y\n'
    values = {"w": ([2], [16, 32]), "x": ([2], [1, 1])}
    steps_of(text, values, 3, "--optimizer", "sgd:lr=1")
    out = run("--inputs", "h.in", "--steps", "3", "--optimizer", "sgd:lr=1", "--compare", "h.txt", "--bitwise", graph="h.txt")
    assert "2 results equal to the bit" in str(out) and "differ" not in str(out), out


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


CALLS = """sg 1.0 job "t" world 1

graph rank *
  input %k : f32[4]
  forward -
    %a, = sg.call(graph:body, [%k])  : f32[4]
    %b, = sg.call(graph:body, [%a])  : f32[4]
  output %b

graph rank * nested body
  input %x : f32[4]
  forward -
    %y = aten.mul.Tensor(%x, FACTOR)  : f32[4]
  output %y
"""


@case
def a_graph_equals_itself_and_the_first_other_node_is_named():
    for name, factor in (("g.txt", "2.0"), ("three", "3.0")):
        with open(name, "w") as f:
            f.write(CALLS.replace("FACTOR", factor))
    run("--compare", "g.txt", "--init", "seed:0", out="4 results equal to the bit")
    run("--compare", "three", "--init", "seed:0", code=1, out="4 differ, first %a/y = aten.mul.Tensor")


# Bits of 2 x shifted as an integer's; bits of any kind taken apart into halves and put together again, in a body.
BITS = """sg 1.0 job "t" world 1

graph rank *
  symbol s0 input [1, 64] hint 3
  input %x : f32[2, s0] "x"
  input %raw : i32[2, s0] "raw"

  forward -
    %d = aten.mul.Tensor(%x, 2)
    %t = aten.t(%d)
    %i = aten.view.dtype(%t, i32)
    %half = aten.bitwise_right_shift.Tensor_Scalar(%i, 1)
    %y = aten.view.dtype(%half, f32)
    %z = aten.mul.Tensor(%y, 3)
    %f = aten.view.dtype(%raw, f32)
    %back, = sg.call(graph:halves, [%f])  : i32[2, s0]

  output %z
  output %back
  output %i

graph rank * nested halves
  input %f : f32[2, s0]

  forward -
    %b = aten.view.dtype(%f, bf16)
    %c = aten.clone(%b)
    %r = aten.view.dtype(%c, f32)
    %k = aten.view.dtype(%r, i32)

  output %k
"""


@case
def bits_of_doubles_are_those_of_the_recorded_type():
    with open("g.txt", "w") as f:
        f.write(BITS)
    x = [0.1, -0.7, 3.3, 1e-3, 5.5, -2.25]
    raw = [0x3f80ff81, 0x3f807f81, 0x12345678, -1, 0x7f800001, 0]   # halves that look like NaNs
    safetensors("in", {"x": ("F32", [2, 3], x), "raw": ("I32", [2, 3], raw)})
    as_f32 = lambda value: struct.unpack("<f", struct.pack("<f", value))[0]
    bits = [struct.unpack("<i", struct.pack("<f", 2 * as_f32(value)))[0] for value in x]
    turned = [bits[i] for i in (0, 3, 1, 4, 2, 5)]
    for numerics in ("fast", "f64"):
        run("--inputs", "in", "--numerics", numerics, "--outputs", "out")
        values = load("out")
        assert list(values["out2"]) == turned, values["out2"]
        assert list(values["out1"]) == raw, (numerics, values["out1"])
        halves = [struct.unpack("<f", struct.pack("<i", b >> 1))[0] for b in turned]
        if numerics == "f64":
            assert list(values["out0"]) == [3 * y for y in halves], values["out0"]
    run("--inputs", "in", "--expect", "out")


WRITES = """sg 1.0 job "t" world 1

graph rank *
  input %x : f32[4] "x"
  forward -
    %a = aten.mul.Tensor(%x, 2)
    %i = aten.view.dtype(%a, i32)
STEPS
  output %y
"""


@case
def a_write_that_a_copy_of_bits_would_miss_is_refused_in_double():
    safetensors("in", {"x": ("F32", [4], [1, 2, 3, 4])})
    for steps, missed_by in (
            (["%w = aten.add_.Tensor(%a, 1)", "%y = aten.add.Tensor(%i, 1)"], "%i"),
            (["%w = aten.add_.Tensor(%i, 1)", "%y = aten.add.Tensor(%a, 1)"], "%a"),
            (["%j = aten.view.dtype(%x, i32)", "%w = aten.add_.Tensor(%j, 1)", "%y = aten.neg(%w)"], "%x"),
            (["%y = aten.add.Tensor(%i, 1)", "%w = aten.add_.Tensor(%a, 1)"], None),
            (["%w = aten.add_.Tensor(%i, 1)", "%y = aten.neg(%w)"], None),
            (["%w = aten.add_.Tensor(%a, 1)", "%j = aten.view.dtype(%w, i32)", "%y = aten.add.Tensor(%j, 1)"], None)):
        with open("g.txt", "w") as f:
            f.write(WRITES.replace("STEPS", "\n".join("    " + step for step in steps)))
        run("--inputs", "in", "--outputs", "recorded")
        if missed_by:
            run("--inputs", "in", "--numerics", "f64", code=4, message=f"%w = \\S+ writes memory that {missed_by} ")
            continue
        run("--inputs", "in", "--numerics", "f64", "--outputs", "double")
        assert load("double") == load("recorded")


# Attention as a GPU's step has it: what was dropped is handed to the backward op as random state of 64 bits without sign.
DROPS = """sg 1.0 job "t" world 1

graph rank *
  input %q : f32[2, 4, 16, 8] "q"
  input %k : f32[2, 4, 16, 8] "k"
  forward -
    %o, %l, %cq, %ck, %mq, %mk, %rng, %unused, %debug = aten._scaled_dot_product_flash_attention(%q, %k, %k, 0.3, true)  stream 1
    %state = aten.detach(%rng)
    %g = aten.ones_like(%o, pin_memory=false)
    %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_backward(%g, %q, %k, %k, %o, %l, none, none, %mq, %mk, 0.3, true, %state, %unused)
    MORE
  output %o
  output %dq
  output %dv
  output %state
"""


@case
def dropout_inside_attention_is_the_same_on_the_way_back():
    with open("g.txt", "w") as f:
        f.write(DROPS.replace("    MORE\n", ""))
    run("--init", "seed:1", "--outputs", "one", "--threads", "1")
    run("--init", "seed:1", "--expect", "one", "--bitwise", "--threads", "4", out="all 4 compared values")
    run("--init", "seed:1", "--expect", "one", "--numerics", "f64", out="all 4 compared values")
    run("--init", "seed:1", "--expect", "one", "--seed", "5", code=1, out=r"out3(.|\n)*4 of 4 compared values are not")
    for step in ("%more = aten.add.Tensor(%rng, 1)", "%more = aten.clone(%rng)", "%more = aten.eq.Scalar(%rng, 0)",
                 "%more = aten._neg_view(%rng)"):
        with open("g.txt", "w") as f:
            f.write(DROPS.replace("MORE", step))
        run("--init", "seed:1", code=4, message=r"cannot run: aten\.\S+ \(.*dtype u64, first %more\)")


# What flex attention calls for a score; MOD stands for a step of it.
FLEX = """sg 1.0 job "t" world 1

graph rank *
  input %q : f32[1, 1, 4, 8] "q"
  %o, %l, %m = higher_order.flex_attention(%q, %q, %q, graph:score, [4, 4, graph:mask], 0.5, {}, [], [])
  output %o

graph rank * nested score
  input %s : f32[]
  input %b : i32[]
  input %h : i32[]
  input %i : i32[]
  input %j : i32[]
  MOD
  output %t

graph rank * nested mask
  input %b : i32[]
  input %h : i32[]
  input %i : i32[]
  input %j : i32[]
  %t = aten.ge.Tensor(%i, %j)
  output %t
"""


@case
def a_nested_graph_that_cannot_run_is_refused_before_anything_runs():
    for step, refused in (("%t = aten.mul.Tensor(%s, 2)", None),
                          ("%t = mine.soft_cap(%s) : f32[]", "mine.soft_cap.default is not in the op table"),
                          ("%t = aten.add_.Tensor(%s, 1)", "aten.add_.Tensor cannot run")):
        with open("g.txt", "w") as f:
            f.write(FLEX.replace("MOD", step))
        message = refused and rf"cannot run: \S+flex_attention \(%t: {refused} inside a nested graph, first %o\)"
        run("--init", "seed:1", code=4 if refused else 0, message=message)


@case
def bits_that_are_seen_as_float8_stay_what_they_are():
    """Whatever moves them: NaNs too, which e5m2 has three of, and in double."""
    formats = "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"
    lines = [f"  %f{i} = aten.view.dtype(%x, {f})\n  %a{i} = sg.offload(%f{i})\n  %p{i} = sg.wait(%a{i})\n  %b{i} = sg.reload(%p{i}, device=cpu)\n  %q{i} = sg.wait(%b{i})\n  %c{i} = aten.clone(%q{i})\n"
             f"  %t{i} = aten.t(%c{i})\n  %d{i} = aten.cat([%t{i}, %t{i}])\n  %u{i} = aten.view.dtype(%d{i}, u8)\n" for i, f in enumerate(formats)]
    with open("g.txt", "w") as f:
        f.write('sg 1.0\ngraph rank *\n  input %x : u8[16, 16] "x"\n' + "".join(lines) + "".join(f"  output %u{i}\n" for i in range(4)))
    turned = [16 * (i % 16) + i // 16 for i in range(256)] * 2
    safetensors("x.safetensors", {"x": ("U8", [16, 16], list(range(256)))})
    safetensors("e.safetensors", {f"out{i}": ("U8", [32, 16], turned) for i in range(4)})
    for numerics in "fast", "f64":
        run("--inputs", "x.safetensors", "--expect", "e.safetensors", "--bitwise", "--numerics", numerics)


@case
def float8_is_refused_where_nothing_computes_with_it():
    for line, message in (("%y = aten.add.Tensor(%x, %x)", r"cannot run: aten.add.Tensor \(float8 is stored, converted and multiplied alone, first %y\)"),
                          ("%y = aten.sum(%x)", r"aten.sum.default \(float8"), ("%y = aten.t(%x)", None)):
        with open("g.txt", "w") as f:
            f.write(f'sg 1.0\ngraph rank *\n  input %x : f8e5m2[2, 3] "x"\n  {line}\n  output %y\n')
        run("--init", "seed:1", code=4 if message else 0, message=message)


@case
def messages_between_two_ranks_are_refused_with_what_to_write():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0 world 2
group @pp [0 1]
graph rank *
  input %x : f32[4]
  %a = _c10d_functional.isend(%x, 1, 0, @pp) : f32[0]
  output %a
""")
    run("--init", "seed:1", code=4, message=r"(?s)cannot run: _c10d_functional.isend.*a collective of all ranks of its group")


# A batch of any size; SIZE is its symbol or a number.
SIZED = """sg 1.0 job "t" world 1

graph rank *
SYMBOL  param %w : f32[3, 4] "layer.weight"
  input %x : f32[SIZE, 3] "x"

  forward layer
    %y = aten.mm(%x, %w)
    %s = aten.sum(%y)
  backward layer
    %o = aten.ones_like(%y, pin_memory=false)
    %t = aten.t(%x)
    %g = aten.mm(%t, %o)
    %h = aten.mul.Tensor(%g, 2.0)

OUTPUTS
"""
RETURNS = {"both": "  loss %s\n  grad %g of %w", "turned": "  grad %g of %w\n  loss %s", "loss": "  loss %s",
           "wrong": "  loss %s\n  grad %h of %w", "other": "  output %y"}


def sized(path, size="s0", returns="both"):
    symbol = "  symbol s0 input [1, 64] hint 2\n" if size == "s0" else ""
    with open(path, "w") as f:
        f.write(SIZED.replace("SYMBOL", symbol).replace("SIZE", size).replace("OUTPUTS", RETURNS[returns]))


@case
def graphs_are_compared_at_one_size():
    sized("g.txt"), sized("five", "5"), sized("six", "6")
    for first, second in (("g.txt", "five"), ("five", "g.txt")):
        run("--compare", second, "--init", "seed:0", graph=first, out="all 2 compared values are as expected")
    run("--compare", "g.txt", "--bind", "s0=9", "--init", "seed:0", out="all 2")
    run("--compare", "g.txt", "--bind", "s0=6", "--init", "seed:0", graph="six", out="all 2")
    run("--compare", "six", "--init", "seed:0", graph="five", code=4,
        message=r"dimension 0 of `?%?x.* is 5 in the first and 6 in the second")
    run("--compare", "five", "--bind", "s0=6", "--init", "seed:0", code=2, message="would be 5 and is bound to 6")
    run("--compare", "five", "--bind", "s9=6", "--init", "seed:0", code=2, message="no symbol `s9`")
    safetensors("in", {"x": ("F32", [7, 3], [0.5] * 21), "w": ("F32", [3, 4], [1] * 12)})
    run("--compare", "g.txt", "--inputs", "in", out="all 2")


@case
def outputs_are_compared_by_what_they_are():
    for returns in RETURNS:
        sized("g." + returns, returns=returns)
    both = lambda second, **kwargs: run("--compare", second, "--init", "seed:0", graph="g.both", **kwargs)
    both("g.turned", out="all 2 compared values are as expected\n")
    both("g.loss", out="all 1 compared values are as expected, 1 have no counterpart\n")
    both("g.wrong", code=1, out=r"FAIL +out1 .*\(gradient of layer.weight\)")
    both("g.other", code=4, message="no output in common")
    run("--compare", "g.both", "--init", "seed:0", graph="g.loss",
        out="all 1 compared values are as expected, 1 not in the file")


@case
def nodes_are_dumped_by_their_modules_and_before_a_watch_ends_the_run():
    sized("g.txt")
    run("--init", "seed:0", "--dump-nodes", "all", "--nodes", "layer")
    assert sorted(load("all")) == ["g", "h", "o", "s", "y"], sorted(load("all"))
    run("--init", "seed:0", "--dump-nodes", "all", "--nodes", "lay", code=2, message="fits no result and no module")
    safetensors("in", {"x": ("F32", [1, 3], [float("nan")] * 3), "w": ("F32", [3, 4], [1] * 12)})
    run("--inputs", "in", "--watch", "nan", "--dump-nodes", "seen", code=1, message="%y has 4 NaN")
    assert sorted(load("seen")) == ["y"], sorted(load("seen"))


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
def nodes_are_dumped_under_the_calls_they_are_in():
    with open("g.txt", "w") as f:
        f.write(CALLS.replace("FACTOR", "2.0"))
    run("--init", "seed:0", "--dump-nodes", "all.safetensors")
    assert sorted(load("all.safetensors")) == ["a", "a/y", "b", "b/y"]
    run("--init", "seed:0", "--watch", "nan,inf")


@case
def a_storage_offset_is_what_the_type_says():
    with open("g.txt", "w") as f:
        f.write('''sg 1.0 job "t" world 1

graph rank *
  input %x : f32[4, 4]
  forward -
    %s = aten.slice.Tensor(%x, 0, 2, 4)
    %o = aten.sym_storage_offset(%s)
    %z = aten.full([], %o, dtype=f32, device=cpu, pin_memory=false)
  loss %z
''')
    run("--init", "seed:0", out="loss 8\n")


@case
def an_input_that_begins_before_its_memory_is_refused():
    with open("g.txt", "w") as f:
        f.write('''sg 1.0 job "t" world 1

graph rank *
  symbol s0 input [1, 100000000] hint 200
  input %k : f32[s0] +s0 - 260
  forward -
    %b = aten.add.Tensor(%k, 1)  : f32[s0]
  output %b
''')
    run("--init", "seed:0", code=4, message="its offset -60 lies before its memory")


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


def main():
    global BIN
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    BIN = os.path.abspath(options.bin)
    return CASES.run(options.names)


if __name__ == "__main__":
    sys.exit(main())
