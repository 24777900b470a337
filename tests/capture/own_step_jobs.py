"""Steps that call backward themselves under DistributedDataParallel, fully_shard and DTensor, as jobs for
run_job_tests.py: gradients accumulated with and without reductions, clipped by the norm of all ranks, and updates in the
step. Each leaves PyTorch's own results first.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import jobs  # noqa: E402
import pipeline_jobs  # noqa: E402

PARTS = 3


def _batches(rank=None):
    torch.manual_seed(100 + (dist.get_rank() if rank is None else rank))
    return {"ids": torch.randint(0, 24, (2 * PARTS, 6)), "targets": torch.randint(0, 24, (2 * PARTS, 6))}


def _step(model, train_step, inputs=None):
    inputs = inputs or _batches()
    jobs.keep_answers_of(model, lambda: train_step(**inputs))
    return dict(model=model, inputs=inputs, train_step=train_step)


def _clip(model, norm=0.05):
    parameters = list(model.parameters())
    sharded = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
    found = nn.utils.clip_grad_norm_(sharded or parameters, norm)  # PyTorch takes no mixture
    return found.full_tensor() if isinstance(found, DTensor) else found


def _accumulates(model, before=lambda i: None, after=lambda: None):
    """before: of each micro-batch, with its number; after: of all."""

    def train(ids, targets):
        total = 0.0
        for i, (some, answers) in enumerate(zip(ids.chunk(PARTS), targets.chunk(PARTS))):
            before(i)
            loss = jobs.loss_fn(model(some), answers) / PARTS
            loss.backward()
            total = total + loss.detach()
        after()
        return total

    return train


def _clipped(model, inputs=None):
    def train(ids, targets):
        model.zero_grad()
        loss = jobs.loss_fn(model(ids), targets)
        loss.backward()
        return loss, {"norm": _clip(model)}

    return _step(model, train, inputs)


def ddp_clipped():
    return _clipped(DistributedDataParallel(jobs.Model()))


def ddp_accumulates():
    """The last micro-batch averages what all have left, by the settings and by no_sync()."""
    model = DistributedDataParallel(jobs.Model())

    def train(ids, targets):
        parts = list(zip(ids.chunk(PARTS), targets.chunk(PARTS)))
        total = 0.0
        with model.no_sync():
            for some, answers in parts[:-1]:
                loss = jobs.loss_fn(model(some), answers) / PARTS
                loss.backward()
                total = total + loss.detach()
        loss = jobs.loss_fn(model(parts[-1][0]), parts[-1][1]) / PARTS
        loss.backward()
        _clip(model)
        return total + loss.detach()

    return _step(model, train)


def ddp_each_time():
    """Averages of averages, and at last a forward that no reducer is prepared for by: its backward's gradients stay
    this rank's."""
    model = DistributedDataParallel(jobs.Model())

    def train(ids, targets):
        losses = []
        for some, answers in zip(ids.chunk(PARTS), targets.chunk(PARTS)):
            losses.append(jobs.loss_fn(model(some), answers))
            losses[-1].backward()
        with model.no_sync():
            losses.append(jobs.loss_fn(model(ids), targets))
            losses[-1].backward()
        return torch.stack(losses).sum().detach()

    return _step(model, train)


class Sometimes(jobs.Model):
    """Rank 0 alone uses the first layer."""

    def forward(self, ids):
        x = self.table(ids)
        if dist.get_rank() == 0:
            x = self.layers[0](x)
        return self.head(self.layers[1](x))


def ddp_unused():
    model = DistributedDataParallel(Sometimes(), find_unused_parameters=True)
    return _step(model, _accumulates(model, after=lambda: _clip(model)))


class Learning(nn.Module):
    """Momentum in buffers."""

    def __init__(self, model):
        super().__init__()
        self.net = model
        for name, parameter in model.named_parameters():
            self.register_buffer("momentum_" + name.replace(".", "_"), torch.zeros_like(parameter.detach()))

    def forward(self, ids):
        return self.net(ids)

    @torch.no_grad()
    def update(self):
        for name, parameter in self.net.named_parameters():
            momentum = getattr(self, "momentum_" + name.replace(".", "_"))
            momentum.mul_(0.9).add_(parameter.grad)
            parameter.add_(momentum, alpha=-0.1)


