"""Steps that call backward themselves."""

import functools
import unittest

import torch
from torch import nn

from stepgraph_capture import CaptureError, capture
from support import CaptureCase


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

    def test_lines_of_backward(self):
        """A line of the user's that runs in the backward pass is the source; a node of PyTorch's has its forward's."""

        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sin()

            @staticmethod
            def backward(ctx, gradient):
                return gradient.cos()

        def hook(gradient):
            return gradient.exp()

        def train(rows):
            y = Twice.apply(self.model(rows))
            y.register_hook(hook)
            y.tanh().sum().backward()

        document, _ = self.step(train)
        functions = {
            node["op"].split(".")[1]: node["source"]["function"] for node in document["nodes"] if "source" in node
        }
        self.assertEqual(
            {op: functions[op] for op in ("sin", "cos", "exp", "tanh", "tanh_backward")},
            {"sin": "forward", "cos": "backward", "exp": "hook", "tanh": "train", "tanh_backward": "train"},
        )

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

    def test_inputs_that_require_gradients(self):
        """A gradient penalty of the input, and a step that looks at the gradient which backward leaves there."""
        self.model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        rows = torch.randn(6, 4, requires_grad=True)

        def penalized(output, rows=rows):
            gradient = torch.autograd.grad(output.sum(), self.taken, create_graph=True)[0]
            return output.square().mean() + gradient.square().sum()

        class Taking(nn.Module):
            def forward(inner, rows):
                self.taken = rows
                return self.model(rows)

        def train(rows):
            optimizer.zero_grad()
            rows.grad = None
            loss = self.model(rows).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach() + rows.grad.norm() if rows.requires_grad else loss.detach()

        taking = Taking()
        taking.inner = self.model
        self.captured(taking, penalized, (rows,), dynamic={"rows": {0: "rows"}})
        self.imported()
        torch.testing.assert_close(self.values("expected")["out0"], penalized(taking(rows)))
        self.captured(self.model, None, {"rows": rows}, train_step=train, optimizer=optimizer)
        self.check_steps(train, {"rows": rows})

    def test_an_exception_that_the_step_catches(self):
        model = self.model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(rows):
            optimizer.zero_grad()
            try:
                rows = rows @ rows
            except RuntimeError:
                rows = 2 * rows
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        inputs = {"rows": torch.randn(6, 4)}
        document = self.captured(model, None, inputs, train_step=train, optimizer=optimizer)
        self.assertFalse([node for node in document["nodes"] if node["op"].startswith("aten.") and node["type"] is None])
        self.check_steps(train, inputs)

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
            r"gradient of weight by a parameter kept": functools.partial(nn.utils.clip_grad_norm_, tuple(kept), 1.0),
        }
        for words, end in ends.items():

            def train(rows):
                optimizer.zero_grad() if end == optimizer.step else None
                model(rows).sum().backward()
                end()

            with self.assertRaisesRegex(CaptureError, words):
                self.captured(model, None, {"rows": torch.randn(6, 4)}, train_step=train)
        self.assertEqual([parameter.grad for parameter in kept], [None, None])


if __name__ == "__main__":
    unittest.main()
