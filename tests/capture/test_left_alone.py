"""What a capture leaves as it was, also where it fails."""

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

    def test_what_is_no_module(self):
        with self.assertRaisesRegex(CaptureError, "the model is a function: wrap it in a torch.nn.Module"):
            self.captured(lambda x: x, None, torch.ones(2))
