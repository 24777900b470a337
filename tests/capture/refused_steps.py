"""Steps of distributed jobs that are not captured, each with the words that say so. Under torchrun, on 4 ranks:

    torchrun --nproc-per-node 4 refused_steps.py FOLDER

Every rank calls capture() for each of them in turn; none waits for another, and the next one works as before. Prints
`ok rank 0: NAME` or `FAILED rank 0: NAME: ...` on each rank.
"""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed._composable.replicate import replicate  # noqa: E402
from torch.distributed._functional_collectives import all_reduce, wait_tensor  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import jobs  # noqa: E402
from stepgraph_capture import CaptureError, capture, compat  # noqa: E402


class Ends(nn.Module):
    """A model between two linear layers."""

    def __init__(self, middle):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(4, 4), middle, nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


def _parallel(**settings):
    return DistributedDataParallel(nn.Linear(4, 4), **settings)


def hook_of_ones_own(_, bucket):
    return default_hooks.allreduce_hook(None, bucket)


def comm_hook():
    model = Ends(_parallel())
    model.middle.register_comm_hook(None, hook_of_ones_own)
    return model


def comm_hook_of_all_ranks():
    """The plain hook, but over more ranks than the module's."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    model = _parallel(process_group=groups[dist.get_rank() // 2])
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    return model


def builtin_hook():
    model = _parallel()
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return model


def mixed_precision():
    from torch.nn.parallel.distributed import _MixedPrecision

    model = _parallel()
    model.mixed_precision = _MixedPrecision(param_dtype=torch.bfloat16)  # its constructor wants a GPU
    return model


def frozen_later():
    model = _parallel()
    model.module.bias.requires_grad_(False)
    return model


def averaged_twice():
    return DistributedDataParallel(Ends(_parallel()))


def outside_of_the_model():
    model = nn.Linear(4, 4)
    parallel = DistributedDataParallel(model)
    return dict(model=model, loss_fn=None, inputs=(torch.ones(2, 4),), train_step=lambda x: parallel(x).sum().backward())


class _Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


def unused_parameter():
    return DistributedDataParallel(_Half())


def fsdp_without_reduction():
    model = Ends(nn.Linear(4, 4))
    fully_shard(model.middle)
    model.middle.set_requires_gradient_sync(False)
    return fully_shard(model)


def hybrid_without_reduction():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "fsdp"))
    model = fully_shard(nn.Linear(4, 4), mesh=mesh)
    model.set_requires_all_reduce(False)
    return model


def fsdp_hook():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
    model = fully_shard(nn.Linear(4, 4), mesh=mesh)
    model.set_all_reduce_hook(lambda gradient: None)
    return model


def first_fsdp():
    return Ends(FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu")))


def composable_replicate():
    return Ends(replicate(nn.Linear(4, 4)))


class _ByValue(nn.Linear):
    """One rank alone decides by a value."""

    def forward(self, x):
        y = super().forward(x)
        if dist.get_rank() == 1 and y.sum() > 0:
            y = y * 2
        return y + wait_tensor(all_reduce(y.detach(), "sum", dist.group.WORLD))


def one_rank_decides():
    return _ByValue(4, 4)


def one_rank_decides_step():
    """The same for the command line."""
    return dict(model=one_rank_decides(), loss_fn=lambda y: y.square().mean(), inputs=(torch.ones(2, 4),))


class _SaysItsRank(nn.Linear):
    def forward(self, x):
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, dist.get_rank())
        return super().forward(x) * len(ranks)


def sends_objects():
    return _SaysItsRank(4, 4)


class _Unequal(nn.Linear):
    """Rank 2 reduces once more than the others."""

    def forward(self, x):
        y = super().forward(x)
        for _ in range(1 + (dist.get_rank() == 2)):
            y = y + wait_tensor(all_reduce(y.detach(), "sum", dist.group.WORLD))
        return y


def one_rank_launches_more():
    return _Unequal(4, 4)


def sometimes_called():
    """Rank 3 goes past a DistributedDataParallel that the others call."""

    class Past(Ends):
        def forward(self, x):
            return super().forward(x) if dist.get_rank() != 3 else self.last(self.first(x))

    return Past(_parallel(find_unused_parameters=True))


class _Messages(nn.Linear):
    """Ranks send as `say` does, beside what they compute."""

    def __init__(self, say):
        super().__init__(4, 4)
        self.say = say

    def forward(self, x):
        y = super().forward(x)
        self.say(y.detach(), dist.get_rank())
        return y


def _by_ranks(*says):
    return lambda y, rank: says[rank](y) if rank < len(says) else None


def message_without_partner():
    return _Messages(_by_ranks(lambda y: dist.isend(y, 1).wait(), lambda y: None))


def received_once_too_often():
    return _Messages(_by_ranks(lambda y: dist.send(y, 1), lambda y: [dist.recv(y, 0) for _ in range(2)]))


def other_size():
    return _Messages(_by_ranks(lambda y: dist.send(y, 1), lambda y: dist.recv(y[0], 0)))


def other_type():
    return _Messages(_by_ranks(lambda y: dist.send(y, 1, tag=3), lambda y: dist.recv(y.int(), 0, tag=3)))


def other_tag():
    return _Messages(_by_ranks(lambda y: dist.send(y, 1, tag=3), lambda y: dist.recv(y, 0)))


def from_anyone():
    return _Messages(_by_ranks(lambda y: None, lambda y: dist.irecv(y).wait()))


def into_what_was_there():
    kept = torch.empty(2, 4)
    return _Messages(_by_ranks(lambda y: dist.send(y, 1), lambda y: dist.recv(kept, 0)))


def to_itself():
    return _Messages(_by_ranks(lambda y: None, lambda y: dist.isend(y, 1).wait()))


class _Attention(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.weight = nn.Parameter(distribute_tensor(torch.ones(1, 1, 2, 4), mesh, [Replicate()]))

    def forward(self, x):
        rows = (self.weight,) * 3
        return x * nn.functional.scaled_dot_product_attention(*rows).to_local()


def no_sharding_strategy():
    return _Attention(init_device_mesh("cpu", (4,)))


def _own(model, prepare=lambda: None, end=lambda: None):
    """A step that calls backward itself."""

    def train(x):
        prepare()
        model(x).square().mean().backward()
        end()

    return dict(model=model, inputs=(torch.ones(2, 4),), train_step=train)


def _shards(mesh=None):
    return fully_shard(nn.Linear(4, 4), **({} if mesh is None else {"mesh": mesh}))


def left_unreduced():
    model = _shards()
    return _own(model, lambda: model.set_requires_gradient_sync(False))


def left_apart_from_copies():
    model = _shards(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "fsdp")))
    return _own(model, lambda: model.set_requires_all_reduce(False))


def shards_kept_from_before():
    model = _shards()
    return _own(model, end=functools.partial(nn.utils.clip_grad_norm_, tuple(model.parameters()), 1.0))


def optimizer_of_shards():
    model = _shards()
    optimizer = torch.optim.SGD(model.parameters())
    return _own(model, end=optimizer.step)


def unused_in_its_own_step():
    model = Ends(_parallel())
    model.middle.module.register_parameter("unused", nn.Parameter(torch.ones(1)))
    model.middle = DistributedDataParallel(model.middle.module)
    return _own(model)


class Scaled(nn.Module):
    """Keeps the norm that it takes in its first run, on the ranks of which this holds."""

    def __init__(self, keeps):
        super().__init__()
        self.linear, self.keeps, self.norm = nn.Linear(4, 4), keeps, None

    def forward(self, x):
        if self.norm is None and self.keeps:
            weight = self.linear.weight.detach()
            self.norm = (weight.full_tensor() if isinstance(weight, DTensor) else weight).norm()
        return self.linear(x) * (1.0 if self.norm is None else self.norm)


def _trained(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return {**_own(model, optimizer.zero_grad, optimizer.step), "optimizer": optimizer}


def kept_by_one_rank():
    return _trained(DistributedDataParallel(Scaled(dist.get_rank() == 1)))


def kept_beside_shards():
    return _trained(fully_shard(Scaled(True)))


def states_by_ranks():
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    return {**_own(model, optimizer.zero_grad, optimizer.step), "optimizer": optimizer}


STEPS = {
    sends_objects: "all_gather_object() is called at refused_steps.py:",
    states_by_ranks: "ZeroRedundancyOptimizer spreads whole parameters over the ranks",
    kept_by_one_rank: "called a second time, the train_step has another update of linear.",
    kept_beside_shards: "called a second time, the train_step has another update of linear.",
    left_unreduced: "the step ends with a gradient of weight that is not reduced",
    left_apart_from_copies: "of copies also set_requires_all_reduce(True)",
    shards_kept_from_before: "the step reads the gradient of weight by a parameter kept from before it",
    optimizer_of_shards: "the step calls SGD.step()",
    unused_in_its_own_step: "middle.module.unused gets no gradient in this step",
    no_sharding_strategy: "it calls an op that DTensor has no sharding strategy for on this device",
    comm_hook: "DistributedDataParallel of middle has the communication hook hook_of_ones_own",
    comm_hook_of_all_ranks: "DistributedDataParallel has the communication hook allreduce_hook",
    builtin_hook: "DistributedDataParallel has the communication hook BuiltinCommHookType.FP16_COMPRESS",
    mixed_precision: "DistributedDataParallel has mixed_precision",
    frozen_later: "was made with 2 parameters that require a gradient, and 1 do now",
    averaged_twice: "middle.module.bias is averaged by two DistributedDataParallel",
    outside_of_the_model: "the step calls a DistributedDataParallel of Linear that is not part of the model",
    unused_parameter: "unused.weight gets no gradient in this step",
    fsdp_without_reduction: "fully_shard of middle leaves gradients unreduced for a later step (set_requires_gradient",
    hybrid_without_reduction: "fully_shard leaves gradients unreduced for a later step (set_requires_all_reduce",
    fsdp_hook: "fully_shard has an all-reduce hook",
    first_fsdp: "FSDP1 (FullyShardedDataParallel) of middle is not supported: use fully_shard",
    composable_replicate: "replicate of middle is not supported: use fully_shard",
    one_rank_decides: "it decides by the value of a tensor",
    one_rank_launches_more: "ranks 0 and 2 would wait for each other: where rank 0 launches no more, rank 2 launches "
    "all_reduce(sum, 8 float32)",
    sometimes_called: "ranks 0 and 3 would wait for each other: where rank 0 launches all_reduce(sum, 16 float32) for "
    "middle.module, rank 3 launches no more",
}
MESSAGES = {
    message_without_partner: "in <lambda> to rank 1, which receives nothing: each message needs its partner",
    received_once_too_often: "rank 0 sends no more than 1 to rank 1, which receives 8 float32 at ",
    other_size: "to rank 1, which receives 4 float32 at ",
    other_type: "to rank 1, which receives 8 int32 at ",
    other_tag: "with tag 3: each message",
    from_anyone: "recv from a rank that is named",
    into_what_was_there: "into a tensor that was there before the step, which a graph would hold as a constant",
    to_itself: "rank 1 sends to itself",
}
if compat.can_box_work():
    STEPS.update(MESSAGES)
if not hasattr(FSDPModule, "set_all_reduce_hook"):  # torch 2.6
    del STEPS[fsdp_hook]


def check(make, words, folder):
    torch.manual_seed(0)
    made = make()
    plain = dict(loss_fn=lambda y: y.square().mean(), inputs=(torch.ones(2, 4),))
    try:
        capture(out_dir=folder, **(made if isinstance(made, dict) else {"model": made, **plain}))
    except CaptureError as error:
        if words not in str(error) or "\n" in str(error):
            return f"said {error}"
        if make is one_rank_decides and str(error).startswith("rank 1: ") == (dist.get_rank() == 1):
            return f"not told as its own or another's: {error}"
    else:
        return "captured"
    dist.barrier()
    return f"left {os.listdir(folder)}" if os.path.exists(folder) else ""


def _say(word, text):
    os.write(1, f"{word} rank {dist.get_rank()}: {text}\n".encode())  # whole, beside those of other ranks


def main(folder):
    dist.init_process_group("gloo")
    failed = 0
    for make, words in STEPS.items():
        wrong = check(make, words, os.path.join(folder, make.__name__))
        failed += wrong != ""
        _say("FAILED" if wrong else "ok", f"{make.__name__}{': ' * bool(wrong)}{wrong}")
    path = capture(_parallel(), lambda y: y.square().mean(), (torch.ones(2, 4),), os.path.join(folder, "captured"))
    _say("ok" if os.path.exists(path) else "FAILED", "captured")
    dist.barrier()
    dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
