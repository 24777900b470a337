"""What a capture leaves as it was, also where it fails."""

import collections
import copy

import torch
from torch import nn

from stepgraph_capture import CaptureError

from support import CaptureCase


class LeftAlone(CaptureCase):
    def test_modes(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        model[0].eval()

        def step(x):
            model.eval()
            raise ValueError("behind eval()")

        with self.assertRaisesRegex(ValueError, "behind eval"):
            self.captured(model, None, (torch.ones(2, 4),), train_step=step)
        self.assertEqual([module.training for module in model.modules()], [True, False, True])

    def test_what_a_step_logs(self):
        """Also symbolic numbers of the trace, which would be of no use to anybody."""
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses, long, recent, best = [3.0], [0.0] * 5000, collections.deque([3.0], maxlen=2), {"loss": 3.0}
        by_epoch, seen = collections.defaultdict(list), {0}
        everything = copy.deepcopy([losses, long, recent, best, by_epoch, seen])

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            for kept in (losses, long, recent, by_epoch["first"]):
                kept.append(loss.item())
            best["loss"] = min(best["loss"], loss.item())
            seen.add(len(losses))
            return loss

        self.captured(model, None, (torch.randn(3, 2),), train_step=step, optimizer=optimizer)
        self.assertEqual([losses, long, recent, best, by_epoch, seen], everything)

    def test_what_is_no_module(self):
        with self.assertRaisesRegex(CaptureError, "the model has type function: wrap it in a torch.nn.Module"):
            self.captured(lambda x: x, None, torch.ones(2))

    def test_modules_of_two_names(self):
        model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(4, 4)] * 2)})
        model["last"] = model["layers"][0]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = dict(model.named_parameters(remove_duplicate=False))

        def forward(x):
            for layer in (*model["layers"], model["last"]):
                x = torch.tanh(layer(x))
            return x.square().mean()

        def step(x):
            optimizer.zero_grad()
            loss = forward(x)
            loss.backward()
            optimizer.step()
            return loss

        model.forward = forward
        for way in ({}, {"train_step": step, "optimizer": optimizer}):
            with self.subTest(way=list(way)):
                document = self.captured(model, None, {"x": torch.randn(2, 4)}, **way)
                weight = next(entry for entry in document["inputs"] if entry.get("fqn") == "layers.0.weight")
                self.assertEqual(weight["tied"], ["layers.1.weight", "last.weight"])
                for name, parameter in model.named_parameters(remove_duplicate=False):
                    self.assertIs(parameter, before[name])
                self.imported()
