"""Steps of distributed jobs, for `torchrun -m stepgraph_capture jobs.py:NAME`. Each runs the job as PyTorch does first
and leaves its answers in JOB_ANSWERS/rank{r}.safetensors, by gradient: the truth that captures are held against.
"""

import os

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

from stepgraph_capture import annotate, eager_chunk


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width=8, inner=16):
        super().__init__()
        self.table = nn.Embedding(24, width)
        self.layers = nn.ModuleList(Mlp(width, inner) for _ in range(2))
        self.head = nn.Linear(width, 24, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_fn(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def _batch():
    """Other data on each rank."""
    torch.manual_seed(100 + dist.get_rank())
    return {"ids": torch.randint(0, 24, (2, 6))}, torch.randint(0, 24, (2, 6))


def _runs(model):
    """fully_shard of torch 2.6 asks CPUs for streams that they have since 2.7. A capture does without."""
    is_sharded = any(isinstance(module, FSDPModule) for module in model.modules())
    return hasattr(torch.cpu.Stream, "record_event") or not is_sharded


def _keep_answers(model, inputs, targets):
    """PyTorch's own step: loss, gradients of this rank's shards, and buffers as it leaves them; the model stays as it
    is. Without targets the model gives the loss."""
    folder = os.environ.get("JOB_ANSWERS")
    if not folder or not _runs(model):
        return

    def step():
        loss = model(**inputs) if targets is None else loss_fn(model(**inputs), targets)
        loss.backward()
        return loss

    keep_answers_of(model, step)


def _mine(tensor):
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor.detach()


def keep_answers_of(model, step, optimizer=None, **beside):
    """The same of a step that calls backward itself; it may have no loss, and update parameters by an optimizer, and
    tensors by name that are beside the model."""
    folder = os.environ.get("JOB_ANSWERS")
    if not folder or not _runs(model):
        return
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    others_before = {name: [mine.detach().clone() for mine in tensors.values()] for name, tensors in beside.items()}
    found = step()
    loss, others = found if isinstance(found, tuple) else (found, {})
    kept = {} if loss is None else {"loss": loss.detach()}
    kept.update({"other": value.detach() for value in others.values()})  # one at most
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            continue
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(parameter.device_mesh, parameter.placements).to_local()
        kept[name.removeprefix("module.")] = gradient.detach().clone().contiguous()
        parameter.grad = None
    for name, parameter in model.named_parameters():
        if not torch.equal(_mine(parameter), _mine(parameters[name])):
            kept["parameter." + name.removeprefix("module.")] = _mine(parameter).clone().contiguous()
            with torch.no_grad():
                parameter.copy_(parameters[name])
    for name, buffer in model.named_buffers():
        kept["buffer." + name.removeprefix("module.")] = _mine(buffer).clone().contiguous()
        buffer.copy_(before[name])
    for name, tensors in beside.items():
        for (path, mine), then in zip(tensors.items(), others_before[name]):
            kept[f"buffer.{name}.{path}"] = _mine(mine).clone().contiguous()
            with torch.no_grad():
                mine.copy_(then)
    for name, parameter in model.named_parameters() if optimizer is not None else ():
        for key, value in optimizer.state[parameter].items():
            value = value.double() if key == "step" else _mine(value)
            kept[f"buffer.optimizer.{key}." + name.removeprefix("module.")] = value.clone().contiguous()
    save_file(kept, os.path.join(folder, f"rank{dist.get_rank()}.safetensors"))


def _step(model, inputs, targets):
    _keep_answers(model, inputs, targets)
    return dict(model=model, loss_fn=loss_fn, inputs=inputs, targets=targets)


def data_parallel():
    model = nn.parallel.DistributedDataParallel(Model())
    return _step(model, *_batch())


def fsdp(width=8, **policy):
    model = Model(width)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    return _step(model, *_batch())


def fsdp_uneven():
    """Sizes that are no multiples of the ranks: some shards are shorter, or empty."""
    return fsdp(width=5)


class _Bits(nn.Module):
    """One rank looks at the bits of its numbers, which are others in double; the other does not."""

    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, ids):
        x = self.model(ids)
        return x + (x.detach().view(torch.int32) & 0) if dist.get_rank() == 1 else x


def bits_on_one_rank():
    return _step(nn.parallel.DistributedDataParallel(_Bits()), *_batch())


def fsdp_bf16():
    return fsdp(width=32, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class _Twice(nn.Module):
    """Weights that are used twice, and norms whose gradients are of wider types than they are."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.layer = nn.Embedding(24, 16), nn.RMSNorm(16), nn.Linear(16, 16)
        self.last = nn.LayerNorm(16)

    def forward(self, ids):
        x = self.table(ids)
        x = x + self.layer(self.norm(x))
        return nn.functional.linear(self.last(x) + self.layer(x), self.table.weight).float()


def fsdp_wider_gradients():
    model = fully_shard(_Twice(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return _step(model, *_batch())


class _Loud(nn.Module):
    """Gradients that are large: the sum over four ranks is beyond float16, their mean is not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, ids):
        return (self.layer(ids[:, :1].expand(-1, 8).to(self.layer.weight.dtype)).float() * 15000).sum()


def fsdp_f16_sums():
    model = _Loud()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16))
    ids = torch.ones(2, 6, dtype=torch.int64)
    _keep_answers(model, {"ids": ids}, None)
    return dict(model=model, loss_fn=None, inputs={"ids": ids})


class _Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(24, 6), nn.Linear(6, 24)

    def encode(self, ids):
        return self.table(ids).tanh()

    def forward(self, x):
        return self.layer(x)


