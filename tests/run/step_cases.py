"""Cases of run_data_tests.py: several steps, with optimizers, a file a step, what one step leaves the next."""
import json
import os
import shutil
import subprocess
import time

from support import case, given, graph, inputs, load, run, safetensors


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
    for bad, message in (("adam", "there is no optimizer `adam`"), ("sgd:rate=1", "not an option of sgd"),
                         ("sgd:lr=x", "not a number")):
        run("--inputs", "in", "--optimizer", bad, code=2, message=message)


@case
def several_losses_are_shown_by_their_places():
    with open("g.txt", "w") as f:
        f.write("sg 1.0\ngraph rank *\n  input %x : f32[2] \"x\"\n  param %w : f32[2] \"w\"\n"
                "  %d = aten.dot(%x, %w)\n  %n = aten.neg(%d)\n  %s = aten.mul.Tensor(%x, 2.0)\n"
                "  loss %d\n  output %s\n  loss %n\n  grad %x of %w\n")
    safetensors("in", {"x": ("F32", [2], [1, 2]), "w": ("F32", [2], [3, 4])})
    run("--inputs", "in", "--steps", "2", "--optimizer", "sgd:lr=1", out="rank 0  out0 11 -> 6, out2 -11 -> -6\n")
    report = json.loads(run("--inputs", "in", "--json").stdout)["ranks"][0]
    assert report["losses"] == [] and report["numbers"] == [{"name": "out0", "steps": [11]}, {"name": "out2", "steps": [-11]}]


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


@case
def each_step_may_be_compared():
    graph()
    safetensors("all", inputs())
    for step, row in enumerate([[1, 0, 0, 0, 1, 0], [0, 0, 2, 0, 3, 0]]):
        safetensors(f"x{step}", {"x": ("F32", [2, 3], row)})
    steps = ("--inputs", "all", "--inputs", "x{step}", "--steps", "2")
    run(*steps, "--outputs", "want{step}")
    run(*steps, "--expect", "want{step}", out=r"step 0  all 3 compared .*\n(step 1  ok .*\n)*step 1  all 3 ")
    run(*steps, "--expect", "want1", out=r"compared with the last of 2 steps\n(ok .*\n)*all 3 ")
    os.replace("want0", "want1")
    run(*steps, "--expect", "want{step}", code=3, message="want0")
    shutil.copy("want1", "want0")
    run(*steps, "--expect", "want{step}", code=1, out=r"step 0  all 3 .*\n(step 1  FAIL .*\n)+step 1  3 of 3 ")


@case
def a_file_of_the_step_takes_precedence():
    """In either order; two files of the step may not both have a tensor."""
    graph()
    safetensors("all", inputs())
    rows = [[1, 0, 0, 0, 1, 0], [0, 0, 2, 0, 3, 0]]
    for step, row in enumerate(rows):
        safetensors(f"x{step}", {"x": ("F32", [2, 3], row)})
    for files in (["all", "x{step}"], ["x{step}", "all"]):
        run(*(word for file in files for word in ("--inputs", file)), "--steps", "2", "--outputs", "of{step}")
        for step, row in enumerate(rows):
            safetensors("in", inputs(**{"x": ("F32", [2, 3], row)}))
            run("--inputs", "in", "--outputs", "alone")
            assert load(f"of{step}")["out1"] == load("alone")["out1"]
    run("--inputs", "all", "--inputs", "x{step}", "--inputs", "./x{step}", code=3, message="are the same graph input")


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
def a_step_that_updates_its_parameters_is_not_updated_twice():
    text = ('  param %w : f32[2] "w"\n  input %x : f32[2] "x"\n  forward -\n    %y = aten.mul.Tensor(%w, %x) : f32[2]\n    %l = aten.sum.default(%y) : f32[]\n'
            '  backward -\n    %g = aten.mul.Tensor(%x, 1.0) : f32[2]\n  optimizer -\n    %n = aten.add_.Tensor(%w, %g, alpha=-0.1) : f32[2]\n  loss %l\n  grad %g of %w\n')
    with open("own.txt", "w", encoding="utf-8") as f:
        f.write('sg 1.0 job "t" world 1\n\ngraph rank *\n' + text)
    run("--init", "seed:0", "--steps", "2", graph="own.txt")
    run("--init", "seed:0", "--steps", "2", "--optimizer", "sgd:lr=0.1", code=2, graph="own.txt",
        message="--optimizer: the step updates `w` .%w. itself, at .*%n")


@case
def tokens_are_what_an_embedding_looks_up():
    head = 'sg 1.0\ngraph rank *\n  param %w : f32[8, 4] "w"\n  input %ids : i64[3] "ids"\n  input %edges : i64[2, 9] "edges"\n'
    rows = "  %rows = aten.index_select(%x, 0, %e)\n  %l = aten.sum(%rows)\n  loss %l\n"
    edges = "  %e = aten.select.int(%edges, 0, 1)\n" + rows
    looked_up = "  %cast = aten._to_copy(%ids, dtype=i64)\n  %x = aten.embedding(%w, %cast)\n"
    # A rank's part of a vocabulary: rows 8 to 15 of 16.
    part = ("  %ge = aten.ge.Scalar(%ids, 8)\n  %lt = aten.lt.Scalar(%ids, 16)\n  %in = aten.bitwise_and.Tensor(%ge, %lt)\n"
            "  %own = aten.sub.Tensor(%ids, 8)\n  %zero = aten.zeros_like(%own, pin_memory=false)\n"
            "  %row = aten.where.self(%in, %own, %zero)\n  %x = aten.embedding(%w, %row)\n")
    for name, text, tokens in (("graph", "  %x = aten.neg(%w)\n" + edges, 0), ("looked_up", looked_up + edges, 3), ("part", part + edges, 3)):
        with open(name, "w") as f:
            f.write(head + text)
        said = run("--init", "seed:0", graph=name).stdout
        assert ("tokens/s" in said) == (tokens > 0), (name, said)
        assert json.loads(run("--init", "seed:0", "--json", graph=name).stdout)["tokens"] == tokens, name


@case
def a_file_that_is_shortened_meanwhile_ends_the_run_with_its_name():
    with open("g.txt", "w") as f:
        f.write('sg 1.0\ngraph rank *\n  input %x : f32[100000] "x"\n  %y = aten.abs(%x)\n  output %y\n')
    header = '{"x":{"dtype":"F32","shape":[100000],"data_offsets":[0,400000]}}'
    safetensors("in.safetensors", {"x": ("F32", [100000], [0.5] * 100000)}, header + " " * (-len(header) % 8))  # aligned, so that nothing is copied
    command = [os.path.join(given.bin, "sg-run"), "g.txt", "--inputs", "in.safetensors", "--steps", "100000", "--outputs", "o{step}.safetensors"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while len(os.listdir(".")) < 4 and running.poll() is None:  # outputs of two steps, under names for the time being
            time.sleep(0.001)
        os.truncate("in.safetensors", 0)
        said = running.communicate(timeout=30)[1]
    finally:
        running.kill()
    assert running.returncode == 3, f"exit {running.returncode}: {said}"
    assert said.endswith("in.safetensors: error: it became shorter while it was read\n"), said
    assert sorted(os.listdir(".")) == ["g.txt", "in.safetensors"], os.listdir(".")
