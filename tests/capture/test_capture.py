"""capture(): what it writes of a step, in which ways, and what it leaves behind."""

import copy
import functools
import os
import unittest

import torch
from torch import nn
from torch.nn import functional as F

import models
from stepgraph_capture import CaptureError, compat, values
from support import CaptureCase


class Document(CaptureCase):
    def setUp(self):
        super().setUp()
        self.step = models.mlp()
        self.document = self.captured(**{key: value for key, value in self.step.items() if key != "dynamic"})
        self.inputs = {entry.get("fqn", entry["name"]): entry for entry in self.document["inputs"]}

    def test_inputs_have_kinds_and_names(self):
        kinds = {name: entry["kind"] for name, entry in self.inputs.items()}
        self.assertEqual(kinds["table.weight"], "parameter")
        self.assertEqual(kinds["norm.running_mean"], "buffer")
        self.assertEqual((kinds["ids"], kinds["mask.rows"], kinds["targets"]), ("input",) * 3)
        self.assertEqual(sum(kind == "constant" for kind in kinds.values()), 2)
        self.assertEqual(self.inputs["table.weight"]["tied"], ["head.weight"])
        self.assertNotIn("scale", kinds)  # a Python value is part of the code
        self.assertEqual(set(self.values("inputs")), {entry["name"] for entry in self.document["inputs"]})

    def test_outputs(self):
        outputs = {(output["kind"], output.get("of")): output["value"] for output in self.document["outputs"]}
        trainable = [name for name, parameter in self.step["model"].named_parameters() if parameter.requires_grad]
        self.assertEqual([of for kind, of in outputs if kind == "gradient"], trainable)
        self.assertIsNone(outputs["gradient", "unused"])
        self.assertNotIn(("gradient", "frozen"), outputs)
        self.assertIsNotNone(outputs["buffer", "mean"])  # assigned anew, not written
        self.assertIsNotNone(outputs["other", None])
        mutated = {name for name in self.values("expected") if name.startswith("mutated.")}
        wanted = {
            self.inputs[name]["name"]
            for name in ("steps", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
        }
        self.assertEqual(mutated, {f"mutated.{name}" for name in wanted})

    def test_values_are_those_of_autograd(self):
        model, expected = self.step["model"], self.values("expected")
        args, kwargs = self.step["inputs"], self.step["kwargs"]
        loss, _ = self.step["loss_fn"](model(*args, **kwargs), self.step["targets"])
        loss.backward()
        self.assertEqual(expected["out0"].item(), loss.item())
        for i, output in enumerate(self.document["outputs"]):
            if output["kind"] == "gradient" and output["value"] is not None:
                self.assertTrue(torch.equal(expected[f"out{i}"], model.get_parameter(output["of"]).grad), output)

    def test_values_know_their_own_rounding(self):
        from safetensors import safe_open

        model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 2))
        rows = torch.randn(4, 2, 6)
        document = self.captured(model, lambda out: out.square().sum(), rows)
        expected = self.values("expected")
        with safe_open(os.path.join(self.folder, "expected.safetensors"), "pt") as file:
            notes = file.metadata()
        self.assertEqual(notes["threads"], str(torch.get_num_threads()))
        rounding = {name.removeprefix("rounding."): float(notes[name])
                    for name in notes if name.startswith("rounding.")}
        floats = {name for name, value in expected.items() if value.is_floating_point()}
        self.assertEqual(set(rounding), floats)
        loss = copy.deepcopy(model).double()(rows.double()).square().sum()
        self.assertGreaterEqual(rounding["out0"], abs(loss.item() - expected["out0"].item()) - 1e-12)
        for i, output in enumerate(document["outputs"][1:], 1):
            self.assertLess(rounding[f"out{i}"], 1e-4, output)
        self.imported()

    def test_the_model_is_as_it_was(self):
        torch.manual_seed(0)
        again = models.mlp()["model"]
        self.assertTrue(
            all(
                torch.equal(a, b) for a, b in zip(self.step["model"].state_dict().values(), again.state_dict().values())
            )
        )
        self.assertTrue(all(parameter.grad is None for parameter in self.step["model"].parameters()))

    def test_nodes_know_where_they_come_from(self):
        linear = [node for node in self.document["nodes"] if node.get("module") == "hidden"]
        self.assertEqual({node["phase"] for node in linear}, {"forward", "backward"})
        forward = next(node for node in linear if node["op"] == "aten.addmm.default")
        backward = [node for node in linear if node["phase"] == "backward" and node["seq"] == forward["seq"]]
        self.assertIn("aten.mm.default", {node["op"] for node in backward})
        self.assertEqual({node["source"]["function"] for node in linear}, {"forward"})
        self.assertEqual({os.path.basename(node["source"]["file"]) for node in linear}, {"models.py"})
        self.assertFalse(
            any(os.path.isabs(node["source"]["file"]) for node in self.document["nodes"] if "source" in node)
        )
        loss = [node for node in self.document["nodes"] if node["op"] == "aten.nll_loss_forward.default"]
        self.assertEqual(loss[0]["source"]["function"], "<lambda>")

    def test_a_capture_is_the_same_each_time(self):
        first = open(os.path.join(self.folder, "step.json"), "rb").read()
        torch.manual_seed(0)
        step = models.mlp()
        step.pop("dynamic")
        for node, again in zip(self.document["nodes"], self.captured(**step)["nodes"]):
            node.pop("seq", None), again.pop("seq", None)  # autograd's numbers go on within a process
            self.assertEqual(node, again)
        self.assertTrue(first)


