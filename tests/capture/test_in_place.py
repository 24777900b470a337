"""In-place calls that have no row of their own: the result, then a copy into the tensor."""

import torch
from torch import nn

from support import CaptureCase

ROWS = torch.tensor([0, 1, 0, 2, 3, 4])

CALLS = {
    "cumprod_": lambda x: x.cumprod_(0),
    "pow_": lambda x: x.abs_().add_(0.1).pow_(torch.full((6, 1), 1.5)),
    "put_": lambda x: x.put_(torch.tensor([1, 5]), torch.tensor([2.0, 3.0])),
    "masked_scatter_": lambda x: x.masked_scatter_(x.detach() > 0, torch.arange(36.0)),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([1, 2]), torch.tensor(3.0)),
    "index_reduce_": lambda x: x.index_reduce_(0, ROWS, torch.ones(6, 6) / 2, "prod"),
    "renorm_": lambda x: x.renorm_(2, 0, 0.5),
    "addbmm_": lambda x: x.addbmm_(torch.ones(2, 6, 3), torch.ones(2, 3, 6)),
    "addr_": lambda x: x.addr_(torch.ones(6), torch.arange(6.0)),
    "addmv_": lambda x: x[0].addmv_(torch.ones(6, 6), torch.arange(6.0)),
    "float_power_": lambda x: x.double().abs_().float_power_(2.5),
    "fill_diagonal_": lambda x: x.fill_diagonal_(2.0),
}


class Changed(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.weight, self.change = nn.Parameter(torch.randn(6, 6)), change

    def forward(self, x):
        return (self.change(self.weight * x) * x.sum()).float().square().sum()


class InPlace(CaptureCase):
    def test_each(self):
        for name, change in CALLS.items():
            with self.subTest(name):
                self.captured(Changed(change), None, (torch.rand(6) + 0.5,))
                self.imported()
