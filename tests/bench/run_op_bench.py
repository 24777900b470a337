#!/usr/bin/env python3
"""run_op_bench.py --bin BIN [--rounds K] [--only TEXT] [--dtypes f32,bf16]: small graphs here and in PyTorch eager, op by op.

Each case is a function of a few tensors, captured with its loss and backward by tools/capture. Both sides run it on the same
inputs with as many threads, in turns, K rounds of some steps each; a round's figure is the least of its steps, a case's the median
of the rounds' ratios. Run it with a Python that has PyTorch. Cases at more than twice PyTorch's time are marked; those of less
than 100 microseconds say little, since PyTorch's side is its dispatcher. `--profile` adds our nodes that take longest.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.normpath(os.path.join(HERE, '..', '..', 'tools', 'capture')))
from stepgraph_capture import capture  # noqa: E402

STEPS = 7
WARM_UP = 2


class Case(nn.Module):
    """The op, over an input that is a parameter so that its backward is there too."""

    def __init__(self, op, shapes, dtype, parts=None, forward_only=False, layout=torch.contiguous_format):
        super().__init__()
        self.op = op
        self.own = nn.ParameterList([nn.Parameter((torch.randn(s, dtype=dtype) * 0.5).to(memory_format=layout), requires_grad=not forward_only)
                                     for s in shapes])
        self.parts = parts.to(dtype=dtype, memory_format=layout) if parts is not None else None
        self.scale = nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, index):
        out = self.op(*self.own, *([index] if index.numel() > 1 else []), *([self.parts] if self.parts is not None else []))
        outs = out if isinstance(out, (tuple, list)) else [out]
        return sum((o.float().sum() for o in outs if o.is_floating_point()), torch.zeros(())) * self.scale.float().sum()


def layer(make, shape):
    return dict(op=lambda x, m: m(x), shapes=[shape], parts=make)


def index_of(n, *shape):
    return lambda: torch.randint(n, shape)


def bias_mask(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def rotary(x):
    """Position embeddings by turning halves, as Llama has them."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 1e4 ** (-torch.arange(half).repeat(2) / half)
    return x * angle.cos().to(x.dtype) + torch.cat([-x[..., half:], x[..., :half]], -1) * angle.sin().to(x.dtype)


def linear_cases():
    """Decompositions of matrices of 64 to 512, and of a batch of small ones; forward and backward."""
    def spd(x):
        return x @ x.mT / x.shape[-1] + torch.eye(x.shape[-1])

    def near_one(x):
        return x / x.shape[-1] ** 0.5 + 2 * torch.eye(x.shape[-1])

    ops = {
        'cholesky': lambda x: torch.linalg.cholesky(spd(x)),
        'solve': lambda x: torch.linalg.solve(near_one(x), x),
        'inv': lambda x: torch.linalg.inv(near_one(x)),
        'slogdet': lambda x: torch.linalg.slogdet(near_one(x))[1],
        'qr': lambda x: torch.linalg.qr(x),
        'eigh': lambda x: torch.linalg.eigh(spd(x)),
        'svd': lambda x: torch.linalg.svd(x, full_matrices=False),
        'svdvals': lambda x: torch.linalg.svdvals(x),
        'matrix_exp': lambda x: torch.matrix_exp(x / x.shape[-1]),
    }
    shapes = {'64': (64, 64), '128': (128, 128), '256': (256, 256), '512': (512, 512), '100 of 16': (100, 16, 16)}
    return {f'linalg {name} {size}': dict(op=op, shapes=[shape], only='f32') for name, op in ops.items() for size, shape in shapes.items()}


