"""Pipelines whose steps call backward themselves, as jobs for run_job_tests.py: by hand, and by the schedules of
torch.distributed.pipelining. Each leaves PyTorch's own results first.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import jobs  # noqa: E402

WIDTH, CLASSES, ROWS, PARTS = 8, 5, 8, 4


class Stage(nn.Module):
    def __init__(self, is_last, seed):
        super().__init__()
        torch.manual_seed(300 + seed)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES) if is_last else None
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        x = x + self.down(F.gelu(self.up(x)))
        return x if self.head is None else self.head(x)


def _step(model, train_step, is_learning=False, is_v=False):
    """Rows are the first rank's, targets the last one's, or the first one's of a V. is_learning: a first step runs forward more often."""
    torch.manual_seed(200)
    rows, targets = torch.randn(ROWS, WIDTH), torch.randint(0, CLASSES, (ROWS,))
    is_first = dist.get_rank() == 0
    is_last = is_first if is_v else dist.get_rank() == dist.get_world_size() - 1
    inputs = {**({"rows": rows} if is_first else {}), **({"targets": targets} if is_last else {})}
    return learned_and_kept(model, train_step, inputs, is_learning)


def learned_and_kept(model, train_step, inputs, is_learning=True):
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if is_learning and "JOB_ANSWERS" in os.environ:
        train_step(**inputs)
        model.zero_grad()
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
    jobs.keep_answers_of(model, lambda: train_step(**inputs))
    return dict(model=model, inputs=inputs, train_step=train_step)


def two_stages():
    """One batch, forward and back."""
    rank = dist.get_rank()
    model = Stage(rank == 1, rank)

    def first(rows):
        y = model(rows)
        dist.send(y.detach(), 1)
        gradient = torch.empty_like(y)
        dist.recv(gradient, 1)
        y.backward(gradient)

    def last(targets):
        x = torch.empty(ROWS, WIDTH, requires_grad=True)
        dist.recv(x, 0)
        loss = F.cross_entropy(model(x), targets)
        loss.backward()
        dist.send(x.grad, 0)
        return loss

    return _step(model, (first, last)[rank])


def one_forward_one_backward():
    """1F1B by hand, over neighbours: sends are waited for late, and batched with what comes the other way."""
    rank, count = dist.get_rank(), dist.get_world_size()
    model = Stage(rank == count - 1, rank)
    like = torch.empty(ROWS // PARTS, WIDTH)

    def ops(kind, tensor, peer):
        return [dist.P2POp(kind, tensor, peer)] if 0 <= peer < count else []

    def train(rows=None, targets=None):
        alive, sent, losses = [], [], []

        def launch(*lists):
            batch = [op for few in lists for op in few]
            return dist.batch_isend_irecv(batch) if batch else []

        def come(peer, sends):
            got = torch.empty_like(like)
            works = launch(ops(dist.irecv, got, peer), sends)
            for work in works:
                work.wait()
            return got

        def forward(i, sends):
            x = come(rank - 1, sends) if rank or sends else None
            x = rows.chunk(PARTS)[i] if rank == 0 else x.requires_grad_()
            y = model(x)
            alive.append((x, y))
            if rank == count - 1:
                losses.append(F.cross_entropy(y, targets.chunk(PARTS)[i]) / PARTS)
            return ops(dist.isend, y.detach(), rank + 1)

        def backward(i, sends):
            gradient = come(rank + 1, sends)
            x, y = alive[i]
            losses[i].backward() if rank == count - 1 else y.backward(gradient)
            return ops(dist.isend, x.grad, rank - 1)

        warm = min(count - 1 - rank, PARTS)
        for i in range(warm):
            sent += launch(forward(i, []))
        back = []
        for i in range(PARTS - warm):
            back = backward(i, forward(warm + i, back))
        for i in range(PARTS - warm, PARTS):
            sent += launch(back)
            back = backward(i, [])
        sent += launch(back)
        for work in sent:
            work.wait()
        return sum(losses).detach() if losses else None

    return _step(model, train)


def _scheduled(kind, stages_a_rank=1, is_v=False, **more):
    """Of torch.distributed.pipelining: sizes are found out in the first step. is_v: the first rank has the last stage, too."""
    from torch.distributed import pipelining

    rank, count = dist.get_rank(), dist.get_world_size()
    places = [rank, 2 * count - 1 - rank] if is_v else [rank + count * i for i in range(stages_a_rank)]
    model = nn.ModuleList(Stage(place == count * stages_a_rank - 1, place) for place in places)
    stages = [
        pipelining.PipelineStage(stage, place, count * stages_a_rank, torch.device("cpu"))
        for stage, place in zip(model, places)
    ]
    make = getattr(pipelining, kind)
    schedule = make(stages if stages_a_rank > 1 else stages[0], PARTS, loss_fn=F.cross_entropy, **more)

    def train(rows=None, targets=None):
        losses = []
        given = () if rows is None else (rows,)
        schedule.step(*given, **({} if targets is None else {"target": targets, "losses": losses}))
        return torch.stack(losses).mean() if losses else None

    return _step(model, train, is_learning=True, is_v=is_v)


def gpipe():
    return _scheduled("ScheduleGPipe")


def schedule_1f1b():
    return _scheduled("Schedule1F1B")


def interleaved():
    return _scheduled("ScheduleInterleaved1F1B", 2)


def zero_bubble():
    return _scheduled("ScheduleInterleavedZeroBubble", 2)


def looped():
    return _scheduled("ScheduleLoopedBFS", 2)


def zero_bubble_v():
    return _scheduled("ScheduleZBVZeroBubble", 2, is_v=True)


def dual_pipe_v():
    return _scheduled("ScheduleDualPipeV", 2, is_v=True)
