"""Nested tensors of the jagged layout: as inputs, made in the step, in attention, and of other lengths than the example's."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from stepgraph_capture import CaptureError, write

from support import CaptureCase

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def pieces(*lengths):
    return torch.nested.nested_tensor([torch.randint(0, 31, (n,)) for n in lengths], layout=torch.jagged)


class Pieces(nn.Module):
    """Tokens of each piece look at each other; the largest number of each feature is what is known of a piece."""

    def __init__(self, is_causal=False, in_checkpoint=False):
        super().__init__()
        self.words, self.qkv, self.head = nn.Embedding(31, 12), nn.Linear(12, 36), nn.Linear(12, 5)
        self.is_causal, self.in_checkpoint = is_causal, in_checkpoint

    def attend(self, x):
        q, k, v = (t.unflatten(-1, [3, 4]).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal).transpose(1, 2).flatten(-2)

    def forward(self, ids):
        x = self.words(ids)
        x = x + (checkpoint(self.attend, x, use_reentrant=False) if self.in_checkpoint else self.attend(x))
        return self.head(torch.nested.to_padded_tensor(torch.softmax(x, -1), -1.0).amax(1))

    def by_piece(self, ids):
        """The same, without nested tensors."""
        found = []
        for piece in ids.unbind():
            x = self.words(piece)
            q, k, v = (t.unflatten(-1, [3, 4]).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal).transpose(0, 1).flatten(1)
            found.append(x.softmax(-1).amax(0))
        return self.head(torch.stack(found))


class Varlen(nn.Module):
    """Attention over packed rows, by PyTorch's kernels of CUDA: what is captured is that they are called."""

    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = nn.Linear(6, 4 * 8 + 2 * 2 * 8), attend

    def forward(self, x, ends):
        q, k, v = (t.unflatten(1, [-1, 8]) for t in self.qkv(x).split([32, 16, 16], 1))
        return self.attend(q, k, v, ends)

    def by_piece(self, x, ends):
        q, k, v = (t.unflatten(1, [-1, 8]).transpose(0, 1) for t in self.qkv(x).split([32, 16, 16], 1))
        pieces = [slice(*piece) for piece in zip(ends[:-1].tolist(), ends[1:].tolist())]
        attend = lambda *three: F.scaled_dot_product_attention(*three, is_causal=True, enable_gqa=True)  # noqa: E731
        return torch.cat([attend(q[:, p], k[:, p], v[:, p]) for p in pieces], 1).transpose(0, 1)