def more_cases():
    """Shapes that a kernel for long rows or large matrices is no good at, and ops that models have once."""
    def grid(mode, x, g):
        return F.grid_sample(x, g, mode=mode, align_corners=False)

    return {
        'log_softmax channels': dict(op=lambda x: x.log_softmax(1).square(), shapes=[(8, 16, 64, 64)]),
        'cross entropy pixels': dict(op=lambda x, i: F.cross_entropy(x, i), shapes=[(8, 16, 64, 64)], index=index_of(16, 8, 64, 64)),
        'softmax short rows': dict(op=lambda x: x.softmax(-1).square(), shapes=[(32768, 16)]),
        'layer_norm 64': layer(lambda: nn.LayerNorm(64), (8192, 64)),
        'layer_norm 768': layer(lambda: nn.LayerNorm(768), (1024, 768)),
        'batch_norm1d': layer(lambda: nn.BatchNorm1d(256), (1024, 256)),
        'cumsum middle': dict(op=lambda x: x.cumsum(1).square(), shapes=[(16, 256, 128)]),
        'prod middle': dict(op=lambda x: x.prod(1), shapes=[(64, 16, 64)]),
        'fold': dict(op=lambda x: F.fold(x, (32, 32), 4, stride=4).square(), shapes=[(8, 512, 64)]),
        'unfold dim': dict(op=lambda x: x.unfold(-1, 16, 8).square(), shapes=[(64, 4096)]),
        'grid_sample nearest': dict(op=lambda x, g: grid('nearest', x, g), shapes=[(4, 3, 128, 128), (4, 128, 128, 2)]),
        'grid_sample bicubic': dict(op=lambda x, g: grid('bicubic', x, g), shapes=[(4, 3, 64, 64), (4, 64, 64, 2)]),
        'grid_sample 3d': dict(op=lambda x, g: grid('bilinear', x, g), shapes=[(2, 4, 16, 32, 32), (2, 16, 32, 32, 3)]),
        'adaptive_max_pool2d': dict(op=lambda x: F.adaptive_max_pool2d(x, 7), shapes=[(8, 32, 32, 32)]),
        'embedding_bag max': dict(op=lambda w, i: F.embedding_bag(i, w, mode='max').square(), shapes=[(8192, 64)],
                                  index=index_of(8192, 512, 8)),
        'sort ints': dict(op=lambda x, i: i.sort(-1)[0].float().sum() * x, shapes=[(1,)], index=index_of(64, 100000)),
        'kthvalue': dict(op=lambda x: x.kthvalue(10)[0].square(), shapes=[(512, 1024)]),
        'dot': dict(op=torch.dot, shapes=[(1000000,)] * 2),
        'bmm 16': dict(op=torch.bmm, shapes=[(1024, 16, 16)] * 2),
        'bmm 64': dict(op=torch.bmm, shapes=[(128, 64, 64)] * 2),
        'bmm rows': dict(op=torch.bmm, shapes=[(512, 1, 64), (512, 64, 64)]),
        'mm of 8 rows': dict(op=lambda x, y: x @ y.t(), shapes=[(8, 1024), (1024, 1024)]),
        'mm of short sums': dict(op=lambda x, y: x @ y, shapes=[(512, 8), (8, 512)]),
        'complex mm': dict(op=lambda x, y: torch.view_as_real(torch.view_as_complex(x) @ torch.view_as_complex(y)),
                           shapes=[(128, 128, 2)] * 2, only='f32'),
        'inv 4x4': dict(op=lambda x: torch.linalg.inv(x + 3 * torch.eye(4)), shapes=[(4096, 4, 4)], only='f32'),
        'cross': dict(op=lambda x, y: torch.linalg.cross(x, y), shapes=[(65536, 3)] * 2),
        'cdist p=1': dict(op=lambda x, y: torch.cdist(x, y, p=1.0), shapes=[(128, 64)] * 2, only='f32'),
        'remainder': dict(op=lambda x: torch.remainder(x, 0.7), shapes=[(1024, 768)]),
        'floor division': dict(op=lambda x: torch.div(x, 0.3, rounding_mode='floor'), shapes=[(1024, 768)]),
        'erfinv': dict(op=lambda x: (x * 0.2).erfinv(), shapes=[(512, 768)]),
        'ndtri': dict(op=lambda x: torch.special.ndtri(x.sigmoid()), shapes=[(512, 768)], only='f32'),
        'weight_norm': dict(op=lambda v, g: torch._weight_norm(v, g, 0).square(), shapes=[(512, 512), (512, 1)]),
        'stft': dict(op=lambda x: torch.stft(x, 256, 64, window=torch.hann_window(256), return_complex=True).abs(),
                     shapes=[(8, 8192)], only='f32'),
        'irfft': dict(op=lambda x: torch.fft.irfft(torch.fft.rfft(x)).square(), shapes=[(256, 512)], only='f32'),
        'fft of a prime': dict(op=lambda x: torch.fft.rfft(x).abs(), shapes=[(64, 1009)], only='f32'),
        'lstm both ways': dict(op=lambda x, m: m(x)[0], shapes=[(32, 16, 128)], parts=lambda: nn.LSTM(128, 128, bidirectional=True)),
    }


