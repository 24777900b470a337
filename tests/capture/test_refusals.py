"""What capture() refuses, and what it leaves of a capture then."""

import os
import sys
import types
import unittest
from unittest import mock

import torch
from torch import nn

from stepgraph_capture import CaptureError, capture, compat, write
from support import CaptureCase


# What transformers has there.
_TRANSFORMERS = """
import torch

def is_fake_tensor(tensor):
    return isinstance(tensor, torch._subclasses.FakeTensor)

def is_tracing(tensor):
    return is_fake_tensor(tensor)
"""


class Refusals(CaptureCase):
    def refused(self, words, model, loss_fn=lambda out: out.sum(), inputs=None, **more):
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, loss_fn, torch.ones(2, 4) if inputs is None else inputs, **more)
        self.assertFalse(
            [name for name in os.listdir(self.folder) if name.endswith("json") or name.endswith("partial")]
        )

    def test_sparse_gradients(self):
        model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
        self.refused("gradient of 0.weight is sparse", model, lambda out: out.square().mean(), torch.tensor([1, 2, 1]))

    @unittest.skipUnless(hasattr(torch.Tensor, "grad_dtype"), "this PyTorch has no grad_dtype")
    def test_gradients_of_a_type_of_their_own(self):
        model = nn.Sequential(nn.Linear(4, 4))
        model[0].bias.grad_dtype = torch.bfloat16
        self.refused("0.bias.grad_dtype is set: leave it", model)

    def test_numbers_that_no_file_holds(self):
        model = self.model(lambda self, x: self.linear(x) * self.turn.abs())
        model.turn = nn.Parameter(torch.ones(4, dtype=torch.complex128))
        self.refused("turn is of complex128, which safetensors files cannot hold", model)

    def test_memory_between_the_numbers_of_an_input(self):
        """A graph has a column of a matrix, and not what lies between its numbers."""
        model = self.model(lambda self, x: self.linear(x) * self.column.as_strided((2, 2), (2, 1)).sum())
        model.register_buffer("column", torch.arange(12.0).view(6, 2)[:, 0])
        self.refused("differs by inf .* between the model's run and the graph's", model)
        model.column = torch.arange(12).view(6, 2)[:, 0]
        self.refused("differs by .* between the model's run and the graph's", model)

    def model(self, forward):
        class Wrapper(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                return forward(self, x)

        return Wrapper()

    def test_control_flow_by_values_of_fake_tensors(self):
        def forward(self, x):
            return self.linear(x) if x.sum() > 0 else x

        where = r"at .*test_refusals.py:\d+ in forward: it decides by the value"
        self.refused(where + ".*With fake=True there are no values", self.model(forward), fake=True)

    def test_state_outside_of_the_model(self):
        calls = []

        def forward(self, x):
            calls.append(1)
            return self.linear(x) * len(calls)

        self.refused("differs by", self.model(forward))

    def test_ops_without_a_fake(self):
        library = torch.library.Library("stepgraph_test", "FRAGMENT")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: torch.from_numpy(x.detach().numpy() * 2), "CPU")
        self.addCleanup(library._destroy)
        self.refused(
            "no fake of .*stepgraph_test.twice",
            self.model(lambda self, x: torch.ops.stepgraph_test.twice(self.linear(x))),
        )

    def test_errors_that_the_step_catches(self):
        class Model(nn.Linear):
            def forward(self, x):
                matrix = super().forward(x) - 9 * torch.eye(4)
                try:
                    return torch.linalg.cholesky(matrix)
                except torch.linalg.LinAlgError:
                    return matrix

        words = r"graph fails at .*test_refusals.py:\d+ in forward, where the step itself goes on \(.*: it catches the error"
        self.refused(words, Model(4, 4), inputs=(torch.eye(4),))

    def test_least_squares(self):
        self.refused(
            "test_refusals.py:[0-9]+ in <lambda>: it calls torch.linalg.lstsq, .* torch.linalg.qr",
            self.model(lambda self, x: torch.linalg.lstsq(self.linear(x), x).solution.sum()),
        )

    def test_tensors_of_other_layouts(self):
        def nested(self, x):
            return torch.nested.as_nested_tensor([self.linear(x[:1]), self.linear(x[1:])]).to_padded_tensor(0.0).sum()

        def sparse(self, x):
            values = self.linear(x).sum(0)[:2]
            return torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), values, (2, 2)).to_dense().sum()

        self.refused("test_refusals.py:[0-9]+ in nested: it makes nested tensors of the strided", self.model(nested))
        self.refused("test_refusals.py:[0-9]+ in sparse: it calls an op on sparse tensors", self.model(sparse))

        def multiplied(self, x):
            edges = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2)).coalesce()
            return torch.sparse.mm(edges, self.linear(x)[:2]).sum()

        words = "makes a tensor of layout sparse_coo at .*test_refusals.py:[0-9]+ in multiplied, which no graph holds"
        self.refused(words, self.model(multiplied))

    def test_types_that_an_op_does_not_take(self):
        spectrum = self.model(lambda self, x: torch.fft.rfft(self.linear(x).bfloat16()).abs())
        self.refused("does not take tensors of this type .*BFloat16", spectrum)

    def begin_job(self):
        store = os.path.join(self.folder, "store")
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)

    def test_hooks_of_parameters_in_a_job(self):
        self.begin_job()
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        model.module.weight.register_hook(lambda gradient: gradient * 2)
        self.refused("weight has a hook of its own", model)

    def test_collectives_in_place(self):
        self.begin_job()

        def forward(self, x):
            x = self.linear(x)
            torch.distributed.group.WORLD.send([x.detach()], 0, 0)  # whom send() refuses to send to oneself
            return x

        words = "rank 0 sends to itself" if compat.can_box_work() else "a collective that works through a handle"
        self.refused(words, self.model(forward))

    def test_losses(self):
        self.refused("returned a tensor of size", nn.Linear(4, 4), lambda out: out)
        self.refused("returned dict and no tensor", nn.Linear(4, 4), lambda out: {})
        self.refused("depends on no parameter", nn.Linear(4, 4), lambda out: out.detach().sum())
        self.refused("no training step", nn.Linear(4, 4).requires_grad_(False))
        self.refused("without a loss function", self.model(lambda self, x: (x,)), None)

    def test_another_parameter_in_its_place(self):
        model = nn.Sequential(nn.Linear(4, 4, bias=False))

        def forward(x):
            model[0].weight = nn.Parameter(nn.functional.normalize(model[0].weight.detach(), dim=1))
            return model[0](x).square().mean()

        def step(x):
            model.zero_grad()
            loss = model[0](x).square().mean()
            loss.backward()
            model[0].weight = nn.Parameter(model[0].weight.detach() - 0.1 * model[0].weight.grad)
            return loss

        def early_step(x):
            loss = forward(x)
            loss.backward()
            return loss

        weight, words = model[0].weight, r"assigns another Parameter to 0.weight, .*model.0.weight.copy_\(...\)"
        for train_step in (step, early_step):
            with self.assertRaisesRegex(CaptureError, words):
                self.captured(model, None, (torch.randn(2, 4),), train_step=train_step)
            self.assertIs(model[0].weight, weight)
        model.forward = forward
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(model, None, (torch.randn(2, 4),))
        self.assertIs(model[0].weight, weight)

    def test_arguments_twice(self):
        self.refused(
            "input: given in inputs= and in kwargs=",
            nn.Linear(4, 4),
            inputs={"input": torch.ones(2, 4)},
            kwargs={"input": torch.ones(2, 4)},
        )

    def test_an_error_of_the_model_is_its_own(self):
        with self.assertRaisesRegex(RuntimeError, "mat1 and mat2 shapes cannot be multiplied"):
            self.captured(nn.Linear(4, 4), lambda out: out.sum(), torch.ones(2, 5))
        with self.assertRaisesRegex(RuntimeError, "expected target dtype|expected scalar type Long"):  # fakes speak of gather
            self.captured(nn.Linear(4, 4), nn.functional.cross_entropy, torch.ones(2, 4), targets=torch.ones(2))

    def test_an_error_of_tracing_alone(self):
        class Model(nn.Linear):
            def forward(self, x):
                return super().forward(x) * torch.FloatTensor([x.max(), 2.0]).sum()

        words = "test_refusals.py:[0-9]+ in forward: as it is traced it raises a RuntimeError, and run as it is it does not"
        with self.assertRaisesRegex(CaptureError, words):
            self.captured(Model(4, 4), lambda out: out.sum(), torch.ones(2, 4))

    def test_another_way_when_traced(self):
        """The answer of transformers' is_tracing(tensor) is named, with the line that asked, and so is a number that is
        no int."""
        utils = types.ModuleType("transformers.utils.import_utils")
        exec(compile(_TRANSFORMERS, "import_utils.py", "exec"), vars(utils))
        asks = self.model(lambda self, x: self.linear(x) * (2 if utils.is_tracing(x) else 1))
        counts = self.model(lambda self, x: self.linear(x) * (2 if isinstance(self.count.item(), int) else 1))
        counts.register_buffer("count", torch.tensor(3))
        with mock.patch.dict(sys.modules, {utils.__name__: utils}):
            before = utils.is_fake_tensor
            self.refused(r"is_tracing\(\) of transformers says so .*test_refusals.py:\d+ in <lambda>", asks)
            self.assertIs(utils.is_fake_tensor, before)
            self.refused(r"read from a tensor \(.*test_refusals.py:\d+ in <lambda>\) is no int for isinstance", counts)

    def test_tensors_made_of_others(self):
        """Codes with their scales: of a parameter, and of an optimizer's state."""
        coded = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        model = nn.Linear(4, 4)
        model.register_buffer("codes", coded)
        self.refused("codes is of NestedTensor, a class of tensors that are made of others", model)

    def test_states_that_cannot_be_copied(self):
        class Codes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func is torch.Tensor.clone:
                    raise NotImplementedError("of codes")
                return super().__torch_function__(func, types, args, kwargs)

        class Coded(torch.optim.SGD):
            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    self.state[p].setdefault("codes", torch.zeros(4).as_subclass(Codes))
                return super().step(closure)

        model = nn.Linear(4, 4)
        optimizer = Coded(model.parameters(), lr=0.1)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        with self.assertRaisesRegex(CaptureError, "keeps its state in Codes, tensors of a class of its own"):
            self.captured(model, None, {"x": torch.randn(2, 4)}, train_step=step, optimizer=optimizer)

    def test_lazy_modules_have_no_sizes(self):
        self.refused("0.weight has no size yet", nn.Sequential(nn.LazyLinear(4)), lambda out: out.sum(), torch.ones(2, 5))

    def test_folders_that_cannot_be_written(self):
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        with self.assertRaisesRegex(CaptureError, "cannot write into"):
            capture(nn.Linear(4, 4), lambda out: out.sum(), torch.ones(2, 4), os.path.join(blocked, "deeper"))

    def test_nothing_half_written(self):
        path = os.path.join(self.folder, "old.json")
        write.capture_json(path, {"a": 1}, False)
        with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(CaptureError, "No space left"):
                write.capture_json(path, {"a": 2}, False)
        self.assertEqual(os.listdir(self.folder), ["old.json"])
        self.assertIn("1", open(path).read())


if __name__ == "__main__":
    unittest.main()