class Jagged(CaptureCase):
    def file(self, name, of=""):
        return os.path.join(self.folder, of, name)

    def check(self, model, ids, targets, **more):
        """Captures the step; the recorded values are those of a step over single pieces."""
        document = self.captured(model, F.cross_entropy, ids, targets=targets, **more)
        loss = F.cross_entropy(model.by_piece(ids), targets)
        loss.backward()
        expected = self.values("expected")
        torch.testing.assert_close(expected["out0"], loss.detach())
        for i, parameter in enumerate(model.parameters()):
            torch.testing.assert_close(expected[f"out{i + 1}"], parameter.grad)
        return document

    def test_parts_are_inputs(self):
        document = self.check(Pieces(), pieces(4, 1, 6), torch.tensor([0, 3, 4]))
        names = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "input"]
        self.assertEqual(names, ["ids.values", "ids.offsets", "targets"])
        text = self.imported()
        self.assertIn("aten._scaled_dot_product_flash_attention_for_cpu", text)
        self.assertNotIn("aten._jagged", text)  # taken apart

    def test_inputs_that_share_offsets(self):
        """May be added, as in PyTorch, and have one input for them."""
        class Both(nn.Linear):
            def forward(self, x, y):
                return super().forward(x) * y + y

        x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
        y = torch.nested.nested_tensor_from_jagged(torch.randn(5, 4), x.offsets())
        document = self.captured(Both(4, 4), lambda out, y: (out - y).values().square().sum(), {"x": x, "y": y}, targets=y * 2)
        names = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "input"]
        self.assertEqual(names, ["x.values", "x.offsets", "y.values", "targets.values"])
        self.imported()

    def test_causal_and_in_a_checkpoint(self):
        self.check(Pieces(is_causal=True, in_checkpoint=True), pieces(2, 7), torch.tensor([1, 2]))
        self.imported()

    def test_other_lengths_by_symbols(self):
        model, dynamic = Pieces(), {"ids.values": {0: "tokens"}}
        self.check(model, pieces(4, 1, 6), torch.tensor([0, 3, 4]), dynamic=dynamic)
        self.imported()
        first, self.folder = self.folder, os.path.join(self.folder, "other")
        self.captured(model, F.cross_entropy, pieces(2, 9, 3), targets=torch.tensor([1, 1, 0]), dynamic=dynamic)
        values = (self.file("inputs.safetensors"), "--expect", self.file("expected.safetensors"))
        said = self.tool("sg-run", os.path.join(first, "step.sg"), "--inputs", *values)
        self.assertIn("values are as expected", said)

    def test_another_longest_piece_is_told(self):
        """Without symbols: as many tokens, in pieces that would be padded to another length."""
        model = Pieces()
        self.check(model, pieces(4, 1, 6), torch.tensor([0, 3, 4]))
        self.imported()
        first, self.folder = self.folder, os.path.join(self.folder, "other")
        self.captured(model, F.cross_entropy, pieces(3, 3, 5), targets=torch.tensor([1, 1, 0]))
        with self.assertRaisesRegex(AssertionError, "longest piece of a nested tensor has another length than 6"):
            self.tool("sg-run", os.path.join(first, "step.sg"), "--inputs", self.file("inputs.safetensors"))

    def test_made_in_the_step(self):
        class Made(nn.Module):
            def __init__(self, make):
                super().__init__()
                self.linear, self.make = nn.Linear(4, 4), make

            def forward(self, x, lengths):
                parts = self.make(self.linear(x), lengths)
                return (torch.softmax(parts, 1) * parts).values().square().mean()

        ways = {
            "lengths": lambda x, n: torch.nested.nested_tensor_from_jagged(x, lengths=n),
            "told": lambda x, n: torch.nested.nested_tensor_from_jagged(x, F.pad(n.cumsum(0), (1, 0)), max_seqlen=5),
            "list": lambda x, n: torch.nested.as_nested_tensor([x[:2], x[2:3], x[3:]], layout=torch.jagged),
            "padded": lambda x, n: torch.nested.nested_tensor_from_jagged(
                F.relu(torch.nested.to_padded_tensor(torch.nested.nested_tensor_from_jagged(x, lengths=n), 0.0)).flatten(0, 1)[:10],
                lengths=n,
            ),
        }
        for name, make in ways.items():
            with self.subTest(name):
                self.captured(Made(make), None, {"x": torch.randn(10, 4), "lengths": torch.tensor([2, 3, 5])})
                self.imported()

    def test_whole_step_in_bf16(self):
        model, ids = Pieces(is_causal=True), pieces(5, 2, 7)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(ids):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(ids).float(), ids.offsets()[:-1] % 5)
            loss.backward()
            optimizer.step()
            return loss, ids

        self.captured(model, None, {"ids": ids}, train_step=step, optimizer=optimizer)
        torch.testing.assert_close(self.values("expected")["out6"], ids.values())  # returned, by its values
        self.imported()

    def test_kernels_that_take_offsets(self):
        """Captured without values, and run on those that PyTorch's other operators are given."""
        ways = {"flash": lambda q, k, v, ends: torch.ops.aten._flash_attention_forward(q, k, v, ends, ends, 4, 4, 0.0, True, False)[0]}
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError:
            print("varlen_attn is not run: this PyTorch has none")
        else:
            more = {"window_size": (-1, 0), "enable_gqa": True} if RELEASE >= (2, 12) else {"is_causal": True}
            ways["varlen"] = lambda q, k, v, ends: varlen_attn(q, k, v, ends, ends, 4, 4, **more)
        for name, attend in ways.items():
            with self.subTest(name):
                model, x, ends = Varlen(attend), torch.randn(7, 6), torch.tensor([0, 2, 3, 7], dtype=torch.int32)
                document = self.captured(model, lambda out: out.square().mean(), {"x": x, "ends": ends}, fake=True)
                loss = model.by_piece(x, ends).square().mean()
                loss.backward()
                own = {**dict(model.named_parameters()), "x": x, "ends": ends}
                inputs = {entry["name"]: own[entry["fqn"]].detach() for entry in document["inputs"]}
                write.tensors(self.file("inputs.safetensors"), inputs)
                answers = {"out0": loss.detach(), "out1": model.qkv.weight.grad, "out2": model.qkv.bias.grad}
                write.tensors(self.file("expected.safetensors"), answers)
                self.imported()

    def test_of_the_other_layout(self):
        strided = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
        with self.assertRaisesRegex(CaptureError, "layout=torch.jagged"):
            self.captured(nn.Linear(4, 4), lambda y: y.to_padded_tensor(0.0).sum(), strided)
