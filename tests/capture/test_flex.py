"""What the functions of flex attention close over. On CPUs PyTorch refuses its backward, though its code is there."""

import unittest
from unittest import mock

import torch
from torch import nn
from torch.nn.attention import flex_attention as flex

from support import CaptureCase


class Attends(nn.Module):
    """Documents, and a bias by distance of each head."""

    def __init__(self, slopes):
        super().__init__()
        self.qkv, self.slopes, self.out = nn.Linear(8, 24), slopes, nn.Linear(8, 4)

    def forward(self, x, document):
        rows, length, _ = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        see = lambda b, h, i, j: (i >= j) & (document[b, i] == document[b, j])  # noqa: E731
        mask = flex.create_block_mask(see, rows, None, length, length, device="cpu")
        by_distance = lambda score, b, h, i, j: score + self.slopes[h] * (j - i)  # noqa: E731
        y = flex.flex_attention(q, k, v, score_mod=by_distance, block_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))


@unittest.skipUnless(hasattr(flex, "_validate_device"), "this torch does not ask for the device")
class Closures(CaptureCase):
    def attention(self, slopes):
        document = (torch.arange(70)[None] >= torch.tensor([[31], [52]])).long()
        inputs = {"x": torch.randn(2, 70, 8), "document": document}
        with mock.patch.object(flex, "_validate_device", lambda *_: None):
            captured = self.captured(Attends(slopes), lambda out: out.square().mean(), inputs)
        return captured, {node["op"]: node for node in captured["nodes"] if "flex_attention" in node["op"]}

    def test_a_mask_by_documents_and_fixed_slopes(self):
        captured, calls = self.attention(nn.Buffer(torch.tensor([0.5, 0.25])))
        names = {entry["fqn"]: {"ref": entry["name"]} for entry in captured["inputs"]}
        for call in calls.values():
            self.assertEqual(call["args"][-2:], [[names["slopes"]], [names["document"]]])
        self.assertEqual(len(calls), 2)
        self.imported()

    def test_a_learned_bias_has_its_gradient(self):
        """Which the model's run under a tracer, and the graph, would both lack."""
        captured, calls = self.attention(nn.Parameter(torch.tensor([0.5, 0.25])))
        (index,) = [i for i, output in enumerate(captured["outputs"]) if output.get("of") == "slopes"]
        self.assertIsNotNone(captured["outputs"][index]["value"])
        self.assertGreater(self.values("expected")[f"out{index}"].abs().min().item(), 0)


if __name__ == "__main__":
    unittest.main()
