"""Memory that parameters, buffers and inputs share: refused if something writes it, as in a graph each has its own."""

import torch
from torch import nn

from stepgraph_capture import CaptureError

from support import CaptureCase


class Shifted(nn.Module):
    """Writes its buffer `counts`, and the input `a` if told to."""

    def __init__(self, tail=None, writes_input=False):
        super().__init__()
        self.weight, self.writes_input = nn.Parameter(torch.randn(4, 4)), writes_input
        self.register_buffer("counts", torch.zeros(6))
        self.register_buffer("tail", self.counts[tail] if tail is not None else torch.ones(4))

    def forward(self, a, b):
        self.counts[:2].add_(1)
        if self.writes_input:
            a.mul_(0.5)
        return ((a + b) @ self.weight * self.tail).square().mean()


class Shared(CaptureCase):
    def refused(self, words, model, inputs, **more):
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, None, inputs, **more)

    def accepted(self, model, inputs, **more):
        self.captured(model, None, inputs, **more)
        self.imported()

    def test_buffers(self):
        inputs = torch.randn(3, 4), torch.randn(3, 4)
        words = "buffer counts and the buffer tail share memory, which the step writes, .*: make one of them a copy"
        self.refused(words, Shifted(slice(1, 5)), inputs)
        self.accepted(Shifted(), inputs)

    def test_bytes_of_their_own(self):
        model = Shifted()
        both = torch.zeros(6, 2)
        model.counts, model.tail = both[:, 0], both[1:5, 1]
        self.accepted(model, (torch.randn(3, 4), torch.randn(3, 4)))
        model.tail = both[1:5, 0]
        self.refused("counts and the buffer tail share", model, (torch.randn(3, 4), torch.randn(3, 4)))

    def test_inputs(self):
        rows = torch.randn(6, 4)
        for inputs in (rows[:4], rows[2:]), (rows, rows):
            self.refused("input a and the input b share memory, .*: give one of them", Shifted(writes_input=True), inputs)
            self.accepted(Shifted(), inputs)
        self.accepted(Shifted(writes_input=True), (rows[:3], rows[3:]))

    def test_parameters(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model.forward = lambda x: model[1](model[0](x)).square().mean()
        model[1].weight = nn.Parameter(model[0].weight.data.t())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x)
            loss.backward()
            optimizer.step()
            return loss

        x = (torch.randn(2, 4),)
        words = "parameter 0.weight and the parameter 1.weight share memory, which {} writes, .*: tie them"
        self.refused(words.format("the step"), model, x, train_step=step, optimizer=optimizer)
        self.refused(words.format("an optimizer"), model, x)  # that of sg-run, or of who uses the gradients
        for layer in model:
            layer.weight.requires_grad_(False)
        self.accepted(model, x)
        model[1].weight = model[0].weight.requires_grad_()
        self.accepted(model, x)

    def test_state_of_an_optimizer(self):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer.state[model.weight]["momentum_buffer"] = model.weight.data

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        words = "parameter weight and the buffer optimizer.momentum_buffer.weight share memory"
        self.refused(words, model, (torch.randn(2, 4),), train_step=step, optimizer=optimizer)

    def test_an_input_that_is_a_parameter(self):
        model = nn.Bilinear(4, 4, 1)
        model.forward = lambda x, scale: (x @ model.weight[0] * scale).square().mean()
        x = torch.randn(4, 4)
        words = "input {} is made from the parameter weight, .*: read it in the step"
        self.refused(words.format("scale"), model, (x, model.weight[0]))
        self.refused(words.format("x"), model, (model.weight, torch.ones(4)))
        self.accepted(model, (x, model.weight[0].detach()))
        self.accepted(model, (x, x[0].clone().requires_grad_().exp()))
