#!/usr/bin/env python3
"""run_chunk_tests.py --bin BIN [--all] [NAME...]: sg-chunk against modules that PyTorch itself called once for each chunk.

Each model is captured twice: as it is, and with eager_chunk() around its modules, which splits, calls and concatenates in
PyTorch. Ours of the first, with --grad-accumulation eager, gives the same bits as the second in sg-run: loss, gradients and
buffers; with early sums it is within the tolerance. Both are PyTorch's own results by the usual tolerance. Rows that no
number of chunks divides, and more than two chunks, are what this adds to the shared captures. Modules that PyTorch cannot
call in chunks, or whose rows it would cut within an entry, are held against PyTorch's results alone.
--all: the expert-parallel job of jobs.py as well, on 4 ranks over gloo, and the sequence-parallel one on 3.
"""

import argparse
import itertools
import os
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch
from harness import Tally, run, skip  # noqa: E402

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import run_job_tests  # noqa: E402
import stepgraph_capture  # noqa: E402

ROWS = 7


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(rows, length, width))


class Experts(nn.Module):
    """Tokens sorted by expert, one slice of weights an expert, and back; a buffer counts what each expert got."""

    def __init__(self, width, experts=3):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.weight = nn.Parameter(torch.randn(experts, width, width) / width)
        self.register_buffer("seen", torch.zeros(experts))

    def forward(self, x):
        scores, chosen = self.gate(x).softmax(-1).topk(2, dim=1)
        counts = torch.histc(chosen.float(), bins=self.weight.shape[0], min=0, max=self.weight.shape[0])
        self.seen += counts.detach()
        order = chosen.view(-1).sort(stable=True)[1]
        rows = order // 2
        y = torch._grouped_mm(
            x[rows].bfloat16(), self.weight.bfloat16(), offs=counts.cumsum(0).to(torch.int32)
        ).float()
        y = y * scores.view(-1)[order, None]
        return x + torch.zeros_like(x).index_add(0, rows, y)


class Encoder(nn.TransformerEncoderLayer):
    """Takes the batch first, and has it second within: its products see rows in runs, one for each place."""

    def __init__(self, width):
        super().__init__(width, 2, 2 * width, dropout=0.0, batch_first=True)


class Picture(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(2, channels)

    def forward(self, x):
        return x + F.max_pool2d(F.silu(self.norm(self.conv(x))), 3, 1, 1)


class Model(nn.Module):
    def __init__(self, block, width, flat):
        super().__init__()
        self.layers = nn.ModuleList(block(width) for _ in range(2))
        self.head = nn.Linear(width, 5)
        self.flat = flat

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x if self.flat else x.flatten(2).mean(-1))


class Translator(nn.Module):
    """Layers that look at a second sequence, whose keys and values are made of all of it, and cut in runs behind that."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )

    def forward(self, x, seen):
        for layer in self.layers:
            x = layer(x, seen)
        return x


class Looking(nn.Module):
    """The loss is of what attention gives turned back: its gradient has gaps once it is cut, and no view of its rows."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.MultiheadAttention(width, 2, kdim=6, vdim=6, batch_first=True)])

    def forward(self, x, seen):
        return self.layers[0](x, seen, seen)[0]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([Encoder(width)])

    def forward(self, x):
        return self.layers[0](x)


