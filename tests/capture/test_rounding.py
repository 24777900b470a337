"""The step in double that says how far right values may be apart: what its tensors are, whatever an op does."""

import collections
import operator
import unittest

import torch
from torch import fx

from stepgraph_capture import rounding, values

aten = torch.ops.aten


def graph_of(build, *inputs):
    """A graph of ATen calls; `build` gets the graph and its placeholders and gives the outputs."""
    graph = fx.Graph()
    placeholders = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    outputs = build(graph, *placeholders)
    graph.output(outputs)
    return fx.GraphModule(torch.nn.Module(), graph)


def in_double(build, *inputs):
    module = graph_of(build, *inputs)
    return rounding._in_double(module, inputs, {}, None)


@torch.library.custom_op("stepgraph_tests::in_single", mutates_args=())
def in_single(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * 2


@torch.library.custom_op("stepgraph_tests::not_in_double", mutates_args=())
def not_in_double(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        raise ValueError("no doubles")
    return x * 2


class Updates(unittest.TestCase):
    """The first step of Adam is by the sign of a gradient, which may be nothing but rounding."""

    def settled(self, gradient, other_gradient):
        value, other = torch.tensor([0.9, 1.1]), torch.tensor([0.9, 0.9])
        return values.settled_by_gradients(value, other, torch.tensor(gradient), torch.tensor(other_gradient)).tolist()

    def test_a_step_by_the_sign_of_rounding(self):
        self.assertEqual(self.settled([0.5, 1e-9], [0.5, -1e-9]), torch.tensor([0.9, 1.1]).tolist())

    def test_updates_that_are_the_same(self):
        """As a whole: one of many may be that of a gradient which is nothing but rounding."""
        before = torch.zeros(4096)
        one = torch.full((4096,), -1e-3)
        other = one.clone()
        other[7] *= 1.02
        self.assertTrue(values.is_same_update(before, one, other))
        other[7] = 1e-3
        self.assertFalse(values.is_same_update(before, one, other))
        self.assertFalse(values.is_same_update(before, one, one * 1.01))
        other[7] = torch.nan
        self.assertFalse(values.is_same_update(before, one, other))

    def test_a_step_by_a_gradient(self):
        self.assertEqual(self.settled([0.5, 1e-9], [0.5, 1e-9]), torch.tensor([0.9, 0.9]).tolist())


class Drawn(unittest.TestCase):
    """Random numbers leave no error to tell, unless no result depends on them: a size chosen at random, of one."""

    def errors(self, build):
        x = torch.linspace(0.1, 1, 7)
        module = graph_of(lambda graph, x: build(graph, x, graph.call_function(aten.exp.default, (x,))), x)
        return rounding.of(module, [x], [torch.exp(x)])

    def test_what_is_looked_at_alone(self):
        def build(graph, x, result):
            drawn = graph.call_function(aten.empty.memory_format, ([1],))
            graph.call_function(aten.uniform_.default, (drawn,))
            graph.call_function(aten._local_scalar_dense.default, (drawn,))
            return [result]

        self.assertGreater(self.errors(build)[0], 0)

    def test_what_is_written_and_read(self):
        def build(graph, x, result):
            drawn = graph.call_function(aten.empty.memory_format, ([7],))
            graph.call_function(aten.uniform_.default, (drawn,))
            return [graph.call_function(aten.mul.Tensor, (result, drawn))]

        self.assertEqual(self.errors(build), [None])

    def test_an_input_that_is_written(self):
        def build(graph, x, result):
            graph.call_function(aten.uniform_.default, (x,))
            return [result]

        self.assertEqual(self.errors(build), [None])


class InDouble(unittest.TestCase):
    def test_factories_without_a_type(self):
        def build(graph, x):
            zeros = graph.call_function(aten.zeros.default, ([3],))
            return [zeros, graph.call_function(aten.add.Tensor, (zeros, x))]

        found = in_double(build, torch.ones(3))
        self.assertEqual([value.dtype for value in found], [torch.float64] * 3)
        self.assertEqual(torch.get_default_dtype(), torch.float32)

    def test_what_is_drawn_alike(self):
        """In double there are the numbers of the recorded type: uniform ones written in place, and a dropout's mask."""

        def build(graph, x):
            drawn = graph.call_function(aten.empty.memory_format, ([7],))
            graph.call_function(aten.uniform_.default, (drawn,))
            both = graph.call_function(aten.native_dropout.default, (x, 0.25, True))
            kept = [graph.call_function(operator.getitem, (both, i)) for i in range(2)]
            return [graph.call_function(aten.mul.Tensor, (x, drawn)), *kept]

        x = torch.rand(7)
        module = graph_of(build, x)
        with values.seeded():
            recorded = [*fx.Interpreter(module).run(x), x]
        found = in_double(build, x)
        torch.testing.assert_close(found, [value.double() if value.is_floating_point() else value for value in recorded], rtol=1e-6, atol=0)
        self.assertEqual(rounding.of(module, [x], recorded), [None] * 4)
        errors = rounding.of(module, [x], recorded, draws_alike=True)
        self.assertTrue(0 < errors[0] < 1e-5 and 0 < errors[1] < 1e-5 and errors[2:] == [None, 0], errors)

    def test_whole_numbers_divided(self):
        divided = lambda graph, x: [graph.call_function(aten.div.Tensor, (x, 3))]  # noqa: E731
        found = in_double(divided, torch.tensor([1, 2]))
        self.assertTrue(torch.equal(found[0], torch.tensor([1, 2], dtype=torch.float64) / 3))

    def test_an_op_of_one_type(self):
        single = lambda graph, x: [graph.call_function(torch.ops.stepgraph_tests.in_single.default, (x,))]  # noqa: E731
        x = torch.tensor([0.1, 0.2])
        found = in_double(single, x)
        self.assertEqual(found[0].dtype, torch.float64)
        torch.testing.assert_close(found[0], x.double() * 2)

    def test_types_of_their_own_stay(self):
        def build(graph, x):
            return [
                graph.call_function(aten.zeros.default, ([2],), {"dtype": torch.int64}),
                graph.call_function(aten.gt.Scalar, (x, 0)),
                graph.call_function(aten.zeros.default, ([2],), {"dtype": torch.bfloat16}),
            ]

        types = [value.dtype for value in in_double(build, torch.ones(2))]
        self.assertEqual(types, [torch.int64, torch.bool, torch.float64, torch.float64])

    def test_other_sizes_in_double(self):
        """Two numbers that f32 does not tell apart: one distinct number, or two."""

        def build(graph, x):
            near = graph.call_function(aten.add.Tensor, (x, 1e9))
            unique = graph.call_function(aten._unique2.default, (near,))
            return [graph.call_function(operator.getitem, (unique, 0))]

        self.assertIsNone(in_double(build, torch.tensor([0.25, 0.5])))

    def test_products_of_groups(self):
        ends = torch.tensor([2, 2, 8], dtype=torch.int32)  # the second group is empty
        rows, columns, matrices = torch.randn(8, 8), torch.randn(8, 8), torch.randn(3, 8, 8)
        for a, b, offs in ((rows, matrices, ends), (matrices, columns, ends), (columns, rows, ends), (matrices, matrices, None)):
            a, b = a.bfloat16(), b.bfloat16()

            def build(graph, a, b, *offs):
                return [graph.call_function(aten._grouped_mm.default, (a, b, *offs))]

            found = in_double(build, a, b, *([] if offs is None else [offs]))[0]
            theirs = torch._grouped_mm(a, b, offs)
            self.assertEqual((found.dtype, found.shape), (torch.float64, theirs.shape))
            torch.testing.assert_close(found, theirs.double(), rtol=8e-3, atol=1e-2)

    def test_an_op_that_has_no_form_in_double(self):
        op = torch.ops.stepgraph_tests.not_in_double.default
        module = graph_of(lambda graph, x: [graph.call_function(op, (x,))], 0)
        x = torch.ones(3)
        self.assertEqual(rounding.of(module, [x], [x * 2, x]), [None, None])


class Mapped(unittest.TestCase):
    Two = collections.namedtuple("Two", "left right")

    def test_containers_stay_what_they_are(self):
        tree = [1, (2, None), {"a": [3]}, self.Two(4, ()), torch.Size([5])]
        found = rounding._mapped(lambda value: value, tree)
        self.assertEqual(found, tree)
        self.assertEqual([type(each) for each in found], [type(each) for each in tree])

    def test_several_at_once(self):
        found = rounding._mapped(lambda a, b: (a, b), [1, (None, {"a": 2})], ["x", ("y", {"a": [3]})])
        self.assertEqual(found, [(1, "x"), ((None, "y"), {"a": (2, [3])})])

    def test_another_structure(self):
        for other in ([1], (1, 2, 3), [1, 2], 1):
            with self.assertRaises(RuntimeError):
                rounding._mapped(lambda a, b: a, (1, 2), other)