def ddp_updates():
    model = Learning(DistributedDataParallel(jobs.Model()))

    def train(ids, targets):
        loss = jobs.loss_fn(model(ids), targets)
        loss.backward()
        _clip(model)
        model.update()
        return loss

    return _step(model, train)


def _sharded(model=None, **settings):
    model = model or jobs.Model()
    for layer in model.layers:
        fully_shard(layer, **settings)
    return fully_shard(model, **settings)


def fsdp_taught():
    """By a frozen network that is sharded as well and part of the model, behind a first step."""
    teacher = _sharded(jobs.Model().requires_grad_(False), reshard_after_forward=True)
    both = nn.ModuleDict({"student": _sharded(), "teacher": teacher})

    def train(ids, targets):
        both.zero_grad()
        logits = both["student"](ids)
        loss = jobs.loss_fn(logits, targets) + (logits - both["teacher"](ids)).square().mean()
        loss.backward()
        return loss

    train(**_batches())
    return _step(both, train)


def fsdp_taught_from_outside():
    """The teacher is no part of the model, and has units in units: some are whole behind the first step, some are not."""
    student, teacher = _sharded(), jobs.Model().requires_grad_(False)
    for layer in teacher.layers:
        fully_shard(layer)
    fully_shard(teacher)

    def train(ids, targets):
        student.zero_grad()
        logits = student(ids)
        loss = jobs.loss_fn(logits, targets) + (logits - teacher(ids)).square().mean()
        loss.backward()
        return loss

    train(**_batches())
    return _step(student, train)


def fsdp_clipped():
    return _clipped(_sharded())


def _reduces_at_last(model, after=lambda: None):
    return _accumulates(model, lambda i: model.set_requires_gradient_sync(i == PARTS - 1), after)


def fsdp_accumulates():
    model = _sharded()
    return _step(model, _reduces_at_last(model, lambda: _clip(model)))


def fsdp_accumulates_bf16():
    """Sums of the micro-batches in the type that reduces; sizes that are not a multiple of the ranks."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = _sharded(jobs.Model(10, 18), mp_policy=policy)
    return _step(model, _reduces_at_last(model))


class Again(jobs.Model):
    def forward(self, ids):
        x = self.table(ids)
        x = checkpoint(self.layers[0], x, use_reentrant=False)
        return self.head(checkpoint(self.layers[1], x, use_reentrant=True))


def fsdp_checkpointed():
    """Every micro-batch reduces, and the parameters between them are shards."""
    model = _sharded(Again())
    return _step(model, _accumulates(model, after=lambda: _clip(model)))


class Fewer(jobs.Model):
    def forward(self, ids, skips=False):
        x = self.table(ids)
        for layer in self.layers[1 if skips else 0 :]:
            x = layer(x)
        return self.head(x)


def fsdp_read_behind_forward():
    """The outermost unit's parameters are whole until its backward, and those of a layer are shards."""
    model = _sharded()

    def train(ids, targets):
        loss = jobs.loss_fn(model(ids), targets) + model.head.weight.square().mean()
        loss.backward()
        return loss, {"shard": model.layers[0].up.weight.to_local()}

    return _step(model, train)


def fsdp_unused_at_last():
    """The last backward does not come by the first layer, whose gradients it reduces all the same."""
    model = _sharded(Fewer())

    def train(ids, targets):
        model.set_requires_gradient_sync(False)
        first = jobs.loss_fn(model(ids), targets)
        first.backward()
        model.set_requires_gradient_sync(True)
        second = jobs.loss_fn(model(ids, skips=True), targets)
        second.backward()
        return first.detach() + second.detach()

    return _step(model, train)


def fsdp_updates():
    """Of shards, with momentum that is sharded as they are; some ranks have no row of some."""
    model = Learning(_sharded(jobs.Model(5, 7)))

    def train(ids, targets):
        loss = jobs.loss_fn(model(ids), targets)
        loss.backward()
        norm = _clip(model)
        model.update()
        return loss, {"norm": norm}

    return _step(model, train)


def fsdp_followed():
    """Other shards follow the model's, beside it; some ranks have no row of some."""
    model, follower = _sharded(jobs.Model(5, 7)), _sharded(jobs.Model(5, 7))
    inputs = _batches()

    def train(ids, targets):
        loss = jobs.loss_fn(model(ids), targets)
        loss.backward()
        with torch.no_grad():
            for mine, theirs in zip(follower.parameters(), model.parameters()):
                mine.lerp_(theirs, 0.1)
        return loss

    jobs.keep_answers_of(model, lambda: train(**inputs), follower=dict(follower.named_parameters()))
    return dict(model=model, inputs=inputs, train_step=train)