class Ways(CaptureCase):
    def test_fake_writes_no_values(self):
        with torch.device("meta"):
            model = nn.Linear(1 << 16, 1 << 16)  # 16 GiB
        document = self.captured(model, lambda out: out.sum(), torch.empty(4, 1 << 16, device="meta"), fake=True)
        self.assertEqual({entry["type"]["device"] for entry in document["inputs"]}, {"cpu"})
        self.assertEqual(os.listdir(self.folder), ["step.json"])
        self.tool("sg-import", "-q", os.path.join(self.folder, "step.json"), "-o", os.path.join(self.folder, "step.sg"))

    def test_modules_of_torch_jit(self):
        model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(6, 4)
        for made in (torch.jit.trace(model, x), torch.jit.script(model)):
            self.captured(made, nn.functional.cross_entropy, (x,), targets=torch.randint(3, (6,)))
            self.imported()

    def test_gzip(self):
        self.captured(nn.Linear(2, 1), lambda out: out.sum(), torch.ones(1, 2), compress=True)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "step.json.gz")))
        self.tool(
            "sg-import", "-q", os.path.join(self.folder, "step.json.gz"), "-o", os.path.join(self.folder, "step.sg")
        )

    def test_random_ops(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        document = self.captured(model, lambda out: out.sum(), torch.ones(2, 4))
        self.assertIn("random", document["note"])
        state = torch.random.get_rng_state()
        self.captured(model, lambda out: out.sum(), torch.ones(2, 4))
        self.assertTrue(torch.equal(state, torch.random.get_rng_state()))

    def test_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            document = self.captured(nn.Linear(4, 4), lambda out: out.float().sum(), torch.ones(2, 4))
        self.assertIn("bfloat16", {node["type"].get("tensor") for node in document["nodes"]})
        self.imported()

    def test_autocast_with_a_region_without_it(self):
        """The graph holds its casts: it is not run under autocast once more, which would narrow the region's products."""

        class Router(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.choice = nn.Linear(8, 8), nn.Linear(8, 4)

            def forward(self, x):
                hidden = self.layer(x)
                with torch.autocast("cpu", enabled=False):
                    share = nn.functional.linear(hidden.float(), self.choice.weight.float()).softmax(-1, dtype=torch.float)
                return (hidden.float().sum(-1, keepdim=True) * share).square().mean()

        with torch.autocast("cpu", dtype=torch.bfloat16):
            document = self.captured(Router(), None, torch.randn(5, 8))
        products = [node["type"]["tensor"] for node in document["nodes"] if node["op"].startswith("aten.mm")]
        self.assertIn("float32", products)
        self.imported()

    def test_autocast_casts_a_weight_once_in_a_block(self):
        """Its gradients are summed in bf16 then, and 400 of one sign stop growing."""

        class Repeated(nn.Module):
            def __init__(self):
                super().__init__()
                self.one = nn.Linear(4, 4)

            def forward(self, rows):
                total = torch.zeros(())
                for half in rows.chunk(2):
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        with torch.no_grad():
                            share = self.one(half[0]).float().sigmoid()
                        for row in half:
                            total = total + (self.one(row).float() * share).sigmoid().sum()
                return total

        if not Repeated()(torch.rand(200, 4)).requires_grad:
            self.skipTest("this PyTorch gives no gradient to a weight whose cast it made without")
        document = self.captured(Repeated(), lambda out: out, torch.rand(200, 4))
        casts = [n["type"] for n in document["nodes"] if "_to_copy" in n["op"] and n["type"].get("shape") == [4, 4]]
        narrow = [one for one in casts if one["tensor"] == "bfloat16"]
        self.assertEqual(len(narrow), 2)  # of two blocks
        self.imported()

    def test_a_module_without_call(self):
        """No module runs: the line is the user's own."""
        model = nn.Linear(4, 4)
        document = self.captured(model, lambda out: F.mse_loss(out, torch.zeros(2, 4)), torch.ones(2, 4))
        self.assertEqual(document["nodes"][0].get("module"), None)
        self.imported()

    def test_compiled_parts_are_plain(self):
        model = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU())))
        document = self.captured(model, lambda out: out.sum(), torch.ones(2, 4))
        self.assertIn("aten.relu.default", {node["op"] for node in document["nodes"]})
        self.imported()

    def test_a_parametrization_for_the_time_of_forward(self):
        """Taking it back binds the parameter's memory to itself, which is no part of the graph."""

        class Added(nn.Module):
            def __init__(self, more):
                super().__init__()
                self.more = more

            def forward(self, weight):
                return weight + self.more

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 4)
                self.first, self.last = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(2, 6))

            def forward(self, x):
                added = Added(self.first @ self.last)
                nn.utils.parametrize.register_parametrization(self.linear, "weight", added)
                out = self.linear(x)
                weight = self.linear.parametrizations.weight.original
                del self.linear.parametrizations
                delattr(type(self.linear), "weight")
                self.linear.__class__ = nn.Linear
                self.linear.register_parameter("weight", weight)
                return out.square().sum()

        self.captured(Model(), None, {"x": torch.randn(5, 6)})
        self.assertNotIn("aten.set_", self.imported())

    def test_annotations_of_torch(self):
        from torch.fx import traceback

        if not hasattr(traceback, "annotate"):
            self.skipTest("this PyTorch has no torch.fx.traceback.annotate")

        class Annotated(nn.Linear):
            def forward(self, x):
                with traceback.annotate({"mine": 7}):
                    return super().forward(x)

        document = self.captured(Annotated(4, 4), lambda out: out.sum(), torch.ones(2, 4))
        words = {node["phase"] for node in document["nodes"] if node.get("custom") == {"mine": 7}}
        self.assertEqual(words, {"forward", "backward"})

    def test_all_sizes_dynamic(self):
        document = self.captured(
            nn.Linear(4, 1), lambda out: out.sum(), torch.ones(3, 5, 4), dynamic={"input": [True, True, None]}
        )
        self.assertEqual(len(document["symbols"]), 2)
        self.imported()

    def test_outputs_of_other_kinds(self):
        """Tuples, dicts and objects with a loss."""

        class Output:
            def __init__(self, loss):
                self.loss = loss

        for wrap, loss_fn in (
            (lambda x: {"loss": x.sum()}, None),
            (lambda x: Output(x.sum()), None),
            (torch.sum, None),
            (lambda x: (x, x), lambda out: out[1].mean()),
            (lambda x: {"y": [x]}, lambda out: out["y"][0].sum()),
        ):

            class Model(nn.Linear):
                def forward(self, x):
                    return wrap(super().forward(x))

            self.captured(Model(4, 4), loss_fn, {"x": torch.ones(2, 4)})
            self.imported()


