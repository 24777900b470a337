"""How results lie in memory, where PyTorch's fake tensors say otherwise than its kernels: behind a batch of one."""

import torch
from torch import nn
from torch.nn import functional as F

from support import CaptureCase


class Pixels(nn.Module):
    """Attention over the pixels of images, as diffusion models have it: what it makes of one image lies channels last,
    and the next operators decide by the stride of the batch whether they take it for that."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout
        self.enter, self.leave = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(2))
        self.mix, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, images):
        images = self.enter(images)
        batch, channels, *size = images.shape
        query, key, value = self.mix(self.norms[0](images).flatten(2).transpose(1, 2)).chunk(3, dim=-1)
        mixed = self.out(F.scaled_dot_product_attention(query, key, value))
        images = (mixed.transpose(-1, -2).reshape(batch, channels, *size) + images) / 2
        return images + self.leave(F.dropout(F.silu(self.norms[1](images)), self.dropout))


class Layouts(CaptureCase):
    def norm_behind_attention(self, batch, **more):
        """Captures the model, and returns the strides of its second norm, with the kernels' strides."""
        model, images = Pixels(**more), torch.randn(batch, 3, 6, 4)
        seen = []
        model.norms[1].register_forward_hook(lambda module, given, made: seen.append(made.stride()))
        document = self.captured(model, lambda out: out.square().mean(), images)
        norms = [node for node in document["nodes"] if node["op"].startswith("aten.native_group_norm.")]
        return tuple(norms[1]["type"][0]["stride"]), seen

    def test_one_image(self):
        traced, kernels = self.norm_behind_attention(1, dropout=0.0)
        self.assertEqual(set(kernels), {traced})

    def test_draws_behind_one_image(self):
        """Which number a pixel gets is decided by where it lies: the capture compares its graph with the model."""
        self.norm_behind_attention(1, dropout=0.25)

    def test_gradients_behind_one_image(self):
        """Kernels and fake tensors lay out in different orders what backwards make of a permuted gradient."""

        class Tokens(nn.Module):
            def __init__(self, op):
                super().__init__()
                self.scale, self.op = nn.Parameter(torch.randn(1, 6, 8)), op

            def forward(self, x):
                return self.op(self.scale * x).transpose(1, 2).mul(2)

        norm = lambda x: F.batch_norm(x.transpose(1, 2), None, None, training=True)
        for op in (nn.LayerNorm(8), F.elu, F.softplus, F.hardswish, lambda x: F.log_softmax(x, -1), norm):
            with self.subTest(op=str(op)):
                self.captured(Tokens(op), lambda out: out.pow(3).mean(), torch.randn(1, 6, 8))
                self.imported()

    def test_more_images(self):
        traced, kernels = self.norm_behind_attention(2, dropout=0.25)
        self.assertEqual(set(kernels), {traced})

    def test_a_norm_of_turned_rows_in_a_step_that_branches(self):
        """The kernel lays its result anew, the fake one as its operand: only that may be viewed as the linear layer has it."""

        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.out = nn.BatchNorm1d(9), nn.Linear(9, 6)

            def forward(self, x):
                return self.out(self.norm(x.transpose(1, 2)).transpose(1, 2))

        branching = lambda out: out.square().mean() * (2 if (out > -1e9).all() else 1)  # noqa: E731
        for model in Turned(), Turned().eval():
            self.captured(model, branching, torch.randn(2, 8, 9))
            self.imported()
