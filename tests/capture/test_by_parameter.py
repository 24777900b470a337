"""What a train_step knows parameters by: their class, hooks of gradients, dicts that have them as keys, and lists and
dicts that hold them."""

import torch
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F

from support import CaptureCase


class ByParameter(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.inputs = {"x": torch.randn(4, 6), "y": torch.tensor([0, 2, 1, 0])}

    def backward(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss.detach()

    def check(self, step, optimizers, buffers=()):
        hooks = [len(p._backward_hooks or {}) for p in self.model.parameters()]
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizers)
        self.assertLessEqual(set(buffers), {entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"})
        self.assertEqual(hooks, [len(p._backward_hooks or {}) for p in self.model.parameters()])
        self.check_steps(step, self.inputs)

    def test_hooks_of_gradients(self):
        for parameter in self.model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.02) + 0.001)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = self.backward(x, y)
            optimizer.step()
            return loss

        self.check(step, optimizer)

    def test_classes_of_parameters(self):
        """A model and an optimizer that go by the class of a parameter, and call its methods."""

        class Scaled(nn.Parameter):
            def scaled(self):
                return self * 5

        class Optimizer(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    assert isinstance(p, nn.Parameter)
                    p.add_(p.grad, alpha=-0.5 if isinstance(p, Scaled) else -0.1)

        class Model(nn.Linear):
            def forward(self, x):
                weight = self.weight.scaled() if isinstance(self.weight, Scaled) else self.weight
                return F.linear(x, weight, self.bias if isinstance(self.bias, nn.Parameter) else None)

        self.model = Model(6, 3)
        self.model.weight = Scaled(self.model.weight.detach())
        self.captured(self.model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])
        self.imported()
        torch.testing.assert_close(self.values("expected")["out0"], self.backward(**self.inputs))
        optimizer = Optimizer(self.model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = self.backward(x, y)
            optimizer.step()
            return loss

        self.check(step, optimizer)
        self.assertIs(type(self.model.weight), Scaled)
        self.assertIs(type(self.model.bias), nn.Parameter)

    def test_what_is_known_of_buffers(self):
        class Model(nn.Linear):
            def __init__(self):
                super().__init__(6, 3)
                self.register_buffer("scale", torch.tensor(2.0))
                self.scale.power = 3

            def forward(self, x):
                return super().forward(x) * self.scale**self.scale.power

        self.model = Model()
        self.captured(self.model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])
        self.imported()
        torch.testing.assert_close(self.values("expected")["out0"], self.backward(**self.inputs))

    def test_ids_in_lists(self):
        """Also in frozensets, as values of dicts, and in variables."""
        model = self.model
        listed, frozen = [id(model[0].weight)], frozenset([id(model[0].bias), "more"])
        by_name, last, parameters = {"weight": id(model[2].weight)}, id(model[2].bias), frozenset([model[2].bias])
        before = [*listed, *by_name.values(), last]

        def step(x, y):
            loss = self.backward(x, y)
            for p in model.parameters():
                rate = 0.1 * (id(p) in listed) + 0.2 * (id(p) in frozen) + 0.3 * (id(p) == by_name["weight"])
                p.data.sub_((rate + 0.4 * (id(p) == last) * (p in parameters)) * p.grad)
                p.grad = None
            return loss

        self.check(step, None)
        self.assertEqual([*listed, *by_name.values(), last], before)
        self.assertEqual(frozen, {id(model[0].bias), "more"})

    def test_addresses(self):
        """An optimizer that finds parameters again by where their memory begins, and parts of them."""
        model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 3, bias=False))

        class Optimizer(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure=None):
                found = {p[2:].data_ptr(): p for p in self.param_groups[0]["params"]}
                for p in self.param_groups[0]["params"]:
                    start = p.untyped_storage().data_ptr() + p[:2].numel() * p.element_size()
                    found[start].add_(p.grad, alpha=-0.1 * len(found))

        self.model, optimizer = model, Optimizer(model.parameters(), {})

        def step(x, y):
            optimizer.zero_grad()
            loss = self.backward(x, y)
            optimizer.step()
            return loss

        self.check(step, optimizer)

    def test_ids_where_the_loss_is_given(self):
        class Model(nn.Linear):
            def forward(self, x):
                scale = 5 if id(self.weight) in self.chosen and id(self.weight) == self.one else 1
                return scale * super().forward(x)

        self.model = Model(6, 3)
        self.model.chosen, self.model.one = {id(self.model.weight)}, id(self.model.weight)
        self.captured(self.model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])
        self.imported()
        torch.testing.assert_close(self.values("expected")["out0"], self.backward(**self.inputs))
        self.assertEqual(self.model.chosen, {id(self.model.weight)})

    def test_parameters_in_lists_and_dicts(self):
        """Of the model, and of the step; a list that the step empties stays so."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.by_name = {}
                for name in ("w", "b"):
                    self.register_parameter(name, nn.Parameter(torch.randn(6, 3) if name == "w" else torch.randn(3)))
                    self.by_name[name] = getattr(self, name)
                self.in_turn = [self.w, (self.b, 2.0)]

            def forward(self, x):
                return x @ self.by_name["w"] + self.in_turn[1][0] * self.in_turn[1][1] + self.in_turn[0].mean()

        self.model = model = Model()
        kept, once = list(model.parameters()), [model.b]
        tied, both = model.in_turn, (model.w, model.b)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            once.clear()
            loss = self.backward(x, y)
            nn.utils.clip_grad_norm_(kept, 0.1)
            both[0].grad.add_(0.01)
            optimizer.step()
            return loss

        self.check(step, optimizer)
        self.assertTrue(kept[0] is model.w is both[0] is tied[0] is model.by_name["w"] and tied[1][0] is model.b)
        self.assertEqual(once, [])

    def test_hooks_where_the_loss_is_given(self):
        self.model[0].weight.register_hook(lambda gradient: gradient * 2)
        self.captured(self.model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])
        self.imported()
        self.backward(**self.inputs)
        expected = self.values("expected")
        gradients = [value for value in expected.values() if value.shape == (8, 6)]
        torch.testing.assert_close(gradients, [self.model[0].weight.grad])

    def test_attributes_where_the_loss_is_given(self):
        """A model reads what is attached to its parameters; what it attaches itself is not left there."""

        class Scaled(nn.Linear):
            def forward(self, x):
                if not hasattr(self.weight, "mean"):
                    self.weight.mean = self.weight.mean().detach()
                return super().forward(x) * self.weight.scale

        model = Scaled(6, 3)
        model.weight.scale = 2.0
        before = dict(vars(model.weight))
        self.captured(model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])
        self.assertEqual(before, vars(model.weight))
        self.imported()

    def test_updates_within_backward(self):
        """Each parameter has an optimizer of its own, which updates it as soon as its gradient is there."""
        optimizers = {p: torch.optim.Adam([p], lr=0.05) for p in self.model.parameters()}

        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        self.check(self.backward, list(optimizers.values()))

    def test_state_of_hooks(self):
        """They run behind each of two backwards, and remember what they saw."""
        seen = {p: torch.zeros(()) for p in self.model.parameters()}

        def after(parameter):
            seen[parameter].add_(parameter.grad.norm())
            parameter.grad.mul_(1 / (1 + seen[parameter]))

        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(after)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

        def step(x, y):
            optimizer.zero_grad()
            total = sum(self.backward(*half) for half in zip(x.chunk(2), y.chunk(2)))
            optimizer.step()
            return total

        self.check(step, optimizer, {"seen.0.weight", "seen.2.bias"})

    def test_an_optimizer_by_hand(self):
        """State in a dict by parameter: written in place, and bound anew."""
        for in_place in (True, False):
            with self.subTest(in_place=in_place):
                momentum = {p: torch.zeros_like(p) for p in self.model.parameters()}
                keys = list(momentum)

                @torch.no_grad()
                def update(in_place=in_place, momentum=momentum):
                    for p in self.model.parameters():
                        if in_place:
                            momentum[p].mul_(0.9).add_(p.grad)
                        else:
                            momentum[p] = momentum[p] * 0.9 + p.grad
                        p.sub_(momentum[p], alpha=0.1)
                        p.grad = None

                def step(x, y, update=update, momentum=momentum):
                    loss = self.backward(x, y)
                    update()
                    return loss

                self.check(step, None, {"momentum.0.weight"})
                self.assertTrue(all(a is b for a, b in zip(keys, momentum)), "its keys are the model's, in order")

    def test_where_a_scaler_skips(self):
        average = {p: p.detach().clone() for p in self.model.parameters()}
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=3e38, growth_interval=2)

        def follow(*_):
            for p in self.model.parameters():
                average[p] = average[p].lerp(p.detach(), 0.1)

        optimizer.register_step_post_hook(follow)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            scaler.scale(loss * 3).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach() + sum(value.abs().sum() for value in average.values())

        self.check(step, optimizer, {"average.0.weight"})

    def test_refused(self):
        self.model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
        words = r"0.weight has a hook of its own \(register_post_accumulate_grad_hook\), which runs behind a backward"
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(self.model, F.cross_entropy, (self.inputs["x"],), targets=self.inputs["y"])


if __name__ == "__main__":
    import unittest

    unittest.main()