def _optimized(model, step_of, optimizer):
    """The answers are of its first step; then it is as it was."""
    inputs = _batches()
    step = step_of(lambda: optimizer.step())
    jobs.keep_answers_of(model, lambda: step(**inputs), optimizer)
    optimizer.state.clear()
    return dict(model=model, inputs=inputs, train_step=step, optimizer=optimizer)


def ddp_optimizer():
    model = DistributedDataParallel(jobs.Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return _optimized(model, lambda end: _accumulates(model, after=end), optimizer)


def fsdp_optimizer():
    """On shards, of which some ranks have no row; gradients are clipped before."""
    model = _sharded(jobs.Model(5, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    return _optimized(model, lambda end: _reduces_at_last(model, lambda: (_clip(model), end())), optimizer)


def _scaled(model, optimizer, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(torch.ones(()))  # from now on it has its state
    inputs = _batches()

    def train(ids, targets):
        loss = jobs.loss_fn(model(ids), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        _clip(model)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    state = {"scale": scaler._scale, "growth_tracker": scaler._growth_tracker}
    jobs.keep_answers_of(model, lambda: train(**inputs), optimizer, scaler=state)
    optimizer.state.clear()
    return dict(model=model, inputs=inputs, train_step=train, optimizer=optimizer)


def ddp_scaled():
    model = DistributedDataParallel(jobs.Model())
    return _scaled(model, torch.optim.AdamW(model.parameters(), lr=1e-2), 1024.0)


def fsdp_scaled():
    model = _sharded(jobs.Model(5, 7))
    return _scaled(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1), 1024.0)


def fsdp_skipped():
    """Some shards have gradients that are not finite, others have none of these: no rank makes the step."""
    model = _sharded(jobs.Model(5, 7))
    return _scaled(model, torch.optim.SGD(model.parameters(), lr=1e-2), 3e38)


def hybrid_accumulates():
    """Shards are reduced each time, and summed over their copies at last."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "fsdp"))
    model = _sharded(mesh=mesh)
    return _step(model, _accumulates(model, lambda i: model.set_requires_all_reduce(i == PARTS - 1)))


def tensor_parallel_clipped():
    """All ranks see the same data. The norms are of rows and columns that are elsewhere."""
    model = jobs.Model()
    jobs._parallelize(model, init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",)))
    return _clipped(model, _batches(0))


def fsdp_with_tensor_parallel_clipped():
    """Gradients of shards of shards."""
    model = jobs.Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("fsdp", "tp"))
    jobs._parallelize(model, mesh["tp"])
    model = _sharded(model, mesh=mesh["fsdp"])
    inputs = _batches(mesh["fsdp"].get_local_rank())
    return _step(model, _reduces_at_last(model), inputs)


def _staged(wrap):
    """Two stages, each on two ranks that see other rows."""
    from torch.distributed import pipelining

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    place, group = mesh["pp"].get_local_rank(), mesh["pp"].get_group()
    model = wrap(pipeline_jobs.Stage(place == 1, place), mesh["dp"])
    stage = pipelining.PipelineStage(model, place, 2, torch.device("cpu"), group=group)
    schedule = pipelining.Schedule1F1B(stage, pipeline_jobs.PARTS, loss_fn=F.cross_entropy)

    def train(rows=None, targets=None):
        losses = []
        given = () if rows is None else (rows,)
        schedule.step(*given, **({} if targets is None else {"target": targets, "losses": losses}))
        return torch.stack(losses).mean() if losses else None

    torch.manual_seed(200 + mesh["dp"].get_local_rank())
    rows = torch.randn(pipeline_jobs.ROWS, pipeline_jobs.WIDTH)
    targets = torch.randint(0, pipeline_jobs.CLASSES, (pipeline_jobs.ROWS,))
    inputs = {"rows": rows} if place == 0 else {"targets": targets}
    return pipeline_jobs.learned_and_kept(model, train, inputs)


def ddp_stage():
    return _staged(lambda stage, mesh: DistributedDataParallel(stage, process_group=mesh.get_group()))


def fsdp_stage():
    return _staged(lambda stage, mesh: fully_shard(stage, mesh=mesh))
