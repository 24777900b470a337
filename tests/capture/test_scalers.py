"""torch.amp.GradScaler in a train_step: its scale is state of the graph, and a step whose gradients are infinite writes
nothing but that."""

import types
from copy import deepcopy
from functools import partial

import torch
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F

from support import CaptureCase

NAMES = {"scaler.scale", "scaler.growth_tracker"}
FIRST = 2.0**18


class Scalers(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.inputs = {"x": torch.randn(4, 6), "y": torch.tensor([0, 2, 1, 0])}

    def scaler(self, scale=FIRST, **more):
        """In half precision a loss scaled so overflows at first: twice, then steps are made."""
        return torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2, **more)

    def train(self, scaler, optimizer, clips=False):
        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(self.model(x).float() * 3, y)
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step

    def check(self, step, optimizers, names=NAMES, count=9):
        """Losses of `count` steps, of which some are skipped: the parameters stay, and so does the loss."""
        before = [p.detach().clone() for p in self.model.parameters()]
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizers)
        self.assertTrue(all(map(torch.equal, before, self.model.parameters())), "they are left as they were")
        self.assertLessEqual(names, {entry["fqn"] for entry in document["inputs"]})
        self.check_steps(step, self.inputs, count)
        self.assertNotIn("aten._amp", self.imported())
        return document

    def test_steps_that_are_skipped(self):
        """At first, and again where the scale has risen."""
        parameters = list(self.model.parameters())
        for make in (
            lambda: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
            lambda: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
            lambda: torch.optim.Adam(parameters, lr=0.01, fused=True),
            lambda: torch.optim.Adafactor(parameters, lr=0.05),
        ):
            optimizer, scaler = make(), self.scaler()
            step = self.train(scaler, optimizer, clips=True)
            with self.subTest(type(optimizer).__name__):
                self.check(step, optimizer)
                self.assertNotIn(scaler.get_scale(), (FIRST * 0.5**9, FIRST * 2.0**4), "there were steps of both kinds")

    def test_copies_of_one_parameter_at_a_time(self):
        """What an update may have to become again is not kept until the last of them."""
        optimizer, scaler = torch.optim.AdamW(self.model.parameters(), lr=0.01), self.scaler()
        document = self.captured(
            self.model, None, self.inputs, train_step=self.train(scaler, optimizer), optimizer=optimizer
        )
        ops = [node["op"] for node in document["nodes"]]
        copies = [i for i, op in enumerate(ops) if op == "aten.clone.default"]
        chosen = [i for i, op in enumerate(ops) if op == "aten.where.self"]
        self.assertEqual(len(copies), 4 * len(list(self.model.parameters())))
        self.assertLess(chosen[0], copies[4])

    def test_one_that_has_made_steps(self):
        optimizer, scaler = torch.optim.SGD(self.model.parameters(), lr=0.5), self.scaler(backoff_factor=0.3)
        step = self.train(scaler, optimizer)
        for _ in range(3):
            step(**self.inputs)
        scale = scaler.get_scale()
        self.check(step, optimizer, count=3)
        self.assertNotEqual(scaler.get_scale(), scale)

    def test_two_optimizers(self):
        """One has infinite gradients where the other has none: each decides for itself, the scale by both."""
        both = [torch.optim.SGD(self.model[i].parameters(), lr=0.5) for i in (0, 2)]
        trainer = Trainer(self.model, both, self.scaler())
        self.check(trainer.step, both)

    def test_where_it_is_kept(self):
        """In an object that is called, in the model, in a tuple, as the default of an argument."""
        for what, make in KEEPERS.items():
            with self.subTest(what):
                optimizer, scaler = torch.optim.Adam(self.model.parameters(), lr=0.01), self.scaler()
                step = make(self.model, optimizer, scaler)
                self.check(step, optimizer, {f"{what}.{name}" for name in ("scale", "growth_tracker")}, 3)
                vars(self.model).pop("amp", None)

    def test_two_scalers(self):
        """Each has its own optimizer, and a scale of its own."""
        first, second = self.scaler(), self.scaler(2.0**9, backoff_factor=0.25)
        optimizers = [torch.optim.AdamW(self.model[i].parameters(), lr=0.01) for i in (0, 2)]

        def step(x, y):
            total = 0.0
            for scaler, optimizer in zip((first, second), optimizers):
                total = total + updated(self.model, optimizer, scaler, x, y)
                for each in optimizers:
                    each.zero_grad()
            return total

        self.check(step, optimizers, {f"{name}.scale" for name in ("first", "second")})

    def test_hooks(self):
        """What PyTorch calls around an optimizer's step() it does not call where the scaler skips that, but for one that
        is told by the scaler what to skip. All write to what is beside the model, or bind another tensor there."""
        model = self.model
        for fused in (False, True):
            for what, follow in FOLLOWERS.items():
                with self.subTest(what, fused=fused):
                    self.model = deepcopy(model)
                    parameters = list(self.model.parameters())
                    optimizer = torch.optim.SGD(parameters, lr=0.05, fused=fused)
                    kept = {"mean": [torch.zeros_like(p) for p in parameters], "count": torch.zeros(3)}
                    follows = partial(follow, kept, self.model)
                    optimizer.register_step_pre_hook(partial(begins, kept))
                    optimizer.register_step_post_hook(lambda *_, follows=follows: follows())
                    step = self.train(self.scaler(), optimizer)

                    def followed(x, y, step=step, kept=kept):
                        return step(x, y) + sum(mean.abs().sum() for mean in kept["mean"]) + kept["count"].sum()

                    self.check(followed, optimizer, NAMES | {"kept.count", "kept.mean.0"})

    def test_what_only_a_hook_knows(self):
        """An average of weights that no function but the hook names; and one that keeps weights within bounds, also where
        the optimizer is told what to skip."""
        for fused in (False, True):
            with self.subTest(fused=fused):
                optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, fused=fused)
                Follower(self.model, optimizer)
                document = self.check(self.train(self.scaler(), optimizer), optimizer)
                names = {entry["fqn"] for entry in document["inputs"]}
                self.assertLessEqual({"mean.0", "mean.3"}, names)

    def test_a_hook_of_the_model(self):
        """Its buffer is its state as any other."""
        self.model.register_buffer("mean", torch.zeros(8, 6))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

        def hook(*_):
            self.model.mean = self.model.mean.lerp(self.model[0].weight.detach(), 0.5)

        optimizer.register_step_post_hook(hook)
        step = self.train(self.scaler(), optimizer)
        self.check(lambda x, y: step(x, y) + self.model.mean.abs().sum(), optimizer)

    def test_a_hook_that_binds_one_tensor_twice(self):
        """A step that is skipped takes back both."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        mean = torch.zeros(8, 6)
        kept = {"mean": mean, "same": mean}

        def hook(*_):
            now = kept["mean"].lerp(self.model[0].weight.detach(), 0.5)
            kept.update(mean=now, same=now)

        optimizer.register_step_post_hook(hook)
        step = self.train(self.scaler(), optimizer)
        self.check(lambda x, y: step(x, y) + kept["mean"].abs().sum() + kept["same"].square().sum(), optimizer)

    def test_a_hook_that_changes_sizes(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        kept = {"seen": torch.zeros(1)}
        optimizer.register_step_post_hook(lambda *_: kept.update(seen=torch.cat([kept["seen"], torch.ones(1)])))
        step = self.train(self.scaler(), optimizer)
        words = r"an update that makes of `seen`, a tensor of torch.float32 \[1\], one of torch.float32 \[2\]"
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(
                self.model, None, self.inputs, train_step=lambda x, y: step(x, y) + kept["seen"][0], optimizer=optimizer
            )

    def test_off(self):
        scaler = self.scaler(enabled=False)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        document = self.check(self.train(scaler, optimizer), optimizer, set())
        self.assertFalse([entry for entry in document["inputs"] if "scaler" in entry["fqn"]])

    def test_without_values(self):
        optimizer, scaler = torch.optim.SGD(self.model.parameters(), lr=0.5), self.scaler()
        step = self.train(scaler, optimizer)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizer, fake=True)
        self.assertLessEqual(NAMES, {entry["fqn"] for entry in document["inputs"]})
        step(**self.inputs)
        self.assertEqual(scaler.get_scale(), FIRST / 2, "it has no fake state")

    def test_refused(self):
        class Own(torch.amp.GradScaler):
            """As ShardedGradScaler has its own."""

            def scale(self, outputs):
                return outputs * (self._scale if self._scale is not None else 1)

        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        hidden = {self.scaler()}  # nobody looks in sets
        found = lambda *given: self.train(next(iter(hidden)), optimizer)(*given)  # noqa: E731
        cases = {
            "does not find in what the train_step names": found,
            "scales its loss by Own": self.train(Own("cpu"), optimizer),
        }
        for words, step in cases.items():
            with self.subTest(words), self.assertRaisesRegex(CaptureError, words):
                self.captured(self.model, None, tuple(self.inputs.values()), train_step=step, optimizer=optimizer)

    def test_optimizers_that_ask_for_numbers(self):
        """A first step that is skipped has none to answer with."""
        optimizer = Halving(self.model.parameters(), lr=0.1)
        step = self.train(self.scaler(), optimizer)
        words = "test_scalers.py:[0-9]+ in step: it decides by the value of a tensor, which is NaN.*smaller init_scale"
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizer)


class Halving(torch.optim.SGD):
    """Asks how large the gradients are."""

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=0.5 if p.grad.norm().item() > 1 else 1)


def updated(model, optimizer, scaler, x, y):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).float() * 3, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss.detach()


class Callable:
    def __init__(self, *given):
        self.given, self.precision = given[:2], types.SimpleNamespace(scaler=given[2])

    def __call__(self, x, y):
        return updated(*self.given, self.precision.scaler, x, y)


def of_model(model, optimizer, scaler):
    model.amp = scaler
    return lambda x, y: updated(model, optimizer, model.amp, x, y)


def by_default(model, optimizer, scaler):
    kept = scaler
    return lambda x, y, scaler=kept: updated(model, optimizer, scaler, x, y)


def begins(kept, *_):
    kept["count"][1] += 1


def of_each(kept, model):
    kept["count"][0] += 1
    kept["count"].data[2] += 2
    for mean, parameter in zip(kept["mean"], model.parameters()):
        mean.lerp_(parameter.detach(), 0.25)


def of_all(kept, model):
    parameters = list(model.parameters())
    kept["count"].view(3, 1)[::2].add_(torch.ones(2, 1))
    with torch.no_grad():
        torch._foreach_lerp_(kept["mean"], parameters, 0.25)
        torch._foreach_add_([parameters[0], kept["mean"][1], parameters[1]], 0.001)


def bound_anew(kept, model):
    """One to a parameter's own memory."""
    parameters = list(model.parameters())
    kept["count"] = kept["count"] + 1
    kept["mean"][0] = kept["mean"][0].lerp(parameters[0].detach(), 0.25)
    kept["mean"][1] = parameters[1].detach()


class Follower:
    def __init__(self, model, optimizer):
        self.model, self.mean = model, [torch.zeros_like(p) for p in model.parameters()]
        optimizer.register_step_post_hook(self.after)

    @torch.no_grad()
    def after(self, *_):
        for mean, parameter in zip(self.mean, self.model.parameters()):
            parameter.mul_(0.9).add_(mean, alpha=0.1)
            mean.lerp_(parameter, 0.25)


FOLLOWERS = {"one by one": of_each, "at once": of_all, "bound anew": bound_anew}

KEEPERS = {
    "precision.scaler": Callable,
    "amp": of_model,
    "given.2": lambda *given: lambda x, y: updated(*given, x, y),
    "scaler": by_default,
}


class Trainer:
    def __init__(self, model, optimizers, scaler):
        self.model, self.optimizers, self.scaler = model, optimizers, scaler

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.model[0].weight.grad *= 1 + torch.where(self.model[0].weight.grad.abs().max() > 9000, torch.inf, 0.0)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()
        return loss.detach()


if __name__ == "__main__":
    import unittest

    unittest.main()
