"""capture(): what it writes of a step, and what it refuses."""

import copy
import functools
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import models
from stepgraph_capture import CaptureError, capture, compat, write
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


class Parts(CaptureCase):
    """What a graph holds that the table of ops has in parts, or not at all."""

    def test_lists_of_tensors_and_marks(self):
        """`foreach` does the same to each tensor of lists; a mark for the profiler computes nothing."""

        class Model(nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self.register_buffer("kept", torch.rand(4, 4))
                self.register_buffer("least", torch.rand(4))

            def forward(self, x):
                with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
                    out = super().forward(x)
                with torch.no_grad():
                    kept, given = [self.kept, self.least], [self.weight, self.bias]
                    norms = torch._foreach_norm(given)
                    torch._foreach_lerp_(kept, given, 0.25)
                    torch._foreach_addcmul_(kept, given, given, 0.5)
                    torch._foreach_maximum_(kept, torch._foreach_div(given, [2.0, 3.0]))
                    torch._foreach_add_(kept, torch._foreach_pow(0.5, kept), alpha=-0.1)
                return out * torch.stack(norms).norm()

        document = self.captured(Model(), lambda out: out.square().sum(), torch.randn(2, 4))
        self.assertTrue(any("_foreach_" in node["op"] for node in document["nodes"]))
        text = self.imported()
        self.assertNotRegex(text, "_foreach_[a-z_]+\\.|profiler")

    def test_updates_in_one_operator(self):
        """Fused optimizers, here on buffers."""

        class Model(nn.Linear):
            def __init__(self, update):
                super().__init__(4, 4)
                self.update = update
                for name in ("kept", "gradient", "first", "second", "largest"):
                    self.register_buffer(name, torch.rand(4, 4))
                self.register_buffer("steps", torch.tensor(3.0))
                self.register_buffer("rate", torch.tensor(0.01))

            def forward(self, x):
                with torch.no_grad():
                    self.update(self, [self.kept], [self.gradient], [self.first], [self.second])
                return super().forward(x)

        def adam(op, **settings):
            def update(m, kept, gradient, first, second):
                rate = m.rate if settings["maximize"] else 0.02
                common = dict(lr=rate, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, **settings)
                op(kept, gradient, first, second, [m.largest] if settings["amsgrad"] else [], [m.steps], **common)

            return update

        def sgd(m, kept, gradient, first, _, **settings):
            torch._fused_sgd_(kept, gradient, first, weight_decay=0.1, momentum=0.9, lr=0.1, maximize=False, **settings)

        def adagrad(m, kept, gradient, first, _):
            more = dict(lr=0.1, lr_decay=0.5, weight_decay=0.1, eps=1e-8, maximize=True)
            torch._fused_adagrad_(kept, gradient, first, [m.steps], **more)

        updates = [adagrad] + [
            adam(op, amsgrad=ams, maximize=up)
            for op, ams, up in ((torch._fused_adam_, True, False), (torch._fused_adamw_, False, True))
        ]
        for settings in ((0.0, True, False), (0.2, False, False), (0.0, False, True)):
            names = dict(zip(("dampening", "nesterov", "is_first_step"), settings))
            updates.append(lambda *given, names=names: sgd(*given, **names))
        for update in updates:
            document = self.captured(Model(update), lambda out: out.square().sum(), torch.randn(2, 4))
            self.assertTrue(any("_fused_" in node["op"] for node in document["nodes"]))
            self.assertNotIn("_fused_", self.imported())

    def test_distances_by_a_product(self):
        """`cdist` of many rows."""

        class Model(nn.Linear):
            def forward(self, x):
                return torch.cdist(super().forward(x), self.weight).min(-1).values

        self.captured(Model(4, 4), lambda out: out.sum(), torch.randn(30, 4))
        self.assertNotIn("_euclidean_dist(", self.imported())

    def test_numbers_with_an_imaginary_part(self):
        """The gradient's factor is the conjugate of the number, which PyTorch computes of a tensor that is none."""

        class Model(nn.Linear):
            def forward(self, x):
                return (torch.exp(1j * super().forward(x)) * (2 - 0.5j)).real.square().sum()

        document = self.captured(Model(4, 4), None, torch.randn(3, 4))
        arguments = [argument for node in document["nodes"] for argument in node["args"]]
        self.assertIn({"complex": [0.0, -1.0]}, arguments)
        self.imported()

    def test_results_lie_as_eager_ops_lay_them(self):
        """Of narrow floats PyTorch's fake tensors forget that an operand is expanded: the gradient of a sum here."""

        class Experts(nn.Module):
            def __init__(self, dtype):
                super().__init__()
                self.gate, self.down = nn.Linear(6, 3).to(dtype), nn.Parameter(torch.randn(3, 6, 5, dtype=dtype))

            def forward(self, x):
                scores = self.gate(x).softmax(-1)[..., None]
                every = torch.einsum("tef,efd->ted", x[:, None] * scores, self.down)  # lies as [expert, token, width]
                return (every * scores).sum(1).float().square().mean()

        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype):
                self.captured(Experts(dtype), None, torch.randn(4, 6, dtype=dtype))
                self.imported()

    def test_norms_under_autocast(self):
        """Beside parameters in f32 PyTorch keeps statistics in f32, which its fake tensors do not tell."""

        class Model(nn.Module):
            def __init__(self, norm):
                super().__init__()
                self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), norm, nn.Conv2d(8, 4, 3)

            def forward(self, x):
                return self.second(torch.relu(self.norm(self.first(x)))).float().square().mean()

        for dtype in (torch.bfloat16, torch.float16):
            for norm in (nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.LayerNorm(6), nn.InstanceNorm2d(8, affine=True),
                         nn.BatchNorm2d(8).eval(), nn.GroupNorm(2, 8).to(dtype)):
                with self.subTest(dtype=dtype, norm=norm), torch.autocast("cpu", dtype):
                    torch.manual_seed(0)
                    self.captured(Model(norm), None, torch.randn(4, 3, 8, 8))
                    self.imported()


