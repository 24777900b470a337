"""Makes tests/data/pt2: small programs exported by torch, with their eager results. Run with a Python that has torch:

    python tests/data/make_pt2.py [FOLDER [CASE...]]

What is of the machine (paths of source files, sample inputs) is left out; archives are packed, which PyTorch's are not.
"""
import io
import json
import os
import re
import sys
import zipfile

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim, export

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "pt2")


ONLY = sys.argv[2:]


def repack(data, path, layout):
    """The archive without this machine's paths; or in a layout of older torch: weights pickled."""
    source = zipfile.ZipFile(io.BytesIO(data))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(source.namelist()):
            content = source.read(name)
            if "sample_inputs" in name or name.endswith("serialization_id"):
                continue
            if name.endswith("models/model.json"):
                content = re.sub(rb'(File \\")[^"]*/', rb"\1", content)
                if layout == "2.6":
                    name = "serialized_exported_program.json"
            elif layout == "2.6" or (layout == "2.8" and "/data/" in name):
                continue
            out.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
        if layout == "2.6":
            for name in ("serialized_state_dict.pt", "serialized_constants.pt"):
                out.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), b"not read")
        if layout == "2.8":
            root = source.namelist()[0].split("/")[0]
            for name in ("data/weights/model.pt", "data/constants/model.pt"):
                out.writestr(zipfile.ZipInfo(f"{root}/{name}", (1980, 1, 1, 0, 0, 0)), b"not read")


def saved(program):
    data = io.BytesIO()
    torch.export.save(program, data)
    return data.getvalue()


def save(name, data, inputs, expected, run=None, layout="newest"):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    repack(data, os.path.join(folder, "model.pt2"), layout)
    for file, tensors in (("inputs", inputs), ("expected", expected)):
        save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()},
                  os.path.join(folder, file + ".safetensors"))
    if run:
        with open(os.path.join(folder, "run.json"), "w") as f:
            json.dump(run, f)
    print(name)


def case(name, model, args, kwargs=None, dynamic=None, other=None, train=False, core=False, run=None, layout="newest"):
    """`other`: arguments of other sizes than those of the export, at which it is run."""
    kwargs = kwargs or {}
    if ONLY and name not in ONLY:
        return
    model = model.train() if train else model.eval()
    program = export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)
    if core:
        program = program.run_decompositions()
    a, k = (other, {}) if other else (args, kwargs)
    kinds = program.graph_signature.input_specs
    names = [s.arg.name for s in kinds if s.kind.name == "USER_INPUT"]
    inputs = {n: v for n, v in zip(names, torch.utils._pytree.tree_leaves((a, k))) if isinstance(v, torch.Tensor)}
    inputs = {n: v.clone() for n, v in inputs.items()}
    if layout != "newest":
        inputs.update({k: v.clone() for k, v in program.state_dict.items()})
    data = saved(program)             # before the run, which writes the buffers
    module = program.module()
    with torch.no_grad():
        out = module(*[x.clone() if isinstance(x, torch.Tensor) else x for x in a], **k)
    leaves = iter(torch.utils._pytree.tree_leaves(out, is_leaf=lambda x: x is None))
    state = module.state_dict()
    expected = {}
    for i, spec in enumerate(program.graph_signature.output_specs):
        value = next(leaves) if spec.kind.name == "USER_OUTPUT" else None
        if spec.kind.name == "BUFFER_MUTATION":
            value = state[spec.target]
        if isinstance(value, torch.Tensor):
            expected[f"out{i}"] = value
    save(name, data, inputs, expected, run, layout)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.f = nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x):
        return self.f(F.relu(self.b(self.c(x))).mean((2, 3)))


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("own", torch.arange(4.0), persistent=False)

    def forward(self, x):
        self.n.add_(x.sum(0))
        self.count += 1
        return x * self.n + self.own + self.count


class Relation(nn.Module):
    def forward(self, x, y):
        return x + y[1:], (x.shape[0] + 1) // 2 * torch.ones(3), x.reshape(-1)


class TwoSizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x, y):
        both = torch.cat([self.l(x), y], 1)
        return both.view(both.shape[0], -1, 8).sum(1), both.flatten(0, 1)


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.a(v).sin(), lambda v: self.b(v).cos(), (x,))


class NoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        with torch.no_grad():
            z = (y * 2).sin()
        return z + y


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.w = nn.Linear(8, 4, bias=False), nn.Parameter(torch.randn(4, 8, 8) * 0.3)

    def forward(self, x):
        v, i = self.g(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for e in range(4):
            out = out + (v * (i == e)).sum(-1, keepdim=True) * (x @ self.w[e])
        order = torch.argsort(i.reshape(-1), stable=True)
        rows = x.repeat_interleave(2, 0)[order] * v.reshape(-1)[order][:, None]
        return out, torch.zeros_like(x).index_add(0, order // 2, rows), torch.scatter(torch.zeros(x.shape[0], 4), 1, i, v)


class NoneOut(nn.Module):
    def forward(self, x, flag=None):
        return x + 1, None, {"a": x * 2, "b": [x.sum(), None]}


class Keywords(nn.Module):
    def forward(self, d, *, scale, mask=None):
        return d["q"] @ d["k"].T * scale, mask


class Scalars(nn.Module):
    def forward(self, x, n, f, b):
        return x * n + f if b else x


class DynamicInt(nn.Module):
    def forward(self, x, n):
        return x * n, torch.zeros(n) + x.sum()


class Half(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.l = nn.Linear(8, 8).to(dtype)

    def forward(self, x):
        return F.gelu(self.l(x)), self.l.weight.sum()


class Views(nn.Module):
    """Parameters that share a storage, lie in it with an offset or transposed, and of all kinds of elements."""
    def __init__(self):
        super().__init__()
        base = torch.randn(6, 4)
        self.p, self.q = nn.Parameter(base[1:4].t()), nn.Parameter(torch.randn(4, 6).t())
        self.register_buffer("big", base)
        self.register_buffer("z", torch.zeros(0, 3))
        self.register_buffer("bo", torch.tensor([True, False]))
        self.register_buffer("i8", torch.arange(4, dtype=torch.int8))
        self.register_buffer("cx", torch.randn(3, dtype=torch.complex64))
        self.register_buffer("ex", torch.randn(3, 1).expand(3, 4))

    def forward(self, x):
        return x @ self.p + self.big.sum(), self.q.sum(1), self.z + 1, self.bo, self.i8 * 2, torch.view_as_real(self.cx), self.ex + 1


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.o.weight = self.e.weight

    def forward(self, i):
        return self.o(self.e(i) * torch.tensor([0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 3.0]))


class Mutated(nn.Module):
    def forward(self, x, y):
        x.add_(y)
        return x * 2


class Unbacked(nn.Module):
    def forward(self, x):
        n = x.nonzero()
        torch._check(n.shape[0] > 1)
        k = x.sum().to(torch.int64).item()
        torch._check(k >= 0)
        torch._check(k < 100)
        return n * 2, torch.ones(k)


class Several(nn.Module):
    def forward(self, x):
        a, b, c = x.split([1, 2, 3], 1)
        most = x.max(1)
        return b * 2, torch.stack(x.unbind(0)), most.values, x.chunk(2, 0)[1], x.masked_fill(x > 0, float("-inf"))


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 3)

    def forward(self, x, y):
        return F.cross_entropy(self.l(x), y)


class Composites(nn.Module):
    """What PyTorch takes apart before it runs; sizes of the batch are symbols."""
    def __init__(self):
        super().__init__()
        self.prelu, self.bilinear = nn.PReLU(5), nn.Bilinear(8, 8, 3)
        self.bag = nn.EmbeddingBag(16, 8, mode="mean")

    def forward(self, x, words, starts):
        heads = torch.einsum("bthd,bshd->bhts", x, x).softmax(-1)
        mixed = torch.einsum("bhts,bshd,d->bthd", heads, x, torch.linspace(0, 1, 8))
        rows, columns = torch.meshgrid(torch.arange(3), torch.arange(2), indexing="xy")
        left, right = torch.tensor_split(x, 2, dim=3)
        flat = self.prelu(mixed.movedim((2, 3), (1, 2)))
        var, mean = torch.var_mean(x, dim=(1, 2))
        spectrum = torch.fft.rfft(x, norm="ortho")
        loss = F.l1_loss(x, mixed) + F.kl_div(x, heads.new_tensor(0.5)) + F.nll_loss(x.transpose(1, 3), torch.zeros_like(x[:, 0, :, :4], dtype=torch.long))
        return (flat, rows.mT @ columns, torch.hstack([left, right]), var, mean,
                torch.view_as_real(torch.fft.irfft(spectrum) + 0j),
                self.bag(words, starts), self.bilinear(x, mixed.type_as(x)), torch.tile(mean, (2,)),
                torch.tensordot(x, x[0], dims=([1, 2, 3], [0, 1, 2])),
                torch.diag_embed(mean), F.cosine_similarity(x, mixed, dim=-1), loss, x.amax(1).kthvalue(2).values,
                torch.outer(mean[0], mean[0]))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True, proj_size=3)
        self.gru, self.rnn, self.cell = nn.GRU(6, 5), nn.RNN(6, 5, bias=False), nn.LSTMCell(6, 5)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        return out, h, c, *self.gru(x), *self.rnn(x), *self.cell(x[:, 0])


def joint():
    if ONLY and "joint" not in ONLY:
        return
    from torch.export.experimental import _export_forward_backward
    model = Loss()
    x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
    loss = model(x, y)
    grads = torch.autograd.grad(loss, [model.l.weight, model.l.bias])
    program = _export_forward_backward(export(model, (x, y)))
    save("joint", saved(program), {"x": x, "y": y},
         {"loss": loss, "gradient:l.weight": grads[0], "gradient:l.bias": grads[1]})


def main():
    torch.manual_seed(0)
    image = (torch.randn(2, 3, 8, 8),)
    b, t = Dim("b", min=2, max=64), Dim("t", min=4, max=128)
    case("conv_eval", Conv(), image, core=True)
    case("buffers", Buffers(), (torch.randn(3, 4),))
    case("buffers_core", Buffers(), (torch.randn(3, 4),), core=True)
    case("relation", Relation(), (torch.randn(6, 4), torch.randn(7, 4)), dynamic={"x": {0: b}, "y": {0: b + 1}},
         other=(torch.randn(11, 4), torch.randn(12, 4)))
    case("two_sizes", TwoSizes(), (torch.randn(3, 4, 8), torch.randn(3, 5, 8)),
         dynamic={"x": {0: b, 1: t}, "y": {0: b}},
         other=(torch.randn(7, 9, 8), torch.randn(7, 5, 8)))
    case("cond", Cond(), (torch.randn(3, 4),))
    case("no_grad", NoGrad(), (torch.randn(3, 4),))
    case("moe", Moe(), (torch.randn(6, 8),))
    case("none_out", NoneOut(), (torch.randn(3),))
    case("keywords", Keywords(), ({"q": torch.randn(3, 4), "k": torch.randn(5, 4)},),
         {"scale": torch.tensor(2.0), "mask": torch.ones(3, dtype=torch.bool)})
    case("scalars", Scalars(), (torch.randn(3), 3, 2.5, True))
    case("dynamic_int", DynamicInt(), (torch.randn(3), 5), dynamic={"x": None, "n": Dim.DYNAMIC})
    for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float64, "f64")):
        case(name, Half(dtype), (torch.randn(4, 8).to(dtype),))
    case("views", Views(), (torch.randn(2, 4),))
    case("tied", Tied(), (torch.randint(0, 16, (2, 5)),), core=True)
    case("mutated", Mutated(), (torch.randn(3), torch.randn(3)))
    case("mutated_core", Mutated(), (torch.randn(3), torch.randn(3)), core=True)
    case("unbacked", Unbacked(), (torch.tensor([1.0, 0, 2.0, 3.0]),))
    case("several", Several(), (torch.randn(4, 6),))
    case("pickled_2_6", TwoSizes(), (torch.randn(3, 4, 8), torch.randn(3, 5, 8)), layout="2.6")
    case("pickled_2_8", TwoSizes(), (torch.randn(3, 4, 8), torch.randn(3, 5, 8)), layout="2.8")
    case("composites", Composites(), (torch.rand(3, 4, 5, 8), torch.randint(0, 16, (7,)), torch.tensor([0, 2, 2])),
         dynamic={"x": {0: b}, "words": None, "starts": None},
         other=(torch.rand(5, 4, 5, 8), torch.randint(0, 16, (7,)), torch.tensor([0, 1, 6])))
    case("recurrent", Recurrent(), (torch.randn(4, 3, 6),))
    joint()


main()
