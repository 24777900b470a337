"""Models whose forward runs again within backward, trained for several steps; and state that a graph cannot follow."""

import copy
import os
import unittest

import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from stepgraph_capture import CaptureError
from support import CaptureCase

try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    LlamaForCausalLM = None

STEPS, RATE = 3, 0.5


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 8)
        self.dropout = dropout

    def forward(self, x):
        return x + self.down(F.dropout(torch.tanh(self.norm(self.up(x))), self.dropout))


class Model(nn.Module):
    """One block twice, so that gradients of two checkpoints meet, and a lambda that no module stands for."""

    def __init__(self, use_reentrant, dropout=0.0):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(6, 8), Block(dropout), nn.Linear(8, 4)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=self.use_reentrant)
        return checkpoint(lambda rows: self.last(rows.sin()), x, use_reentrant=self.use_reentrant)


class Casting(nn.Module):
    """Casts a part of itself when it runs, which the second run finds done."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4).to(torch.bfloat16)

    def forward(self, x):
        return self.router.to(torch.float32)(x)


class Checked(nn.Module):
    def __init__(self, inner, use_reentrant):
        super().__init__()
        self.inner, self.use_reentrant = inner, use_reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant)


class Selective(nn.Module):
    """Keeps its products and computes the rest again; a norm is taken apart into ops that write in place."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 12), nn.RMSNorm(12, elementwise_affine=False), nn.Linear(12, 4)

    def block(self, x):
        return self.down(torch.tanh(self.norm(self.up(x))))

    def forward(self, x):
        products = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]
        return checkpoint(
            self.block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(products)
        )


class Counting(nn.Module):
    """Assigns its buffer anew, as often as it runs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x):
        self.runs = self.runs + 1
        return self.linear(x).tanh() * 2


def square(out):
    return out.square().mean()


class Trained(CaptureCase):
    def check(self, model, loss_fn, inputs):
        """What PyTorch's own training gives in its last step, sg-run gives by the graph of the first."""
        state = {name: value.clone() for name, value in model.state_dict().items()}
        document = self.captured(model, loss_fn, inputs)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(state[name], value), f"{name} was changed by capturing")
        self.assertEqual([entry for entry in document["inputs"] if entry["kind"] == "constant"], [])
        self.imported()
        twin = copy.deepcopy(model)
        optimizer = torch.optim.SGD(twin.parameters(), lr=RATE)
        for step in range(STEPS):
            optimizer.step()
            optimizer.zero_grad()
            out = twin(**inputs) if isinstance(inputs, dict) else twin(inputs)
            loss = loss_fn(out) if loss_fn else out.loss
            loss.backward()
            if step == 0:
                self._check_buffers(document, twin)
        answers = {f"gradient:{name}": parameter.grad for name, parameter in twin.named_parameters()}
        self._check_trained({"loss": loss.detach(), **answers})
        return document

    def _check_buffers(self, document, twin):
        """Those of the first step, which the forward within backward writes as well."""
        expected = self.values("expected")
        for entry in document["inputs"]:
            if entry["kind"] == "buffer" and f"mutated.{entry['name']}" in expected:
                torch.testing.assert_close(expected[f"mutated.{entry['name']}"], twin.get_buffer(entry["fqn"]))
        for i, output in enumerate(document["outputs"]):
            if output["kind"] == "buffer":
                torch.testing.assert_close(expected[f"out{i}"], twin.get_buffer(output["of"]))

    def _check_trained(self, answers):
        from safetensors.torch import save_file

        save_file(answers, f"{self.folder}/trained.safetensors")
        said = self.tool(
            "sg-run", f"{self.folder}/step.sg", "--inputs", f"{self.folder}/inputs.safetensors", "--steps", str(STEPS),
            "--optimizer", f"sgd:lr={RATE}", "--expect", f"{self.folder}/trained.safetensors",
        )
        self.assertIn(f"all {len(answers)} compared values are as expected", said)

    def _runs_in_backward(self, document, op):
        return sum(node["phase"] == "backward" and node["op"] == op for node in document["nodes"])

    def test_checkpoints(self):
        document = self.check(Model(use_reentrant=False), square, torch.randn(5, 6))
        self.assertEqual(self._runs_in_backward(document, "aten.tanh.default"), 2)

    def test_reentrant_checkpoints(self):
        document = self.check(Model(use_reentrant=True), square, torch.randn(5, 6))
        self.assertEqual(self._runs_in_backward(document, "aten.tanh.default"), 2)

    def test_selective_checkpoints(self):
        document = self.check(Selective(), square, torch.randn(5, 6))
        self.assertEqual(self._runs_in_backward(document, "aten.tanh.default"), 1)
        self.assertEqual(self._runs_in_backward(document, "aten.addmm.default"), 0)

    def test_wrapped_modules(self):
        model = nn.Sequential(checkpoint_wrapper(nn.Linear(6, 8)), nn.Tanh(), checkpoint_wrapper(Block()))
        self.check(model, square, torch.randn(5, 6))

    def test_the_outermost_module_is_wrapped(self):
        self.check(checkpoint_wrapper(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), Block())), square, torch.randn(5, 6))

    def test_a_buffer_that_is_assigned_in_each_run(self):
        document = self.check(checkpoint_wrapper(Counting()), square, torch.randn(5, 6))
        index = next(i for i, output in enumerate(document["outputs"]) if output["kind"] == "buffer")
        self.assertEqual(self.values("expected")[f"out{index}"].item(), 2)

    def test_a_module_that_casts_itself(self):
        gradients = []
        for use_reentrant in (False, True):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 8), Checked(Casting(), use_reentrant))
            document = self.captured(model, square, torch.randn(5, 6))
            self.imported()
            names = [output["of"] for output in document["outputs"] if output["kind"] == "gradient"]
            expected = self.values("expected")
            gradients.append({name: expected[f"out{i}"] for i, name in enumerate(names, 1)})
        self.assertEqual(len(gradients[0]), 4)
        torch.testing.assert_close(*gradients, rtol=0, atol=0)

    @unittest.skipIf(LlamaForCausalLM is None, "needs transformers")
    def test_a_model_of_transformers(self):
        for use_reentrant in (False, True):
            model = LlamaForCausalLM(LlamaConfig(
                vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                use_cache=False,
            ))
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})
            ids = torch.randint(0, 32, (2, 8))
            self.check(model.train(), None, {"input_ids": ids, "labels": ids})


