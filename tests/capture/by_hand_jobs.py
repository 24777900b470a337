"""Jobs whose collectives are written by hand, as jobs for run_job_tests.py: calls of torch.distributed that write in
place, exchanges between neighbours, stages of a pipeline, functional ones of several tensors at once. Each leaves
PyTorch's own results first.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import (
    all_gather_into_tensor_coalesced,
    all_reduce_coalesced,
    permute_tensor,
    reduce_scatter_tensor_coalesced,
)
from torch.nn import functional as F

import jobs

WIDTH = 8


class _Between(nn.Module):
    """What `middle` makes of rows, between two linear layers that every rank has the same."""

    def __init__(self, middle):
        super().__init__()
        self.first, self.last, self.middle = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3), middle

    def forward(self, rows):
        return self.last(self.middle(self.first(rows)))


def _step(model, rows=4):
    torch.manual_seed(200 + dist.get_rank())
    inputs, targets = {"rows": torch.randn(rows, WIDTH)}, torch.randint(0, 3, (rows,))
    return jobs._step(model, inputs, targets)


def _reduced(x):
    """Each kind that adds, or takes the most; with a handle to wait for, and without."""
    count, rank = dist.get_world_size(), dist.get_rank()
    largest, total, parts = x.clone(), x.clone(), torch.empty_like(x)
    handle = dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True)
    dist.reduce(total, 1)
    dist.reduce_scatter_tensor(parts, torch.cat([x * (i + rank) for i in range(count)]))
    row = torch.empty_like(x[0])
    dist.reduce_scatter(row, [x[0] + i * rank for i in range(count)])
    number = torch.tensor([rank + 1])
    dist.all_reduce(number, op=dist.ReduceOp.PRODUCT)
    handle.wait()
    return largest + parts * 0.1 + row + number * 0.1 + (total if rank == 1 else 0)


def _moved(x):
    """Each kind that moves what ranks have."""
    count, rank = dist.get_world_size(), dist.get_rank()
    whole, each = x.new_empty(count * len(x), WIDTH), [torch.empty_like(x) for _ in range(count)]
    dist.all_gather_into_tensor(whole, x)
    dist.all_gather(each, x * 2)
    at_root = [torch.empty_like(x) for _ in range(count)] if rank == 1 else None
    dist.gather(x, at_root, dst=1)
    got = torch.empty(3)
    dist.scatter(got, [torch.arange(3.0) + i + x.sum() for i in range(count)] if rank == 0 else None)
    first = x[0].clone()
    dist.broadcast(first, count - 1)
    dist.barrier()
    mine = torch.stack(at_root).mean(0) if rank == 1 else 0
    return whole.mean(0) + sum(each) * 0.1 + mine + got.sum() * 0.1 + first


def in_place():
    return _step(_Between(lambda x: x * (_reduced(x.detach()) + _moved(x.detach())).tanh()))


class _Rows(torch.autograd.Function):
    """all_to_all_single into a new buffer; how many rows only the data says."""

    @staticmethod
    def forward(ctx, rows, received, sent):
        ctx.sizes = sent, received
        return _Rows.exchange(rows, received, sent)

    @staticmethod
    def backward(ctx, gradient):
        return _Rows.exchange(gradient, *ctx.sizes), None, None

    @staticmethod
    def exchange(rows, received, sent):
        got = rows.new_empty(sum(received), WIDTH)
        dist.all_to_all_single(got, rows.contiguous(), received, sent)
        return got


class _Experts(nn.Module):
    """One a rank."""

    def __init__(self):
        super().__init__()
        self.gate, self.expert = nn.Linear(WIDTH, dist.get_world_size(), bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        weight, choice = self.gate(x).softmax(-1).max(-1)
        order = choice.argsort(stable=True)
        counts = F.one_hot(choice, dist.get_world_size()).sum(0)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        sent, received = counts.tolist(), coming.tolist()
        rows = _Rows.apply(self.expert(_Rows.apply(x[order], received, sent)).relu(), sent, received)
        return x + weight[:, None] * torch.zeros_like(x).index_copy(0, order, rows)


def experts_in_place():
    return _step(_Between(_Experts()), rows=7)


def _from_neighbour(x):
    """As in a ring: each sends to the next, and has what the one before it sent."""
    count, rank = dist.get_world_size(), dist.get_rank()
    got = torch.empty_like(x)
    to, come = (rank + 1) % count, (rank - 1) % count
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, got, come)]):
        work.wait()
    return got


def neighbours():
    return _step(_Between(lambda x: x + _from_neighbour(_from_neighbour(x.detach().contiguous()))))


def _of_several(x):
    """In 2.15 one wait is for several tensors."""
    world = dist.group.WORLD
    few, many = all_reduce_coalesced([x.mean(), x.amax(1)], "sum", world)
    whole = all_gather_into_tensor_coalesced([x[:1], (x > 0).sum(0)[None]], world)
    part, counts = reduce_scatter_tensor_coalesced(list(whole), "sum", [0, 0], world)
    return few + many[:, None] + part * 0.1 + counts * 0.01


def several_at_once():
    return _step(_Between(lambda x: x + _of_several(x.detach())))


class _Hop(torch.autograd.Function):
    """Ranks `at` and `at` + 1 change what they have, forward and backward."""

    @staticmethod
    def forward(ctx, x, at):
        ctx.at = at
        return _Hop.swap(x, at)

    @staticmethod
    def backward(ctx, gradient):
        return _Hop.swap(gradient, ctx.at), None

    @staticmethod
    def swap(x, at):
        ways = list(range(dist.get_world_size()))
        ways[at], ways[at + 1] = at + 1, at
        return permute_tensor(x.flatten(), ways, dist.group.WORLD).view(x.shape)


class _Stage(nn.Module):
    """This rank's part of a pipeline. Ranks that a hop passes by send zeros, which are leaves of their own: backward
    goes to them as well, or the others would wait."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(300 + dist.get_rank())
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, rows):
        rank, x, passed = dist.get_rank(), rows, 0.0
        for at in range(dist.get_world_size() - 1):
            sends = self.layer(x).tanh() if at == rank else torch.zeros_like(rows, requires_grad=True)
            got = _Hop.apply(sends, at)
            x = got if at + 1 == rank else x
            passed = passed + (got * 0).sum()
        is_last = rank == dist.get_world_size() - 1
        return self.head(self.layer(x) if is_last else x.detach()) + passed


