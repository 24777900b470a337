"""Optimizers that count in Python numbers: the numbers are state of the graph, and many steps are PyTorch's."""

import math
import os
import subprocess
from math import sqrt

import torch
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F

from support import CaptureCase


class Counting(torch.optim.Optimizer):
    """Adam with a count in each group and each state, a sum of weights, an attribute, and a norm in the state, which is a
    number until the first step. `more` is called in step()."""

    def __init__(self, parameters, more=lambda self, group, count: 1.0):
        super().__init__(parameters, dict(lr=1e-2, betas=(0.9, 0.99), weight_sum=0))
        self.more, self.turns = more, 3

    @torch.no_grad()
    def step(self, closure=None):
        self.turns += 2
        for group in self.param_groups:
            if "step" not in group:
                group["step"] = 0
            before = group["step"]
            group["step"] += 1
            group["weight_sum"] += group["lr"] * sqrt(self.turns)
            first, second = group["betas"]
            scale = group["lr"] / (1 - first ** (before + 1)) / (1 + group["weight_sum"])
            root = math.sqrt(1 - math.pow(second, group["step"])) * math.exp(-0.1 * group["step"])
            scale *= self.more(self, group, group["step"])
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(average=torch.zeros_like(p), square=torch.zeros_like(p), step=0, rank=p.dim(), norm=0.0)
                state["step"] += 1
                state["average"].lerp_(p.grad, 1 - first)
                state["square"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                state["norm"] = state["norm"] * 0.5 + p.norm()
                p.mul_(1 - 0.001 * state["norm"])
                size = -scale / state["step"] ** 0.3 / state["rank"]
                p.addcdiv_(state["average"], state["square"].sqrt().div_(root).add_(1e-6), value=size)


class Decaying(torch.optim.Adam):
    """Counts around the step() of its base class."""

    turns = 0

    def step(self, closure=None):
        self.turns += 1
        self.param_groups[0]["lr"] = 1e-2 / self.turns
        return super().step(closure)


def every_second(optimizer, group, count):
    return 0.5 if count % 2 == 0 else 1.0


def first(optimizer, group, count):
    return 0.5 if count == 1 else 1.0


def warm_up(optimizer, group, count):
    return 0.1 if 2 / (1 - 0.99**count) > 50 else 1.0  # in the first four


class Numbers(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5))
        self.inputs = {"x": torch.randn(7, 6), "y": torch.randint(5, (7,))}

    def train(self, optimizer, scaler=None):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(64 * loss).backward()
                scaler.step(optimizer)
                scaler.update()
            return loss

        return step

    def whole(self, optimizer, scaler=None, **more):
        step = self.train(optimizer, scaler)
        return step, self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizer, **more)

    def counting(self, more=lambda *_: 1.0, steps=0):
        """An optimizer that has made some steps."""
        self.setUp()
        optimizer = Counting(self.model.parameters(), more)
        for _ in range(steps):
            self.train(optimizer)(**self.inputs)
        return optimizer

    def stops(self, words):
        """sg-run stops at the second step, with these words."""
        graph, given = (os.path.join(self.folder, name) for name in ("step.sg", "inputs.safetensors"))
        run = [os.path.join(os.environ["SG_BIN"], "sg-run"), graph, "--inputs", given, "--steps", "2"]
        result = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual(result.returncode, 4, result.stdout)
        self.assertRegex(result.stderr, words)

    def test_counts(self):
        for steps in (0, 3):
            with self.subTest(steps):
                optimizer = self.counting(steps=steps)
                before = [dict(group) for group in optimizer.param_groups], optimizer.turns
                step, document = self.whole(optimizer)
                self.assertEqual(([dict(group) for group in optimizer.param_groups], optimizer.turns), before)
                types = {entry["fqn"]: entry["type"] for entry in document["inputs"] if "fqn" in entry}
                for name, kind in {"turns": "int64", "param_groups.0.step": "int64", "step.0.weight": "int64"}.items():
                    self.assertEqual((types[f"optimizer.{name}"]["tensor"], types[f"optimizer.{name}"]["shape"]), (kind, []))
                self.assertEqual(types["optimizer.param_groups.0.weight_sum"]["tensor"], "float64")
                self.assertNotIn("optimizer.rank.0.weight", types)
                self.assertEqual(document["guards"], [])
                self.check_steps(step, self.inputs)

    def test_whole_powers_of_fractions(self):
        """As optimizers without a schedule weigh their steps; that a fraction is not negative is no condition."""

        def weigh(self, group, count):
            most = group["most"] = max(group["lr"] * count / 8, group.get("most", -1.0))
            total = group["total"] = group.get("total", 0.0) + count**0.0 * most**2.0
            return most**2 / total

        optimizer = self.counting(weigh, steps=2)
        step, document = self.whole(optimizer)
        self.assertEqual(document["guards"], [])
        self.check_steps(step, self.inputs)

    def test_a_step_around_another(self):
        torch.optim.Adam(self.model.parameters())  # from now on PyTorch calls hooks around its step(), too
        optimizer = Decaying(self.model.parameters())
        optimizer.turns = 0
        step, _ = self.whole(optimizer)
        self.check_steps(step, self.inputs)
        self.setUp()
        optimizer = Decaying(self.model.parameters())
        with self.assertRaisesRegex(CaptureError, "optimizer.turns of Decaying from None to 1.* let it make a step before"):
            self.whole(optimizer)

    def test_without_values(self):
        _, document = self.whole(self.counting(steps=1), fake=True)
        self.assertIn("optimizer.param_groups.0.step", {entry.get("fqn") for entry in document["inputs"]})
        self.imported_without_values()

    def imported_without_values(self):
        graph = os.path.join(self.folder, "step.sg")
        self.tool("sg-import", "-q", os.path.join(self.folder, "step.json"), "-o", graph)
        self.tool("sg-check", graph)

    def test_a_step_that_a_scaler_skips_does_not_count(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=1.5 * 2.0**127)  # gradients are infinite at first
        optimizer = self.counting()
        step, _ = self.whole(optimizer, scaler)
        self.check_steps(step, self.inputs, count=12)
        self.assertTrue(0 < optimizer.param_groups[0]["step"] < 12)

    def test_tensors_in_groups(self):
        """One that the first step makes, and one that it makes of a number."""

        def more(optimizer, group, count):
            if "mean" not in group:
                group["mean"] = torch.zeros(())
            group["mean"].lerp_(group["params"][0].norm(), 0.1)
            group["size"] = group["size"] * 0.9 + group["mean"]
            return group["size"].item()

        for steps in (0, 2):
            with self.subTest(steps):
                self.setUp()
                optimizer = Counting(self.model.parameters(), more)
                optimizer.param_groups[0]["size"] = 0.5
                for _ in range(steps):
                    self.train(optimizer)(**self.inputs)
                step, document = self.whole(optimizer)
                names = {entry.get("fqn") for entry in document["inputs"]}
                self.assertTrue({"optimizer.param_groups.0.size", "optimizer.param_groups.0.mean"} <= names)
                self.check_steps(step, self.inputs)

    def test_tensors_that_step_replaces(self):
        """In a group, and under another name for the optimizer in the step."""

        class Slowing(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    group["count"] = group["count"] + 1
                    group["seen"] = group["count"].clone()
                    for p in group["params"]:
                        p.sub_(p.grad / group["count"])

        it = Slowing(self.model.parameters(), {"count": torch.zeros(()), "seen": torch.zeros(())})

        def step(x, y):
            it.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            it.step()
            it.step()
            return loss

        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=it)
        names = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"]
        self.assertEqual(names, ["optimizer.param_groups.0.count", "optimizer.param_groups.0.seen"])
        self.check_steps(step, self.inputs)

    def test_limits_that_are_infinite(self):
        """As in D-Adaptation: the least of a number of the data and what an infinite rate of growth allows."""

        def more(optimizer, group, count):
            norm = group["params"][0].grad.norm().item()
            group["size"] = max(group["size"], min(norm, group["size"] * group["growth"]))
            return group["size"]

        optimizer = self.counting(more)
        optimizer.param_groups[0].update(size=1e-6, growth=math.inf)
        self.train(optimizer)(**self.inputs)
        step, _ = self.whole(optimizer)
        self.assertEqual(optimizer.param_groups[0]["growth"], math.inf)
        self.check_steps(step, self.inputs)

    def test_state_under_names(self):
        """What an optimizer keeps in its state of no parameter: a count, and a tensor."""

        def more(optimizer, group, count):
            state = optimizer.state
            if "total" not in state:
                state["total"], state["norm"] = 0, torch.zeros(())
            state["total"] += 1
            state["norm"].lerp_(group["params"][0].grad.norm(), 0.5)
            return 1.0 / (state["total"] + state["norm"].item())

        for steps in (0, 2):
            for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1.5 * 2.0**127)):
                with self.subTest(steps=steps, scaled=scaler is not None):
                    step, document = self.whole(self.counting(more, steps), scaler)
                    names = {entry.get("fqn") for entry in document["inputs"]}
                    self.assertTrue({"optimizer.state.total", "optimizer.state.norm"} <= names, names)
                    self.check_steps(step, self.inputs, count=4 if scaler is None else 12)

    def test_tensors_in_lists(self):
        """Kronecker factors, as preconditioners keep them; one that the first step fills has to make it before."""

        def more(optimizer, group, count):
            p = group["params"][0]
            state = optimizer.state[p]
            if "factors" in state:
                left, right = state["factors"]
                left.lerp_(p.grad @ p.grad.t(), 0.1)
                state["factors"] = [left, 0.9 * right + 0.1 * p.grad.t() @ p.grad]
                p.grad.addmm_(state["factors"][0] @ p.grad, state["factors"][1], alpha=100.0)
            elif count > 1:
                state["factors"] = [torch.eye(size) for size in p.shape]
            return 1.0

        step, document = self.whole(self.counting(more, 2))
        self.assertIn("optimizer.factors.1.0.weight", {entry.get("fqn") for entry in document["inputs"]})
        self.check_steps(step, self.inputs)

        def filled(optimizer, group, count):
            if count > 1:
                optimizer.state[group["params"][1]].setdefault("factors", []).append(torch.zeros(3))
            return 1.0

        with self.assertRaisesRegex(CaptureError, "fills the list factors of 0.bias in its first step"):
            self.whole(self.counting(filled, 1))

    def test_a_number_that_runs_leave_as_it_is(self):
        """A sum of zeros, as far as the example goes."""

        def more(optimizer, group, count):
            optimizer.total += 0.0 * count
            return 1 / (1 + optimizer.total)

        optimizer = self.counting()
        optimizer.more, optimizer.total = more, 0.0
        _, document = self.whole(optimizer)
        self.assertIn("optimizer.total", {entry.get("fqn") for entry in document["inputs"]})
        self.imported()

    def test_decisions_are_guards(self):
        """Of steps that alternate, and of first ones."""
        for more, steps, guard in ((every_second, 2, "Ne(Mod(u0+1,2),0)"), (warm_up, 3, None)):
            with self.subTest(more.__name__):
                _, document = self.whole(self.counting(more, steps))
                names = [node["op"] for node in document["nodes"]]
                self.assertTrue(any(guard == g["expr"] for g in document["guards"]) or "aten._assert_scalar.default" in names)
                self.assertIn("so that the next step goes another way", document["note"])
                self.imported()
                self.stops(rf"test_counted.py:\d+: error: .*(guard|assertion failed)")
        step, _ = self.whole(self.counting(warm_up, 6))
        self.check_steps(step, self.inputs)

    def test_first_steps(self):
        with self.assertRaisesRegex(CaptureError, r"param_groups.0.step, and makes a constant of it at .*test_counted.py"):
            self.whole(self.counting(first))
        step, _ = self.whole(self.counting(first, 1))
        self.check_steps(step, self.inputs)

    def test_refused(self):
        cases = {
            "makes a constant of it at .*test_counted.py:.*without int": lambda o, g, count: sum(1.0 for _ in range(count)),
            "makes a constant of it at .*test_counted.py:.*let it make": lambda o, g, count: float(0.9**count),
            "optimizer.flag of Counting from False to True": lambda o, g, count: (setattr(o, "flag", True), 1.0)[1],
            "optimizer.last of Counting from None to 1": lambda o, g, count: (setattr(o, "last", 1), 1.0)[1],
        }
        for words, more in cases.items():
            optimizer = self.counting(more)
            optimizer.flag = False
            with self.subTest(words), self.assertRaisesRegex(CaptureError, words):
                self.whole(optimizer)


if __name__ == "__main__":
    import unittest

    unittest.main()
