"""Steps under `torch.set_default_dtype`: what ops make by default is written into the graph."""

import torch
from torch import nn

from support import CaptureCase


class Times(nn.Module):
    """Multiplies by what `make` returns."""

    def __init__(self, make):
        super().__init__()
        self.weight, self.make = nn.Parameter(torch.randn(4, 4)), make

    def forward(self, x):
        return ((x @ self.weight) * self.make(x)).square().mean()


MAKERS = (
    lambda x: torch.zeros(4) + torch.ones(4) + torch.eye(4)[0],
    lambda x: torch.full((4,), 1.5) + torch.linspace(0, 1, 4) + torch.arange(0.0, 4.0),
    lambda x: torch.hann_window(4) + torch.scalar_tensor(2.0) + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    lambda x: torch.arange(4) / 2 + torch.arange(4).sqrt() + (x[0] > 0) * 0.5,
    lambda x: torch.where(x[0] > 0, 1.1, 0.1),
)


class DefaultDtype(CaptureCase):
    def check(self, default):
        torch.set_default_dtype(default)
        try:
            for number, make in enumerate(MAKERS):
                with self.subTest(default=default, maker=number):
                    self.captured(Times(make), None, (torch.randn(3, 4),))
                    self.imported()
        finally:
            torch.set_default_dtype(torch.float32)

    def test_wide_and_narrow(self):
        for default in (torch.float64, torch.bfloat16, torch.float16):
            self.check(default)