class Decisions(CaptureCase):
    """Steps that ask for values: one way is captured, with what it takes for granted as guards."""

    def test_control_flow(self):
        class Model(nn.Linear):
            def forward(self, x):
                return super().forward(x) if x.sum() > 0 else x.detach()

        document = self.captured(Model(4, 4), lambda out: out.sum(), torch.ones(2, 4))
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["data"])
        self.assertEqual(len(document["guards"]), 1)
        self.imported()
        inputs = self.values("inputs")
        name = next(entry["name"] for entry in document["inputs"] if entry["kind"] == "input")
        write.tensors(os.path.join(self.folder, "inputs.safetensors"), {**inputs, name: -inputs[name]})
        run = [os.path.join(os.environ["SG_BIN"], "sg-run"), "step.sg", "--inputs", "inputs.safetensors"]
        result = subprocess.run(run, cwd=self.folder, capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stderr, r"test_capture.py:\d+.* u\d+ = 0 is outside|guard u\d+ == 1 does not hold")

    def test_conditions_of_torch(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                chosen = torch.cond(x.sum() > 0, lambda y: self.first(y).relu(), lambda y: self.second(y).sin(), (x,))
                return torch.cond(chosen.shape[0] > 1, torch.cos, torch.sin, (chosen,)).square().sum()

        for sign, used in ((1, "first"), (-1, "second")):
            document = self.captured(Model(), None, sign * torch.ones(2, 4))
            self.assertEqual(document["guards"], [{"expr": f"Eq(u0,{int(sign > 0)})"}])
            gradients = {entry["of"] for entry in document["outputs"] if entry["kind"] == "gradient" and entry["value"]}
            self.assertEqual(gradients, {f"{used}.weight", f"{used}.bias"})
            self.imported()
        with self.assertRaisesRegex(CaptureError, "test_capture.py:[0-9]+ in forward: it decides by the value"):
            self.captured(Model(), None, torch.ones(2, 4), fake=True)

    def test_rows_that_a_mask_chooses_and_their_number(self):
        class Model(nn.Linear):
            def forward(self, x, mask):
                return super().forward(x[mask]).sum() / max(int(mask.sum()), 1)

        inputs = {"x": torch.randn(3, 5, 4), "mask": torch.rand(3, 5) > 0.4}
        document = self.captured(Model(4, 4), None, inputs)
        rows = {symbol["name"] for symbol in document["symbols"] if symbol["kind"] == "data"}
        chosen = next(node for node in document["nodes"] if node["op"] == "aten.index.Tensor")
        self.assertIn(chosen["type"]["shape"][0]["sym"], rows)
        self.imported()

    def test_norms_under_autocast(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.batch = nn.Linear(4, 6), nn.LayerNorm(6), nn.BatchNorm1d(6)

            def forward(self, x):
                loss = self.batch(torch.relu(self.norm(self.first(x)))).float().square().mean()
                return loss if loss > 0 else -loss

        with torch.autocast("cpu", torch.bfloat16):
            document = self.captured(Model(), None, torch.randn(5, 4))
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["data"])  # of the `if`
        self.imported()

    def test_transformers_look_at_their_mask(self):
        model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        rows = torch.randn(2, 5, 8)
        self.captured(model, lambda out: out.square().mean(), {"src": rows, "tgt": rows, "tgt_mask": mask})
        self.imported()

    def test_packed_sequences_and_ctc(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.head = nn.GRU(4, 6, batch_first=True, bidirectional=True), nn.Linear(12, 5)

            def forward(self, rows, lengths, labels, counts):
                packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
                hidden, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], True, total_length=rows.shape[1])
                scores = self.head(hidden).log_softmax(-1).transpose(0, 1)
                return F.ctc_loss(scores, labels, lengths, counts, zero_infinity=True)

        inputs = (torch.randn(3, 8, 4), torch.tensor([6, 7, 4]), torch.randint(1, 5, (3, 3)), torch.tensor([3, 2, 1]))
        before = [tensor.clone() for tensor in inputs]
        document = self.captured(Model(), None, inputs)
        self.assertIn("aten._ctc_loss_backward.default", {node["op"] for node in document["nodes"]})
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, inputs)))
        self.imported()

    def test_in_place_transposes_beside_values(self):
        """A recurrent layer that puts the batch first turns its result in place, once for the values beside it too."""

        class Model(nn.GRU):
            def forward(self, rows):
                hidden, _ = super().forward(rows)
                return hidden * 2 if (rows > 0).any() else hidden

        model = Model(4, 6, 2, batch_first=True, bidirectional=True)
        self.captured(model, lambda out: out.square().mean(), torch.randn(3, 8, 4))
        self.imported()

    def test_a_sequential_model_is_recomputed(self):
        """Its numbered children are no layers; in stretches they are, with or without modules inside."""
        flat = [child() for _ in range(6) for child in (lambda: nn.Linear(16, 16), lambda: nn.LayerNorm(16), nn.GELU)]
        deep = [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(6)]
        for children in (flat, [nn.Linear(16, 16), *deep, nn.LayerNorm(16)]):
            self.captured(nn.Sequential(*children, nn.Linear(16, 4)), lambda out: out.square().mean(),
                          torch.randn(64, 16))
            self.imported()
            graph, lean = (os.path.join(self.folder, name) for name in ("step.sg", "lean.sg"))
            for options in ((), ("--policy", "full"), ("--budget", "0.5")):
                self.tool("sg-remat", graph, *options, "-o", lean)
                paths = [os.path.join(self.folder, name) for name in ("inputs.safetensors", "expected.safetensors")]
                self.tool("sg-run", lean, "--inputs", paths[0], "--expect", paths[1])
                peaks = [json.loads(self.tool("sg-stat", g, "--json"))["memory"]["peak_bytes"] for g in (graph, lean)]
                self.assertLess(peaks[1], peaks[0], options)

    def test_numbers_with_a_fraction(self):
        """Read from a buffer they take part in arithmetic; what the step decides by them is asserted by nodes."""

        class Model(nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self.register_buffer("temperature", torch.tensor(0.75))

            def forward(self, x):
                by = self.temperature.item()
                if by > 0.25 and by / 2 < 1:
                    return torch.add(super().forward(x) * by, x, alpha=by / 2 + 1) - by**2
                return super().forward(x)

        document = self.captured(Model(), lambda out: out.square().sum(), torch.ones(2, 4))
        self.assertEqual((document["symbols"], document["guards"]), ([], []))
        self.assertNotIn("note", document)
        text = self.imported()
        self.assertIn("aten._assert_scalar", text)
        inputs = self.values("inputs")
        name = next(entry["name"] for entry in document["inputs"] if entry["fqn"] == "temperature")
        run = [os.path.join(os.environ["SG_BIN"], "sg-run"), "step.sg", "--inputs", "inputs.safetensors"]
        for temperature, code in ((0.5, 0), (0.25, 4), (2.5, 4)):
            inputs[name] = torch.tensor(temperature)
            write.tensors(os.path.join(self.folder, "inputs.safetensors"), inputs)
            result = subprocess.run(run, cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertEqual("the step was captured where" in result.stderr, code != 0, result.stderr)

    def test_numbers_written_by(self):
        """Where the step decides by a number, writes in place by it are no claim that it is the example's."""

        class Model(nn.Linear):
            def __init__(self, norm):
                super().__init__(4, 4)
                self.register_buffer("kept", torch.ones(4))
                self.register_buffer("size", torch.tensor(norm))

            def forward(self, x):
                by = self.size.item() / 2
                self.kept.add_(self.bias.detach(), alpha=-max(1e-3, by)).mul_(min(by**0.5, 4.0))
                return super().forward(x)

        for norm in (3.0, 5.0):  # the second for its data: the graph is the first one's
            self.captured(Model(norm), lambda out: out.square().sum(), torch.ones(2, 4))
            if norm == 3.0:
                self.imported()
        paths = [os.path.join(self.folder, name) for name in ("step.sg", "inputs.safetensors", "expected.safetensors")]
        self.tool("sg-run", paths[0], "--inputs", paths[1], "--expect", paths[2])

    def test_a_batch_norm_is_written_once(self):
        """The values beside the fakes are copies."""

        class Model(nn.BatchNorm1d):
            def forward(self, x):
                return super().forward(x) if (x > 0).any() else x

        model = Model(4)
        self.captured(model, lambda out: out.square().sum(), torch.randn(8, 4))
        self.assertTrue(torch.equal(model.running_mean, torch.zeros(4)))
        self.imported()

    def test_experts_found_in_the_data(self):
        """Rows by a mask, experts by the numbers that `nonzero` finds and by their names; written in place along the way."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.router = nn.Linear(4, 3)
                self.experts = nn.ModuleDict({f"expert_{i}": nn.Linear(4, 4) for i in range(3)})

            def forward(self, x):
                weight, chosen = self.router.to(torch.float32)(x).softmax(-1).max(-1)
                out = torch.zeros_like(x)
                for hit in (F.one_hot(chosen, 3).sum(0) > 0).nonzero():
                    rows = torch.where(F.one_hot(chosen, 3).T[hit[0]])[0]
                    out.index_add_(0, rows, self.experts[f"expert_{hit[0]}"](x[rows]) * weight[rows, None])
                return out[weight > 0.3]

        document = self.captured(Model(), lambda out: out.square().sum(), torch.randn(8, 4))
        self.assertTrue(document["guards"])
        self.imported()

    def test_sizes_that_are_tensors(self):
        class Model(nn.Conv2d):
            def forward(self, x, sizes):
                return F.interpolate(super().forward(x), size=(sizes[0], sizes[1]), mode="bilinear")

        sizes = torch.tensor([6, 5])
        self.captured(Model(2, 2, 3), lambda out: out.square().sum(), (torch.randn(1, 2, 8, 8), sizes))
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
        self.assertTrue(model.hooked)
        left = [model.mask, *model.positions.values(), model.scale(4)]
        self.assertFalse(any(compat.is_fake(tensor) for tensor in left))

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


class Forms(CaptureCase):
    """Calls that import makes of others."""

    def test_out_and_numbers_alone(self):
        class Model(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                mean = torch.empty(x.shape[0])
                with torch.no_grad():
                    torch.mul(y.detach()[:, 0], 2.0, out=mean)
                return y * mean[:, None] * torch.div(7, 2, rounding_mode="trunc") + torch.add(1.5, 2)

        document = self.captured(Model(4, 4), lambda out: out.sum(), torch.randn(2, 4))
        ops = {node["op"] for node in document["nodes"]}
        self.assertTrue({"aten.mul.out", "aten.div.Tensor_mode"} <= ops)
        text = self.imported()
        self.assertNotIn("mul.out", text)

    def test_views_of_what_eager_lays_out_otherwise(self):
        """The module of sg-export lays it out as the graph has it, so its sums are rounded in another order on some processors."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

            def forward(self, x):
                x = self.norm(self.linear(x).transpose(1, 2)).transpose(1, 2)
                return self.linear(x)

        self.captured(Model(), lambda out: out.square().sum(), torch.randn(3, 5, 4))
        self.imported()
        at = lambda name: os.path.join(self.folder, name)  # noqa: E731
        for options in ([], ["--fx"]):
            self.tool("sg-export", at("step.sg"), "-o", at("step.py"), *options)
            command = [sys.executable, at("step.py"), at("inputs.safetensors"), "--expect", at("expected.safetensors"),
                       "--rtol", "1e-4", "--atol", "1e-5"]
            said = subprocess.run(command, capture_output=True, text=True)
            self.assertIn("values are as expected", said.stdout, said.stderr)
            self.assertEqual(said.returncode, 0, said.stdout)


class Derivatives(CaptureCase):
    """Of torch.func, in the step."""

    def model(self, rule):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

            def forward(self, x):
                return rule(lambda rows: self.net(rows).squeeze(), x)

        return Model()

    def holds(self, rule):
        self.captured(self.model(rule), lambda out: out.square().sum(), torch.randn(5, 3))
        return self.imported()

    def test_forward_mode(self):
        """Its zeros are zeros, and what it asks about sizes is no node."""
        for rule in (
            lambda net, x: torch.func.hessian(net)(x[0]),
            lambda net, x: net(torch.func.jvp(lambda rows: (rows * x).tanh(), (x,), (torch.ones_like(x),))[1]),
        ):
            text = self.holds(rule)
            self.assertNotIn("aten._efficientzerotensor", text)
            self.assertNotIn("aten.is_same_size", text)

    def test_reverse_over_reverse_by_row(self):
        self.holds(lambda net, x: torch.func.vmap(torch.func.jacrev(torch.func.jacrev(net)))(x))

    def test_forward_over_reverse_by_row(self):
        model = self.model(lambda net, x: torch.func.vmap(torch.func.hessian(net))(x))
        with self.assertRaisesRegex(CaptureError, "torch.func.hessian under vmap.*jacrev of jacrev"):
            self.captured(model, lambda out: out.square().sum(), torch.randn(5, 3))


class Refusals(CaptureCase):
    def refused(self, words, model, loss_fn=lambda out: out.sum(), inputs=None, **more):
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, loss_fn, torch.ones(2, 4) if inputs is None else inputs, **more)
        self.assertFalse(
            [name for name in os.listdir(self.folder) if name.endswith("json") or name.endswith("partial")]
        )

    def test_sparse_gradients(self):
        model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
        self.refused("gradient of 0.weight is sparse", model, lambda out: out.square().mean(), torch.tensor([1, 2, 1]))

    def test_hooks_of_parameters(self):
        model = nn.Linear(4, 1)
        hook = model.weight.register_hook(lambda gradient: gradient * 2)
        self.refused("weight has a hook of its own", model, lambda out: out.square().mean(), torch.ones(2, 4))
        hook.remove()
        self.captured(model, lambda out: out.square().mean(), torch.ones(2, 4))

    def model(self, forward):
        class Wrapper(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                return forward(self, x)

        return Wrapper()

    def test_control_flow_by_values_of_fake_tensors(self):
        def forward(self, x):
            return self.linear(x) if x.sum() > 0 else x

        where = r"at .*test_capture.py:\d+ in forward: it decides by the value"
        self.refused(where + ".*With fake=True there are no values", self.model(forward), fake=True)

    def test_state_outside_of_the_model(self):
        calls = []

        def forward(self, x):
            calls.append(1)
            return self.linear(x) * len(calls)

        self.refused("differs by", self.model(forward))

    def test_ops_without_a_fake(self):
        library = torch.library.Library("stepgraph_test", "FRAGMENT")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        self.addCleanup(library._destroy)
        self.refused(
            "no fake of .*stepgraph_test.twice",
            self.model(lambda self, x: torch.ops.stepgraph_test.twice(self.linear(x))),
        )

    def test_collectives_in_place(self):
        store = os.path.join(self.folder, "store")
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)

        def forward(self, x):
            x = self.linear(x)
            torch.distributed.group.WORLD.send([x.detach()], 0, 0)  # whom send() refuses to send to oneself
            return x

        words = "rank 0 sends to itself" if compat.can_box_work() else "a collective that works through a handle"
        self.refused(words, self.model(forward))

    def test_losses(self):
        self.refused("returned a tensor of size", nn.Linear(4, 4), lambda out: out)
        self.refused("returned dict and no tensor", nn.Linear(4, 4), lambda out: {})
        self.refused("depends on no parameter", nn.Linear(4, 4), lambda out: out.detach().sum())
        self.refused("no training step", nn.Linear(4, 4).requires_grad_(False))
        self.refused("without a loss function", self.model(lambda self, x: (x,)), None)

    def test_arguments_twice(self):
        self.refused(
            "input: given in inputs= and in kwargs=",
            nn.Linear(4, 4),
            inputs={"input": torch.ones(2, 4)},
            kwargs={"input": torch.ones(2, 4)},
        )

    def test_an_error_of_the_model_is_its_own(self):
        with self.assertRaises(RuntimeError):
            self.captured(nn.Linear(4, 4), lambda out: out.sum(), torch.ones(2, 5))

    def test_folders_that_cannot_be_written(self):
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        with self.assertRaisesRegex(CaptureError, "cannot write into"):
            capture(nn.Linear(4, 4), lambda out: out.sum(), torch.ones(2, 4), os.path.join(blocked, "deeper"))

    def test_nothing_half_written(self):
        path = os.path.join(self.folder, "old.json")
        write.capture_json(path, {"a": 1}, False)
        with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(CaptureError, "No space left"):
                write.capture_json(path, {"a": 2}, False)
        self.assertEqual(os.listdir(self.folder), ["old.json"])
        self.assertIn("1", open(path).read())


class OwnBackward(CaptureCase):
    """Steps that call backward themselves; run_job_tests.py has pipelines of them."""

    def step(self, train_step, **more):
        self.model = torch.nn.Linear(4, 2)
        document = self.captured(self.model, None, {"rows": torch.randn(6, 4)}, train_step=train_step, **more)
        return document, [node["phase"] for node in document["nodes"] if node["op"] != "aten.ones_like.default"]

    def test_micro_batches(self):
        def train(rows):
            total = 0
            for part in rows.chunk(3):
                loss = self.model(part).tanh().sum() / 3
                loss.backward()
                total = total + loss.detach()
            return total, {"rows": rows * 2}

        document, phases = self.step(train)
        turns = [phase for at, phase in enumerate(phases) if at == 0 or phase != phases[at - 1]]
        self.assertEqual(turns, ["forward", "backward"] * 3 + ["forward"])
        self.assertEqual([output["kind"] for output in document["outputs"]], ["loss", "gradient", "gradient", "other"])
        self.assertIn("aten.tanh_backward", {node["op"].rpartition(".")[0] for node in document["nodes"]})
        self.assertTrue(all(parameter.grad is None for parameter in self.model.parameters()))
        self.imported()

    def test_without_a_loss(self):
        def train(rows):
            y = self.model(rows)
            y.backward(torch.ones_like(y))

        document, _ = self.step(train)
        self.assertEqual([output["kind"] for output in document["outputs"]], ["gradient", "gradient"])
        self.imported()

    def test_refused(self):
        def train(rows):
            return self.model(rows)

        for words, more in (("no tensor of one number", {}), ("no loss_fn=", {"targets": torch.zeros(1)})):
            with self.assertRaisesRegex(CaptureError, words):
                self.step(train, **more)

    def test_by_itself(self):
        self.model = nn.Linear(4, 2)
        capture(
            model=self.model,
            inputs={"rows": torch.randn(6, 4)},
            out_dir=self.folder,
            train_step=lambda rows: self.model(rows).sum().backward(),
        )
        self.imported()

    def test_parameters_kept_from_before(self):
        """The update would be missing, and the norm be left as it is, without a word."""
        model = nn.Linear(4, 2)
        kept = list(model.parameters())
        optimizer = torch.optim.AdamW(kept)
        ends = {
            r"AdamW\.step\(\).*sg-run --optimizer": optimizer.step,
            r"gradient of weight by a parameter kept": lambda: nn.utils.clip_grad_norm_(kept, 1.0),
        }
        for words, end in ends.items():

            def train(rows):
                optimizer.zero_grad() if end == optimizer.step else None
                model(rows).sum().backward()
                end()

            with self.assertRaisesRegex(CaptureError, words):
                self.captured(model, None, {"rows": torch.randn(6, 4)}, train_step=train)
        self.assertEqual([parameter.grad for parameter in kept], [None, None])


class WindowsOfTheData(CaptureCase):
    def test_lengths_between_borders_that_are_found(self):
        """One window: its number of lengths is 1 by a guard alone, of which PyTorch's fake of unbind knows nothing."""

        class Windows(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.LayerNorm(4)

            def forward(self, rows, borders):
                borders = torch.unique_consecutive(borders)
                lengths = (borders[1:] - borders[:-1]).tolist()
                return torch.cat([self.norm(part).softmax(0) for part in torch.split(rows, lengths)])

        self.captured(Windows(), lambda out: out.square().sum(), (torch.randn(6, 4), torch.tensor([0, 6, 6])))
        self.imported()


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
