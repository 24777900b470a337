"""In-place calls that have no row of their own: the result, then a copy into the tensor."""

import torch
from torch import nn

from stepgraph_capture import CaptureError
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


class Turned(CaptureCase):
    """Inputs of the step that it turns in place: what they hold stays where it was."""

    def test_and_written(self):
        class Model(nn.Linear):
            def forward(self, x, y):
                x.t_()
                x.mul_(2)
                x.unsqueeze_(0)
                return (super().forward(x) * y.transpose_(0, 1)).sum()

        document = self.captured(Model(3, 3), None, (torch.randn(3, 6), torch.randn(3, 6)))
        shapes = {entry["fqn"]: entry["type"]["shape"] for entry in document["inputs"]}
        self.assertEqual((shapes["x"], shapes["y"]), ([3, 6], [3, 6]))
        self.imported()


    def test_another_layout_is_no_turn(self):
        class Model(nn.Linear):
            def forward(self, x, y):
                y.data = (y * 2).t().contiguous().t()  # the same shape in other memory
                return (super().forward(x) * y).sum()

        self.captured(Model(6, 4), None, (torch.randn(3, 6), torch.randn(3, 4)))
        self.imported()


class Bound(CaptureCase):
    """Tensors that a step binds to other memory, by set_."""

    def test_freed_and_made_again(self):
        """As reversible blocks do with their inputs."""

        def change(x):
            freed = x.detach() * 2
            view = freed[1:]
            freed.set_()
            freed.set_(x.detach() + 1)
            freed.mul_(3)
            return torch.cat([x + freed, view])

        document = self.captured(Changed(change), None, (torch.rand(6) + 0.5,))
        self.assertFalse([node for node in document["nodes"] if "set_" in node["op"]])
        self.imported()

    def test_to_the_memory_of_another(self):
        """What is written to it later is in the other."""

        def change(x):
            other, bound = x.detach().exp(), x.detach().sin()
            bound.set_(other[2:])
            bound.mul_(3)
            return torch.cat([x + other, bound])

        self.captured(Changed(change), None, (torch.rand(6) + 0.5,))
        self.imported()

    def test_an_input_keeps_its_memory(self):
        model = nn.Linear(4, 1)

        def binds_parameter(x):
            loss = model(x).sum()
            loss.backward()
            with torch.no_grad():
                model.weight.set_(model.weight * 2)
            return loss

        def frees_batch(x):
            loss = model(x).sum()
            loss.backward()
            x.set_()
            return loss

        def reads_freed(x):
            freed = x * 2
            freed.set_()
            loss = torch.cat([freed, model(x).flatten()]).sum()
            loss.backward()
            return loss

        for step in (binds_parameter, frees_batch, reads_freed):
            with self.subTest(step.__name__), self.assertRaisesRegex(CaptureError, f"set_.*in {step.__name__}.*copy_"):
                self.captured(model, None, {"x": torch.randn(3, 4)}, train_step=step)


class InPlace(CaptureCase):
    def test_each(self):
        for name, change in CALLS.items():
            with self.subTest(name):
                self.captured(Changed(change), None, (torch.rand(6) + 0.5,))
                self.imported()
