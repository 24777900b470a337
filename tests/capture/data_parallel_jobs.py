"""What DistributedDataParallel's settings and places do, as jobs for run_job_tests.py: each leaves PyTorch's own
gradients and buffers first, by loss.backward() of the model as it is.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import jobs  # noqa: E402


class WithLoss(nn.Module):
    """What a trainer makes: the loss beside the model. The scale is not of the inner one, and not averaged."""

    def __init__(self, model, rounds=1):
        super().__init__()
        self.net, self.rounds = DistributedDataParallel(model), rounds
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids, targets):
        total = 0.0
        for i, (some, answers) in enumerate(zip(ids.chunk(self.rounds), targets.chunk(self.rounds))):
            self.net.require_backward_grad_sync = i == self.rounds - 1  # as no_sync() around the others
            total = total + jobs.loss_fn(self.net(some), answers) * self.scale
        return total


def _inner_loss(model):
    inputs, targets = jobs._batch()
    inputs = {**inputs, "targets": targets}
    jobs._keep_answers(model, inputs, None)
    return dict(model=model, loss_fn=None, inputs=inputs)


def not_outermost():
    return _inner_loss(WithLoss(jobs.Model()))


def micro_batches():
    """Two forwards in one step, the first of them under no_sync()."""
    return _inner_loss(WithLoss(jobs.Model(), 2))


class Lazy(jobs.Model):
    """Fills a cache in its first run, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.filled = 0
        self.register_buffer("places", torch.zeros(16, 8), persistent=False)

    def forward(self, ids):
        length = ids.shape[1]
        if self.filled < length:
            self.places[:length] = torch.arange(length)[:, None].float().cos()
            self.filled = length
        x = self.table(ids) + self.places[:length]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def lazy_cache():
    inner = Lazy()
    model = DistributedDataParallel(inner, broadcast_buffers=False)
    inputs, targets = jobs._batch()
    jobs._keep_answers(model, inputs, targets)
    inner.filled = 0
    return dict(model=model, loss_fn=jobs.loss_fn, inputs=inputs, targets=targets)


class Normed(jobs.Model):
    """Its statistics differ from rank to rank, as behind any training step."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("shift", torch.zeros(8))
        self.register_buffer("mask", torch.ones(8, dtype=torch.bool))

    def forward(self, ids):
        x = torch.where(self.mask, self.table(ids) + self.shift, 0.5)
        return self.head(self.norm(x.flatten(0, 1)).view_as(x))


def _apart(parallel):
    with torch.no_grad():
        for buffer in parallel.module.buffers():
            buffer.add_(dist.get_rank()) if buffer.dtype != torch.bool else buffer[dist.get_rank() :].fill_(False)
    return parallel


def _normed(frozen_statistics=False, **settings):
    model = Normed()
    for layer in model.layers:
        layer.requires_grad_(False)  # not used here
    parallel = _apart(DistributedDataParallel(model, **settings))
    if frozen_statistics:
        model.norm.eval()
    return parallel


def buffers():
    return jobs._step(_normed(), *jobs._batch())


def buffers_read():
    """Statistics that the step reads: gradients, too, are those of rank 0's."""
    return jobs._step(_normed(frozen_statistics=True), *jobs._batch())


def buffers_left_alone():
    return jobs._step(_normed(frozen_statistics=True, broadcast_buffers=False), *jobs._batch())


def no_sync():
    """Neither gradients nor, after another such step, buffers."""
    parallel = _normed(frozen_statistics=True)
    parallel.require_backward_grad_sync = False
    parallel.require_forward_param_sync = False
    return jobs._step(parallel, *jobs._batch())


def ignored():
    model = Normed()
    for layer in model.layers:
        layer.requires_grad_(False)
    names = ["head.weight", "shift"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    parallel = _apart(DistributedDataParallel(model))
    model.norm.eval()
    return jobs._step(parallel, *jobs._batch())


class Sometimes(jobs.Model):
    """Of three layers, rank 0 alone uses the first, and nobody the last."""

    def __init__(self):
        super().__init__()
        self.layers.append(jobs.Mlp(8, 16))

    def forward(self, ids):
        x = self.table(ids)
        if dist.get_rank() == 0:
            x = self.layers[0](x)
        return self.head(self.layers[1](x))


def unused():
    return jobs._step(DistributedDataParallel(Sometimes(), find_unused_parameters=True), *jobs._batch())


def unused_in_a_static_graph():
    return jobs._step(DistributedDataParallel(Sometimes(), static_graph=True), *jobs._batch())


def hook_that_sends_bfloat16():
    parallel = DistributedDataParallel(jobs.Model())
    parallel.register_comm_hook(None, bf16_compress_hook)
    return jobs._step(parallel, *jobs._batch())


def plain_hook():
    """The hook that does what is done without one; and a group of some of the ranks."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], list(range(2, dist.get_world_size()))) if ranks]
    mine = groups[0] if dist.get_rank() < 2 else groups[-1]
    parallel = DistributedDataParallel(jobs.Model(), process_group=mine)
    parallel.register_comm_hook(mine, allreduce_hook)
    return jobs._step(parallel, *jobs._batch())
