"""Steps that ask for values, and sizes that the data decides."""

import itertools
import json
import math
import os
import subprocess
import unittest

import numpy as np
import torch
from torch import nn
from torch._subclasses import fake_impls
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from safetensors.torch import load_file, save_file

from stepgraph_capture import CaptureError, write
from support import CaptureCase

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
PLACES_HAVE_SYMBOLS = torch.ops.aten.select.int in fake_impls.op_implementations_dict


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
        self.assertRegex(result.stderr, r"test_decisions.py:\d+.* u\d+ = 0 is outside|guard u\d+ == 1 does not hold")
        self.assertIn("the graph holds what the step did with the data of the capture", result.stderr)

    def test_by_the_order_of_a_sort(self):
        """Where the run goes another way the message names the sort, unless its order is the same everywhere."""
        for is_stable in (False, True):

            class Model(nn.Linear):
                def forward(self, x, key):
                    first = torch.argsort(key, stable=is_stable).tolist()[0]
                    return super().forward(x).sum() * (2 if first == 2 else 1)

            with self.subTest(is_stable=is_stable):
                x, key = torch.randn(4, 4), torch.tensor([2.0, 1.0, 0.0, 1.0])
                self.captured(Model(4, 4), None, {"x": x, "key": key})
                self.imported()
                inputs = self.values("inputs")
                name = next(name for name, tensor in inputs.items() if torch.equal(tensor, key))
                write.tensors(os.path.join(self.folder, "inputs.safetensors"), {**inputs, name: -key})
                run = [os.path.join(os.environ["SG_BIN"], "sg-run"), "step.sg", "--inputs", "inputs.safetensors"]
                result = subprocess.run(run, cwd=self.folder, capture_output=True, text=True)
                self.assertNotEqual(result.returncode, 0, result.stdout)
                said = r"the places that %\S+ \(aten\.sort\.\S+\) gives.*capture with stable=True"
                (self.assertNotRegex if is_stable else self.assertRegex)(result.stderr, said)

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
        with self.assertRaisesRegex(CaptureError, "test_decisions.py:[0-9]+ in forward: it decides by the value"):
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

    def test_ctc_of_any_lengths(self):
        """Lengths are data where the targets are rows: the graph holds for others, and for other batches and times."""

        class Model(nn.Linear):
            def forward(self, rows, lengths, labels, counts):
                scores = super().forward(rows).log_softmax(-1).transpose(0, 1)
                return F.ctc_loss(scores, labels, lengths, counts, zero_infinity=True)

        def inputs(batch, time, width):
            return {"rows": torch.randn(batch, time, 4), "lengths": torch.randint(time // 2, time + 1, (batch,)),
                    "labels": torch.randint(1, 5, (batch, width)), "counts": torch.randint(0, width, (batch,))}

        model, dynamic = Model(4, 5), {"rows": ["b", "t", None], "lengths": ["b"], "labels": ["b", "s"], "counts": ["b"]}
        document = self.captured(model, None, inputs(3, 8, 3), dynamic=dynamic)
        self.assertEqual([symbol["kind"] for symbol in document["symbols"]], ["input"] * 3)
        self.assertIn("aten._ctc_loss_backward.Tensor", {node["op"] for node in document["nodes"]})
        self.imported()
        graph, given, made = (os.path.join(self.folder, name) for name in ("step.sg", "in.safetensors", "out.safetensors"))
        names = {entry["name"]: entry["fqn"] for entry in document["inputs"]}
        for sizes in ((3, 8, 3), (5, 20, 7), (2, 9, 4)):
            others = inputs(*sizes)
            save_file({name: {**others, **model.state_dict()}[fqn] for name, fqn in names.items()}, given)
            self.tool("sg-run", "-q", graph, "--inputs", given, "--outputs", made)
            loss = model(**others)
            expected = [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]
            for mine, theirs in zip(load_file(made).values(), expected):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)

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

        inputs = (torch.randn(3, 8, 4), torch.tensor([6, 7, 4]), torch.randint(1, 5, (6,)), torch.tensor([3, 2, 1]))
        before = [tensor.clone() for tensor in inputs]
        document = self.captured(Model(), None, inputs)
        self.assertIn("aten._ctc_loss_backward.default", {node["op"] for node in document["nodes"]})
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, inputs)))
        self.imported()

    def test_the_larger_of_two_fractions(self):
        class Model(nn.Linear):
            def forward(self, x):
                y = super().forward(x).square().mean()
                return y * (2 if torch.sym_max(y.item(), 0.01) ** 2 + torch.sym_min(y.item(), 0.5) < 1e3 else 3)

        document = self.captured(Model(4, 5), None, torch.randn(3, 4))
        self.assertLessEqual({"python.sym_max", "python.sym_min"}, {node["op"] for node in document["nodes"]})
        self.imported()

    def test_ctc_of_lengths_that_are_numbers(self):
        for lengths, counts, options in (((6, 5), [2, 1], {}), ([6, 5], (2, 0), {"reduction": "sum", "zero_infinity": True}),
                                         (torch.tensor([6, 5]), torch.tensor([2, 1]), {"reduction": "none"})):
            class Model(nn.Linear):
                def forward(self, rows, labels):
                    scores = super().forward(rows).log_softmax(-1)
                    alone = F.ctc_loss(scores[:, 0], labels[0], torch.tensor(6), torch.tensor(2))
                    named = F.ctc_loss(log_probs=scores, targets=labels, input_lengths=(6, 5), target_lengths=(2, 1))
                    return F.ctc_loss(scores, labels, lengths, counts, **options).sum() + alone + named

            self.captured(Model(4, 5), None, (torch.randn(6, 2, 4), torch.tensor([[1, 2], [2, 3]])))
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

    @unittest.skipIf(RELEASE < (2, 7), "this PyTorch has no fake of unbind for no rows")
    def test_a_loop_over_nothing(self):
        """It has a guard, as one over what is found."""

        class Model(nn.Linear):
            def forward(self, x, i):
                x = super().forward(x)
                for place in i[i > 2]:
                    x = x * place
                return x.square().sum()

        self.captured(Model(4, 4), None, {"x": torch.randn(3, 4), "i": torch.tensor([0, 2, 1])})
        self.imported()
        inputs = self.values("inputs")
        name = next(name for name, tensor in inputs.items() if tensor.dtype == torch.int64)
        for other, code in ((torch.tensor([2, 2, 0]), 0), (torch.tensor([0, 3, 1]), 4)):
            write.tensors(os.path.join(self.folder, "other.safetensors"), {**inputs, name: other})
            graph, given = (os.path.join(self.folder, file) for file in ("step.sg", "other.safetensors"))
            run = [os.path.join(os.environ["SG_BIN"], "sg-run"), graph, "--inputs", given]
            self.assertEqual(subprocess.run(run, capture_output=True).returncode, code)

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

    def test_numbers_that_are_keys(self):
        """As models of images and texts group their tokens by kind."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

            def forward(self, x, kinds):
                parts, found, at, numbers = {0: self.parts[0], 1: self.parts[1]}, [], 0, kinds.tolist()
                for kind, group in itertools.groupby(numbers):
                    count = len(list(group))
                    found.append(parts[kind](x[at : at + count]))
                    at += count
                return torch.cat(found).square() * len({*numbers})

        inputs = {"x": torch.randn(6, 4), "kinds": torch.tensor([0, 0, 1, 1, 1, 0])}
        document = self.captured(Model(), lambda out: out.sum(), inputs)
        self.assertEqual(len(document["guards"]), 6)
        self.imported()
        with self.assertRaisesRegex(CaptureError, "it decides by the value of a tensor"):
            self.captured(Model(), lambda out: out.sum(), inputs, fake=True)

    def test_attention_over_pieces(self):
        """By the kernel that eager takes, for pieces of other lengths, too."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 24)

            def forward(self, x, lengths):
                heads = self.linear(x).view(-1, 3, 2, 4).permute(1, 2, 0, 3).unsqueeze(1)
                pieces = zip(*(part.split(lengths.tolist(), dim=2) for part in heads.unbind(0)))
                return torch.cat([F.scaled_dot_product_attention(*piece, is_causal=True) for piece in pieces], 2)

        model, x, others = Model(), torch.randn(12, 8), torch.tensor([1, 9, 2])
        self.captured(model, lambda out: out.square().sum(), {"x": x, "lengths": torch.tensor([5, 4, 3])})
        text = self.imported()
        self.assertEqual(text.count("= aten._scaled_dot_product_flash_attention_for_cpu("), 3)
        self.assertNotIn("softmax", text)
        write.tensors(os.path.join(self.folder, "inputs.safetensors"), {**self.values("inputs"), "arg3_1": others})
        graph, inputs = (os.path.join(self.folder, name) for name in ("step.sg", "inputs.safetensors"))
        said = json.loads(self.tool("sg-run", graph, "--inputs", inputs, "--json"))
        loss = model(x, others).square().sum().item()
        self.assertAlmostEqual(said["ranks"][0]["losses"][0], loss, delta=1e-5 * loss)

    def test_causal_biases(self):
        """Of PyTorch's class, made in the step: aligned at the first or at the last key."""
        from torch.nn.attention.bias import causal_lower_right, causal_upper_left

        class Model(nn.Linear):
            def forward(self, x):
                q, k = super().forward(x).view(2, 1, 6, 8)[:, :, :4], x.view(2, 1, 6, 8)
                of_first = F.scaled_dot_product_attention(q, k, k, attn_mask=causal_upper_left(4, 6))
                return (of_first - F.scaled_dot_product_attention(q, k, k, attn_mask=causal_lower_right(4, 6))).square().mean()

        self.captured(Model(8, 8), None, torch.randn(2, 6, 8))
        self.imported()

    @unittest.skipIf(RELEASE < (2, 12), "this PyTorch multiplies matrices where heads share keys")
    def test_attention_over_pieces_that_share_keys(self):
        class Model(nn.Linear):
            def forward(self, x, lengths):
                q, k, v = (t.unflatten(1, [-1, 4]).transpose(0, 1)[None] for t in super().forward(x).split([16, 8, 8], 1))
                pieces = zip(*(t.split(lengths.tolist(), dim=2) for t in (q, k, v)))
                return torch.cat([F.scaled_dot_product_attention(*piece, enable_gqa=True) for piece in pieces], 2)

        inputs = {"x": torch.randn(7, 8), "lengths": torch.tensor([2, 5])}
        self.captured(Model(8, 32), lambda out: out.square().mean(), inputs)
        text = self.imported()
        self.assertEqual(text.count("= aten._scaled_dot_product_flash_attention_for_cpu("), 2)

    def test_attention_over_pieces_in_a_checkpoint(self):
        """Computed again by the same kernels, under a mask."""

        class Model(nn.Linear):
            def attend(self, x, lengths):
                heads = super().forward(x).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
                pieces = zip(*(part.split(lengths.tolist(), dim=2) for part in heads.unbind(0)))
                seen = [torch.ones(n, n, dtype=torch.bool).tril() for n in lengths.tolist()]
                return torch.cat([F.scaled_dot_product_attention(*piece, mask) for piece, mask in zip(pieces, seen)], 2)

            def forward(self, x, lengths):
                return checkpoint(self.attend, x, lengths, use_reentrant=False)

        inputs = {"x": torch.randn(7, 8), "lengths": torch.tensor([2, 5])}
        self.captured(Model(8, 24), lambda out: out.square().mean(), inputs)
        text = self.imported()
        self.assertEqual(text.count("= aten._scaled_dot_product_flash_attention_for_cpu("), 4)

    def test_tensors_of_tensors(self):
        """Of other data they have other numbers."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x, ids):
                largest, count = [row.max() + 1 for row in ids], ids[0, 0].item()
                found = self.linear(x) * torch.tensor([*largest, 2]).sum()
                found += torch.tensor([[largest[0], 0.5], [1, True]]).sum()
                return found + x.new_tensor([largest[1], count]).sum() + ids.new_tensor([0, largest[1]]).sum()

        ids = torch.tensor([[1, 5, 3], [2, 4, 4]])
        model, x = Model(), torch.randn(6, 4)
        self.captured(model, lambda out: out.square().sum(), {"x": x, "ids": ids})
        self.imported()
        inputs = {**self.values("inputs"), "arg3_1": ids.flip(0, 1) * 3}
        write.tensors(os.path.join(self.folder, "inputs.safetensors"), inputs)
        command = ("step.sg", "--inputs", "inputs.safetensors", "--json")
        said = json.loads(self.tool("sg-run", *(os.path.join(self.folder, c) if "." in c else c for c in command)))
        loss = model(x, ids.flip(0, 1) * 3).square().sum().item()
        self.assertAlmostEqual(said["ranks"][0]["losses"][0], loss, delta=1e-5 * loss)

    def test_sizes_that_are_tensors(self):
        class Model(nn.Conv2d):
            def forward(self, x, sizes):
                return F.interpolate(super().forward(x), size=(sizes[0], sizes[1]), mode="bilinear")

        sizes = torch.tensor([6, 5])
        self.captured(Model(2, 2, 3), lambda out: out.square().sum(), (torch.randn(1, 2, 8, 8), sizes))
        self.imported()

    def test_planes_whose_number_the_data_decides(self):
        """C++ takes no symbols among the sizes that the backward of an interpolation is given, as keypoints have it."""

        class Model(nn.Conv2d):
            def forward(self, x, rows):
                planes = super().forward(x)
                chosen = torch.cat([planes[torch.where(rows > n)[0]] for n in (0, 1)])
                scale = 2.0 if rows.sum() > 1 else 3.0
                return F.interpolate(chosen, scale_factor=scale, mode="bilinear", recompute_scale_factor=False)

        rows = torch.tensor([1, 0, 2])
        self.captured(Model(2, 2, 3), lambda out: out.square().sum(), (torch.randn(3, 2, 8, 8), rows))
        self.imported()


class PlainNumbers(CaptureCase):
    """Python numbers made of float tensors: asserted where the graph depends on them, and only there."""

    def step_with(self, use):
        model = nn.Linear(4, 3)

        def step(x):
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            with torch.no_grad():
                use(model, loss.detach())
                for parameter in model.parameters():
                    parameter.sub_(0.2 * parameter.grad)
            return loss.detach()

        inputs = {"x": torch.randn(6, 4)}
        document = self.captured(model, None, inputs, train_step=step)
        self.assertNotIn("note", document)
        return step, inputs, [node for node in document["nodes"] if node["op"] == "aten._assert_scalar.default"]

    def test_those_that_the_graph_uses(self):
        def scale(factor):
            return lambda model, loss: model.weight.grad.mul_(factor(loss))

        def cut(model, loss):
            if float(loss) < 3:  # far from the example's: it takes a far number to see the decision
                model.weight.grad.mul_(0.5)

        def loop(model, loss):  # with a far number it makes many nodes, and each makes decisions
            for i in torch.arange(0, int(torch.ceil(loss * 3))):
                if i > 0:
                    model.weight.grad.mul_(1.01)

        uses = {
            "float": scale(float),
            "gamma": scale(lambda loss: math.lgamma(loss.item())),
            "text": scale(lambda loss: float("%.3f" % loss)),
            "whole": scale(lambda loss: int(loss * 1000)),
            "cut": cut,
            "loop": loop,
        }
        for name, use in uses.items():
            with self.subTest(name):
                _, _, asserted = self.step_with(use)
                self.assertTrue(asserted)
                self.assertTrue(all(node["source"]["file"].endswith("test_decisions.py") for node in asserted))
                self.imported()
                values = [os.path.join(self.folder, part) for part in ("step.sg", "inputs.safetensors")]
                run = [os.path.join(os.environ["SG_BIN"], "sg-run"), values[0], "--inputs", values[1], "--steps", "3"]
                result = subprocess.run(run, capture_output=True, text=True)
                self.assertEqual(result.returncode, 4, result.stdout)
                self.assertRegex(result.stderr, r"test_decisions.py:\d+.*a number that Python takes here out of a tensor")

    def test_those_that_it_only_logs(self):
        logged = []
        uses = {
            "float": lambda model, loss: logged.append(float(loss)),
            "perplexity": lambda model, loss: logged.append(math.exp(loss.item())),
            "text": lambda model, loss: logged.append("%.3f" % loss.item()),
            "formatted": lambda model, loss: logged.append(f"{loss:.3f} {loss.item():.4f}"),
            "whole": lambda model, loss: logged.append(int(loss * 10)),
            "root": lambda model, loss: model.weight.grad.mul_(math.sqrt(loss.item())),
            "of a tensor": lambda model, loss: model.weight.grad.mul_(math.log(loss, 3) + math.pow(0.5, loss)),
            "tensor": lambda model, loss: model.weight.grad.mul_(torch.tensor(loss.item())),
            "tensors": lambda model, loss: model.weight.grad.mul_(torch.as_tensor([[loss.item()], [0.5]]).sum()),
            "symbolic": lambda model, loss: model.weight.grad.mul_(math.floor(loss.item() * 100) / 100),
            "larger": lambda model, loss: model.weight.grad.div_(max(1.0, loss.item() / 2, 0.5)),
            "smaller": lambda model, loss: model.weight.grad.mul_(min([loss.item(), 1])),
            "range": lambda model, loss: model.weight.grad.mul_(torch.arange(0.5, loss.item() + 3, 0.25).mean() / 4),
            "named": lambda model, loss: model.weight.grad.mul_(torch.arange(end=loss.item(), start=-2).exp().mean()),
        }
        for name, use in uses.items():
            with self.subTest(name):
                step, inputs, asserted = self.step_with(use)
                self.assertEqual(asserted, [])
                self.check_steps(step, inputs)

    def test_code_that_takes_no_symbols(self):
        uses = {
            "json": lambda loss: json.dumps({"loss": loss.item()}),
            "numpy": lambda loss: np.sqrt(loss.item()),
            "array": lambda loss: loss.numpy(),
        }
        for name, use in uses.items():
            with self.subTest(name), self.assertRaisesRegex(CaptureError, "test_decisions.py:[0-9]+ in .*float"):
                self.step_with(lambda model, loss: use(loss))


class InScripts(CaptureCase):
    def test_a_function_of_torchscript(self):
        class Model(nn.Linear):
            def forward(self, x):
                return _doubled_if_positive(super().forward(x)).square().sum()

        document = self.captured(Model(4, 4), None, {"x": torch.randn(3, 4)})
        self.assertEqual([guard["expr"] for guard in document["guards"]], ["Eq(u0,0)"])
        self.imported()


@torch.jit.script
def _doubled_if_positive(x):
    if torch.all(x > 0):
        return 2 * x
    return x


class PlacesByTheData(CaptureCase):
    """Rows and slices whose place or length is a number of the data: PyTorch has symbols of their own for these. One that
    has not takes numbers of the capture's kind alone, by a guard."""

    class Scaled(nn.Module):
        def __init__(self, use):
            super().__init__()
            self.scale, self.use = nn.Parameter(torch.randn(6, 4)), use

        def forward(self, x, i):
            return self.use(self.scale * x, i).square().sum()

    def check_places(self, use, *numbers):
        """A capture made with 2 gives PyTorch's loss and gradient for other numbers, too."""
        model, x = self.Scaled(use), torch.randn(6, 4)
        document = self.captured(model, None, (x, torch.tensor(2)))
        self.imported()
        name = next(entry["name"] for entry in document["inputs"] if entry.get("fqn") == "i")
        given, made = (os.path.join(self.folder, name + ".safetensors") for name in ("other", "made"))
        for number in numbers:
            with self.subTest(number=number):
                loss = model(x, torch.tensor(number))
                gradient = torch.autograd.grad(loss, model.scale)[0]
                write.tensors(given, {**self.values("inputs"), name: torch.tensor(number)})
                command = ("sg-run", os.path.join(self.folder, "step.sg"), "--inputs", given, "--outputs", made)
                if not PLACES_HAVE_SYMBOLS and self.is_stopped(*command):
                    continue
                self.tool(*command)
                torch.testing.assert_close(self.values("made"), {"out0": loss, "out1": gradient})

    def is_stopped(self, name, *arguments):
        """Whether a guard says that the graph is for other data."""
        command = [os.path.join(os.environ["SG_BIN"], name), *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.returncode == 4 and "the graph holds what the step did with the data" in result.stderr

    def test_rows(self):
        self.check_places(lambda rows, i: rows[i.item()], 0, 5, -1, -6)
        self.check_places(lambda rows, i: rows[..., i.item()], 3, -4)
        self.check_places(lambda rows, i: rows[None, i.item(), 1:3], 4, -2)
        self.check_places(lambda rows, i: rows[1:, i.item() + 1], 1, -1)

    def test_rows_that_are_written(self):
        def cleared(rows, i):
            rows = rows.clone()
            rows[i.item()] = 0
            rows[1:, i.item()] *= 2
            return rows

        self.check_places(cleared, 0, 3, -1)

    def test_lists_of_tensors_of_one_number(self):
        """As an index of an axis, alone and beside others, read and written."""

        def chosen(rows, i):
            places = torch.stack([i % 6, (i + 1) % 6, i * 0])
            return rows[list(places), :] * rows[list(places), [0, i % 4, 3]].unsqueeze(1)

        def cleared(rows, i):
            rows, places = rows.clone(), torch.tensor([[0, 1], [2, 3]]) * (1 - i % 2)
            first, second = zip(*places)
            rows[first, second] = 0
            return rows

        self.check_places(chosen, 0, 3, 5)
        self.check_places(cleared, 0, 3)

    def test_slices(self):
        self.check_places(lambda rows, i: rows[: i.item()], 0, 1, 6, 9, -1, -9)
        self.check_places(lambda rows, i: rows[i.item() :], 0, 5, 7, -2)
        self.check_places(lambda rows, i: rows[:, -i.item() :], 1, 4, 0)
        self.check_places(lambda rows, i: rows[i.item() : i.item() + 3], 0, 4, 6)
        self.check_places(lambda rows, i: rows[: i.item() * 2 : 2].clone().view(-1), 0, 1, 3)

    def test_slices_bounded_by_tensors(self):
        self.check_places(lambda rows, i: rows[:, :i], 0, 4, -1)
        self.check_places(lambda rows, i: rows[i : i + 2] @ rows[i : i + 2].T, 0, 5, -4)

    def test_a_slice_whose_length_becomes_a_number(self):
        """Its bounds stay numbers of the data: a cache by shapes asks for the length of what it gives."""

        def scaled(rows, i):
            some = rows[: i.item()]
            return some * int(some.shape[0])

        self.check_places(scaled, 2)

    def test_a_row_by_a_number_in_a_tensor(self):
        class Model(nn.Linear):
            def forward(self, x, i):
                ring = torch.zeros(3, 4)
                ring[i % 3] = self.weight[i]
                return (x * ring.sum() * self.weight[:, i]).square().mean()

        self.captured(Model(4, 3, bias=False), None, (torch.randn(3), torch.tensor(2)))
        self.imported()


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


if __name__ == "__main__":
    unittest.main()