class OfEntries(nn.Module):
    """Attention of rows that come flat: it views them back into entries, and its result is flat again."""

    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, entries):
        q, k, v = self.qkv(x).view(entries, -1, 3, self.heads, x.shape[1] // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class Flat(nn.Module):
    """Layers of flat rows, and two heads of entries, which take what is flat (as sg-clean leaves it for the second)."""

    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList(OfEntries(width) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x):
        y = x.flatten(0, 1)
        for block in self.blocks:
            y = block(y, x.shape[0])
        y = y.view(x.shape).tanh()
        return self.heads[0](y) * self.heads[1](y)


class Ring(nn.Module):
    """Padded by its other end: filled through views, and so is the gradient; a slope of each channel's own."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, padding_mode="circular"), nn.PReLU(channels)
        ) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Quantizer(nn.Module):
    """The nearest entry of a table for each row, and how often each was taken."""

    def __init__(self, width, entries=6):
        super().__init__()
        self.lift, self.table = nn.Linear(width, width), nn.Parameter(torch.randn(entries, width))
        self.register_buffer("used", torch.zeros(entries))

    def forward(self, x):
        x = self.lift(x)
        nearest = torch.cdist(x, self.table).argmin(1)
        self.used.mul_(0.9).add_(torch.bincount(nearest, minlength=len(self.used)).float(), alpha=0.1)
        y = self.table[nearest]
        return x + (y - x).detach() + (y - x.detach()).square().mean(-1, keepdim=True)


class Quantized(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.book = nn.Linear(width, width), Quantizer(width)

    def forward(self, x):
        return self.book(self.first(x))


# block, inputs, module pattern's contract, numbers of chunks
MODELS = {
    "mlp": (Mlp, (ROWS, 8), (2, 3, 4, 7)),
    "attention": (Attention, (ROWS, 4, 8), (3, 4)),
    "encoder": (Encoder, (ROWS, 4, 8), (2, 3, 7)),
    "experts": (Experts, (ROWS, 8), (2, 3, 4)),
    "picture": (Picture, (ROWS, 4, 5, 5), (3, 4)),
}


def capture(name, chunks, folder):
    block, shape, _ = MODELS[name]
    torch.manual_seed(0)
    model = Model(block, shape[-1] if name != "picture" else shape[1], name != "picture")
    x = torch.randn(*shape)
    if chunks:
        stepgraph_capture.eager_chunk(model, "layers.*", chunks)
    targets = torch.randn(*((*shape[:-1], 5) if name != "picture" else (shape[0], 5)))
    stepgraph_capture.capture(
        out_dir=folder, model=model, loss_fn=F.mse_loss, inputs={"x": x}, targets=targets
    )


def compare(tool, folder, plain, eager, chunks, modules, each):
    """`plain` and `eager`: folders of captures; `each`: the part of a path that names a rank."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    for source, graph in ((plain, "plain.sg"), (eager, "eager.sg")):
        run(tool("sg-import"), "-q", f"{source}/{each}step.json", "-o", path(graph))
    inputs, values = f"{eager}/{each}inputs.safetensors", path("values{r}.safetensors")
    run(tool("sg-run"), "-q", path("eager.sg"), "--inputs", inputs, "--outputs", values)
    for sums, held in (("eager", ["--bitwise"]), ("early", [])):
        run(tool("sg-chunk"), "-q", path("plain.sg"), "--modules", modules, "--chunks", str(chunks),
            "--grad-accumulation", sums, "-o", path("ours.sg"))
        run(tool("sg-check"), "-q", path("ours.sg"))
        run(tool("sg-run"), path("ours.sg"), "--inputs", inputs, "--expect", values, *held)
        run(tool("sg-run"), path("ours.sg"), "--inputs", inputs, "--expect", f"{plain}/{each}expected.safetensors")


def check_model(name, tool, folder):
    plain = os.path.join(folder, "plain")
    capture(name, 0, plain)
    for chunks in MODELS[name][2]:
        eager = os.path.join(folder, f"eager{chunks}")
        capture(name, chunks, eager)
        compare(tool, folder, plain, eager, chunks, "layers.*", "")


def check_values(tool, folder, model, dynamic=None, patterns=("layers.*",), cleaned=False, **inputs):
    """PyTorch's own values, where it has no call in chunks to be held against to the bit."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    stepgraph_capture.capture(
        out_dir=folder, model=model, loss_fn=F.mse_loss, inputs=inputs, targets=torch.randn_like(inputs["x"]),
        dynamic=dynamic,
    )
    run(tool("sg-import"), "-q", path("step.json"), "-o", path("plain.sg"))
    if cleaned:
        run(tool("sg-clean"), "-q", path("plain.sg"), "--in-place")
    for chunks, pattern in itertools.product((2, 3, ROWS), patterns):
        run(tool("sg-chunk"), "-q", path("plain.sg"), "--modules", pattern, "--chunks", str(chunks), "-o", path("ours.sg"))
        run(tool("sg-run"), path("ours.sg"), "--inputs", path("inputs.safetensors"), "--expect", path("expected.safetensors"))


def check_translator(tool, folder):
    torch.manual_seed(0)
    check_values(tool, folder, Translator(8), x=torch.randn(ROWS, 4, 8), seen=torch.randn(ROWS, 5, 8))


def check_translator_of_any_batch(tool, folder):
    torch.manual_seed(0)
    rows = {name: {0: "rows"} for name in ("x", "seen", "targets")}
    check_values(tool, folder, Translator(8), rows, x=torch.randn(ROWS, 4, 8), seen=torch.randn(ROWS, 5, 8))


def check_looking(tool, folder):
    torch.manual_seed(0)
    check_values(tool, folder, Looking(8), x=torch.randn(ROWS, 4, 8), seen=torch.randn(ROWS, 5, 6))


def check_any_batch(tool, folder):
    torch.manual_seed(0)
    sizes = {0: "rows", 1: "length"}
    check_values(tool, folder, Layer(8), {"x": sizes, "targets": sizes}, x=torch.randn(ROWS, 4, 8))


def check_ring(tool, folder):
    torch.manual_seed(0)
    check_values(tool, folder, Ring(3), cleaned=True, x=torch.randn(ROWS, 3, 4, 5))


def check_quantizer(tool, folder):
    torch.manual_seed(0)
    check_values(tool, folder, Quantized(8), None, ("book",), True, x=torch.randn(ROWS, 8))


FLAT = ("blocks.*", "blocks.1", "heads.0", "heads.1", "{blocks.*,heads.*}")


def check_flat(tool, folder):
    torch.manual_seed(0)
    check_values(tool, folder, Flat(8), None, FLAT, True, x=torch.randn(ROWS, 4, 8))


def check_flat_of_any_batch(tool, folder):
    torch.manual_seed(0)
    sizes = {0: "rows", 1: "length"}
    check_values(tool, folder, Flat(8), {"x": sizes, "targets": sizes}, FLAT, True, x=torch.randn(ROWS, 4, 8))


def check_job(tool, folder):
    for job in ("expert_parallel", "expert_parallel_in_chunks"):
        os.makedirs(os.path.join(folder, job))
        run_job_tests.capture_job(job, 4, os.path.join(folder, job))
    compare(
        tool, folder, os.path.join(folder, "expert_parallel"), os.path.join(folder, "expert_parallel_in_chunks"), 5,
        "2", "rank{r}/"
    )


def check_sequence_parallel(tool, folder):
    """Layers that gather the parts of each row from all ranks, and give sums of parts back."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    run_job_tests.capture_job("sequence_parallel", 3, folder)
    run(tool("sg-import"), "-q", path("rank{r}/step.json"), "-o", path("plain.sg"))
    for chunks in (2, 5):
        run(tool("sg-chunk"), "-q", path("plain.sg"), "--modules", "layers.*", "--chunks", str(chunks), "-o", path("ours.sg"))
        run(tool("sg-run"), path("ours.sg"), "--inputs", path("rank{r}/inputs.safetensors"),
            "--expect", path("rank{r}/expected.safetensors"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tool = lambda name: os.path.join(os.path.abspath(options.bin), name)  # noqa: E731
    checks = {name: (lambda folder, name=name: check_model(name, tool, folder)) for name in MODELS}
    checks["translator"] = lambda folder: check_translator(tool, folder)
    checks["translator_of_any_batch"] = lambda folder: check_translator_of_any_batch(tool, folder)
    checks["looking"] = lambda folder: check_looking(tool, folder)
    checks["ring"] = lambda folder: check_ring(tool, folder)
    checks["quantizer"] = lambda folder: check_quantizer(tool, folder)
    checks["flat"] = lambda folder: check_flat(tool, folder)
    checks["flat_of_any_batch"] = lambda folder: check_flat_of_any_batch(tool, folder)
    checks["any_batch"] = lambda folder: check_any_batch(tool, folder)
    if options.all or "job" in options.names:
        checks["job"] = lambda folder: check_job(tool, folder)
    if options.all or "sequence_parallel" in options.names:
        checks["sequence_parallel"] = lambda folder: check_sequence_parallel(tool, folder)
    tally = Tally(stepgraph_capture.CaptureError)
    for name, check in checks.items():
        if options.names and name not in options.names:
            continue
        if name == "experts" and run_job_tests.VERSION < (2, 11):
            skip("experts: this torch has no grouped products on CPUs")
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally.say_held(name, check, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
