"""`tensor.data = value`, in a step's updates and in what is trained against."""

import torch
from torch import nn

from stepgraph_capture import CaptureError

from support import CaptureCase


class AssignedData(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.inputs = {"x": torch.randn(6, 4), "y": torch.randint(3, (6,))}

    def loss(self, x, y):
        return nn.functional.cross_entropy(self.model(x), y)

    def check(self, update):
        def step(x, y):
            self.model.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            update()
            return loss.detach()

        self.captured(self.model, None, self.inputs, train_step=step)
        self.check_steps(step, self.inputs)

    def test_updates(self):
        def assigned():
            for p in self.model.parameters():
                p.data = p.data - 0.1 * p.grad

        def clamped():
            for p in self.model.parameters():
                p.grad.data = p.grad.data.clamp(-0.01, 0.01)
                p.data.add_(p.grad, alpha=-0.5)

        def as_one_vector():
            vector = nn.utils.parameters_to_vector(self.model.parameters()).detach()
            slopes = torch.cat([p.grad.reshape(-1) for p in self.model.parameters()])
            nn.utils.vector_to_parameters(vector - 0.1 * slopes, self.model.parameters())

        for update in (assigned, clamped, as_one_vector):
            with self.subTest(update.__name__):
                self.check(update)

    def test_what_is_kept_of_the_assigned_value_is_the_tensor(self):
        """Sharpness-aware minimisation, as it is often written: the optimizer keeps the weights from before it climbs,
        gives them back, and updates them."""

        class Sharpness(torch.optim.Optimizer):
            def __init__(self, parameters):
                super().__init__(parameters, {})
                self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

            @torch.no_grad()
            def climb(self):
                for p in self.param_groups[0]["params"]:
                    self.state[p]["kept"] = p.data.clone()
                    p.add_(p.grad, alpha=0.05)

            @torch.no_grad()
            def step(self):
                for p in self.param_groups[0]["params"]:
                    p.data = self.state[p]["kept"]
                self.base.step()

        optimizer = Sharpness(self.model.parameters())

        def step(x, y):
            self.model.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            optimizer.climb()
            self.model.zero_grad()
            self.loss(x, y).backward()
            optimizer.step()
            return loss.detach()

        for is_first in (True, False):  # behind a step what is kept has the parameters' memory
            with self.subTest(is_first=is_first):
                self.captured(self.model, None, self.inputs, train_step=step, optimizer=[optimizer, optimizer.base])
                self.check_steps(step, self.inputs)

    def test_an_attack(self):
        def step(x, y):
            delta = torch.zeros_like(x, requires_grad=True)
            for _ in range(2):
                (slope,) = torch.autograd.grad(self.loss(x + delta, y), delta)
                delta.data = (delta.data + 0.1 * slope.sign()).clamp(-0.15, 0.15)
            self.model.zero_grad()
            loss = self.loss(x + delta.detach(), y)
            loss.backward()
            with torch.no_grad():
                for p in self.model.parameters():
                    p -= 0.1 * p.grad
            return loss.detach()

        self.captured(self.model, None, self.inputs, train_step=step)
        self.check_steps(step, self.inputs)

    def test_a_view_of_the_old_memory_is_told_apart(self):
        def step(x, y):
            other = torch.zeros_like(x)
            row = other[0]
            other.data = 2 * x
            self.model.zero_grad()
            loss = self.loss(other + row, y)
            loss.backward()
            return loss.detach()

        with self.assertRaisesRegex(CaptureError, "differs"):
            self.captured(self.model, None, self.inputs, train_step=step)
        self.assertNotIn("data", vars(torch.Tensor))