class Leftovers(CaptureCase):
    """What tracing leaves behind in the model, and what it must not."""

    def test_caches(self):
        class Model(nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self.positions, self.hooked = {}, False

            @functools.lru_cache(maxsize=2)
            def scale(self, size):
                return torch.linspace(0.5, 1.5, size)

            def forward(self, x):
                if x.shape[0] not in self.positions:
                    self.positions[x.shape[0]] = torch.arange(x.shape[0])
                if not hasattr(self, "mask"):
                    self.mask = torch.ones(4)
                self.hooked = True
                return super().forward(x) * self.scale(4) * self.mask + self.positions[x.shape[0]][:, None]

        model = Model()
        self.captured(model, lambda out: out.sum(), torch.ones(2, 4))
        self.imported()
        self.assertEqual((model.positions, model.hooked, hasattr(model, "mask")), ({}, False, False))
        self.assertFalse(compat.is_fake(model.scale(4)))

    def test_a_module_that_casts_itself(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.router = nn.Linear(4, 4).to(torch.bfloat16)

            def forward(self, x):
                self.router = self.router.to(torch.float32)
                return self.router(x)

        model = Model()
        document = self.captured(model, lambda out: out.sum(), torch.ones(2, 4))
        self.assertEqual(model.router.weight.dtype, torch.bfloat16)
        self.assertIn("aten._to_copy.default", {node["op"] for node in document["nodes"]})
        self.imported()


class Differences(unittest.TestCase):
    """What a graph gives is held against what the model gives."""

    def test_of_a_kind_that_subtraction_hides(self):
        nan, inf = float("nan"), float("inf")
        for left, right in (([1.0, 2.0], [nan, 2.0]), ([nan, 2.0], [1.0, 2.0]), ([inf, 1.0], [inf, 2.0]), ([inf], [-inf]), ([inf], [1.0])):
            for one, other in ((left, right), (right, left)):
                with self.subTest(f"{one} and {other}"), self.assertRaisesRegex(CaptureError, "x differs by"):
                    values.check_close("x", torch.tensor(one), torch.tensor(other))
        values.check_close("x", torch.tensor([nan, inf, 1.0]), torch.tensor([nan, inf, 1.00001]))
        self.assertFalse(values.is_same_update(torch.zeros(2), torch.tensor([nan, 1.0]), torch.tensor([0.0, 1.0])))
        self.assertTrue(values.is_same_update(torch.zeros(2), torch.tensor([nan, 1.0]), torch.tensor([nan, 1.0])))


class OnlyRounding(CaptureCase):
    def test_a_bias_before_a_batch_norm(self):
        """Its gradient is 0 but for rounding, and the traced loss lays its gradient out in another way."""

        class Points(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 5)

            def forward(self, x):
                return self.last(F.relu(self.norm(self.first(x).mT)).mT)

        loss = lambda out, kinds: F.cross_entropy(out.mT, kinds)  # noqa: E731
        self.captured(Points(), loss, torch.randn(2, 20, 64) / 50, targets=torch.randint(5, (2, 20)))
        self.imported()


if __name__ == "__main__":
    unittest.main()
