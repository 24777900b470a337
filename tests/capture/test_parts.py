"""Ops that the table of ops has in parts, in another form, or not at all; derivatives of torch.func."""

import os
import subprocess
import sys
import unittest

import torch
from torch import nn

from stepgraph_capture import CaptureError
from support import CaptureCase


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
                self.register_buffer("scale", torch.tensor([4.0]))
                self.register_buffer("skips", torch.tensor([1.0]))

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

        def scaled(m, kept, gradient, first, second, skips):
            """As torch.amp.GradScaler has it: one step that is made, one that is not."""
            more = dict(lr=0.1, lr_decay=0.5, weight_decay=0.1, eps=1e-8, maximize=False, grad_scale=m.scale)
            torch._fused_adagrad_(kept, gradient, first, [m.steps], found_inf=m.skips * skips, **more)
            found = dict(grad_scale=m.scale, found_inf=m.skips * skips)
            sgd(m, kept, gradient, second, None, dampening=0.1, nesterov=False, is_first_step=False, **found)
            adam(torch._fused_adam_, amsgrad=True, maximize=False, **found)(m, kept, gradient, first, second)

        updates = [lambda *given, skips=skips: scaled(*given, skips) for skips in (0, 1)]
        updates += [adagrad] + [
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

    def test_what_a_scaler_computes(self):
        """Of finite gradients and others; a scale falls, stays, rises, and stays where it is too large to rise."""

        class Model(nn.Linear):
            def __init__(self, largest, scale, count):
                super().__init__(4, 4)
                self.register_buffer("gradient", torch.tensor([1.0, largest]))
                self.register_buffer("narrow", torch.tensor([3.0, -0.1], dtype=torch.bfloat16))
                self.register_buffer("scale", torch.tensor(scale))
                self.register_buffer("count", torch.tensor(count, dtype=torch.int32))
                self.register_buffer("found", torch.tensor(0.0))

            def forward(self, x):
                with torch.no_grad():
                    torch._amp_foreach_non_finite_check_and_unscale_([self.gradient], self.found, 0.3 / self.scale)
                    torch._amp_foreach_non_finite_check_and_unscale_([self.narrow], self.found, 0.3 / self.scale)
                    torch._amp_update_scale_(self.scale, self.count, self.found, 1.7, 0.3, 4)
                return super().forward(x)

        for case in ((5.0, 2.0, 1), (5.0, 2.0, 3), (-torch.inf, 2.0, 3), (torch.nan, 2.0, 0), (5.0, 3e38, 3)):
            self.captured(Model(*case), lambda out: out.square().sum(), torch.randn(2, 4))
            self.assertNotIn("aten._amp", self.imported())

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

    def test_second_derivatives_of_norms_under_autocast(self):
        """They take the statistics in the narrow type, as PyTorch casts them."""
        model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 2))

        def step(x):
            x.requires_grad_(True)
            with torch.autocast("cpu", torch.bfloat16):
                out = model(x).float()
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = slope.square().mean()
            loss.backward()
            return loss.detach()

        document = self.captured(model, None, {"x": torch.randn(4, 6)}, train_step=step)
        made = {node["name"]: node for node in document["nodes"]}
        statistics = [node["name"] for node in document["nodes"] if node["op"] == "python.getitem" and
                      node["args"][0]["ref"] == "native_layer_norm" and node["args"][1] > 0]
        casts = {node["args"][0]["ref"]: node["type"]["tensor"] for node in document["nodes"]
                 if node["op"] == "aten._to_copy.default"}
        views = {node["args"][0]["ref"]: name for name, node in made.items() if node["op"] == "aten.view.default"}
        self.assertEqual([made[name]["type"]["tensor"] for name in statistics], ["float32"] * 2)
        self.assertEqual([casts[views[name]] for name in statistics], ["bfloat16"] * 2)
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

    def test_linearized(self):
        """It leaves copies to "meta" that nothing uses."""

        def rule(net, x):
            out, derivative = torch.func.linearize(lambda rows: net(rows).tanh(), x)
            return out + derivative(x.cos())

        self.assertNotIn("device=meta", self.holds(rule))

    def test_reverse_over_reverse_by_row(self):
        self.holds(lambda net, x: torch.func.vmap(torch.func.jacrev(torch.func.jacrev(net)))(x))

    def test_forward_over_reverse_by_row(self):
        model = self.model(lambda net, x: torch.func.vmap(torch.func.hessian(net))(x))
        with self.assertRaisesRegex(CaptureError, "torch.func.hessian under vmap.*jacrev of jacrev"):
            self.captured(model, lambda out: out.square().sum(), torch.randn(5, 3))


if __name__ == "__main__":
    unittest.main()
