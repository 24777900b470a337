"""Makes tests/data/pt2_versions: the same small programs exported by several versions of torch. Run once with each:

    python-of-torch-2.6 tests/data/make_pt2_versions.py [FOLDER]      # writes FOLDER/torch_2_6/NAME

The archives are as torch.export.save wrote them, but packed, and without sample inputs and this machine's paths. Weights that a
version pickles are given as inputs by name.
"""
import io
import os
import re
import sys
import zipfile

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim, export

VERSION = "torch_" + "_".join(torch.__version__.split(".")[:2])
OUT = os.path.join(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                      "pt2_versions"), VERSION)


class Encoder(nn.Module):
    """Attention, norms, a gated layer; the batch and the length are symbols."""
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 8)
        return x + F.silu(self.out(y)), y.mean((1, 2))


class Image(nn.Module):
    """Convolution, batch norm in training (it writes its buffers), pooling, a constant."""
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.slope = nn.PReLU(4)

    def forward(self, x):
        x = self.slope(self.norm(self.conv(x)))
        return F.log_softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)) * torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0]), -1)


class Sizes(nn.Module):
    """Arithmetic on sizes, slices with symbols, a number as input, None and nested results."""
    def forward(self, x, scale, mask=None):
        n = x.shape[0]
        y = torch.cat([x, x * scale])
        return {"sum": y.sum(0), "rows": torch.arange(2 * n) + n // 2}, [y[:n], None], torch.einsum("ij,kj->ik", x, y)


def repack(data, path):
    source = zipfile.ZipFile(io.BytesIO(data))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(source.namelist()):
            content = source.read(name)
            if "sample_inputs" in name or "example_inputs" in name or name.endswith("serialization_id"):
                continue
            if name.endswith(".json"):
                content = re.sub(rb'(File \\")[^"]*/', rb"\1", content)
            if name.endswith((".pt", "model.pt")) and content[:2] == b"PK":
                content = b"pickled"                        # not read
            out.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def case(name, model, args, dynamic, other):
    """Exported with `args`, run with `other`."""
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    program = export(model, args, dynamic_shapes=dynamic, strict=False)
    data = io.BytesIO()
    torch.export.save(program, data)
    repack(data.getvalue(), os.path.join(folder, "model.pt2"))
    kinds = program.graph_signature.input_specs
    names = [s.arg.name for s in kinds if s.kind.name == "USER_INPUT"]
    inputs = {n: v.clone()
              for n, v in zip(names, torch.utils._pytree.tree_leaves(other)) if isinstance(v, torch.Tensor)}
    inputs.update({k: v.detach().clone() for k, v in program.state_dict.items()})
    inputs.update({k: v.detach().clone() for k, v in program.constants.items() if isinstance(v, torch.Tensor)})
    module = program.module()
    with torch.no_grad():
        leaves = iter(torch.utils._pytree.tree_leaves(module(*other), is_leaf=lambda x: x is None))
    expected = {}
    for i, spec in enumerate(program.graph_signature.output_specs):
        if spec.kind.name == "BUFFER_MUTATION":
            expected["update:" + spec.target] = dict(module.named_buffers())[spec.target]
        else:
            value = next(leaves)
            if isinstance(value, torch.Tensor):
                expected[f"out{i}"] = value
    for file, tensors in (("inputs", inputs), ("expected", expected)):
        save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()},
                  os.path.join(folder, file + ".safetensors"))
    print(VERSION, name, os.path.getsize(os.path.join(folder, "model.pt2")))


def main():
    torch.manual_seed(0)
    b, t = Dim("b", min=2, max=64), Dim("t", min=2, max=128)
    case("encoder", Encoder().eval(), (torch.randint(0, 11, (3, 4)),), {"ids": {0: b, 1: t}},
         (torch.randint(0, 11, (2, 7)),))
    image = (torch.randn(2, 3, 6, 6),)
    case("image", Image().train(), image, None, image)
    case("sizes", Sizes(), (torch.randn(6, 4), 0.5), {"x": {0: b}, "scale": None}, (torch.randn(9, 4), 0.5))


main()
