import unittest

import torch
from torch import nn

from stepgraph_capture import CaptureError, annotate
from stepgraph_capture.annotate import current
from support import CaptureCase


class Dispatching(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    @annotate(role="dispatch")
    def dispatch(self, x):
        with annotate(role="dispatch", step="token_exchange"):
            return self.gate(x)

    def forward(self, x):
        x = self.dispatch(x)
        with annotate(role="combine", colour="red"):
            return self.out(x)


class Annotate(CaptureCase):
    def test_nodes_and_their_backward_carry_the_words(self):
        document = self.captured(Dispatching(), lambda out: out.sum(), torch.randn(2, 4))
        words = {}
        for node in document["nodes"]:
            if node["op"] in ("aten.addmm.default", "aten.mm.default"):
                words.setdefault(node["module"], []).append((node["phase"], node.get("custom")))
        dispatch = {"EP": "dispatch", "EP_token_exchange": "dispatch"}
        combine = {"EP": "combine", "colour": "red"}
        self.assertIn(("forward", dispatch), words["gate"])
        self.assertIn(("backward", dispatch), words["gate"])
        self.assertEqual({phase for phase, custom in words["out"] if custom == combine}, {"forward", "backward"})
        printed = self.imported()
        self.assertIn("dispatch", printed)

    def test_it_nests_and_ends(self):
        outer = annotate(a=1)
        with outer, annotate(b=2), outer:
            self.assertEqual(current(), {"a": 1, "b": 2})
        self.assertEqual(current(), {})
        with self.assertRaises(RuntimeError), outer:
            raise RuntimeError
        self.assertEqual(current(), {})

    def test_unknown_words_are_refused(self):
        for arguments in (dict(role="dispach"), dict(role="combine", step="exchange"), dict(step="token_exchange")):
            with self.assertRaises(CaptureError):
                annotate(**arguments)


if __name__ == "__main__":
    unittest.main()
