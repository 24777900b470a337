"""Cases of run_data_tests.py: which numbers come out in double, of bits, of dropout, of memory seen in another way."""
import json
import re
import struct

from support import case, load, run, safetensors

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
    told = json.loads(run("--init", "seed:1", "--expect", "one", "--seed", "5", "--json", code=1).stdout)
    assert not told["passed"] and re.search(r"FAIL +out3(.|\n)*4 of 4 compared values are not", told["text"]), told
    assert "text" not in json.loads(run("--init", "seed:1", "--expect", "one", "--json").stdout)
    for step in ("%more = aten.add.Tensor(%rng, 1)", "%more = aten.clone(%rng)", "%more = aten.eq.Scalar(%rng, 0)",
                 "%more = aten._neg_view(%rng)"):
        with open("g.txt", "w") as f:
            f.write(DROPS.replace("MORE", step))
        run("--init", "seed:1", code=4, message=r"cannot run: aten\.\S+ \(.*dtype u64, first %more\)")


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
