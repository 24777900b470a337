"""State that a train_step makes when it first runs: refused by name before that, captured after it, and nothing of the
runs is left behind. Python numbers that it counts in."""

import torch
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from support import CaptureCase


class Trainer:
    def __init__(self):
        self.average, self.state, self.last, self.log = None, None, None, []


class Slotted:
    __slots__ = ("count", "average")

    def __init__(self):
        self.count = 0


class Made(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.inputs = {"x": torch.randn(4, 6), "y": torch.tensor([0, 2, 1, 0])}

    def backward(self, x, y):
        self.model.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss.detach()

    def momentum(self, of):
        """A step with momentum; of: where it keeps that of a parameter, made where it is not there yet."""

        def step(x, y):
            loss = self.backward(x, y)
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    kept = of(name, parameter)
                    kept.mul_(0.9).add_(parameter.grad)
                    parameter.sub_(0.1 * kept)
            return loss

        return step

    def check(self, step, made, kept, refusal=""):
        """kept: what the user has of it."""
        before = repr(kept())
        with self.assertRaisesRegex(CaptureError, refusal or f"the step reads {made}, which its first run makes"):
            self.captured(self.model, None, self.inputs, train_step=step)
        self.assertEqual(before, repr(kept()))
        step(**self.inputs)
        document = self.captured(self.model, None, self.inputs, train_step=step)
        self.assertIn(made, {entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"})
        self.check_steps(step, self.inputs)

    def test_by_parameter(self):
        kept = {}
        of = lambda name, p: kept[p] if p in kept else kept.setdefault(p, torch.zeros_like(p))  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight", lambda: kept)

    def test_by_id(self):
        kept = {}
        of = lambda name, p: kept[id(p)] if id(p) in kept else kept.setdefault(id(p), torch.zeros_like(p))  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight", lambda: kept)

    def test_by_name(self):
        kept = {}
        of = lambda name, p: kept[name] if name in kept else kept.setdefault(name, torch.zeros_like(p))  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight", lambda: kept)

    def test_dict_of_dicts(self):
        kept = {}
        of = lambda name, p: kept.setdefault(p, {"m": torch.zeros_like(p)})["m"]  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight.m", lambda: kept)

    def test_by_tuple(self):
        kept = {}
        of = lambda name, p: kept[p, "m"] if (p, "m") in kept else kept.setdefault((p, "m"), torch.zeros_like(p))  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight.m", lambda: kept)

    def test_attribute_of_a_parameter(self):
        def of(name, parameter):
            if not hasattr(parameter, "momentum"):
                parameter.momentum = torch.zeros_like(parameter)
            return parameter.momentum

        self.check(self.momentum(of), "0.weight.momentum", lambda: [vars(p) for p in self.model.parameters()])

    def test_dict_made_as_a_whole(self):
        trainer = Trainer()

        def of(name, parameter):
            if trainer.state is None:
                trainer.state = {p: torch.zeros_like(p) for p in self.model.parameters()}
            return trainer.state[parameter]

        self.check(self.momentum(of), "trainer.state.0.weight", lambda: vars(trainer))

    def test_slots(self):
        slotted = Slotted()

        def step(x, y):
            loss = self.backward(x, y)
            slotted.average = 0.9 * slotted.average + 0.1 * loss if hasattr(slotted, "average") else loss
            slotted.count += 1
            return loss + slotted.average

        self.check(step, "slotted.average", lambda: [slotted.count, getattr(slotted, "average", None)])

    def test_attribute_bound_anew(self):
        trainer = Trainer()

        def step(x, y):
            loss = self.backward(x, y)
            trainer.average = loss if trainer.average is None else 0.9 * trainer.average + 0.1 * loss
            return loss + trainer.average

        self.check(step, "trainer.average", lambda: vars(trainer))

    def test_variable_of_a_closure(self):
        average = None

        def step(x, y):
            nonlocal average
            loss = self.backward(x, y)
            average = loss if average is None else 0.9 * average + 0.1 * loss
            return loss + average

        self.check(step, "average", lambda: average)

    def test_number_of_it(self):
        trainer = Trainer()

        def step(x, y):
            loss = self.backward(x, y)
            factor = 1.0 if trainer.last is None else trainer.last.item()
            trainer.last = loss
            return loss * factor

        with self.assertRaisesRegex(CaptureError, "the step reads trainer.last, which its first run makes"):
            self.captured(self.model, None, self.inputs, train_step=step)
        self.assertIsNone(trainer.last)

    def test_what_is_never_read_is_no_state(self):
        trainer, seen = Trainer(), {}

        def step(x, y):
            loss = self.backward(x, y)
            trainer.last = loss
            trainer.log.append(loss)
            for parameter in self.model.parameters():
                seen[parameter] = parameter.grad.clone()
            seen.setdefault("mask", torch.tensor([1.0, 0.0, 2.0]))
            return loss * seen["mask"].sum()

        self.captured(self.model, None, self.inputs, train_step=step)
        self.assertEqual([trainer.last, trainer.log, seen], [None, [], {}])
        self.check_steps(step, self.inputs)

    def test_numbers(self):
        """A step that goes by a number it changes is refused, which the message names; the user's is as it was."""
        trainer = Trainer()
        trainer.steps = 0

        def step(x, y):
            trainer.steps += 1
            return self.backward(x, y) / max(trainer.steps, least)

        refusals = {1: r"the first step, which changes trainer\.steps, has another loss", 2: r"goes by trainer\.steps, which it changes"}
        for least, refusal in refusals.items():
            with self.assertRaisesRegex(CaptureError, refusal):
                self.captured(self.model, None, self.inputs, train_step=step)
            self.assertEqual(trainer.steps, 0)

    def test_sets(self):
        """Which parameters have begun decides what a step does, so that the first one is another than later ones."""
        begun, kept = set(), {p: torch.zeros_like(p) for p in self.model.parameters()}

        def of(name, parameter):
            if parameter not in begun:
                kept[parameter].fill_(0.5)
            begun.add(parameter)
            return kept[parameter]

        step = self.momentum(of)
        with self.assertRaisesRegex(CaptureError, "the first step, which changes begun, updates 0.weight in another way"):
            self.captured(self.model, None, self.inputs, train_step=step)
        self.assertEqual([begun, float(kept[self.model[0].weight].abs().max())], [set(), 0])
        step(**self.inputs)
        self.captured(self.model, None, self.inputs, train_step=step)
        self.check_steps(step, self.inputs)

    def test_weak_dict(self):
        kept = WeakIdKeyDictionary()
        of = lambda name, p: kept[p] if p in kept else kept.setdefault(p, torch.zeros_like(p))  # noqa: E731
        self.check(self.momentum(of), "kept.0.weight", lambda: dict(kept))

    def test_flag(self):
        """It says that the state is there, which the capture removes again."""
        trainer = Trainer()
        trainer.has_begun = False

        def of(name, parameter):
            if not trainer.has_begun:
                trainer.state = {name: torch.zeros_like(p) for name, p in self.model.named_parameters()}
                trainer.has_begun = True
            return trainer.state[name]

        refusal = "the first step, which changes trainer.has_begun, updates 0.weight in another way"
        self.check(self.momentum(of), "trainer.state.0.weight", lambda: vars(trainer), refusal)

    def test_without_a_run(self):
        kept = {}
        of = lambda name, p: kept[p] if p in kept else kept.setdefault(p, torch.zeros_like(p))  # noqa: E731
        with self.assertRaisesRegex(CaptureError, r"the step makes kept\.0\.bias, and with fake=True"):
            self.captured(self.model, None, self.inputs, train_step=self.momentum(of), fake=True)
        self.assertEqual(kept, {})


class LeftBehind(CaptureCase):
    """Modes and requires_grad that a step leaves otherwise for the next one."""

    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = {"x": torch.randn(4, 6), "y": torch.tensor([0, 2, 1, 0])}

    def whole(self, before=lambda: None, after=lambda: None):
        def step(x, y):
            before()
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            after()
            return loss.detach()

        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.check_steps(step, self.inputs)
        return document

    def test_modes(self):
        with self.assertRaisesRegex(CaptureError, "step, which changes model.training, .*a step before"):
            self.whole(after=self.model.eval)
        self.assertTrue(all(part.training for part in self.model.modules()))
        with self.assertRaisesRegex(CaptureError, "step, which changes 1.training, "):
            self.whole(after=self.model[1].eval)
        self.model[1].train()
        self.whole(before=self.model.train, after=self.model.eval)
        self.setUp()
        self.model[1] = nn.Tanh()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.whole(after=self.model.eval)  # of no effect

    def test_functions(self):
        """A step that puts another function into its model for the next one."""
        act, self.model = torch.tanh, nn.Linear(6, 3)
        self.model.act, self.model.mode = act, "first"
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model.register_forward_hook(lambda model, _, output: model.act(output))
        with self.assertRaisesRegex(CaptureError, "step, which changes .*act, "):
            self.whole(after=lambda: setattr(self.model, "act", torch.relu))
        self.assertIs(self.model.act, act)
        self.whole(after=lambda: setattr(self.model, "mode", "later"))  # which nothing reads

    def test_a_count_that_the_second_run_puts_back(self):
        """A memory of two batches: every other step writes the same half."""

        class Ring(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.at = nn.Linear(4, 3), 0
                self.register_buffer("memory", torch.zeros(8, 3))

            def forward(self, x):
                y = self.linear(x)
                self.memory[self.at : self.at + 4] = y.detach()
                self.at = (self.at + 4) % 8
                return (y @ self.memory.T).logsumexp(1).mean() if self.linear.weight.sum() < 1e9 else y.sum()

        model = Ring()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x)
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            step(torch.randn(4, 4))
        with self.assertRaisesRegex(CaptureError, "the first step, which changes at, .* of a step that alternates capture each"):
            self.captured(model, None, {"x": torch.randn(4, 4)}, train_step=step, optimizer=optimizer)

    def test_frozen_parameters(self):
        first = self.model[0]
        freeze, thaw = (lambda: first.requires_grad_(False)), (lambda: first.requires_grad_(True))
        with self.assertRaisesRegex(CaptureError, "which changes 0.weight.requires_grad, 0.bias.requires_grad, "):
            self.whole(after=freeze)
        self.assertTrue(all(p.requires_grad for p in self.model.parameters()))
        with self.assertRaisesRegex(CaptureError, "which changes 0.weight.requires_grad"):
            self.whole(before=lambda: first.requires_grad_(not first.weight.requires_grad))
        self.whole(before=thaw, after=freeze)
