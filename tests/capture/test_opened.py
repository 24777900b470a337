"""Objects among the inputs that hold tensors, which are inputs of the graph."""

import collections
import dataclasses
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from stepgraph_capture import CaptureError

from support import CaptureCase


@dataclasses.dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    more: Any = None


class Plain:
    def __init__(self, x):
        self.x = x


class Attributes(dict):
    __getattr__ = dict.__getitem__


class Opened(CaptureCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Linear(4, 3)
        self.x = torch.randn(5, 4)

    def check(self, batch, get, names, **more):
        def forward(batch):
            self.assertIs(type(batch), kind)
            return nn.functional.linear(get(batch), self.model.weight, self.model.bias).square().mean()

        kind, self.model.forward = type(batch), forward
        document = self.captured(self.model, None, (batch,), **more)
        self.assertEqual([e["fqn"] for e in document["inputs"] if e["kind"] == "input"], names)
        self.assertFalse([e for e in document["inputs"] if e["kind"] == "constant"])
        self.imported()
        return document

    def test_kinds(self):
        get = lambda batch: batch.x  # noqa: E731
        self.check(Batch(self.x), get, ["batch.x"], dynamic={"batch.x": {0: "rows"}})
        self.check(SimpleNamespace(x=self.x, name="one"), get, ["batch.x"])
        self.check(Attributes(x=self.x), get, ["batch.x"])
        self.check(collections.UserDict(x=self.x), lambda batch: batch["x"], ["batch.x"])

    def test_within_each_other(self):
        batch = Batch(self.x, {"scale": SimpleNamespace(by=torch.ones(4), name="one")})
        self.check(batch, lambda b: b.x * b.more["scale"].by, ["batch.more.scale.by", "batch.x"])
        self.assertIs(batch.x, self.x)

    def test_other_kinds(self):
        self.model.forward = lambda batch: (batch.x @ self.model.weight.t()).square().mean()
        with self.assertRaisesRegex(CaptureError, "input batch is a Plain that holds tensors, .*: give them in a dict"):
            self.captured(self.model, None, (Plain(self.x),))
        held = self.model.held = Plain(self.x)
        self.captured(self.model, None, (held,))
        self.imported()
