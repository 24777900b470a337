"""Cases of run_data_tests.py: two graphs compared, and nodes dumped."""
import json
import os

from support import case, load, run, safetensors

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


@case
def a_difference_names_the_file_that_records_roundings():
    for name, factor in (("g.txt", "2.0"), ("three", "2.001")):
        with open(name, "w") as f:
            f.write(CALLS.replace("FACTOR", factor))
    os.mkdir("job")
    safetensors("job/inputs.safetensors", {"k": ("F32", [4], [1, 2, 3, 4])})
    compare = lambda *more, **kwargs: run("--compare", "three", "--inputs", "job/inputs.safetensors", *more, code=1, **kwargs)
    assert "hint" not in compare().stdout
    expected = {"out0": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
    safetensors("job/expected.safetensors", {"out0": ("F32", [4], [4, 8, 12, 16])}, json.dumps(expected))
    assert "hint" not in compare().stdout                    # a file, which records none
    expected["__metadata__"] = {"rounding.out0": "0.01"}
    safetensors("job/expected.safetensors", {"out0": ("F32", [4], [4, 8, 12, 16])}, json.dumps(expected))
    compare(out="\nhint: job/expected.safetensors records how far .*--expect job/expected.safetensors in place of --compare")
    for more in (["--bitwise"], ["--rtol", "1e-5"], ["--steps", "2"], ["--numerics", "f64"]):
        assert "hint" not in compare(*more).stdout, more
    run("--expect", "job/expected.safetensors", "--inputs", "job/inputs.safetensors", graph="three", out="the one compared value")


TOP = """sg 1.0 job "t" world 1

graph rank *
  input %k : f32[4]
  %best, %at = aten.topk(%k, 2) label top
  %twice = aten.mul.Tensor(%k, 2.0)
  output %best
  output %twice
"""


@case
def a_difference_behind_a_choice_names_it():
    with open("g.txt", "w") as f:
        f.write(TOP)
    safetensors("in", {"k": ("F32", [4], [1, 2, 3, 4])})
    header = {"out0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
              "out1": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]},
              "__metadata__": {"rounding.out0": "0.01", "rounding.out1": "0.01"}}
    for best, twice, hint in ([4, 3], 2, None), ([4, 2], 2, "hint: %top chooses by values"), ([4, 3], 3, "tells rounding errors"):
        safetensors("want", {"out0": ("F32", [2], best), "out1": ("F32", [4], [twice, 4, 6, 8])}, json.dumps(header))
        said = run("--expect", "want", "--inputs", "in", code=1 if hint else 0).stdout
        assert (hint or "all 2 compared") in said and said.count("hint") == (1 if hint else 0), said


@case
def a_node_of_several_results_is_dumped_by_its_name():
    with open("g.txt", "w") as f:
        f.write(TOP)
    run("--init", "seed:0", "--dump-nodes", "all", "--nodes", "top")
    assert sorted(load("all")) == ["at", "best"], sorted(load("all"))


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
    run("--compare", "five", "--bind", "s9=6", "--init", "seed:0", code=4, message="no symbol `s9`")
    safetensors("in", {"x": ("F32", [7, 3], [0.5] * 21), "w": ("F32", [3, 4], [1] * 12)})
    run("--compare", "g.txt", "--inputs", "in", out="all 2")


@case
def sizes_that_are_products_follow_from_their_symbols():
    with open("g.txt", "w") as f:
        f.write("""sg 1.0 job "t" world 1

graph rank *
  symbol s0 input [1, 64]
  symbol s1 input [1, 64]
  input %a : f32[s0*s1] "a"
  input %x : f32[s0, s1] "x"

  forward -
    %v = aten.view(%x, [-1])
    %y = aten.add.Tensor(%a, %v)

  output %y
""")
    safetensors("in", {"a": ("F32", [6], [1] * 6), "x": ("F32", [2, 3], [1] * 6)})
    run("--compare", "g.txt", "--inputs", "in", out="equal to the bit")
    run("--compare", "g.txt", "--init", "seed:0", "--bind", "s0=2", "--bind", "s1=5", out="equal to the bit")


# Two ranks that call different inputs %a; EXTRA is one that only the second has.
RANKS = """sg 1.0 job "t" world 2

graph rank 0
  symbol n input [1, 64] hint 4
  input %a : f32[n, 2] "x"

  forward -
    %y = aten.sum(%a)

  output %y

graph rank 1
  symbol n input [1, 64] hint 4
  input %a : f32[3] "bias"
  input %b : f32[SIZE, 2] "x"

  forward -
    %s = aten.sum(%a)
    %t = aten.sum(%b)
    %y = aten.add.Tensor(%s, %t)

  output %y
"""


@case
def ranks_may_call_different_inputs_by_one_name():
    for size in ("n", "7"):
        with open(f"size_{size}", "w") as f:
            f.write(RANKS.replace("SIZE", size))
    for first, second in (("n", "n"), ("n", "7"), ("7", "n")):
        run("--compare", f"size_{second}", "--init", "seed:0", graph=f"size_{first}", out="equal to the bit")
    run("--compare", "size_7", "--init", "seed:0", "--bind", "x[0]=7", graph="size_n", out="equal to the bit")


@case
def outputs_are_compared_by_what_they_are():
    for returns in RETURNS:
        sized("g." + returns, returns=returns)
    both = lambda second, **kwargs: run("--compare", second, "--init", "seed:0", graph="g.both", **kwargs)
    both("g.turned", out="all 2 compared values are as expected\n")
    both("g.loss", out="the one compared value is as expected, 1 without a counterpart\n")
    both("g.wrong", code=1, out=r"FAIL +out1 .*\(gradient of layer.weight\)")
    both("g.other", code=4, message="no output in common")
    run("--compare", "g.both", "--init", "seed:0", graph="g.loss",
        out="the one compared value is as expected, 1 not in the file")


