"""What a train_step keeps beside its model: state of the graph where the step writes it, and as it was for the user."""

import collections
import copy
import functools
import types

import torch
from stepgraph_capture import CaptureError
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from support import CaptureCase


class Shadow:
    """An average of the weights in a dict, as it is often written."""

    def __init__(self, model):
        self.kept = {name: p.detach().clone() for name, p in model.named_parameters()}

    def follow(self, model):
        for name, p in model.named_parameters():
            self.kept[name] = 0.9 * self.kept[name] + 0.1 * p.detach()


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.seen = torch.zeros((), dtype=torch.int64)
        self.history = [torch.zeros(2), torch.zeros(3)]

    def step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += x.shape[0]
        self.history[1] = torch.stack([self.history[1][1], self.history[1][2], loss.detach()])
        return loss + 0.01 * self.history[1].sum()


class Beside(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = {"x": torch.randn(5, 4), "y": torch.randn(5, 3)}

    def train(self, loss_of, after):
        def step(x, y):
            loss = loss_of(self.model(x), x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return after(loss)

        return step

    def check(self, step, names):
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        beside = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"]
        self.assertEqual(beside, names)
        self.assertFalse([entry for entry in document["inputs"] if entry["kind"] == "constant"])
        self.check_steps(step, self.inputs)

    def test_a_dict_and_a_list_made_anew(self):
        """The step binds other ones to the variable and to an object's attribute; the user has his own back afterwards."""
        previous = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        own, tensors = previous, dict(previous)
        holder = types.SimpleNamespace(last=[torch.zeros(()), (torch.ones(3), 1)])

        def loss_of(output, x, y):
            moved = sum((p - previous[name]).square().sum() for name, p in self.model.named_parameters())
            return F.mse_loss(output, y) + moved + holder.last[0] * holder.last[1][0].sum()

        def follow(loss):
            nonlocal previous
            previous = {name: 0.5 * previous[name] + 0.5 * p.detach() for name, p in self.model.named_parameters()}
            holder.last = [loss.detach() * 0.1, (holder.last[1][0] * 0.5, 2)]
            return loss

        step = self.train(loss_of, follow)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        beside = {entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"}
        self.assertEqual(beside, {*(f"previous.{name}" for name in own), "holder.last.0", "holder.last.1.0"})
        self.assertTrue(previous is own and all(own[name] is tensor for name, tensor in tensors.items()))
        self.check_steps(step, self.inputs)

    def test_copies_of_the_model(self):
        """Made in the step: one that stays, and one that learns first."""

        def loss_of(output, x, y):
            still, other = copy.deepcopy(self.model).requires_grad_(False), copy.deepcopy(self.model)
            found = torch.autograd.grad(F.mse_loss(other(x), y), [*other.parameters()])
            with torch.no_grad():
                for parameter, gradient in zip(other.parameters(), found):
                    parameter.sub_(0.5 * gradient)
            return F.mse_loss(output, y) + F.mse_loss(output, 0.9 * still(x)) + F.mse_loss(output, other(x).detach())

        self.check(self.train(loss_of, lambda loss: loss), [])

    def test_a_queue(self):
        queue = collections.deque([torch.randn(5, 3), torch.randn(5, 3)], maxlen=2)

        def loss_of(output, x, y):
            self.output = output.detach()
            return torch.logsumexp(output @ torch.cat([*queue]).T, -1).mean()

        def follow(loss):
            queue.append(self.output)
            return loss

        self.check(self.train(loss_of, follow), ["queue.0", "queue.1"])

    def test_numbers_that_decide_and_change(self):
        """A step that leaves out a batch by a running mean: the example's would be a constant of the graph. In a tensor it
        is state."""
        kept = types.SimpleNamespace(mean=1.0, last=collections.deque([1.0] * 3, maxlen=3), tensor=torch.tensor(1.0))

        def train(is_outlier, keep):
            def step(x, y):
                loss = F.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), 9.0)
                if not is_outlier(norm):
                    self.optimizer.step()
                keep(norm)
                return loss

            step.mean = 1.0
            return step

        def keep_attribute(norm):
            kept.mean = 0.5 * kept.mean + 0.5 * norm.item()

        def keep_of_function(norm):
            of_function.mean = 0.5 * of_function.mean + 0.5 * norm.item()

        of_function = train(lambda norm: norm.item() > 90 * of_function.mean, keep_of_function)
        for step, name in (
            (train(lambda norm: norm.item() > 90 * kept.mean, keep_attribute), "kept.mean"),
            (train(lambda n: n.item() > 30 * sum(kept.last), lambda n: kept.last.append(n.item())), "kept.last.0, kept.last.1, kept.last.2"),
            (of_function, "step.mean"),
        ):
            with self.assertRaisesRegex(CaptureError, f"goes by {name}, which it changes.*keep it in a tensor"):
                self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertEqual((kept.mean, [*kept.last], of_function.mean), (1.0, [1.0] * 3, 1.0))
        in_tensor = train(lambda norm: norm > 90 * kept.tensor, lambda norm: kept.tensor.lerp_(norm, 0.5))
        self.check(in_tensor, ["kept.tensor"])
        logged = train(lambda norm: norm > 90, keep_attribute)
        self.check(logged, [])

    def test_a_count_that_changes_a_constant_little(self):
        """Two runs are the same but for rounding, and a thousand are not."""
        count = 50000

        def loss_of(output, x, y):
            return F.mse_loss(output, y) + min(1.0, count / 1e9) * output.square().mean()

        def follow(loss):
            nonlocal count
            count += 1
            return loss

        with self.assertRaisesRegex(CaptureError, "goes by count, which it changes"):
            self.captured(self.model, None, self.inputs, train_step=self.train(loss_of, follow), optimizer=self.optimizer)
        self.assertEqual(count, 50000)
        now_and_then = self.train(lambda output, x, y: F.mse_loss(output, y) * (2 if count % 11 == 0 else 1), follow)
        self.check(now_and_then, [])

    def test_an_average_that_holds_the_model(self):
        """As in ema_pytorch: one module with the model, its average, and a count of updates."""

        class Average(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model, self.average = model, copy.deepcopy(model).requires_grad_(False)
                self.register_buffer("updates", torch.tensor(0))

            @torch.no_grad()
            def update(self):
                count = self.updates.item()
                self.updates += 1
                decay = min(0.9, count / (1 + count))
                for mean, p in zip(self.average.parameters(), self.model.parameters()):
                    mean.lerp_(p, 1 - decay)

        average = Average(self.model)

        def follow(loss):
            average.update()
            return loss

        names = [f"average.average.{name}" for name, _ in self.model.named_parameters()]
        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        self.check(step, ["average.updates", *names])

    def test_an_averaged_model(self):
        average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        average.update_parameters(self.model)
        kept = copy.deepcopy(average.state_dict())

        def follow(loss):
            average.update_parameters(self.model)
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        for name, tensor in average.state_dict().items():
            self.assertTrue(torch.equal(tensor, kept[name]), name)
        paths = ["0.weight", "0.bias", "2.weight", "2.bias"]
        self.check(step, ["average.n_averaged", *(f"average.module.{path}" for path in paths)])

    def test_an_average_that_begins_with_a_copy(self):
        """The first step takes another way than later ones, and a note says so; a capture of a later one has none."""
        average = AveragedModel(self.model)

        def follow(loss):
            average.update_parameters(self.model)
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertRegex(document["note"], "decides at .*py:[0-9]+ by average.n_averaged, .* let it make a step")
        step(**self.inputs)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertNotIn("decides", document.get("note", ""))
        self.check_steps(step, self.inputs)

    def test_an_average_of_tied_weights(self):
        """Each of the names is replaced, and the graph has one input."""

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
                self.last.weight = self.first.weight

            def forward(self, x):
                return self.last(torch.tanh(self.first(x)))

        self.model = Tied()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = {"x": torch.randn(5, 4), "y": torch.randn(5, 4)}
        average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        average.update_parameters(self.model)
        weight = average.module.first.weight

        def follow(loss):
            average.update_parameters(self.model)
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, average(x).detach() + y), follow)
        self.check(step, ["average.n_averaged", "average.module.first.weight"])
        self.assertIs(average.module.first.weight, weight)
        self.assertIs(average.module.last.weight, weight)

    def test_attributes_of_a_module_beside_the_model(self):
        """As metrics keep theirs: replaced, written, in a dict; and what is only kept from the last step is no state."""

        class Metric(nn.Module):
            def __init__(self):
                super().__init__()
                self.total, self.most, self.last = torch.zeros(()), torch.zeros(()), torch.zeros(())
                self.counts = {"steps": torch.zeros((), dtype=torch.int64)}

            def forward(self, value):
                self.total = self.total + value
                self.most.copy_(torch.maximum(self.most, value))
                self.counts["steps"] += 1
                self.last = value
                return self.total / self.counts["steps"] + self.most

        metric = Metric()
        total, last = metric.total, metric.last

        def follow(loss):
            return loss.detach() + metric(loss.detach())

        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertTrue(metric.total is total and metric.last is last)
        self.assertNotIn("metric.last", [entry.get("fqn") for entry in document["inputs"]])
        self.check(step, ["metric.total", "metric.most", "metric.counts.steps"])

    def test_two_names_of_one_tensor_that_part(self):
        first = torch.zeros(())
        kept = {"now": first, "best": first}

        def follow(loss):
            kept["now"] = kept["now"] + loss.detach()
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, y) + kept["now"], follow)
        self.check(step, ["kept.now"])

    def test_a_teacher_that_is_written_by_data(self):
        teacher = copy.deepcopy(self.model)

        def follow(loss):
            for mine, theirs in zip(teacher.parameters(), self.model.parameters()):
                mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)
            return loss

        def loss_of(output, x, y):
            return F.mse_loss(output, y) + F.mse_loss(output, teacher(x).detach())

        self.check(self.train(loss_of, follow), [f"teacher.{path}" for path in ("0.weight", "0.bias", "2.weight", "2.bias")])

    def test_a_dict_whose_tensors_are_others_behind_the_step(self):
        shadow = Shadow(self.model)

        def follow(loss):
            shadow.follow(self.model)
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        self.check(step, [f"shadow.kept.{name}" for name in shadow.kept])

    def test_a_variable_that_the_step_binds_anew(self):
        bank = torch.randn(6, 3)

        def loss_of(output, x, y):
            nonlocal bank
            scores = output @ bank.t()
            bank = torch.cat([output.detach(), bank])[:6]
            return scores.logsumexp(1).mean()

        self.check(self.train(loss_of, lambda loss: loss), ["bank"])

    def test_a_tuple_that_refuses_its_length(self):
        """As e3nn.o3.Irreps does, to be asked for the dimension instead."""

        class Kinds(tuple):
            def __len__(self):
                raise NotImplementedError

        model = nn.Linear(3, 2)
        model.kinds = Kinds((1, 2))
        self.captured(model, lambda out: out.sum(), torch.randn(2, 3))
        self.model.kinds = Kinds((1, 2))
        self.check(self.train(lambda output, x, y: F.mse_loss(output, y), lambda loss: loss), [])

    def test_tuples(self):
        Factors = collections.namedtuple("Factors", "a g")
        kept = {
            "alone": (torch.eye(4), torch.eye(3)),
            "in_a_dict": {self.model[0].weight: (torch.eye(4), torch.eye(3)), "more": 1},
            "in_a_list": [Factors(torch.eye(4), torch.eye(3))],
            "in_a_tuple": ((torch.eye(4), torch.eye(3)), 2),
        }
        names = {"alone": "kept", "in_a_dict": "kept.0.weight", "in_a_list": "kept.0", "in_a_tuple": "kept.0"}
        keys = {"in_a_dict": self.model[0].weight, "in_a_list": 0, "in_a_tuple": 0}
        for way, made in kept.items():
            for is_written in (True, False):
                with self.subTest(way=way, is_written=is_written):
                    self.check_tuple(made, keys.get(way), is_written, f"buffer .*{names[way]}.1")

    def check_tuple(self, kept, key, is_written, name):
        def follow(loss):
            nonlocal kept
            key_now = next(k for k in kept) if isinstance(kept, dict) else key
            a, g = kept if key is None else kept[key_now]
            weight = self.model[2].weight.detach()
            if is_written:
                g.mul_(0.9).addmm_(weight, weight.t(), alpha=0.1)
                return loss.detach() + g.trace()
            g = 0.9 * g + 0.1 * weight @ weight.t()
            if key is None:
                kept = (a, g)
            elif isinstance(kept, tuple):
                kept = ((a, g), *kept[1:])
            else:
                kept[key_now] = type(kept[key_now])._make((a, g)) if hasattr(kept[key_now], "_make") else (a, g)
            return loss.detach() + g.trace()

        step = self.train(lambda y, _, target: F.mse_loss(y, target), follow)
        before = kept if key is None else kept[key]
        numbers = [tensor.clone() for tensor in before]
        self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        now = kept if key is None else kept[key]
        self.assertIs(now, before)
        self.assertTrue(all(map(torch.equal, now, numbers)))
        self.assertRegex(self.imported(), name)
        self.check_steps(step, self.inputs)

    def test_the_object_whose_method_it_is(self):
        trainer = Trainer(self.model, self.optimizer)
        self.check(trainer.step, ["seen", "history.0", "history.1"])
        self.assertEqual(trainer.seen.item(), 4 * 5)  # by the steps that the check made, no others

    def test_what_is_only_read_stays_a_constant(self):
        fixed = copy.deepcopy(self.model)
        step = self.train(lambda output, x, y: F.mse_loss(output, fixed(x).detach()) + 0 * y.sum(), lambda loss: loss)
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertEqual(len([entry for entry in document["inputs"] if entry["kind"] == "constant"]), 4)

    def test_gradients_that_nobody_reads(self):
        """A critic that is not frozen: each backward adds to its gradients."""
        critic = nn.Linear(3, 1)
        step = self.train(lambda output, x, y: critic(output).square().mean() + 0 * y.sum(), lambda loss: loss)
        step(**self.inputs)
        before = critic.weight.grad
        document = self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertEqual(len([entry for entry in document["inputs"] if entry["kind"] == "constant"]), 2)
        self.assertIs(critic.weight.grad, before)
        self.check_steps(step, self.inputs)

    def test_tensors_that_no_step_writes_are_in_nobodys_way(self):
        with torch.inference_mode():
            frozen = torch.ones(3)
        odd = {"sparse": torch.eye(3).to_sparse(), "nowhere": torch.empty(2, device="meta"), "frozen": frozen}

        def loss_of(output, x, y):
            return F.mse_loss(output, y) + 0 * len(odd)

        self.check(self.train(loss_of, lambda loss: loss), [])

    def test_another_view_of_what_is_written_is_refused(self):
        flat = torch.zeros(6)
        part = flat[2:4]

        def loss_of(output, x, y):
            flat.add_(1)
            return F.mse_loss(output, y) * part.sum()

        with self.assertRaisesRegex(CaptureError, "reads the buffer flat .* by a tensor kept from before it"):
            step = self.train(loss_of, lambda loss: loss)
            self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)

    def test_a_list_that_the_step_empties_is_no_state(self):
        seen = [torch.zeros(2), torch.zeros(3)]

        def follow(loss):
            seen.clear()
            return loss

        self.check(self.train(lambda output, x, y: F.mse_loss(output, y), follow), [])

    def test_what_it_trains_has_to_be_of_the_model(self):
        critic = nn.Linear(3, 1)
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        before = critic.weight.detach().clone()

        def follow(loss):
            other.zero_grad()
            critic(self.model(self.inputs["x"]).detach()).mean().backward()
            other.step()
            return loss

        step = self.train(lambda output, x, y: F.mse_loss(output, y), follow)
        with self.assertRaisesRegex(CaptureError, "trains critic.weight, which is beside the model"):
            self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)
        self.assertTrue(torch.equal(critic.weight, before))


    def test_a_tensor_that_it_trains_has_to_be_of_the_model(self):
        """A disturbance of all inputs, whose gradient the step drops."""
        shift = torch.zeros(5, 4, requires_grad=True)

        def step(x, y):
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x + shift), y)
            loss.backward()
            with torch.no_grad():
                shift.add_(0.1 * shift.grad.sign())
            shift.grad = None
            self.optimizer.step()
            return loss

        with self.assertRaisesRegex(CaptureError, "trains shift, which is beside the model"):
            self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer)

    def test_a_write_that_nothing_says_more_of_is_refused_with_its_line(self):
        seen = torch.zeros(())

        def loss_fn(output, y):
            seen.add_(1)
            return F.mse_loss(output, y)

        refused = r"the step writes at .*test_beside.py:\d+ in loss_fn to a tensor of size \(\) that is there before"
        with self.assertRaisesRegex(CaptureError, refused):
            self.captured(self.model, loss_fn, {"input": self.inputs["x"]}, targets=self.inputs["y"])
        with self.assertRaisesRegex(CaptureError, "without fake=True"):
            step = self.train(functools.partial(lambda total, output, x, y: F.mse_loss(output, y) + total.add_(1), seen), lambda loss: loss)
            self.captured(self.model, None, self.inputs, train_step=step, optimizer=self.optimizer, fake=True)


if __name__ == "__main__":
    import unittest

    unittest.main()