def cases():
    x = (8, 32, 32, 32)
    out = {
        'conv2d 3x3': layer(lambda: nn.Conv2d(32, 32, 3, padding=1), x),
        'conv2d 1x1': layer(lambda: nn.Conv2d(32, 64, 1), x),
        'conv2d 7x7 stride 2': layer(lambda: nn.Conv2d(3, 32, 7, stride=2, padding=3), (8, 3, 64, 64)),
        'conv2d patches': layer(lambda: nn.Conv2d(3, 96, 8, stride=8), (8, 3, 64, 64)),
        'conv2d depthwise 3x3': layer(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), x),
        'conv2d depthwise 7x7': layer(lambda: nn.Conv2d(32, 32, 7, padding=3, groups=32), x),
        'conv2d grouped': layer(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=4), x),
        'conv2d dilated': layer(lambda: nn.Conv2d(32, 32, 3, padding=2, dilation=2), x),
        'conv2d of whole lines': layer(lambda: nn.Conv2d(1, 100, (3, 128)), (32, 1, 50, 128)),
        'conv1d': layer(lambda: nn.Conv1d(64, 64, 5, padding=2), (8, 64, 512)),
        'conv1d depthwise': layer(lambda: nn.Conv1d(64, 64, 4, padding=3, groups=64), (8, 64, 512)),
        'conv3d': layer(lambda: nn.Conv3d(8, 16, 3, padding=1), (2, 8, 12, 24, 24)),
        'conv_transpose2d': layer(lambda: nn.ConvTranspose2d(32, 32, 4, stride=2, padding=1), (8, 32, 16, 16)),
        'max_pool2d': dict(op=lambda x: F.max_pool2d(x, 3, 2, 1), shapes=[x]),
        'avg_pool2d': dict(op=lambda x: F.avg_pool2d(x, 2), shapes=[x]),
        'adaptive_avg_pool2d': dict(op=lambda x: F.adaptive_avg_pool2d(x, 7), shapes=[x]),
        'interpolate bilinear': dict(op=lambda x: F.interpolate(x, scale_factor=2, mode='bilinear'), shapes=[x]),
        'interpolate nearest': dict(op=lambda x: F.interpolate(x, scale_factor=2), shapes=[x]),
        'interpolate bicubic': dict(op=lambda x: F.interpolate(x, scale_factor=2, mode='bicubic'), shapes=[x]),
        'grid_sample': dict(op=lambda x, g: F.grid_sample(x, g, align_corners=False), shapes=[x, (8, 32, 32, 2)]),
        'grid_sample images': dict(op=lambda x, g: F.grid_sample(x, g, align_corners=False), shapes=[(4, 3, 128, 128), (4, 128, 128, 2)]),
        'batch_norm': layer(lambda: nn.BatchNorm2d(32), x),
        'group_norm': layer(lambda: nn.GroupNorm(8, 32), x),
        'instance_norm': layer(lambda: nn.InstanceNorm2d(32, affine=True), x),
        'layer_norm': layer(lambda: nn.LayerNorm(256), (2048, 256)),
        'rms_norm': layer(lambda: nn.RMSNorm(256), (2048, 256)),
        'softmax last': dict(op=lambda x: x.softmax(-1).square(), shapes=[(512, 1024)]),
        'softmax first': dict(op=lambda x: x.softmax(0).square(), shapes=[(512, 1024)]),
        'softmax middle': dict(op=lambda x: x.softmax(1).square(), shapes=[(16, 128, 256)]),
        'softmax short lines': dict(op=lambda x: x.softmax(1).square(), shapes=[(20000, 4, 8)]),
        'log_softmax + nll': dict(op=lambda x, i: F.cross_entropy(x, i), shapes=[(512, 4096)], index=index_of(4096, 512)),
        'sort': dict(op=lambda x: x.sort(-1)[0].square(), shapes=[(256, 2048)]),
        'sort first': dict(op=lambda x: x.sort(0)[0].square(), shapes=[(512, 512)]),
        'argsort long': dict(op=lambda x: x.argsort().float() * x, shapes=[(300000,)]),
        'topk': dict(op=lambda x: x.topk(8)[0].square(), shapes=[(2048, 512)]),
        'cumsum': dict(op=lambda x: x.cumsum(-1).square(), shapes=[(512, 1024)]),
        'cumsum first': dict(op=lambda x: x.cumsum(0).square(), shapes=[(512, 1024)]),
        'cumprod': dict(op=lambda x: x.cumprod(-1), shapes=[(512, 256)]),
        'logsumexp': dict(op=lambda x: x.logsumexp(-1), shapes=[(512, 1024)]),
        'scatter_add': dict(op=lambda x, y, i: x.scatter_add(0, i[:, None].expand_as(y), y).square(),
                            shapes=[(512, 128), (4096, 128)], index=index_of(512, 4096)),
        'index_add': dict(op=lambda x, y, i: x.index_add(0, i, y).square(), shapes=[(512, 128), (4096, 128)],
                          index=index_of(512, 4096)),
        'index_select': dict(op=lambda x, i: x.index_select(0, i).square(), shapes=[(4096, 128)], index=index_of(4096, 8192)),
        'gather last': dict(op=lambda x, i: x.gather(-1, i).square(), shapes=[(2048, 256)], index=index_of(256, 2048, 128)),
        'index': dict(op=lambda x, i: x[i].square(), shapes=[(4096, 128)], index=index_of(4096, 8192)),
        'index two': dict(op=lambda x, i: x[:, i, i].square(), shapes=[(64, 256, 256)], index=index_of(256, 200)),
        'index_put': dict(op=lambda x, y, i: x.index_put((i,), y, accumulate=True).square(), shapes=[(4096, 128), (2048, 128)],
                          index=index_of(4096, 2048)),
        'embedding': dict(op=lambda w, i: F.embedding(i, w).square(), shapes=[(8192, 128)], index=index_of(8192, 8, 512)),
        'embedding few rows': dict(op=lambda w, i: F.embedding(i, w).square(), shapes=[(64, 256)], index=index_of(64, 8, 512)),
        'embedding_bag': dict(op=lambda w, i: F.embedding_bag(i, w).square(), shapes=[(8192, 128)], index=index_of(8192, 256, 16)),
        'cat last': dict(op=lambda *a: torch.cat(a, -1).square(), shapes=[(2048, 96)] * 4),
        'cat first': dict(op=lambda *a: torch.cat(a, 0).square(), shapes=[(512, 256)] * 4),
        'stack': dict(op=lambda *a: torch.stack(a, 1).square(), shapes=[(2048, 64)] * 8),
        'permuted copy': dict(op=lambda x: x.permute(0, 2, 1, 3).contiguous().square(), shapes=[(8, 128, 8, 64)]),
        'transposed copy': dict(op=lambda x: x.t().contiguous().square(), shapes=[(1024, 768)]),
        'transposed add': dict(op=lambda x, y: (x.t() + y).square(), shapes=[(1024, 768), (768, 1024)]),
        'channels permuted': dict(op=lambda x: x.permute(0, 3, 1, 2).contiguous().square(), shapes=[(8, 32, 32, 64)]),
        'slices': dict(op=lambda x: x[:, ::2] * x[:, 1::2], shapes=[(1024, 1024)]),
        'roll': dict(op=lambda x: x.roll((3, 3), (1, 2)).square(), shapes=[(8, 32, 32, 64)]),
        'flip': dict(op=lambda x: x.flip(-1).square(), shapes=[(512, 1024)]),
        'pad': dict(op=lambda x: F.pad(x, (1, 1, 1, 1)).square(), shapes=[x]),
        'pad reflect': dict(op=lambda x: F.pad(x, (1, 1, 1, 1), mode='reflect').square(), shapes=[x]),
        'unfold': dict(op=lambda x: F.unfold(x, 3, padding=1).square(), shapes=[(4, 32, 32, 32)]),
        'repeat_interleave': dict(op=lambda x: x.repeat_interleave(4, 1).square(), shapes=[(8, 8, 128, 64)]),
        'tril': dict(op=lambda x: x.tril().square(), shapes=[(16, 256, 256)]),
        'where broadcast': dict(op=lambda x: torch.where(bias_mask(256), x, -1e4).square(), shapes=[(16, 256, 256)]),
        'masked_fill': dict(op=lambda x: x.masked_fill(~bias_mask(256), -1e4).square(), shapes=[(16, 256, 256)]),
        'masked_select': dict(op=lambda x: x[x > 0.1].square(), shapes=[(512, 1024)]),
        'broadcast rows': dict(op=lambda x, y: (x + y[:, None]).square(), shapes=[(1024, 768), (1024,)]),
        'sum inner': dict(op=lambda x: x.sum(-1).square(), shapes=[(1024, 768)]),
        'sum outer': dict(op=lambda x: x.sum(0).square(), shapes=[(1024, 768)]),
        'sum middle': dict(op=lambda x: x.sum(1).square(), shapes=[(16, 256, 256)]),
        'sum outer and inner': dict(op=lambda x: x.sum((0, 2, 3)).square(), shapes=[x]),
        'mean short rows': dict(op=lambda x: x.mean(-1).square(), shapes=[(65536, 12)]),
        'var': dict(op=lambda x: x.var(-1), shapes=[(1024, 768)]),
        'max inner': dict(op=lambda x: x.max(-1)[0].square(), shapes=[(1024, 768)]),
        'max outer': dict(op=lambda x: x.max(0)[0].square(), shapes=[(1024, 768)]),
        'amax middle': dict(op=lambda x: x.amax(1).square(), shapes=[(16, 256, 256)]),
        'argmax': dict(op=lambda x: x.argmax(-1).float(), shapes=[(1024, 768)]),
        'prod': dict(op=lambda x: x.prod(-1), shapes=[(1024, 64)]),
        'norm': dict(op=lambda x: x.norm(dim=-1), shapes=[(1024, 768)]),
        'cdist': dict(op=lambda x, y: torch.cdist(x, y), shapes=[(256, 64), (256, 64)]),
        'mm': dict(op=lambda x, y: x @ y, shapes=[(512, 384), (384, 512)]),
        'mm odd': dict(op=lambda x, y: x @ y, shapes=[(333, 217), (217, 451)]),
        'mm small': dict(op=lambda x, y: x @ y, shapes=[(32, 32), (32, 32)]),
        'mv': dict(op=lambda x, y: x @ y, shapes=[(1024, 768), (768,)]),
        'bmm': dict(op=lambda x, y: torch.bmm(x, y), shapes=[(32, 128, 64), (32, 64, 128)]),
        'bmm transposed': dict(op=lambda x, y: torch.bmm(x, y.transpose(1, 2)), shapes=[(32, 128, 64), (32, 128, 64)]),
        'bmm odd': dict(op=lambda x, y: torch.bmm(x, y), shapes=[(33, 77, 31), (33, 31, 99)]),
        'bmm many small': dict(op=lambda x, y: torch.bmm(x, y), shapes=[(4096, 8, 8), (4096, 8, 8)]),
        'einsum bthd': dict(op=lambda x, y: torch.einsum('bthd,bshd->bhts', x, y), shapes=[(4, 128, 8, 32), (4, 128, 8, 32)]),
        'einsum outer': dict(op=lambda x, y: torch.einsum('bi,bj->bij', x, y), shapes=[(64, 128), (64, 128)]),
        'int64 mm': dict(op=lambda x, i: (i @ i).float().sum() * x, shapes=[(1,)], index=index_of(9, 256, 256)),
        'sdpa': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v), shapes=[(4, 8, 256, 32)] * 3),
        'sdpa causal': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), shapes=[(4, 8, 256, 32)] * 3),
        'sdpa long': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), shapes=[(1, 4, 2048, 64)] * 3),
        'sdpa wide': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v), shapes=[(1, 4, 1024, 128)] * 3),
        'sdpa shared keys': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                                 shapes=[(4, 16, 128, 64), (4, 4, 128, 64), (4, 4, 128, 64)]),
        'sdpa windows': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v), shapes=[(128, 4, 49, 32)] * 3),
        'sdpa mask': dict(op=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, bias_mask(256)), shapes=[(4, 8, 256, 32)] * 3),
        'lstm': dict(op=lambda x, m: m(x)[0], shapes=[(16, 64, 64)], parts=lambda: nn.LSTM(64, 64)),
        'gru': dict(op=lambda x, m: m(x)[0], shapes=[(16, 64, 64)], parts=lambda: nn.GRU(64, 64)),
        'gelu': dict(op=F.gelu, shapes=[(1024, 768)]),
        'gelu tanh': dict(op=lambda x: F.gelu(x, approximate='tanh'), shapes=[(1024, 768)]),
        'silu': dict(op=F.silu, shapes=[(1024, 768)]),
        'erf': dict(op=torch.erf, shapes=[(1024, 768)]),
        'sin + cos': dict(op=lambda x: x.sin() * x.cos(), shapes=[(1024, 768)]),
        'pow': dict(op=lambda x: (x.abs() + 1).pow(2.5), shapes=[(1024, 768)]),
        'logsigmoid': dict(op=F.logsigmoid, shapes=[(1024, 768)]),
        'softplus': dict(op=F.softplus, shapes=[(1024, 768)]),
        'glu': dict(op=F.glu, shapes=[(1024, 2048)]),
        'swiglu': dict(op=lambda x, y: F.silu(x) * y, shapes=[(1024, 1024)] * 2),
        'rotary': dict(op=rotary, shapes=[(4, 8, 256, 64)]),
        'softmax causal': dict(op=lambda x: x.masked_fill(~bias_mask(256), -torch.inf).softmax(-1).square(), shapes=[(4, 8, 256, 256)]),
        'cross entropy 50k': dict(op=lambda x, i: F.cross_entropy(x.float(), i), shapes=[(128, 50257)], index=index_of(50257, 128)),
        'mse_loss': dict(op=F.mse_loss, shapes=[(1024, 768)] * 2),
        'bce with logits': dict(op=lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), shapes=[(1024, 768)] * 2),
        'dropout': dict(op=lambda x: F.dropout(x, 0.1), shapes=[(1024, 768)]),
        'randn': dict(op=lambda x: x * torch.randn_like(x), shapes=[(1024, 768)]),
        'rand': dict(op=lambda x: x * torch.rand_like(x), shapes=[(1024, 768)]),
        'multinomial': dict(op=lambda x: torch.multinomial(x.softmax(-1), 1).float(), shapes=[(512, 1024)]),
        'unique': dict(op=lambda x, i: torch.unique(i).float().sum() * x, shapes=[(1,)], index=index_of(900, 100000)),
        'bincount': dict(op=lambda x, i: torch.bincount(i, minlength=900).float().sum() * x, shapes=[(1,)], index=index_of(900, 100000)),
        'one_hot': dict(op=lambda x, i: (F.one_hot(i, 512).to(x.dtype) * x).square(), shapes=[(512,)], index=index_of(512, 2048)),
        'searchsorted': dict(op=lambda x, y: torch.searchsorted(x.cumsum(0), y).float(), shapes=[(1024,), (65536,)]),
        'fft': dict(op=lambda x: torch.fft.rfft(x).abs(), shapes=[(256, 1024)], only='f32'),
        'complex mul': dict(op=lambda x, y: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y)),
                            shapes=[(1024, 384, 2), (1024, 384, 2)], only='f32'),
        'ctc_loss': dict(op=lambda x, i: F.ctc_loss(x.log_softmax(-1), i, torch.full((8,), 100), torch.full((8,), 20)),
                         shapes=[(100, 8, 64)], index=lambda: torch.randint(1, 64, (8, 20)), only='f32'),
        **more_cases(),
        **linear_cases(),
    }
    for name in ('mm', 'bmm'):
        out[f'{name} f64'] = out[name] | dict(only='f64')
        out[f'{name} f16'] = out[name] | dict(only='f16')
    for name in ('conv2d 3x3', 'conv2d 1x1', 'conv2d depthwise 3x3', 'conv2d grouped', 'max_pool2d', 'avg_pool2d',
                 'interpolate bilinear', 'interpolate nearest', 'batch_norm', 'group_norm'):
        out[f'{name} NHWC'] = out[name] | dict(layout=torch.channels_last)
    return out


