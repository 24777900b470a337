"""A capture holds the user's own program, run twice, against the graph."""

import os
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from stepgraph_capture import CaptureError

from support import CaptureCase


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Scaled(Net):
    """Keeps what `scale` makes of it in its first run."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.kept = scale, None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.scale(self)
        return super().forward(x) * self.kept


def batch():
    return {"x": torch.randn(5, 6), "y": torch.randn(5, 6)}


class Rehearsed(CaptureCase):
    def stepped(self, model, before=lambda: None, zero=True, behind=lambda: None):
        """A step of SGD."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            before()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            behind()
            optimizer.step()
            if zero:
                optimizer.zero_grad()
            return loss.detach()

        return {"train_step": step, "optimizer": optimizer}

    def test_a_result_beside_the_loss(self):
        """One that is another in the second step is refused, though losses and updates are the same."""
        model = Net()
        train, weight = self.stepped(model), model.first.weight
        version = weight._version

        def with_other(other_of):
            return {**train, "train_step": lambda x, y: (train["train_step"](x, y), {"other": other_of(x)})}

        grown = with_other(lambda x: x.mean() * (2.0 if model.first.weight._version > version + 1 else 1.0))
        with self.assertRaisesRegex(CaptureError, "another result beside the loss"):
            self.captured(model, None, batch(), **grown)
        self.captured(model, None, batch(), **with_other(lambda x: x.mean()))

    def test_state_that_the_first_step_resizes(self):
        model = Net()
        model.register_buffer("scale", torch.ones(1))

        def resize():
            if model.scale.numel() == 1:
                model.scale.resize_(6).fill_(2.0)
            model.scale.mul_(1.5)

        train = self.stepped(model, before=resize)
        words = r"makes of scale, which has the size \[1\], one of \[6\].*let it make a step before"
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, None, batch(), **train)
        train["train_step"](**batch())
        self.captured(model, None, batch(), **train)

    def test_a_cache_made_of_parameters(self):
        def norm(model):
            return model.first.weight.detach().norm()

        words = "called a second time, the train_step has another loss than the graph"
        model = Scaled(norm)
        step = self.stepped(model)
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, None, batch(), **step)
        inputs = batch()
        step["train_step"](**inputs)
        self.captured(model, None, inputs, **step)  # it is there now
        self.check_steps(step["train_step"], inputs)

    def test_the_same_without_a_train_step(self):
        def norm(model):
            return model.first.weight.detach().norm()

        inputs = batch()
        for scale, is_refused in ((norm, True), (lambda model: torch.arange(6.0), False)):
            words = self.assertRaisesRegex(CaptureError, "called a second time, the model has another loss")
            with self.subTest(is_refused=is_refused), words if is_refused else nullcontext():
                self.captured(Scaled(scale), F.mse_loss, inputs["x"], targets=inputs["y"])

    def test_hooks_that_each_call_adds(self):
        model = Net()
        step = self.stepped(model, before=lambda: model.last.weight.register_hook(lambda gradient: gradient * 0.5))
        with self.assertRaisesRegex(CaptureError, "another update of last.weight than the graph"):
            self.captured(model, None, batch(), **step)
        self.assertFalse(model.last.weight._backward_hooks)

    def test_gradients_that_share_memory(self):
        model = Net()
        flat = torch.zeros(sum(p.numel() for p in model.parameters()))
        for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            parameter.grad = part.view_as(parameter)
        views = [parameter.grad for parameter in model.parameters()]
        step = self.stepped(model, lambda: flat.zero_(), False, lambda: flat.div_(flat.norm()))
        with self.assertRaisesRegex(CaptureError, "on your own tensors .* another update of first.weight"):
            self.captured(model, None, batch(), **step)
        for parameter, view in zip(model.parameters(), views):
            self.assertIs(parameter.grad, view)
        self.assertFalse(flat.any())

    def test_steps_that_decide_by_values(self):
        """They are held against the graph as long as they go its way."""
        model = Net()
        flat = torch.zeros(sum(p.numel() for p in model.parameters()))
        for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            parameter.grad = part.view_as(parameter)
        step = self.stepped(model, lambda: flat.zero_(), False, lambda: flat.div_(2) if flat.isfinite().all() else None)
        with self.assertRaisesRegex(CaptureError, "on your own tensors .* another update of first.weight"):
            self.captured(model, None, batch(), **step)
        other, steps = Net(), torch.tensor(0)

        def behind():
            if steps == 0:
                nn.utils.clip_grad_norm_(other.parameters(), 1e-3)
            steps.add_(1)

        document = self.captured(other, None, batch(), **self.stepped(other, behind=behind))
        self.assertIn("decides at", document["note"])

    def test_gradients_left_for_the_next_step(self):
        model = Net()
        document = self.captured(model, None, batch(), **self.stepped(model, zero=False))
        self.assertIn("uses gradients that the one before it has left in .grad", document["note"])
        model = Net()
        document = self.captured(model, None, batch(), **self.stepped(model))
        self.assertNotIn("note", document)

    def test_a_program_that_fails_when_called_twice(self):
        model = Net()
        graph = {}

        def step(x):
            graph.setdefault("loss", model(x).square().mean())
            loss = graph["loss"] if model.first.weight.is_leaf else None
            loss.backward()
            return loss

        with self.assertRaisesRegex((CaptureError, RuntimeError), "a second time"):
            self.captured(model, None, {"x": batch()["x"]}, train_step=step)

    def test_everything_is_left_as_it_was(self):
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad):
            with self.subTest(kind=kind.__name__):
                model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 6))
                optimizer = kind(model.parameters(), lr=0.01)
                average = torch.optim.swa_utils.AveragedModel(model)

                def step(x, y):
                    loss = F.mse_loss(model(x), y)  # noqa: B023
                    optimizer.zero_grad()  # noqa: B023
                    loss.backward()
                    optimizer.step()  # noqa: B023
                    for mean, parameter in zip(average.module.parameters(), model.parameters()):  # noqa: B023
                        mean.detach().lerp_(parameter.detach(), 0.1)
                    return loss.detach()

                inputs = batch()
                step(**inputs)
                before, grads = self.all_of(model, optimizer, average), [p.grad for p in model.parameters()]
                self.captured(model, None, inputs, train_step=step, optimizer=optimizer)
                torch.testing.assert_close(self.all_of(model, optimizer, average), before, rtol=0, atol=0)
                for parameter, gradient in zip(model.parameters(), grads):
                    self.assertIs(parameter.grad, gradient)

    def test_memory_that_nobody_can_write_to(self):
        path = os.path.join(self.folder, "data")
        np.arange(24, dtype=np.float32).tofile(path)
        data = torch.from_numpy(np.memmap(path, dtype=np.float32, mode="r", shape=(4, 6)))
        model = nn.Linear(6, 6)

        def step(rows):
            loss = model(data[rows]).square().mean()
            loss.backward()
            return loss.detach()

        self.captured(model, None, {"rows": torch.tensor([0, 2])}, train_step=step)
        self.imported()

    @staticmethod
    def all_of(model, optimizer, average):
        """Copies of all that a step changes, and the tensors' versions."""
        states = [model.state_dict(), average.state_dict(), *optimizer.state_dict()["state"].values()]
        tensors = [p.grad for p in model.parameters()] + [t for state in states for t in state.values()]
        versions = [parameter._version for parameter in model.parameters()]
        return [tensor.clone() for tensor in tensors], versions, torch.get_rng_state()
