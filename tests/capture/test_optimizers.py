"""Whole steps, with the optimizer that they call: its state is in the graph, and many steps are PyTorch's."""


import json
import os
import subprocess

import torch
from safetensors.torch import save_file
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F

from support import CaptureCase
from test_wrapped_optimizers import Wrapper

_KEPT = ": the same in all steps"  # what sg-run says of a rate that no file gives each step

KINDS = {
    "AdamW": dict(lr=1e-2, weight_decay=0.1),
    "Adam": dict(lr=1e-2, amsgrad=True),
    "SGD": dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "RMSprop": dict(lr=1e-2, centered=True, momentum=0.5),
    "Adagrad": dict(lr=1e-2, initial_accumulator_value=0.1),
    "Adadelta": {},
    "Adamax": dict(lr=1e-2),
    "NAdam": dict(lr=1e-2),
    "RAdam": dict(lr=1e-2),
    "ASGD": dict(lr=1e-2),
    "Rprop": dict(lr=1e-2),
    "Adafactor": dict(lr=0.1, foreach=False),  # max(1.0, a number of the data) is 1.0 in some steps
}


class Lion(torch.optim.Optimizer):
    """Of the user's own."""

    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=1e-2))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(average=torch.zeros_like(p))
                p.add_((state["average"] * 0.9 + p.grad * 0.1).sign(), alpha=-group["lr"])
                state["average"] = state["average"] * 0.99 + p.grad * 0.01


class Turning(torch.optim.Optimizer):
    """Counts in a tensor that is its attribute, in a way that is given."""

    def __init__(self, parameters, turn):
        super().__init__(parameters, dict(lr=0.3))
        self.count, self.turn = torch.ones(()), turn

    @torch.no_grad()
    def step(self, closure=None):
        self.turn(self)
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * group["lr"] / self.count)