class Refused(CaptureCase):
    def refused(self, words, model, loss_fn=square, **more):
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, loss_fn, torch.randn(5, 6), **more)

    def test_a_parameter_kept_from_before_the_step(self):
        model = nn.Linear(6, 4)
        kept = list(model.parameters())
        decay = lambda out: out.square().mean() + sum(p.square().sum() for p in kept)  # noqa: E731
        for fake in (False, True):
            self.refused(r"reads the parameter weight at test_checkpoint\.py:\d+ in ", model, decay, fake=fake)
        fresh = lambda out: out.square().mean() + sum(p.square().sum() for p in model.parameters())  # noqa: E731
        self.captured(model, fresh, torch.randn(5, 6))

    def test_a_view_of_a_parameter_or_a_buffer(self):
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
        row = model[0].weight.data[1]
        self.refused("the parameter 0.weight", model, lambda out: (out * row[:4]).sum())
        mean = model[1].running_mean
        self.refused("the buffer 1.running_mean", model, lambda out: (out * mean).sum())
        other = torch.randn(4)
        self.captured(model, lambda out: (out * other).sum(), torch.randn(5, 6))


class Drawn(CaptureCase):
    def outputs(self, model):
        """What sg-run computes of a capture, with random numbers of a seed."""
        document = self.captured(model, square, torch.randn(5, 6))
        path = lambda name: os.path.join(self.folder, name)  # noqa: E731
        self.tool("sg-import", "-q", path("step.json"), "-o", path("step.sg"))
        self.tool("sg-run", path("step.sg"), "--inputs", path("inputs.safetensors"), "--seed", "3", "--outputs", path("out"))
        return document, load_file(path("out"))

    def test_dropout_within_a_checkpoint(self):
        """The same numbers in backward: those of the model without checkpoints, to the bit."""
        for use_reentrant in (False, True):
            torch.manual_seed(1)
            model = Model(use_reentrant, dropout=0.5).eval()  # F.dropout draws, the norms keep their statistics
            plain = copy.deepcopy(model)
            plain.forward = lambda x, m=plain: m.last(m.block(m.block(m.first(x))).sin())
            torch.manual_seed(2)
            document, found = self.outputs(model)
            again = {node["name"]: node["draws_as"] for node in document["nodes"] if "draws_as" in node}
            drawing = [node["name"] for node in document["nodes"] if node["op"].startswith("aten.bernoulli")]
            self.assertEqual(again, {drawing[2]: drawing[1], drawing[3]: drawing[0]})
            torch.manual_seed(2)
            wanted = self.outputs(plain)[1]
            for name, value in wanted.items():
                self.assertTrue(torch.equal(found[name], value), name)

    def test_dropout_that_a_checkpoint_draws_anew(self):
        class Anew(Model):
            def forward(self, x):
                return self.last(checkpoint(self.block, self.first(x), use_reentrant=False, preserve_rng_state=False))

        torch.manual_seed(1)
        document, _ = self.outputs(Anew(False, dropout=0.5).eval())
        self.assertEqual([node for node in document["nodes"] if "draws_as" in node], [])
        self.assertEqual(sum(node["op"].startswith("aten.bernoulli") for node in document["nodes"]), 2)

    def test_dropout_within_nested_checkpoints_without_values(self):
        class Nested(Model):
            def forward(self, x):
                outer = lambda y: checkpoint(self.block, self.block(y), use_reentrant=False)  # noqa: E731
                return self.last(checkpoint(outer, self.first(x), use_reentrant=False))

        document = self.captured(Nested(False, dropout=0.5), square, torch.randn(5, 6), fake=True)
        again = [node["draws_as"] for node in document["nodes"] if "draws_as" in node]
        drawing = [node["name"] for node in document["nodes"] if node["op"].startswith("aten.bernoulli")]
        self.assertEqual(set(again), set(drawing[:2]))