DTYPES = {'f32': torch.float32, 'bf16': torch.bfloat16, 'f64': torch.float64, 'f16': torch.float16}


def theirs(model, index):
    times = []
    for _ in range(STEPS):
        model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        model(index).backward()
        times.append(time.perf_counter() - start)
    return min(times[WARM_UP:])


def ours(options, folder):
    done = subprocess.run([os.path.join(options.bin, 'sg-run'), f'{folder}/step.sg', '--inputs', f'{folder}/inputs.safetensors',
                           '--steps', str(STEPS), '-t', str(options.threads), '--json', '-q'], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError('sg-run: ' + done.stderr.strip().splitlines()[0])
    return min(json.loads(done.stdout)['step_seconds'][WARM_UP:])


def slowest(options, folder):
    subprocess.run([os.path.join(options.bin, 'sg-run'), f'{folder}/step.sg', '--inputs', f'{folder}/inputs.safetensors',
                    '--steps', '3', '-t', str(options.threads), '-q', '--profile', f'{folder}/profile.json'], capture_output=True, check=True)
    with open(f'{folder}/profile.json') as f:
        events = [e for e in json.load(f)['traceEvents'] if e['ph'] == 'X' and 'cat' in e]
    spent = {}
    for e in events:
        spent.setdefault((e['name'], e['args']['node']), []).append(e['dur'])
    top = sorted(((min(t), name) for (name, _), t in spent.items()), reverse=True)[:4]
    return '   ' + ', '.join(f'{name} {t:.0f} us' for t, name in top)


def measure(name, case, dtype, options):
    """A line of the table: what each takes, and the ratio."""
    torch.manual_seed(zlib.crc32(name.encode()))
    part = case.get('parts')
    model = Case(case['op'], case['shapes'], DTYPES[dtype], part() if part else None, layout=case.get('layout', torch.contiguous_format))
    index = case['index']() if 'index' in case else torch.zeros(1, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        capture(model=model, loss_fn=lambda out, _: out, inputs={'index': index}, targets=torch.zeros(()), out_dir=folder)
        subprocess.run([os.path.join(options.bin, 'sg-import'), '-q', f'{folder}/step.json', '-o', f'{folder}/step.sg'],
                       check=True, capture_output=True)
        pairs = [(ours(options, folder), theirs(model, index)) for _ in range(options.rounds)]
        ratio = statistics.median(a / b for a, b in pairs)
        mine, them = (statistics.median(side) for side in zip(*pairs))
        mark = ' <<' if ratio > 2 and mine > 1e-4 else ''
        print(f'{name:24} {dtype:5} {1e6 * mine:9.0f} us {1e6 * them:9.0f} us {ratio:7.2f}{mark}', flush=True)
        if options.profile:
            print(slowest(options, folder), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--threads', type=int, default=2, help='on a loaded machine 1 says more')
    parser.add_argument('--only', default='', help='cases whose names hold this')
    parser.add_argument('--dtypes', default='f32,bf16')
    parser.add_argument('--profile', action='store_true', help='and our nodes that take longest')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f'torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{"case":24} {"type":5} {"sg-run":>12} {"PyTorch":>12}   ratio')
    for name, case in cases().items():
        for dtype in [case['only']] if 'only' in case else options.dtypes.split(','):
            if options.only not in name:
                continue
            try:
                measure(name, case, dtype, options)
            except Exception as e:  # a case that a side cannot do is a line of the table, and no end of it
                print(f'{name:24} {dtype:5} not measured: {(str(e).splitlines() or [type(e).__name__])[0][:150]}', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