def pipeline():
    return _step(_Stage())


def _both_ways(x):
    """A ring: to the next and to the one before, all under way while this rank computes."""
    count, rank = dist.get_world_size(), dist.get_rank()
    right, left = torch.empty_like(x), torch.empty_like(x)
    works = [dist.irecv(left, (rank - 1) % count), dist.irecv(right, (rank + 1) % count, tag=7)]
    works += [dist.isend(x * 2, (rank - 1) % count, tag=7), dist.isend(x, (rank + 1) % count)]
    total = x.clone()
    summed = dist.all_reduce(total, async_op=True)
    mine = (x @ x.t()).softmax(-1) @ x
    for work in works:
        work.wait()
    summed.wait()
    return mine + left * 0.5 + right + total * 0.1


def ring_both_ways():
    return _step(_Between(lambda x: x * _both_ways(x.detach().contiguous()).tanh()))


class _SendOn(torch.autograd.Function):
    """To a later rank; its gradient comes back from there. Two messages, of which one is a part of a tensor."""

    @staticmethod
    def forward(ctx, x, to):
        ctx.to, ctx.like = to, x
        dist.send(x[0, 2:], to)
        dist.send(x, to)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        gradient = torch.empty_like(ctx.like)
        dist.recv(gradient, ctx.to)
        return gradient, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, like, source):
        ctx.source = source
        part, x = torch.empty(WIDTH - 2), torch.empty_like(like)
        dist.recv(part, source)
        dist.recv(x, source)
        return x + 0.1 * F.pad(part, (2, 0))

    @staticmethod
    def backward(ctx, gradient):
        dist.send(gradient.contiguous(), ctx.source)
        return torch.zeros_like(gradient), None


class _SendingStage(nn.Module):
    """The last rank has the loss; that of the others is 0, and backward from it asks for what comes back."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(300 + dist.get_rank())
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, rows):
        rank = dist.get_rank()
        x = rows if rank == 0 else _Receive.apply(rows.clone().requires_grad_(), rank - 1)
        x = self.layer(x).tanh()
        if rank == dist.get_world_size() - 1:
            return self.head(x)
        return self.head(torch.zeros_like(x)) * 0 + _SendOn.apply(x, rank + 1)


def send_and_receive():
    return _step(_SendingStage())
