"""Steps that draw from a torch.Generator."""

import os

import torch
from torch import nn

from support import CaptureCase
from stepgraph_capture import CaptureError


class Noisy(nn.Module):
    """Adds noise of every kind, drawn from what `generator` returns."""

    def __init__(self, generator):
        super().__init__()
        self.weight, self.generator = nn.Parameter(torch.randn(6, 6)), generator

    def forward(self, x):
        with_own = {"generator": self.generator()}
        noise = torch.empty(6, 6).normal_(**with_own) + torch.rand((6, 6), dtype=torch.float32, **with_own)
        noise = noise + torch.bernoulli(torch.full((6, 6), 0.5), **with_own) + torch.normal(0.0, 2.0, (6, 6), **with_own)
        order = torch.randperm(6, **with_own)
        return (((self.weight + noise) @ x)[order] * torch.randint(1, 4, (6, 1), **with_own)).square().mean()


class GeneratorTests(CaptureCase):
    def test_draws_are_streams(self):
        for fake in (False, True):
            generator = torch.Generator().manual_seed(3)
            before = generator.get_state()
            document = self.captured(Noisy(lambda: generator), None, (torch.randn(6, 2),), fake=fake)
            self.assertTrue(torch.equal(before, generator.get_state()), "the user's generator has moved")
            drawing = [node for node in document["nodes"] if "rand" in node["op"] or "n.f" in node["op"]]
            self.assertGreaterEqual(len(drawing), 3)
            for node in document["nodes"]:
                self.assertNotIn("generator", node["op"] + str(node.get("kwargs", "")))
            self.tool("sg-import", "-q", os.path.join(self.folder, "step.json"), "-o", os.path.join(self.folder, "step.sg"))
            self.tool("sg-run", os.path.join(self.folder, "step.sg"), "--init", "seed:1")

    def test_one_that_the_step_makes(self):
        with self.assertRaisesRegex(CaptureError, r"makes the torch.Generator .* at test_generators.py:\d+: .* outside"):
            self.captured(Noisy(lambda: torch.Generator().manual_seed(3)), None, (torch.randn(6, 2),))