class _Encodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = _Encoder()

    def forward(self, ids):
        return self.inner(self.inner.encode(ids))


def fsdp_methods():
    """A method that gathers as forward does."""
    model = _Encodes()
    fully_shard(model.inner)
    register_fsdp_forward_method(model.inner, "encode")
    fully_shard(model)
    return _step(model, *_batch())


def _parallelize(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def tensor_parallel():
    """All ranks see the same data."""
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    _parallelize(model, mesh)
    torch.manual_seed(100)
    inputs, targets = {"ids": torch.randint(0, 24, (2, 6))}, torch.randint(0, 24, (2, 6))
    return _step(model, inputs, targets)


def dynamic_tensor_parallel():
    """The batch, which no placement shards, may be a multiple of the ranks or not."""
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    _parallelize(model, mesh)
    torch.manual_seed(100)
    inputs, targets = {"ids": torch.randint(0, 24, (3, 6))}, torch.randint(0, 24, (3, 6))
    return dict(_step(model, inputs, targets), dynamic={"ids": {0: "batch"}, "targets": {0: "batch"}})


def sequence_parallel():
    """Each rank has a part of each row between the layers, whose norms are of it alone."""
    model = Model(8, 18)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    up, down = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"norm": SequenceParallel(), "up": up, "down": down})
    table = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh, {"table": table, "head": head})
    torch.manual_seed(100)
    inputs, targets = {"ids": torch.randint(0, 24, (5, 6))}, torch.randint(0, 24, (5, 6))
    return _step(model, inputs, targets)


def fsdp_with_tensor_parallel():
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("fsdp", "tp"))
    _parallelize(model, mesh["tp"])
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["fsdp"])
    fully_shard(model, mesh=mesh["fsdp"])
    torch.manual_seed(100 + mesh["fsdp"].get_local_rank())
    inputs, targets = {"ids": torch.randint(0, 24, (2, 6))}, torch.randint(0, 24, (2, 6))
    return _step(model, inputs, targets)


def hybrid_fsdp():
    model = Model()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "fsdp"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _step(model, *_batch())


def fsdp_over_several_meshes():
    """One layer over a part of the ranks, the other over all of a mesh as one axis, the rest over one that has no name
    and one of a name that is there already."""
    model, count = Model(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=("dp", "ep"))
    fully_shard(model.layers[0], mesh=mesh["dp"])
    fully_shard(model.layers[1], mesh=mesh["dp", "ep"]._flatten("all"))
    fully_shard(model.head, mesh=init_device_mesh("cpu", (count,), mesh_dim_names=("dp",)))
    fully_shard(model)
    return _step(model, *_batch())


class _Exchange(torch.autograd.Function):
    """All-to-all of rows; `sent` and `received` say how many go to and come from each rank."""

    @staticmethod
    def forward(ctx, rows, received, sent, group):
        ctx.sizes, ctx.group = (sent, received), group
        return _all_to_all(rows, received, sent, group)

    @staticmethod
    def backward(ctx, gradient):
        return _all_to_all(gradient.contiguous(), *ctx.sizes, ctx.group), None, None, None


def _all_to_all(rows, received, sent, group):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_to_all_single(rows, received, sent, group.group_name))


class Experts(nn.Module):
    """One expert a rank. How many tokens each gets is known to the data only."""

    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.gate = nn.Linear(width, group.size(), bias=False)
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def dispatch(self, x, choice):
        with annotate(role="dispatch"):
            order = torch.argsort(choice, stable=True)
            ranks = self.group.size()
            counts = (choice[:, None] == torch.arange(ranks)).sum(0)
            with annotate(role="dispatch", step="token_count_exchange"):
                coming = _all_to_all(counts, [1] * ranks, [1] * ranks, self.group)
            with annotate(role="dispatch", step="token_count_sync"):
                sent, received = counts.tolist(), coming.tolist()
            with annotate(role="dispatch", step="token_exchange"):
                return _Exchange.apply(x[order], received, sent, self.group), order, sent, received

    def combine(self, y, order, sent, received):
        with annotate(role="combine"):
            with annotate(role="combine", step="token_exchange"):
                y = _Exchange.apply(y, sent, received, self.group)
            return torch.zeros_like(y).index_copy(0, order, y)

    def forward(self, x):
        with annotate(role="compute"):
            weights = self.gate(x).softmax(-1)
            weight, choice = weights.max(-1)
            rows, *way = self.dispatch(x, choice)
            return x + weight[:, None] * self.combine(self.expert(rows), *way)


def expert_parallel(chunks=0):
    """Each rank has its tokens and its expert; other parameters are the same and not averaged."""
    model = nn.Sequential(nn.Embedding(24, 8), nn.Flatten(0, 1), Experts(8, dist.group.WORLD), nn.Linear(8, 24))
    if chunks:
        eager_chunk(model, "2", chunks, contract="moe")
    inputs, targets = _batch()
    return _step(model, {"input": inputs["ids"]}, targets)


def expert_parallel_in_chunks():
    """12 tokens in 5 chunks, each with exchanges of its own."""
    return expert_parallel(5)


class _ToReceive(nn.Module):
    """Rank 0 sends what it has; the others receive into zeros that name no type."""

    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, ids):
        x = self.model(ids)
        sent = x.detach() if dist.get_rank() == 0 else torch.zeros(*x.shape)
        ops = torch.ops._c10d_functional
        return x * ops.wait_tensor(ops.broadcast(sent, 0, dist.group.WORLD.group_name)).sigmoid()


def zeros_to_receive():
    return _step(nn.parallel.DistributedDataParallel(_ToReceive()), *_batch())