class WholeSteps(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 5))
        self.inputs = {"x": torch.randn(7, 6), "y": torch.randint(5, (7,))}

    def train(self, optimizer, after=lambda: None):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            after()
            return loss

        return step

    def whole(self, optimizer, step, **more):
        return self.captured(self.model, None, self.inputs, train_step=step, optimizer=optimizer, **more)

    def test_a_closure_is_forward_and_backward(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        asked = []

        def train(x, y):
            def closure():
                asked.append(torch.compiler.is_compiling())
                optimizer.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        document = self.whole(optimizer, train)
        phases = {}
        for node in document["nodes"]:
            phases.setdefault(node["op"], set()).add(node["phase"])
        self.assertEqual(phases["aten.addmm.default"], {"forward"})
        self.assertEqual(phases["aten.native_layer_norm_backward.default"], {"backward"})
        self.assertEqual(phases["aten.addcdiv_.default"], {"optimizer"})
        self.assertEqual(len([output for output in document["outputs"] if output["kind"] == "gradient"]), 6)
        self.assertFalse(any(asked))
        self.check_steps(train, self.inputs)

    def test_a_step_without_backward_is_refused(self):
        def train(x, y):
            return F.cross_entropy(self.model(x), y)

        with self.assertRaisesRegex(CaptureError, "the train_step calls no backward"):
            self.captured(self.model, None, self.inputs, train_step=train)

    def test_kinds(self):
        for name, settings in KINDS.items():
            with self.subTest(name):
                self.setUp()
                optimizer = getattr(torch.optim, name)(self.model.parameters(), **settings)
                step = self.train(optimizer)
                before = dict(optimizer.state), [dict(group) for group in optimizer.param_groups]
                document = self.whole(optimizer, step)
                self.assertEqual((dict(optimizer.state), [dict(g) for g in optimizer.param_groups]), before)
                self.assertEqual([p.grad for p in self.model.parameters()], [None] * 6)
                self.assertIn("optimizer", {node["phase"] for node in document["nodes"]})
                self.check_steps(step, self.inputs)

    def test_state_that_was_there(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        step = self.train(optimizer)
        for _ in range(3):
            step(**self.inputs)
        state = optimizer.state[self.model[0].weight]
        kept = {key: value.clone() for key, value in state.items()}
        self.whole(optimizer, step)
        given = self.values("inputs")
        self.assertTrue(all(torch.equal(state[key], kept[key]) for key in kept))
        self.assertTrue(any(torch.equal(kept["exp_avg"], value) for value in given.values()))
        self.check_steps(step, self.inputs)

    def test_two_of_them_and_gradients_that_are_gone(self):
        first = torch.optim.SGD(self.model[0].parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.AdamW(self.model[3].parameters(), lr=1e-2)
        plain = self.train(first, lambda: (second.step(), self.model.zero_grad()))
        document = self.whole([first, second], plain)
        names = {entry["fqn"] for entry in document["inputs"]}
        self.assertTrue({"optimizer0.momentum_buffer.0.weight", "optimizer1.exp_avg.3.bias"} <= names)
        self.assertTrue(all(output["value"] for output in document["outputs"]))
        self.check_steps(plain, self.inputs)

    def test_groups_of_one_that_is_not_stepped(self):
        """Read as settings of an inner loop (MAML), or gone through by hand."""
        model = nn.Linear(4, 2)
        outer, inner = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.1, 0.05))

        def adapted(x):
            parameters = list(model.parameters())
            order = [next(i for i, p in enumerate(parameters) if p is q) for q in inner.param_groups[0]["params"]]
            gradients = torch.autograd.grad(model(x).square().mean(), parameters, create_graph=True)
            rate = inner.param_groups[0]["lr"]
            fast = [parameters[i] - rate * gradients[i] for i in order]
            loss = nn.functional.linear(x, *fast).square().mean()
            loss.backward()
            outer.step()
            outer.zero_grad()
            return loss.detach()

        def by_hand(x):
            loss = model(x).square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in inner.param_groups[0]["params"]:
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            return loss.detach()

        for train, optimizer in ((adapted, outer), (by_hand, None)):
            with self.subTest(train.__name__):
                inputs = {"x": torch.randn(5, 4)}
                self.captured(model, None, inputs, train_step=train, optimizer=optimizer)
                self.check_steps(train, inputs)

    def test_written_with_what_was_there(self):
        """In bf16 a small update is none; that it is none is held against PyTorch as well."""
        self.model.to(torch.bfloat16)
        self.inputs["x"] = self.inputs["x"].bfloat16()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        document = self.whole(optimizer, self.train(optimizer))
        names = [entry["name"] for entry in document["inputs"] if entry["kind"] in ("parameter", "buffer")]
        given, expected = self.values("inputs"), self.values("expected")
        self.assertEqual(set(names), {name.removeprefix("mutated.") for name in expected if "mutated." in name})
        self.assertTrue(any(torch.equal(given[name], expected["mutated." + name]) for name in names))
        self.imported()

    def test_one_of_the_users_own(self):
        optimizer = Lion(self.model.parameters())
        step = self.train(optimizer)
        document = self.whole(optimizer, step)
        self.assertEqual([o["kind"] for o in document["outputs"]].count("buffer"), 6)
        self.check_steps(step, self.inputs)

    def test_without_values(self):
        """Of one that keeps nothing, and of one that has made a step."""
        sgd = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.whole(sgd, self.train(sgd), fake=True)
        adam = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.train(adam)(**self.inputs)
        document = self.whole(adam, self.train(adam), fake=True)
        self.assertEqual(sum(entry["fqn"].startswith("optimizer.exp_avg.") for entry in document["inputs"]), 6)

    def test_a_step_that_was_kept(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=torch.tensor(1e-2))
        kept = optimizer.step

        def step(x, y):
            self.model.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            kept()
            return loss

        self.whole(optimizer, step)
        self.check_steps(step, self.inputs)

    def test_attributes_that_are_tensors(self):
        in_place = lambda self: self.count.add_(1)  # noqa: E731
        another = lambda self: setattr(self, "count", self.count + 1)  # noqa: E731
        for turn in (in_place, another):
            with self.subTest(turn):
                optimizer = Turning(self.model.parameters(), turn)
                step = self.train(optimizer)
                document = self.whole(optimizer, step)
                self.assertIn("optimizer.count", [entry.get("fqn") for entry in document["inputs"]])
                self.assertEqual(optimizer.count, torch.ones(()))
                self.check_steps(step, self.inputs)

    def rates(self, document):
        return [entry["fqn"] for entry in document["inputs"] if entry.get("fqn", "").endswith(("lr", "rate"))]

    def test_rates_in_tensors_are_state(self):
        """A step may change them. That of a variable stays its."""
        rate = torch.tensor(0.1)
        first, second = (list(self.model[part].parameters()) for part in (slice(2), slice(2, 4)))
        groups = [{"params": first, "lr": rate}, {"params": second, "lr": torch.tensor(0.05)}]
        optimizer = torch.optim.SGD(groups, momentum=0.9)

        def change():
            rate.mul_(0.5)
            optimizer.param_groups[1]["lr"].add_(0.01)

        step = self.train(optimizer, change)
        document = self.whole(optimizer, step)
        self.assertEqual(self.rates(document), ["rate", "optimizer.param_groups.1.lr"])
        self.assertEqual((rate, optimizer.param_groups[1]["lr"]), (torch.tensor(0.1), torch.tensor(0.05)))
        self.check_steps(step, self.inputs)

    def test_a_scheduler_that_goes_by_the_rate_alone(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=torch.tensor(1e-2))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        step = self.train(optimizer, scheduler.step)
        before = scheduler.state_dict()
        self.assertEqual(self.rates(self.whole(optimizer, step)), ["optimizer.param_groups.0.lr"])
        self.assertEqual(scheduler.state_dict(), before)
        self.check_steps(step, self.inputs)

    def test_a_rate_out_of_the_steps_own_tensors(self):
        """As a number it stays that of the capture, of which a note tells; in a tensor it is computed."""
        for rate in (0.1, torch.tensor(0.1)):
            model = nn.Linear(4, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)

            def step(x, y):
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                new = 0.1 * loss.detach() / sum(p.grad.square().sum() for p in model.parameters())
                for group in optimizer.param_groups:
                    if isinstance(group["lr"], torch.Tensor):
                        group["lr"].copy_(new)
                    else:
                        group["lr"] = new.item()
                optimizer.step()
                return loss.detach()

            inputs = {"x": torch.randn(5, 4), "y": torch.randn(5, 3)}
            note = self.captured(model, None, inputs, train_step=step, optimizer=optimizer).get("note", "")
            self.assertEqual("sets optimizer.param_groups.0.lr to a number that it takes out of" in note, isinstance(rate, float))
            self.assertNotIn("rate{step}", note)
        self.check_steps(step, inputs)

    def test_each_step_may_have_a_rate_of_its_own(self):
        """From the outside: the rate is an input, whether the optimizer computes with the tensor or with its number."""
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            with self.subTest(kind):
                optimizer = kind(self.model.parameters(), lr=torch.tensor(1e-2))
                scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
                step = self.train(optimizer)
                self.assertEqual(self.rates(self.whole(optimizer, step)), ["optimizer.param_groups.0.lr"])
                theirs = []
                for i in range(4):
                    values = {"optimizer.param_groups.0.lr": optimizer.param_groups[0]["lr"].clone()}
                    save_file(values, os.path.join(self.folder, f"rate{i}.safetensors"))
                    theirs.append(step(**self.inputs).item())
                    scheduler.step()
                self.imported()
                names = ("step.sg", "inputs.safetensors", "rate{step}.safetensors")
                graph, values, rates = (os.path.join(self.folder, name) for name in names)
                said = self.tool("sg-run", graph, "--inputs", values, "--inputs", rates, "--steps", "4", "--json")
                torch.testing.assert_close(json.loads(said)["ranks"][0]["losses"], theirs, rtol=1e-5, atol=0)

    def held(self, optimizer):
        """The rate and such numbers of an optimizer's group, as an input of the graph each."""
        group, found = optimizer.param_groups[0], {}
        for key in ("lr", "momentum", "weight_decay"):
            if key in group:
                found[f"optimizer.param_groups.0.{key}"] = torch.tensor(group[key], dtype=torch.float64)
        if "betas" in group:
            found["optimizer.param_groups.0.betas.0"] = torch.tensor(group["betas"][0], dtype=torch.float64)
        return found

    def check_scheduled(self, optimizer, step, names):
        """That four steps are PyTorch's, each given the numbers that PyTorch's step() works with."""
        document = self.whole(optimizer, step)
        slots = [f"optimizer.param_groups.0.{name}" for name in names]
        given = [entry["fqn"] for entry in document["inputs"] if entry.get("fqn", "").startswith("optimizer.param_groups")]
        self.assertEqual(given, slots)
        self.assertIn(f"sets {slots[0]}", document["note"])
        used, theirs = [], []
        hook = optimizer.register_step_pre_hook(lambda optimizer, *_: used.append(self.held(optimizer)))
        for i in range(4):
            theirs.append(step(**self.inputs).item())
            save_file({slot: used[i][slot] for slot in slots}, os.path.join(self.folder, f"rate{i}.safetensors"))
        hook.remove()
        self.assertGreater(len({str(one) for one in used}), 1)
        self.imported()
        files = ("step.sg", "inputs.safetensors", "rate{step}.safetensors")
        graph, values, rates = (os.path.join(self.folder, name) for name in files)
        said = self.tool("sg-run", graph, "--inputs", values, "--inputs", rates, "--steps", "4", "--json")
        torch.testing.assert_close(json.loads(said)["ranks"][0]["losses"], theirs, rtol=1e-5, atol=0)
        self.assertNotIn(_KEPT, self.notes_of_run(graph, "--inputs", values, "--inputs", rates, "--steps", "2"))
        self.assertNotIn(_KEPT, self.notes_of_run(graph, "--inputs", values))
        self.assertIn(f"`{slots[0]}`", self.notes_of_run(graph, "--inputs", values, "--steps", "2").split(_KEPT)[0])

    def notes_of_run(self, *arguments):
        command = [os.path.join(os.environ["SG_BIN"], "sg-run"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def test_schedulers_in_the_step(self):
        """Their numbers are inputs, whether they go by a count, by the last rate, or by both; and of momenta as well."""
        schedules = torch.optim.lr_scheduler
        cases = {
            "by a count": (lambda of: schedules.LambdaLR(of, lambda count: 1 / (1 + count)), ["lr"], ["lr"]),
            "by both": (lambda of: schedules.CosineAnnealingLR(of, 5), ["lr"], ["lr"]),
            "by the last rate": (lambda of: schedules.ExponentialLR(of, 0.7), ["lr"], ["lr"]),
            "in turn": (lambda of: schedules.SequentialLR(of, [schedules.LinearLR(of, 0.1, total_iters=2), schedules.StepLR(of, 1)], [2]), ["lr"], ["lr"]),
            "of momenta": (lambda of: schedules.OneCycleLR(of, 0.1, total_steps=90), ["lr", "betas.0"], ["lr", "momentum"]),
        }
        for words, (made, of_adam, of_sgd) in cases.items():
            with self.subTest(words, optimizer="AdamW"):
                adam = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
                scheduler = made(adam)
                before, group = scheduler.state_dict(), dict(adam.param_groups[0])
                self.whole(adam, self.train(adam, scheduler.step))
                self.assertEqual((scheduler.state_dict(), dict(adam.param_groups[0])), (before, group))
                self.check_scheduled(adam, self.train(adam, scheduler.step), of_adam)
            with self.subTest(words, optimizer="SGD"):
                sgd = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
                scheduler = made(sgd)
                self.check_scheduled(sgd, self.train(sgd, scheduler.step), of_sgd)

    def test_numbers_set_by_hand(self):
        """Before backward, or behind step()."""
        for is_behind in (False, True):
            with self.subTest(is_behind=is_behind):
                optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, weight_decay=0.1)
                turns = [0]

                def turn():
                    turns[0] += 1
                    optimizer.param_groups[0].update(lr=1e-2 / turns[0], weight_decay=0.1 * turns[0])

                train = self.train(optimizer, turn if is_behind else lambda: None)

                def step(x, y):
                    if not is_behind:
                        turn()
                    return train(x, y)

                self.check_scheduled(optimizer, step, ["lr", "weight_decay"])

    def test_refused(self):
        parameters = list(self.model.parameters())
        sgd = torch.optim.SGD(parameters, lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1)
        adam = torch.optim.Adam(parameters)
        damped = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5)
        by_tensor = torch.optim.SGD(parameters, lr=torch.tensor(0.1))
        cleared, loaded = torch.optim.AdamW(parameters), torch.optim.RMSprop(parameters)
        load = lambda: loaded.load_state_dict(loaded.state_dict())  # noqa: E731
        by_python = torch.optim.lr_scheduler.LambdaLR(by_tensor, lambda count: 1 / (1 + count))
        rebind = lambda: by_tensor.param_groups[0].update(lr=torch.tensor(0.05))  # noqa: E731
        own = Lion(parameters)
        own.turns = 0
        odd = Lion(parameters)
        odd.state["all"]["count"] = torch.zeros(())
        grown = torch.optim.SGD(parameters[:4], lr=0.1)
        grow = lambda: grown.add_param_group({"params": [self.model[3].bias]})  # noqa: E731
        wrapper = Wrapper(torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
        cases = {
            "first step of SGD, which makes its state, updates 0.weight": (damped, self.train(damped), {}),
            "changes lr of SGD outside of its step.*in place": (by_tensor, self.train(by_tensor, rebind), {}),
            "sets optimizer.param_groups.0.lr, a tensor, by numbers.*give it as a number": (by_tensor, self.train(by_tensor, lambda: by_python.step()), {}),
            "changes turns of Lion, which the graph holds as it is: change it between steps$": (own, self.train(own, lambda: setattr(own, "turns", own.turns + 1)), {}),
            "changes lr of SGD between two of its step": (sgd, self.train(sgd, lambda: (scheduler.step(), sgd.step())), {}),
            r"updates 1 of 1 tensors that are no parameters of the model.*shape \[1\]": (torch.optim.SGD([torch.ones(1)]), self.train(sgd), {}),
            "another group of parameters": (grown, self.train(grown, grow), {}),
            "is in optimizer= twice": ([sgd, sgd], self.train(sgd), {}),
            "keeps state of 'all', which is not a parameter": (odd, self.train(odd), {}),
            "LBFGS decides by values": (torch.optim.LBFGS(parameters), self.train(sgd), {}),
            "calls that of Wrapper, whose parameters are the same": (wrapper.base, self.train(wrapper), {}),
            "clears or replaces the state of AdamW": (cleared, self.train(cleared, lambda: cleared.state.clear()), {}),
            "clears or replaces the state of RMSprop": (loaded, self.train(loaded, load), {}),
            "not torch.optim.Optimizer": ([scheduler], self.train(sgd), {}),
            "give it to capture as optimizer=": (None, self.train(sgd), {}),
            "the optimizer has no state yet": (adam, self.train(adam), {"fake": True}),
        }
        for words, (optimizer, step, more) in cases.items():
            with self.subTest(words), self.assertRaisesRegex(CaptureError, words):
                self.whole(optimizer, step, **more)
        with self.assertRaisesRegex(CaptureError, "give train_step="):
            self.captured(self.model, lambda out: out.sum(), (torch.ones(2, 6),), optimizer=sgd)
        self.assertEqual(sgd.param_groups[0]["lr"], 0.1)
        self.assertEqual(len(grown.param_groups), 1)
        self.assertEqual(dict(wrapper.base.state), {})
        self.assertEqual(by_tensor.param_groups[0]["lr"], torch.tensor(0.1))


if __name__ == "__main__":
    import unittest

    unittest.main()