@case
def nodes_are_dumped_by_their_modules_and_before_a_watch_ends_the_run():
    sized("g.txt")
    run("--init", "seed:0", "--dump-nodes", "all", "--nodes", "layer")
    assert sorted(load("all")) == ["g", "h", "o", "s", "t", "y"], sorted(load("all"))
    run("--init", "seed:0", "--dump-nodes", "all", "--nodes", "lay", code=4, message="matches no result and no module")
    safetensors("in", {"x": ("F32", [1, 3], [float("nan")] * 3), "w": ("F32", [3, 4], [1] * 12)})
    run("--inputs", "in", "--watch", "nan", "--dump-nodes", "seen", code=1, message="%y has 4 NaN")
    assert sorted(load("seen")) == ["y"], sorted(load("seen"))


@case
def a_complex_number_is_one_element_to_a_watch():
    with open("g.txt", "w") as f:
        f.write('sg 1.0 job "t" world 1\n\ngraph rank *\n  input %x : f32[3, 2] "x"\n\n  forward -\n'
                "    %y = aten.view_as_complex(%x)\n    %z = aten.mul.Tensor(%y, 2)\n\n  output %z\n")
    nan = float("nan")
    safetensors("in", {"x": ("F32", [3, 2], [1, 2, nan, nan, 3, nan])})
    run("--inputs", "in", "--watch", "nan", code=1, message="2 NaN of 3 elements")


@case
def a_mask_may_hold_infinities_also_through_views():
    with open("g.txt", "w") as f:
        f.write('sg 1.0 job "t" world 1\n\ngraph rank *\n  input %x : f32[2, 2] "x"\n  input %mask : f32[2] "mask"\n\n  forward -\n'
                "    %causal = aten.full([2], -inf)\n    %row = aten.unsqueeze(%causal, 0)\n    %rows = aten.expand(%row, [2, 2])\n"
                "    %scores = aten.add.Tensor(%x, %rows)\n    %masked = aten.add.Tensor(%x, %mask)\n    %y = aten.exp(%x)\n\n"
                "  output %scores\n  output %masked\n  output %y\n")
    inf = float("inf")
    safetensors("in", {"x": ("F32", [2, 2], [1, 2, 3, 4]), "mask": ("F32", [2], [-inf, 0])})
    run("--inputs", "in", "--watch", "inf", "--steps", "2")
    safetensors("in", {"x": ("F32", [2, 2], [1, 2, 3, 100]), "mask": ("F32", [2], [0, 0])})
    run("--inputs", "in", "--watch", "inf", code=1, message=r"%y has 1 infinite of 4 elements, the first at \[1, 1\]")


@case
def nodes_are_dumped_under_the_calls_they_are_in():
    with open("g.txt", "w") as f:
        f.write(CALLS.replace("FACTOR", "2.0"))
    run("--init", "seed:0", "--dump-nodes", "all.safetensors")
    assert sorted(load("all.safetensors")) == ["a", "a/y", "b", "b/y"]
    run("--init", "seed:0", "--watch", "nan,inf")


# Rows one by one behind a permute: the reshape copies, but where a chunk has one row of them.
RESHAPED = """sg 1.0 job "t" world 1

graph rank *
  input %x : f32[3, 2, 4] "x"

  forward layer
    %p = aten.permute(%x, [1, 0, 2])
    %r = aten.reshape(%p, [6, 4])
    %y = aten.sin(%r)
    %s = aten.sum(%y)

  loss %s
"""
IN_CHUNKS = """sg 1.0 job "t" world 1

graph rank *
  input %x : f32[3, 2, 4] "x"

  %x0, %x1 = aten.split_with_sizes(%x, [2, 1])  chunk all in layer role split_boundary from graph chunks [0, 1]
  forward layer
    %p0 = aten.permute(%x0, [1, 0, 2])  chunk 0 in layer role body from graph original p
    %p1 = aten.permute(%x1, [1, 0, 2])  chunk 1 in layer role body from graph original p
    %r0 = aten.reshape(%p0, [4, 4])     chunk 0 in layer role body from graph original r
    %r1 = aten.reshape(%p1, [2, 4])     chunk 1 in layer role body from graph original r
    %y0 = aten.sin(%r0)                 chunk 0 in layer role body from graph original y
    %y1 = aten.FUNCTION(%r1)            chunk 1 in layer role body from graph original y
    %s0 = aten.sum(%y0)                 chunk 0 in layer role body from graph original s
    %s1 = aten.sum(%y1)                 chunk 1 in layer role body from graph original s
  forward -
    %t = aten.add.Tensor(%s0, %s1)      chunk all in layer role materialization from graph

  loss %t
"""


@case
def a_chunk_that_views_what_another_copies_differs_in_nothing():
    with open("g.txt", "w") as f:
        f.write(RESHAPED)
    for name, function in (("right", "sin"), ("wrong", "cos")):
        with open(name + ".txt", "w") as f:
            f.write(IN_CHUNKS.replace("FUNCTION", function))
    run("--compare", "right.txt", "--init", "seed:0",
        out="2 equal in another order, 1 sum of chunks within the tolerance, 2 without a counterpart")
    run("--compare", "wrong.txt", "--init", "seed:0", code=1, out=r"first %y0 = aten.sin.default \(layer\), against %y")
