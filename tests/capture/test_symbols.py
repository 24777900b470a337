"""Symbolic sizes: what may be wished, what is written, what is refused."""

import inspect
import json
import math
import os
import sys
import types
import unittest
from unittest import mock

import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Max, Mod

from stepgraph_capture import CaptureError, write
from stepgraph_capture.symbols import text
from support import CaptureCase


class Pairs(nn.Module):
    """Looks whether the length is even."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        if x.shape[1] % 2:
            x, y = x[:, 1:], y[:, 1:]
        return (self.linear(x) * y[:, :, None]).sum()


class Symbols(CaptureCase):
    def pairs(self, dynamic):
        return self.captured(Pairs(), None, {"x": torch.randn(3, 8, 4), "y": torch.randn(3, 8)}, dynamic=dynamic)

    def test_equal_names_are_one_symbol(self):
        document = self.pairs({"x": {0: "batch", 1: ("length", 4, 64)}, "y": {0: "batch", 1: ("length", 4, 64)}})
        batch, length = document["symbols"]
        self.assertEqual((batch["name"], length["name"]), ("batch", "length"))
        self.assertEqual((batch["hint"], batch["min"], batch["max"], batch["kind"]), (3, 2, None, "input"))
        self.assertEqual((length["hint"], length["min"], length["max"]), (8, 4, 64))
        x, y = [entry["type"] for entry in document["inputs"] if entry["kind"] == "input"]
        self.assertEqual(x["shape"][:2], y["shape"])
        self.assertEqual(x["shape"][:2], [{"sym": "batch"}, {"sym": "length"}])
        self.assertTrue(any("Mod(length,2)" in guard["expr"] for guard in document["guards"]), document["guards"])
        self.imported()

    def test_names_that_cannot_be(self):
        for name in ("a size", "Max", "2d", "12*n", ("a size", 2, 9), (5, 2, 9)):
            with self.subTest(name=name), self.assertRaisesRegex(CaptureError, "x\\[0\\] is called .*; a name is of"):
                self.pairs({"x": {0: name}, "y": {0: name}})
        multiple = 2 * torch.export.Dim("n")
        document = self.pairs({"x": {0: multiple}, "y": {0: multiple}})
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["x_0"])

    def test_every_way_to_wish(self):
        dimension = torch.export.Dim("batch", min=2, max=9)
        for dynamic in ({"x": [dimension, None], "y": [dimension, None]}, {"x": {0: (2, 9)}, "y": {-2: (2, 9)}}):
            document = self.pairs(dynamic)
            self.assertEqual({(symbol["min"], symbol["max"]) for symbol in document["symbols"]}, {(2, 9)})
        document = self.captured(
            nn.Linear(4, 1), lambda out: out.sum(), torch.randn(3, 4), dynamic={"input": {0: True}}
        )
        self.assertEqual(len(document["symbols"]), 1)

    def test_all_that_can_be(self):
        document = self.pairs(True)
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["x_0", "x_1"])
        x, y = [entry["type"] for entry in document["inputs"] if entry["kind"] == "input"]
        self.assertEqual(x["shape"], [{"sym": "x_0"}, {"sym": "x_1"}, 4])
        self.assertEqual(y["shape"], x["shape"][:2])
        self.assertRegex(document["note"], r"^x\[2\] is 4 in the graph: test_symbols.py:[0-9]+ in forward takes it")
        self.imported()

    def test_refusals(self):
        batch = {0: "batch"}
        for dynamic, words in (
            ({"z": batch}, "no input tensor is called 'z'; there are x, y"),
            ([batch, batch], "says nothing by input; give .*; there are x, y"),
            ("batch", "'batch' says nothing by input"),
            ({"x": "batch"}, "x is 'batch'; give {axis: ...}"),
            ({"x": True}, "x is True; give {axis: ...}"),
            ({"x": {3: "n"}}, "there is no dimension 3"),
            ({"x": {0: 5}}, "x\\[0\\] is 5"),
            ({"x": batch, "y": {1: "batch"}}, "'batch' is 3 in x\\[0\\] and 8"),
            ({"x": {2: "width"}}, "works only with x\\[2\\] == 4: test_symbols.py:[0-9]+ in forward, or what it calls"),
            ({"x": {0: (4, 9)}}, "x of size"),
        ):
            with self.subTest(dynamic=dynamic), self.assertRaisesRegex(CaptureError, words):
                self.pairs(dynamic)
        with self.assertRaisesRegex(CaptureError, r"input\[0\] == 3: targets\[0\] is 3 too, and dynamic= does not have it"):
            self.captured(
                nn.Linear(4, 2), nn.functional.mse_loss, torch.randn(3, 4), targets=torch.randn(3, 2), dynamic={"input": batch}
            )
        with self.assertRaisesRegex(CaptureError, "is 1 here"):
            self.captured(nn.Linear(4, 1), lambda out: out.sum(), torch.randn(1, 4), dynamic={"input": batch})

    def test_a_convolution_limits_no_batch(self):
        for kind, sizes in ((nn.Conv1d, (9,)), (nn.Conv2d, (9, 9)), (nn.ConvTranspose2d, (5, 5))):
            document = self.captured(
                kind(3, 4, 3), lambda out: out.sum(), torch.randn(3, 3, *sizes), dynamic={"input": {0: "batch"}}
            )
            self.assertEqual([symbol["max"] for symbol in document["symbols"]], [None])
            self.assertEqual(document["guards"], [])
            self.imported()

    def test_len_is_a_size(self):
        """Of inputs, and of what the data decides: here and in a library that a step calls."""
        library = types.ModuleType("stepgraph_test_library")
        exec("def mean(x): return x.sum() / len(x) if len(x) else x.sum()", vars(library))

        class Model(nn.Linear):
            def forward(self, x):
                picked = super().forward(x)[x[:, 0] > 0]
                return library.mean(picked) / len(x)

        with mock.patch.dict(sys.modules, {library.__name__: library}):
            model, x = Model(4, 4), torch.tensor([[1.0, 2, 3, 4], [-1, 2, 3, 4], [2, 1, 0, 1]])
            document = self.captured(model, None, {"x": x}, dynamic={"x": {0: ("rows", 2, 9)}})
            self.assertNotIn("len", vars(library))
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["input", "data"])
        self.imported()
        inputs, more = self.values("inputs"), torch.randn(7, 4)
        name = next(entry["name"] for entry in document["inputs"] if entry["kind"] == "input")
        write.tensors(os.path.join(self.folder, "inputs.safetensors"), {**inputs, name: more})
        graph, values = (os.path.join(self.folder, file) for file in ("step.sg", "inputs.safetensors"))
        said = json.loads(self.tool("sg-run", graph, "--inputs", values, "--json"))
        self.assertAlmostEqual(said["ranks"][0]["losses"][0], model(more).item(), places=5)

    def test_the_line_that_makes_a_constant_of_a_size(self):
        class Model(nn.Linear):
            def forward(self, x):
                rows = super().forward(x)
                return rows.sum() / int(x.shape[0])

        _, line = inspect.getsourcelines(Model.forward)
        for dynamic, loss_fn in (({0: "rows"}, None), ({0: ("batch", 2, 9)}, lambda loss: loss + 1)):
            with self.assertRaisesRegex(CaptureError, rf"== 5: test_symbols.py:{line + 2} in forward, .* int\(\)"):
                self.captured(Model(4, 4), loss_fn, {"x": torch.randn(5, 4)}, dynamic={"x": dynamic})

    def test_the_line_of_what_backward_makes_a_constant(self):
        class Squared(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, gradient):
                return torch.cat([row[None] for row in 2 * ctx.saved_tensors[0] * gradient])

        class Model(nn.Linear):
            def forward(self, x):
                return Squared.apply(super().forward(x)).sum()

        with self.assertRaisesRegex(CaptureError, "== 5: test_symbols.py:[0-9]+ in (forward|backward), or"):
            self.captured(Model(4, 4), None, {"x": torch.randn(5, 4)}, dynamic={"x": {0: "rows"}})

    def test_tensors_of_sizes(self):
        class Scaled(nn.Linear):
            def forward(self, x):
                rows, columns = x.shape
                return (super().forward(x) / torch.tensor([rows, columns], dtype=x.dtype)).sum() * torch.tensor(rows)

        document = self.captured(Scaled(4, 2), None, {"x": torch.randn(5, 4)}, dynamic={"x": {0: "rows"}})
        self.imported()
        self.assertEqual([entry for entry in document["inputs"] if entry["kind"] == "constant"], [])

    def test_composite_ops_keep_sizes(self):
        class Products(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

            def forward(self, x):
                rows = x * self.scale
                pooled = nn.functional.max_pool1d(rows.transpose(1, 2), 3, stride=2, padding=1)
                return rows.cumprod(1).square().sum() + pooled.square().sum()

        x = torch.rand(4, 7, 6)
        x[0, 3, 0] = x[1, 0, 0] = x[1, 5, 0] = x[2, 6, 0] = 0  # the gradient at and behind a zero is another formula
        document = self.captured(Products(), None, {"x": x}, dynamic={"x": {0: "batch", 1: "length"}})
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["batch", "length"])
        self.imported()
        self.assertFalse(torch.ops.aten.cumprod_backward.default.py_kernels)

    def test_views_of_what_lies_otherwise_than_traced(self):
        """The eager backward of a batch norm lays its gradient out in another way than tracing says."""

        class Normed(nn.Linear):
            def __init__(self):
                super().__init__(4, 4, bias=False)
                self.norm = nn.BatchNorm1d(4)

            def forward(self, x):
                return self.norm(super().forward(x).transpose(1, 2)).relu().square().mean()

        self.captured(Normed(), None, {"x": torch.randn(3, 8, 4)}, dynamic={"x": {0: "batch", 1: "length"}})
        self.imported()

    def test_rows_that_a_mask_selects_keep_sizes(self):
        class Selected(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                return y.masked_select(x[:, :1] > 0).square().sum() + y.masked_select(x > 0).mean()

        document = self.captured(Selected(4, 4), None, {"x": torch.randn(6, 4)}, dynamic={"x": {0: "rows"}})
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["input", "data", "data"])
        self.imported()

    def test_windows_are_added_up_along_rows_that_they_are_not_of(self):
        """With symbols PyTorch's istft adds the squares of its window up once for each row, from one."""

        class Spectrum(nn.Linear):
            def forward(self, x):
                window = torch.hann_window(8)
                spectrum = torch.stft(x, 8, 2, window=window, return_complex=True)
                gains = torch.sigmoid(super().forward(spectrum.abs().transpose(1, 2))).transpose(1, 2)
                return torch.istft(spectrum * gains, 8, 2, window=window, length=x.shape[-1]).square().mean()

        self.captured(Spectrum(5, 5), None, {"x": torch.randn(3, 32)}, dynamic={"x": {0: "rows"}})
        self.imported()

    def test_values_taken_along_an_axis_keep_sizes(self):
        class Chosen(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

            def forward(self, x, index):
                rows = x * self.scale
                of_each = torch.take_along_dim(rows[:, None], index[..., None], -2)  # both are broadcast
                return of_each.square().sum() + torch.take_along_dim(rows, index[0]).sum()

        inputs = {"x": torch.rand(4, 7, 6), "index": torch.randint(7, (4, 5, 3))}
        wish = {"x": {0: "batch", 1: "length"}, "index": {0: "batch"}}
        document = self.captured(Chosen(), None, inputs, dynamic=wish)
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["batch", "length"])
        self.imported()

    def test_positions_of_floats(self):
        """arange(0.5, height): what halves are in it does not keep its length from being one of the size."""

        class Positions(nn.Linear):
            def forward(self, x):
                rows, steps = torch.arange(0.5, x.shape[0]), torch.arange(0.0, x.shape[0], 2)
                return (super().forward(x) * rows[:, None]).sum() + (x[::2] * steps[:, None]).sum()

        document = self.captured(Positions(4, 4), None, {"x": torch.randn(7, 4)}, dynamic={"x": {0: "rows"}})
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["rows"])
        self.imported()

    def test_a_size_that_only_guards_make_a_number(self):
        """Parts of 4 of a padded length: their size is an expression of it, and so is the shape of a gradient."""

        class Parts(nn.Linear):
            def forward(self, x):
                rows = nn.functional.pad(x, (0, -x.shape[1] % 4)).unflatten(1, (-1, 4))
                return super().forward(rows.transpose(0, 1)).tanh().sum()

        self.captured(Parts(4, 4), None, {"x": torch.randn(3, 9)}, dynamic={"x": {0: "batch", 1: "length"}})
        self.imported()

    @unittest.skipIf(torch.__version__.startswith("2.6."), "this torch takes -(-n % 4) to be never below 0")
    def test_padding_by_a_symbol_of_what_lies_transposed(self):
        """What nothing is added to is a copy as it lies, which depends on the number: at a length of 8, and where the
        amount is below 0. What was traced is in row order."""

        class Padded(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.randn(6))

            def forward(self, x):
                more, rows = -x.shape[2] % 4, x.transpose(1, 2) * self.scale
                padded = nn.functional.pad(rows, (0, 0, 0, more)).square()
                cut = nn.functional.pad(x.transpose(1, 2), (0, 0, 0, -more)) * self.scale
                return nn.functional.pad(padded, (0, 0, 0, -more)).sum() + cut.permute(0, 2, 1).flatten(1).sum()

        for length in (8, 9):
            self.captured(Padded(), None, {"x": torch.randn(2, 6, length)}, dynamic={"x": {0: "batch", 2: "length"}})
            self.imported()
            graph, numbers = (os.path.join(self.folder, name) for name in ("step.sg", "numbers.sg"))
            for other in (8, 11):
                sizes = ["--bind", "batch=3", "--bind", f"length={other}"]
                self.tool("sg-concretize", "-q", graph, *sizes, "-o", numbers)
                self.tool("sg-run", "-q", graph, "--init", "seed:0", *sizes, "--compare", numbers, "--bitwise")

    def test_inputs_of_one_memory_are_inputs_of_their_own(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(9, 5), nn.Linear(5, 9)

            def forward(self, ids, labels):
                return nn.functional.cross_entropy(self.head(self.table(ids)).transpose(1, 2), labels)

        tokens, sizes = torch.randint(9, (3, 7)), {0: "batch", 1: "length"}
        for ids, labels in ((tokens, tokens), (tokens[:, :-1], tokens[:, 1:])):
            inputs = {"ids": ids, "labels": labels}
            document = self.captured(Words(), None, inputs, dynamic={"ids": sizes, "labels": sizes})
            self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["batch", "length"])
            first, second = [entry["name"] for entry in document["inputs"] if entry["kind"] == "input"]
            looked_up = next(node for node in document["nodes"] if node["op"] == "aten.embedding.default")
            self.assertEqual(looked_up["args"][1], {"ref": first})
            self.assertIn({"ref": second}, [argument for node in document["nodes"] for argument in node["args"]])
            self.imported()

    def test_sizes_of_the_data(self):
        class Chosen(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x, choose):
                return self.linear(x[choose.nonzero().flatten()]).sum()

        document = self.captured(Chosen(), None, {"x": torch.randn(6, 4), "choose": torch.arange(6) % 2})
        (symbol,) = document["symbols"]
        self.assertEqual((symbol["kind"], symbol["hint"]), ("data", None))
        self.assertEqual([node["binds"] for node in document["nodes"] if "binds" in node], [[symbol["name"]]])
        self.imported()

    def test_sizes_of_the_data_that_are_sizes_of_an_input(self):
        class Counted(nn.Linear):
            def forward(self, x, ids):
                return (super().forward(x) * torch.bincount(ids, minlength=x.shape[0])[:, None]).sum()

        inputs = {"x": torch.randn(6, 4), "ids": torch.arange(6) % 3}
        document = self.captured(Counted(4, 4), None, inputs, dynamic={"x": {0: "rows"}})
        self.assertEqual([guard["expr"] for guard in document["guards"]], ["Eq(u0,rows)"])
        self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["rows", "u0"])
        self.imported()

    def test_repeats_of_the_data(self):
        class Repeated(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x, times):
                rows = self.linear(x).repeat_interleave(times, 0)
                return (rows * torch.arange(rows.shape[0])[:, None]).sum()

        inputs = {"x": torch.randn(6, 4), "times": torch.arange(6) % 3}
        document = self.captured(Repeated(), None, inputs, dynamic={"x": {0: "n"}, "times": {0: "n"}})
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["input", "data"])
        self.assertEqual([node["binds"] for node in document["nodes"] if "binds" in node], [["u0"]])
        self.imported()


    def taken(self, take, rows=11):
        class Taken(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                return self.linear(x)[: take(x.shape[0])].sum()

        return self.captured(Taken(), None, torch.randn(rows, 4), dynamic={"x": {0: "rows"}})

    def test_sizes_that_nodes_compute(self):
        document = self.taken(lambda rows: math.trunc(rows * 0.4) + math.trunc(rows * 0.4))
        self.assertEqual([(symbol["name"], symbol["kind"]) for symbol in document["symbols"]],
                         [("rows", "input"), ("made0", "data")])
        binders = [node["op"] for node in document["nodes"] if "binds" in node]
        self.assertEqual(binders, ["python.trunc"])
        self.imported()

    def test_divisions_stay_expressions(self):
        for take in (lambda n: math.ceil(n / 3), lambda n: math.floor(n * 0.75), lambda n: math.trunc(n / 2)):
            document = self.taken(take)
            self.assertEqual([symbol["name"] for symbol in document["symbols"]], ["rows"])
            self.imported()

    def test_what_int_makes_a_constant_has_a_range(self):
        document = self.taken(lambda rows: int(rows * 0.9))
        guards = [guard["expr"] for guard in document["guards"]]
        self.assertTrue({"Ge(rows,10)", "Le(rows,11)"} <= set(guards), guards)  # for which it is 9
        self.assertRegex(document["note"], "rows from 10 to 11, .* torch.sym_int\\(\\) keeps it a size")
        self.imported()


class Text(unittest.TestCase):
    def test_the_words_of_the_format(self):
        s, t = sympy.Symbol("s0", integer=True), sympy.Symbol("u1", integer=True)
        for expr, wanted in (
            (s + 2 * t, "s0+2*u1"),
            (FloorDiv(s, 2), "(s0//2)"),
            (sympy.Eq(Mod(s, 2), 0), "Eq(Mod(s0,2),0)"),
            (Max(1, s), "Max(1,s0)"),
            (sympy.Le(s, 5), "Le(s0,5)"),
            (s < t, "Lt(s0,u1)"),
            (s**2, "s0**2"),
            (sympy.Ne(s, t), "Ne(s0,u1)"),
            (sympy.sqrt(s), None),
            (sympy.Rational(1, 2) * s, None),
            (sympy.And(s < 3, t < 3), None),
        ):
            self.assertEqual(text(expr), wanted)


if __name__ == "__main__":
    unittest.main()
