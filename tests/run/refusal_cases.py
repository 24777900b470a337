"""Cases of run_data_tests.py: what is refused before anything runs."""
import resource
import time

from support import case, graph, inputs, load, run, safetensors

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
def what_cannot_run_is_named_by_the_graph_that_it_is_in():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0
graph rank *
  input %x : f32[4] "x"
  %a, = sg.call(graph:body, [%x])
  output %a
graph rank * nested body
  input %y : f32[4]
  %c = aten.abs(%y)
  %d = aten.abs(%c)
  %f = mine.op(%d) : f32[4]
  output %f
""")
    run("--init", "seed:1", code=4, message=r"cannot run: mine.op.default \(not in the op table, first %f\)")


@case
def a_size_that_only_the_data_decides_wants_a_symbol():
    for line, code in (("%y = aten.nonzero(%x)", 4), ("%y = aten.nonzero(%x) : i64[u0, 2]", 0)):
        with open("g.txt", "w") as f:
            f.write(f'sg 1.0\ngraph rank *\n  symbol u0 data [0, inf]\n  input %x : f32[2, 3] "x"\n  {line}\n  output %y\n')
        run("--init", "seed:1", code=code, message=r"as in `symbol u0 data \[0, inf\]`" if code else None)


@case
def float8_is_refused_where_nothing_computes_with_it():
    for line, message in (("%y = aten.add.Tensor(%x, %x)", r"cannot run: aten.add.Tensor \(float8 is stored, converted and multiplied alone, first %y\)"),
                          ("%y = aten.sum(%x)", r"aten.sum.default \(float8"), ("%y = aten.t(%x)", None)):
        with open("g.txt", "w") as f:
            f.write(f'sg 1.0\ngraph rank *\n  input %x : f8e5m2[2, 3] "x"\n  {line}\n  output %y\n')
        run("--init", "seed:1", code=4 if message else 0, message=message)


@case
def what_draws_random_numbers_again_is_refused_with_what_to_import():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0
graph rank *
  input %x : f32[4]
  %s, %r = higher_order.run_and_save_rng_state(op:aten.native_dropout.default, %x, 0.5, true) : u8[16], f32[4]
  output %r
""")
    run("--init", "seed:1", code=4, message="import the joint graph")


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


@case
def no_step_writes_over_a_file_that_the_run_reads():
    graph()
    safetensors("in1.safetensors", inputs())
    run("--inputs", "in1.safetensors", "--outputs", "in{step}.safetensors", "-n", "2", code=2,
        message="--outputs would replace in1.safetensors, which is given as --inputs")
    run("--init", "seed:0", "--outputs", "o.safetensors", "--dump-nodes", "o.safetensors", code=2,
        message="--outputs and --dump-nodes would both write o.safetensors")


# Which of two sizes ends a slice is as at capture. A larger one would read what lies behind the view.
VIEWS = """sg 1.0
graph rank *
  symbol b input [2, 64] hint 18
  symbol l input [2, 64] hint 10
  symbol u data [0, 64] hint 5
  input %x : f32[b] "x"
  input %y : f32[l] "y"
  input %i : i64[1] "i"
  %v = aten.slice.Tensor(%x, 0, 0, b//2)
  %u = aten.item(%i) : int u
  SLICE
  %r = aten.clone(%s)
  output %r
"""


@case
def a_view_ends_where_its_op_says_for_the_sizes_of_the_run():
    for line in ("%s = aten.slice.Tensor(%v, 0, 0, l//2)", "%s = aten.slice.Tensor(%v, 0, 0, u) : f32[u]"):
        with open("g.txt", "w") as f:
            f.write(VIEWS.replace("SLICE", line))
        for size, message in ((18, None), (8, r"%s = aten.slice.Tensor: result %s has the shape \[5\], but the op gives \[4\]")):
            safetensors("in.safetensors", {"x": ("F32", [size], range(size)), "y": ("F32", [10], [0] * 10), "i": ("I64", [1], [5])})
            run("-i", "in.safetensors", code=4 if message else 0, message=message)


