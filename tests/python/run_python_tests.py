#!/usr/bin/env python3
"""Tests of tools/python: the tools from Python. What needs numpy or torch is skipped aloud in a Python without it.

run_python_tests.py --bin DIR [NAME...]

Runs in this Python, and again in one with torch where there is one (STEPGRAPH_PYTHON, a venv).
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "examples")
sys.path[:0] = [os.path.join(ROOT, *folder) for folder in (("tools", "python"), ("tools", "capture"), ("tests",))]

TEXT = """sg 1.0 job "small" world 1
graph rank *
  param %w : f32[8, 8] "w"
  input %x : f32[4, 8] "x"

  forward layer
    %dead = aten.tanh(%x)
    %a    = aten.mm(%x, %w)
    %b    = aten.relu(%a)

  output %b
"""


def has(module):
    return importlib.util.find_spec(module) is not None


class Tools(unittest.TestCase):
    """Needs nothing but Python."""

    def setUp(self):
        self.graph = sg.text(TEXT)

    def test_passes_are_methods(self):
        lean = self.graph.clean()
        self.assertEqual(lean.stat()["nodes"], 2)
        self.assertIn("1 dead node", lean.said)
        self.assertIn("sg-clean", lean.log())
        self.assertEqual(self.graph.stat()["nodes"], 3)                  # it never changes
        self.assertIn("clean", dir(self.graph))
        self.assertIn("--drop-asserts", self.graph.clean.__doc__)

    def test_options_are_words(self):
        from stepgraph.tools import option_words

        given = {"policy": "full", "save": ["a", "b"], "drop_asserts": True, "peak": None, "json": False, "chunks": 2}
        words = option_words(given)
        self.assertEqual(words, ["--policy=full", "--save=a", "--save=b", "--drop-asserts", "--chunks=2"])

    def test_a_pipe_gives_the_bytes_of_the_passes(self):
        one_by_one = self.graph.clean().remat(policy="full")
        self.assertEqual(one_by_one.bytes, self.graph.pipe("clean", "remat --policy full").bytes)
        self.assertEqual(one_by_one.bytes, self.graph.pipe(["clean"], ["remat", "--policy", "full"]).bytes)
        self.assertEqual(one_by_one.bytes, self.graph.clean().apply("remat", "--policy", "full").bytes)

    def test_errors_are_the_tools_own(self):
        with self.assertRaises(sg.ToolError) as caught:
            sg.text(TEXT.replace("mm(%x, %w)", "mm(%x, %v)"))
        self.assertEqual(caught.exception.code, 3)
        self.assertIn("<stdin>:8:25: error: there is no %v", str(caught.exception))
        with self.assertRaises(sg.ToolError) as caught:
            self.graph.remat(policy="ful")
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("full", str(caught.exception))
        with self.assertRaisesRegex(AttributeError, "a graph has no `claen`; the passes are clean"):
            self.graph.claen()
        with self.assertRaisesRegex(sg.ToolError, "none.sg"):
            sg.load("none.sg")

    def test_what_a_graph_is(self):
        self.assertEqual(repr(self.graph), "graph: valid, 3 nodes, 2 inputs, 1 output, 1 rank")
        self.assertIn("%a = aten.mm(%x, %w)", self.graph.text)
        self.assertEqual(self.graph, sg.text(self.graph.text))
        self.assertNotEqual(self.graph, self.graph.clean())
        self.assertIn("1 dead node gone", self.graph.diff(self.graph.clean()))
        self.assertIn("aten.mm", self.graph.explain("a"))
        self.assertGreater(self.graph.sim(machine="h100-8")["makespan_us"], 0)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.graph.save(os.path.join(folder, "a.sg"))
            self.assertEqual(sg.load(path).bytes, self.graph.bytes)
            path = self.graph.save(os.path.join(folder, "a.sg.txt"))
            self.assertEqual(sg.load(path).bytes, self.graph.bytes)

    def test_weights_go_with_a_graph(self):
        step = sg.load(os.path.join(EXAMPLES, "03_ways_in", "step.pt2"))
        with tempfile.TemporaryDirectory() as folder:
            step.clean().save(os.path.join(folder, "step.sg"))
            self.assertEqual(sorted(os.listdir(folder)), ["step.safetensors", "step.sg"])
            again = sg.load(os.path.join(folder, "step.sg"))
            again.save(os.path.join(folder, "other.sg.txt"))
            self.assertIn("other.safetensors", os.listdir(folder))

    def test_a_page(self):
        page = self.graph.view(self.graph.clean())
        self.assertIn("<html", page.html)
        self.assertTrue(self.graph._repr_html_().startswith("<iframe"))
        self.assertIn("srcdoc=", page._repr_html_())
        self.assertNotIn('"<', page._repr_html_().split("srcdoc=")[1][1:-20])       # escaped

    def test_a_run(self):
        run = self.graph.run(init="seed:0")
        self.assertEqual(run.world, 1)
        step = sg.load(os.path.join(EXAMPLES, "02_a_real_step", "gpt2-tiny.json.gz"))
        self.assertEqual(len(step.run(init="seed:0").losses), 1)
        with self.assertRaises(sg.ToolError) as caught:
            self.graph.run()
        self.assertIn("%w", str(caught.exception))


@unittest.skipUnless(has("numpy"), "no numpy")
class Arrays(unittest.TestCase):
    def test_values_in_and_out(self):
        import numpy

        x, w = numpy.random.rand(4, 8).astype("f4"), numpy.random.rand(8, 8).astype("f4") - 0.5
        out = sg.text(TEXT).run(inputs={"x": x, "w": w}).outputs["out0"]
        numpy.testing.assert_allclose(out, numpy.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)

    def test_what_is_not_as_expected_is_an_error(self):
        import numpy

        values = {"x": numpy.ones((4, 8), "f4"), "w": numpy.ones((8, 8), "f4")}
        graph = sg.text(TEXT)
        graph.run(inputs=values, expect={"out0": numpy.full((4, 8), 8, "f4")})
        from stepgraph import run as module

        with unittest.mock.patch.object(module, "tool", wraps=module.tool) as calls:
            with self.assertRaisesRegex(sg.ToolError, "FAIL +out0"):
                graph.run(inputs=values, expect={"out0": numpy.full((4, 8), 9, "f4")})
        self.assertEqual(calls.call_count, 1)                            # its words are those of the run that failed

    def test_every_type_there_and_back(self):
        import numpy

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "v.safetensors")
            names = "float64 float32 float16 int64 int32 int16 int8 uint8 bool complex64".split()
            values = {name: numpy.arange(6).reshape(2, 3).astype(name) for name in names}
            values["empty"], values["one"] = numpy.zeros((0, 3), "f4"), numpy.array(3.5)
            sg.write_values(path, values)
            for name, value in sg.read_values(path).items():
                self.assertEqual((value.dtype, value.shape), (values[name].dtype, values[name].shape))
                numpy.testing.assert_array_equal(value, values[name])

    def test_any_order_of_bytes_and_elements(self):
        import numpy

        rows = numpy.arange(12.0).reshape(3, 4)
        given = {"turned": rows.T, "big": rows.astype(">f8"), "bigger": rows[::2, ::-1].astype(">i4")}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "v.safetensors")
            sg.write_values(path, given)
            for name, value in sg.read_values(path).items():
                numpy.testing.assert_array_equal(value, given[name])

    def test_ranks(self):
        capture = os.path.join(EXAMPLES, "04_run_a_moe_step", "capture", "rank{r}")
        step = sg.load(os.path.join(capture, "step.json.gz"))
        inputs, expected = (os.path.join(capture, f"{what}.safetensors") for what in ("inputs", "expected"))
        run = step.run(inputs=inputs, expect=expected)
        self.assertEqual((run.world, len(run.losses)), (4, 4))
        self.assertEqual(set(run.of_rank(3)), set(run.of_rank(0)))
        self.assertIn("as expected", repr(run))


@unittest.skipUnless(has("torch") and has("safetensors"), "no torch")
class Torch(unittest.TestCase):
    def test_bf16_comes_exactly(self):
        import torch

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "v.safetensors")
            value = torch.randn(3, 5).bfloat16()
            sg.write_values(path, {"v": value, "t": value.t()})
            self.assertTrue(torch.equal(sg.read_values(path, torch=True)["v"], value))
            self.assertTrue(torch.equal(sg.read_values(path, torch=True)["t"], value.t()))
            self.assertTrue((sg.read_values(path)["v"] == value.float().numpy()).all())

    def test_a_captured_step_through_passes_and_back(self):
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
        x, y = torch.randn(4, 8), torch.tensor([0, 1, 1, 0])
        step = sg.capture(model, torch.nn.functional.cross_entropy, x, targets=y)
        lean = step.graph.clean().remat(policy="full")
        self.assertIn("as expected", repr(step.check(lean)))
        module = lean.export()
        ours = module.step(module.load_inputs([step.inputs], 0))
        for name, value in sg.read_values(step.expected, torch=True).items():
            torch.testing.assert_close(ours[name], value)
        run = lean.run(inputs=step.inputs)
        torch.testing.assert_close(run.tensors["out0"], ours["out0"])


def main():
    global sg
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--here", action="store_true", help="in this Python alone")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    os.environ["STEPGRAPH_BIN"] = os.path.abspath(options.bin)
    import stepgraph as sg

    from harness import python_with

    other = None if options.here else python_with("torch", "safetensors")
    if other and not has("torch"):
        return subprocess.run([other, *sys.argv, "--here"]).returncode
    result = unittest.main(argv=sys.argv[:1] + options.names, exit=False, verbosity=1).result
    for case, why in result.skipped:
        print(f"SKIPPED: {case}: {why}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
