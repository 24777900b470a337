"""Optimizers that call others: SAM, look-ahead, several in one."""

from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F

from support import CaptureCase


class Wrapper(torch.optim.Optimizer):
    """Has groups and state of the optimizer in it."""

    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base, self.param_groups, self.state = base, base.param_groups, base.state

    def step(self, closure=None):
        self.base.step()


class Unmade(torch.optim.Optimizer):
    """Keeps slow weights in state of its own, with the groups of the optimizer in it: no constructor of PyTorch's runs."""

    def __init__(self, base):
        self.optimizer, self.param_groups, self.state = base, base.param_groups, defaultdict(dict)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["slow"] = p.detach().clone()

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        self.optimizer.step()
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["slow"].lerp_(p, 0.5))


class LookAhead(torch.optim.Optimizer):
    """Keeps slow weights in the state of the optimizer in it, and a rate that grows; PyTorch's constructor never runs."""

    def __init__(self, base, is_hooked):
        self.base, self.defaults, self.rate = base, base.defaults, 0.25
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        if is_hooked:
            self._patch_step_function()

    @property
    def state(self):
        return self.base.state

    @property
    def param_groups(self):
        return self.base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        self.base.step()
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "slow" not in state:
                    state["slow"] = p.clone()
                p.copy_(state["slow"].lerp_(p, self.rate))


class Prepared(torch.optim.Optimizer):
    """An optimizer by its class alone, as accelerate's: passes on what it is asked."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def step(self, closure=None):
        self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


class SAM(torch.optim.Optimizer):
    """Steps against the gradients at the worst point near by. Counts its steps in a group of the optimizer in it."""

    def __init__(self, params, kind, **more):
        super().__init__(params, dict(rho=0.05, turns=0, **more))
        self.base_optimizer = kind(self.param_groups, **more)
        self.param_groups = self.base_optimizer.param_groups

    def all(self):
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad():
            loss = closure()
        norm = torch.stack([p.grad.norm() for p in self.all()]).norm()
        for p in self.all():
            self.state[p]["before"] = p.clone()
            p.add_(p.grad * (self.param_groups[0]["rho"] / norm))
        with torch.enable_grad():
            closure()
        for p in self.all():
            p.copy_(self.state[p]["before"])
        self.param_groups[0]["turns"] += 1
        self.base_optimizer.step()
        return loss


class Both(torch.optim.Optimizer):
    """Two of them, each with its own parameters, in a list."""

    def __init__(self, matrices, others):
        self.optimizers = [torch.optim.Adam(others, lr=0.01), torch.optim.SGD(matrices, lr=0.1, momentum=0.9)]
        super().__init__([group for one in self.optimizers for group in one.param_groups], {})

    def step(self, closure=None):
        for one in self.optimizers:
            one.step()


class Wrapped(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 5))
        self.inputs = {"x": torch.randn(7, 6), "y": torch.randint(5, (7,))}

    def closure(self, optimizer, x, y):
        def run():
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            return loss

        return run

    def check(self, optimizer, given, names, warm=0):
        """The step with this optimizer; those `given` to capture; state among that of the graph."""

        def step(x, y):
            run = self.closure(optimizer, x, y)
            if isinstance(optimizer, SAM):
                return optimizer.step(run).detach()
            loss = run()
            optimizer.step()
            return loss.detach()

        for _ in range(warm):
            step(**self.inputs)
        groups = [dict(group) for group in optimizer.param_groups]
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=given)
        self.assertEqual([list(group) for group in optimizer.param_groups], [list(group) for group in groups])
        known = {entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"}
        self.assertLessEqual(set(names), known)
        self.check_steps(step, self.inputs)

    def test_the_same_groups_and_state(self):
        wrapper = Wrapper(torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))
        self.check(wrapper, wrapper, ["optimizer.base.momentum_buffer.0.weight"])

    def test_one_by_its_class_alone(self):
        prepared = Prepared(torch.optim.AdamW(self.model.parameters(), lr=0.01))
        self.check(prepared, prepared, ["optimizer.exp_avg.0.weight"])

    def test_slow_weights(self):
        for is_hooked in (False, True):
            with self.subTest(is_hooked=is_hooked):
                self.setUp()
                optimizer = LookAhead(torch.optim.Adam(self.model.parameters(), lr=0.05), is_hooked)
                self.check(optimizer, optimizer, ["optimizer.base.slow.0.weight", "optimizer.base.step.0.weight"], warm=1)

    def test_one_that_no_constructor_made(self):
        for warm in (0, 1):
            with self.subTest(warm=warm):
                self.setUp()
                optimizer = Unmade(torch.optim.Adam(self.model.parameters(), lr=0.05))
                names = ["optimizer.slow.0.weight", "optimizer.optimizer.exp_avg.0.weight"]
                self.check(optimizer, optimizer, names, warm)

    def test_sharpness(self):
        for kind, more, name in (
            (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, "base_optimizer.momentum_buffer.0.weight"),
            (torch.optim.AdamW, {"lr": 0.01}, "base_optimizer.exp_avg.3.bias"),
        ):
            for warm in (0, 2):
                with self.subTest(kind.__name__, warm=warm):
                    self.setUp()
                    optimizer = SAM(self.model.parameters(), kind, **more)
                    names = [f"optimizer.{name}", "optimizer.base_optimizer.param_groups.0.turns"]
                    self.check(optimizer, optimizer, names, warm)

    def test_both_given(self):
        optimizer = SAM(self.model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
        names = ["optimizer0.before.0.weight", "optimizer1.momentum_buffer.0.weight"]
        self.check(optimizer, [optimizer, optimizer.base_optimizer], names, warm=1)

    def test_several_in_one(self):
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        optimizer = Both(matrices, [p for p in self.model.parameters() if p.dim() == 1])
        names = ["optimizer.optimizers.0.exp_avg.0.bias", "optimizer.optimizers.1.momentum_buffer.0.weight"]
        self.check(optimizer, optimizer, names)