@case
def elements_that_share_a_place_are_not_made_up_one_by_one():
    text = """sg 1.0
graph rank *
  input %%x : f32[1000000, 1000000] stride [%s] "x"
  %%a = aten.select.int(%%x, 0, 3)
  %%b = aten.slice.Tensor(%%a, 0, 0, 4)
  %%c = aten.clone(%%b)
  output %%c
"""
    for strides in ("0, 1", "0, 0", "1, 0"):
        with open("g.txt", "w") as f:
            f.write(text % strides)
        run("--init", "seed:0", "--outputs", "o.safetensors")
    with open("g.txt", "w") as f:
        f.write(text % "1, 1")
    run("--init", "seed:0", code=4, message="its strides put 1000000000000 elements into 1999999 places")
    with open("g.txt", "w") as f:                       # of each place its last element, as if all were written
        f.write("sg 1.0\ngraph rank *\n  input %x : f32[3, 2] stride [0, 1] \"x\"\n  output %x\n")
    run("--init", "seed:0", "--outputs", "shared.safetensors")
    with open("g.txt", "w") as f:
        f.write("sg 1.0\ngraph rank *\n  input %x : f32[3, 2] \"x\"\n  output %x\n")
    run("--init", "seed:0", "--outputs", "own.safetensors")
    assert load("shared.safetensors")["out0"] == 3 * load("own.safetensors")["out0"][4:]


@case
def ranks_that_get_no_thread_are_refused_at_once():
    with open("g.txt", "w") as f:
        f.write("sg 1.0 world 65536\ngraph rank *\n  input %x : f32[1] \"x\"\n  output %x\n")

    def few():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))     # a thread takes 8 MiB of addresses
    begin = time.monotonic()
    run("--init", "seed:0", "--dry-run", code=5, message=r"only \d+ threads for 65,?536 ranks could be started", preexec_fn=few)
    assert time.monotonic() - begin < 50


@case
def options_without_a_value_are_refused():
    graph()
    for option, said in (("--watch", "--watch is empty"), ("--outputs", "--outputs is empty"), ("--inputs", "--inputs is empty"),
                         ("--profile", "--profile is empty"), ("--expect", "--expect is empty")):
        run("--init", "seed:0", option, "", code=2, message=said)


@case
def what_the_capture_of_the_inputs_expects_is_not_replaced():
    graph()
    safetensors("inputs.safetensors", inputs())
    safetensors("expected.safetensors", {"loss": ("F32", [], [1.0])})
    before = open("expected.safetensors", "rb").read()
    for option in "--outputs", "--profile", "-o":
        run("--inputs", "inputs.safetensors", "--compare", "g.txt", option, "expected.safetensors", code=2,
            message="would replace expected.safetensors, which is what the capture of the inputs expects|the output expected")
    assert before == open("expected.safetensors", "rb").read()


@case
def draws_by_parameters_that_are_none_are_refused():
    for call, message in (("uniform(%x, 5.0, 1.0)", r"no number lies in \[5"), ("exponential(%x, 0.0)", "lambd is not above 0"),
                          ("cauchy(%x, 0.0, -1.0)", "sigma is not above 0"), ("log_normal(%x, 0.0, 0.0)", "std is not above 0"),
                          ("normal_functional(%x, 0.0, -2.0)", "std is below 0"),
                          ("randint.low(0, 300, [4], dtype=u8)", r"u8 does not hold all integers in \[0, 300\)"),
                          ("randint(100000, [4], dtype=f16)", "f16 does not hold all"),
                          ("randperm(300, dtype=i8)", r"i8 does not hold all integers in \[0, 300\)")):
        with open("g.txt", "w") as f:
            f.write(f'sg 1.0\ngraph rank *\n  input %x : f32[4] "x"\n  forward -\n    %y = aten.{call} stream 1\n  output %y\n')
        run("--init", "seed:0", code=4, message=message)
    for call in ("uniform(%x, 2.0, 2.0)", "normal_functional(%x, 1.0, 0.0)", "randint.low(0, 256, [4], dtype=u8)", "randperm(128, dtype=i8)"):
        with open("g.txt", "w") as f:
            f.write(f'sg 1.0\ngraph rank *\n  input %x : f32[4] "x"\n  forward -\n    %y = aten.{call} stream 1\n  output %y\n')
        run("--init", "seed:0")
