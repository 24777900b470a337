"""Collectives as a capture has them: what is in place, what waits, and how fully_shard divides."""

import inspect
import json
import os
import shutil
import tempfile
import types
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from stepgraph_capture import capture, compat, shards


_in_place = unittest.skipUnless(compat.can_box_work(), "this torch has no handle that Python can make")


class InPlace(unittest.TestCase):
    """In a world of one; run_job_tests.py has them on several ranks."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        dist.init_process_group("gloo", init_method=f"file://{self.folder}/store", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

    def ops(self, calls):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                y = self.linear(x)
                return y * calls(y.detach().clone())

        return self.ops_of(Model())

    def ops_of(self, model, all_of_them=False):
        out = os.path.join(self.folder, "out")
        capture(model, lambda y: y.sum(), torch.randn(3, 4), out_dir=out)
        with open(os.path.join(out, "step.json")) as file:
            return [node["op"] for node in json.load(file)["nodes"] if all_of_them or "c10d" in node["op"]]

    @_in_place
    def test_written_in_place(self):
        def calls(y):
            handle = dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True)
            handle.wait()
            dist.barrier()
            dist.monitored_barrier()
            return y

        ops = self.ops(calls)
        self.assertEqual(ops, ["_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default"])

    @_in_place
    def test_waited_for_where_the_handle_is(self):
        class Model(nn.Linear):
            def forward(self, x):
                total, other = x.clone(), x.clone()
                work = dist.all_reduce(total, async_op=True)
                dist.all_reduce(other, async_op=True)  # nobody waits: at the end
                y = super().forward(x)
                work.wait()
                work.wait()
                return (y * total).tanh()

        names = [op.split(".")[1] for op in self.ops_of(Model(4, 4), all_of_them=True)]
        wanted = ["all_reduce", "all_reduce", "addmm", "wait_tensor", "tanh", "wait_tensor"]
        self.assertEqual([name for name in names if name in wanted], wanted)

    @_in_place
    def test_a_future_gives_what_was_written(self):
        """As communication hooks ask for it."""

        def calls(y):
            future = dist.all_reduce(y, async_op=True).get_future().then(lambda done: done.value()[0] / 2)
            gathered = torch.empty_like(y)
            work = dist.all_gather_into_tensor(gathered, y, async_op=True)
            return future.wait() + work.result()[0]

        self.assertEqual(len(self.ops(calls)), 4)

    @_in_place
    def test_imported_by_name(self):
        from torch.distributed import all_gather

        def calls(y):
            parts = [torch.empty_like(y)]
            all_gather(parts, y)
            return parts[0]

        self.assertEqual(self.ops(calls)[0], "_c10d_functional.all_gather_into_tensor.default")

    @unittest.skipUnless(hasattr(torch.ops._c10d_functional, "wait_tensors"), "this torch waits for one at a time")
    def test_waits_for_several(self):
        from torch.distributed._functional_collectives import all_reduce_coalesced

        ops = self.ops(lambda y: sum(all_reduce_coalesced([y, y + 1], "sum", dist.group.WORLD)))
        self.assertIn("_c10d_functional.all_reduce_coalesced.default", ops)
        self.assertFalse(compat.is_launch(torch.ops._c10d_functional.wait_tensors.default))


    @unittest.skipUnless(hasattr(TorchDispatchMode, "supports_higher_order_operators"), "this torch asks all modes")
    def test_flex_attention_beside_them(self):
        def calls(y):
            heads = y[None, None]
            return flex_attention(heads, heads, heads).view_as(y)

        self.assertEqual(self.ops(calls), [])

    def test_buffers_are_broadcast(self):
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        self.assertEqual(self.ops_of(model).count("_c10d_functional.broadcast.default"), 3)


class Divisors(unittest.TestCase):
    def test_as_fully_shard_has_them(self):
        from torch.distributed.fsdp._fully_shard._fsdp_collectives import _get_gradient_divide_factors

        known = len(inspect.signature(_get_gradient_divide_factors).parameters)  # without a device until 2.7
        for count in range(2, 40):
            group = types.SimpleNamespace(size=lambda count=count: count)
            for dtype in (torch.float16, torch.float64):
                wanted = _get_gradient_divide_factors(*(group, None, dtype, "cpu")[:known])[:2]
                self.assertEqual(shards.divisors(count, dtype), wanted)
            self.assertEqual(shards.divisors(count, torch.bfloat16), (1, count))


if __name__ == "__main__":
    unittest.main()
