"""torch.cond and the loops of PyTorch's: what their functions compute, and the gradients of what these close over."""

import unittest

import torch
from torch import nn

from support import CaptureCase

from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.while_loop import while_loop

if torch.__version__ >= "2.7":
    from torch._higher_order_ops.scan import scan
else:
    scan = None


class Recurrent(nn.Module):
    """Its loop closes over layers and over what comes before it."""

    def __init__(self, loop):
        super().__init__()
        self.enter, self.mix, self.loop = nn.Linear(6, 6), nn.Linear(6, 6), loop

    def forward(self, x):
        return self.loop(self, self.enter(x))


def scanning(dim, reverse):
    def forward(self, x):
        def step(carry, row):
            carry = torch.tanh(self.mix(carry) + row)
            return carry, carry * row

        last, rows = scan(step, torch.zeros_like(x.select(dim, 0)), x, dim=dim, reverse=reverse)
        return last.sum() + rows.sum(dim)

    return forward


def conditional(self, x):
    return torch.cond(x.sum() > 0, lambda rows: self.mix(rows), lambda rows: torch.tanh(rows), (x,))


def counting(self, x):
    body = lambda count, rows: (count + 1, torch.tanh(self.mix(rows)))  # noqa: E731
    return while_loop(lambda count, rows: count < 3, body, (torch.tensor(0), x))[1]


def shrinking(self, x):
    return x * while_loop(lambda rows: rows.norm() > 1, lambda rows: (rows * 0.7,), (x.detach(),))[0]


def never(self, x):
    return x * while_loop(lambda rows: rows.norm() < 0, lambda rows: (rows * 0.7,), (x.detach(),))[0]


def mapping(self, x):
    return map_rows(lambda row, scale: {"row": torch.tanh(self.mix(row) * scale)}, x, x.detach().mean(0))["row"]


def loss_of(out):
    return out.square().mean()


class ControlFlow(CaptureCase):
    def graph_of(self, loop, *sizes):
        """Its text. PyTorch's own operators, outside of a capture, have the same loss and gradients."""
        model, x = Recurrent(loop), torch.randn(*sizes or (4, 6))
        document = self.captured(model, loss_of, x)
        self.assertFalse([node["op"] for node in document["nodes"] if node["op"].startswith("higher_order")])
        loss = loss_of(model(x))
        loss.backward()
        theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
        ours = self.values("expected")
        for index, output in enumerate(document["outputs"]):
            value = loss.detach() if output["kind"] == "loss" else theirs[output["of"]]
            if output["value"] is None:  # of the branch that was not taken
                self.assertFalse(value is not None and value.any())
            else:
                torch.testing.assert_close(ours[f"out{index}"], value)
        return self.imported()

    def test_conditions(self):
        self.graph_of(conditional)

    @unittest.skipIf(scan is None, "scan of torch 2.6 is another one")
    def test_scans(self):
        self.assertEqual(self.graph_of(scanning(0, False)).count("aten.tanh("), 4)
        self.graph_of(scanning(0, True))
        self.graph_of(scanning(1, False), 6, 4, 6)

    @unittest.skipIf(scan is None, "while_loop of torch 2.6 has no gradients")
    def test_loops_by_a_count(self):
        self.assertEqual(self.graph_of(counting).count("aten.tanh("), 3)

    def test_loops_by_the_data(self):
        """As often as the example has it: the conditions are guards."""
        graph = self.graph_of(shrinking)
        self.assertEqual(graph.count(", 0.7)"), graph.count(" == 1\n"))
        self.assertEqual(graph.count(" == 0\n"), 1)

    def test_loops_that_never_run(self):
        self.graph_of(never)

    @unittest.skipIf(scan is None, "map of torch 2.6 has no gradients for what its function closes over")
    def test_maps(self):
        self.assertEqual(self.graph_of(mapping).count("aten.tanh("), 4)


if __name__ == "__main__":
    unittest.main()
