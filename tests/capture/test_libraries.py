"""Operators that a library wrote in Python: the graph has what they compute."""

import os
import re
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from interpreter import ROOT
from stepgraph_capture import errors, libraries
from support import CaptureCase

try:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
except ImportError:
    LinearCrossEntropyOptions = None

LIBRARY = "stepgraph_libraries"


@torch.library.custom_op(f"{LIBRARY}::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@torch.library.custom_op(f"{LIBRARY}::swish_backward", mutates_args=())
def swish_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    share = torch.sigmoid(x)
    return grad * (share + swish(x) * (1 - share))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


swish.register_autograd(lambda ctx, grad: swish_backward(grad, *ctx.saved_tensors), setup_context=_keep)


@torch.library.custom_op(f"{LIBRARY}::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0] if x.sum() > -1e9 else x.flatten()


@torch.library.custom_op(f"{LIBRARY}::count_", mutates_args={"counts"})
def count_(counts: torch.Tensor, x: torch.Tensor) -> None:
    counts.add_(x.sum(0))
    torch.mul(counts, 0.5, out=counts)


@torch.library.custom_op(f"{LIBRARY}::by_numpy", mutates_args=())
def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


by_numpy.register_fake(torch.empty_like)


@torch.library.custom_op(f"{LIBRARY}::by_numpy_", mutates_args={"x"})
def by_numpy_(x: torch.Tensor) -> None:
    x.mul_(2)
    x.numpy()[:] += 1


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(6, 6), function
        self.register_buffer("counts", torch.zeros(6))

    def forward(self, x):
        return self.function(self, self.linear(x))


class Libraries(CaptureCase):
    def graph_of(self, function, **more):
        self.captured(Calls(function), lambda out: out.square().mean(), {"x": torch.randn(4, 6)}, **more)
        return self.imported()

    def test_with_gradients_of_its_own(self):
        """None of the operators has a fake: what they compute has them all."""
        graph = self.graph_of(lambda self, x: swish(x), dynamic={"x": {0: "rows"}})
        self.assertNotIn(LIBRARY, graph)
        self.assertEqual(graph.count("aten.sigmoid("), 3)

    def test_a_size_that_the_data_give(self):
        self.assertIn("aten.nonzero", self.graph_of(lambda self, x: positive(x.detach()).sum() + x))

    def test_writes_into_an_argument(self):
        def counting(self, x):
            count_(self.counts, x.detach())
            return x * self.counts

        self.assertIn("aten.add_", self.graph_of(counting))

    def test_functions_of_a_library(self):
        library = torch.library.Library(LIBRARY, "FRAGMENT")
        library.define("half.Tensor(Tensor x) -> Tensor")
        library.impl("half.Tensor", lambda x: x / 2, "CompositeExplicitAutograd")
        self.addCleanup(library._destroy)
        half = getattr(torch.ops, LIBRARY).half.Tensor
        self.assertIn("aten.div", self.graph_of(lambda self, x: x + half(x.detach())))

    def test_what_cannot_be_traced(self):
        model = Calls(lambda self, x: x + by_numpy(x.detach()))
        document = self.captured(model, lambda out: out.mean(), torch.randn(4, 6))
        self.assertIn(f"{LIBRARY}.by_numpy.default", [node["op"] for node in document["nodes"]])
        self.assertIn("by_numpy.default cannot be traced", document["note"])

        def writing(self, x):
            rows = x.detach().clone()
            by_numpy_(rows)
            return x + rows

        with self.assertRaisesRegex(errors.CaptureError, "by_numpy_.default, which writes into its arguments"):
            self.graph_of(writing)

    def test_operators_with_a_row_stay(self):
        with open(os.path.join(ROOT, "libgraph", "op.def")) as table:
            rows = set(re.findall(r'^SG_OP\("(\w+)\.', table.read(), re.M))
        self.assertEqual(rows - {"python", "sg", "higher_order"} - libraries._KEPT_NAMESPACES, set())


@unittest.skipIf(LinearCrossEntropyOptions is None, "this torch has no linear_cross_entropy by chunks")
class LossesByChunks(CaptureCase):
    def check(self, targets, dtype=torch.float32, **more):
        torch.manual_seed(1)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix, self.head = nn.Linear(16, 16, dtype=dtype), nn.Linear(16, 40, dtype=dtype)

            def forward(self, x, targets):
                options = LinearCrossEntropyOptions(batch_chunk_size=10)
                return F.linear_cross_entropy(
                    torch.tanh(self.mix(x)), self.head.weight, targets, options=options, **more
                )

        inputs = {"x": torch.randn(24, 16, dtype=dtype), "targets": targets}
        self.captured(Model(), lambda loss: loss.mean(), inputs)
        graph = self.imported()
        self.assertNotIn("torch_nn", graph)
        self.assertEqual(graph.count("aten.tanh("), 1)

    def test_classes(self):
        self.check(torch.randint(40, (24,)))

    def test_rows_apart_and_some_ignored(self):
        self.check(torch.randint(40, (24,)).index_fill(0, torch.tensor([3, 8]), -100), reduction="none")

    def test_weights_of_classes_in_halves(self):
        self.check(torch.randint(40, (24,)), torch.bfloat16, weight=torch.rand(40, dtype=torch.bfloat16))

    def test_probabilities(self):
        self.check(torch.rand(24, 40).softmax(1), label_smoothing=0.1)


if __name__ == "__main__":
    unittest.main()
