"""Scenarios of TorchTitan's tests that happen while a step is traced, under their names (../scenarios.txt).

TorchTitan marks what it will chunk before it traces; here `dynamic=` names sizes, whatever they are for.
"""

import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as ops
from torch.nn import functional as F

from stepgraph_capture import CaptureError, annotate, eager_chunk
from support import CaptureCase

BATCH, LENGTH = {0: "batch"}, {1: "length"}


class Tokens(nn.Module):
    """A look-up with positions, layers and a head: what the marks of TorchTitan are put on."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 12)

    def forward(self, tokens, positions):
        x = self.table(tokens) + positions[..., None]
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Marks(CaptureCase):
    def marked(self, wish, loss_fn=token_loss, model=None):
        inputs = {"tokens": torch.randint(12, (4, 6)), "positions": torch.arange(6.0).expand(4, 6).contiguous()}
        dynamic = {name: wish for name in ("tokens", "positions", "targets")}
        return self.captured(
            model or Tokens(), loss_fn, inputs, targets=torch.randint(12, (4, 6)), dynamic=dynamic
        )

    def shapes(self, document, *kinds):
        return {
            entry.get("fqn", entry["name"]): entry["type"]["shape"]
            for entry in document["inputs"]
            if entry["kind"] in kinds
        }

    def test_prepare_ep_overlap_trace_inputs_marks_batch_dims(self):
        document = self.marked(BATCH)
        (symbol,) = document["symbols"]
        self.assertEqual((symbol["name"], symbol["hint"], symbol["kind"]), ("batch", 4, "input"))
        for shape in self.shapes(document, "input").values():
            self.assertEqual(shape, [{"sym": "batch"}, 6])
        self.assertNotIn("sym", str(self.shapes(document, "parameter", "buffer", "constant")))
        self.imported()

    def test_prepare_ep_overlap_trace_inputs_marks_seq_dims(self):
        document = self.marked(LENGTH)
        self.assertEqual([(symbol["name"], symbol["hint"]) for symbol in document["symbols"]], [("length", 6)])
        for shape in self.shapes(document, "input").values():
            self.assertEqual(shape, [4, {"sym": "length"}])
        self.imported()

    def test_prepare_ep_overlap_trace_inputs_bounds_seq_dim_to_original_half(self):
        document = self.marked({1: ("length", 3, 6)})
        (symbol,) = document["symbols"]
        self.assertEqual((symbol["name"], symbol["min"], symbol["max"], symbol["hint"]), ("length", 3, 6, 6))
        self.assertIn("symbol length input [3, 6] hint 6", self.imported())

    def test_prepare_ep_overlap_trace_inputs_rejects_empty_module_pattern(self):
        for pattern in ("", ".", "layers."):
            with self.subTest(pattern=pattern), self.assertRaisesRegex(CaptureError, "no module matches"):
                eager_chunk(Tokens(), pattern)

    def test_seq_chunk_marker_traces_chunked_loss_backward(self):
        """The head and the loss in parts along a length that is a symbol: a backward region for each part."""

        class Parts(Tokens):
            def forward(self, tokens, positions):
                x = self.table(tokens) + positions[..., None]
                for layer in self.layers:
                    x = layer(x).relu()
                half = x.shape[1] // 2
                return self.head(x[:, :half]), self.head(x[:, half : 2 * half])

        def loss(parts, targets):
            half = targets.shape[1] // 2
            pieces = (targets[:, :half], targets[:, half : 2 * half])
            return sum(
                F.cross_entropy(logits.flatten(0, 1), piece.flatten(), reduction="sum")
                for logits, piece in zip(parts, pieces)
            )

        document = self.marked({1: ("length", 4, 6)}, loss, Parts())
        backward = [node for node in document["nodes"] if node["phase"] == "backward"]
        losses = [node for node in backward if node["op"] == "aten.nll_loss_backward.default"]
        self.assertEqual(len(losses), 2)
        products = [n for n in backward if n["op"] == "aten.mm.default" and n["module"] == "head"]
        self.assertEqual(len(products), 4)  # of the weight and of the activation, a part each
        self.assertIn("(length//2)", str(document["nodes"]))
        self.imported()

    def test_prepare_ep_overlap_trace_call_inputs_rebinds_block_mask_seq_lengths(self):
        """A mask that is made of the length speaks of the symbol, and so does the op that takes it."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = nn.Linear(8, 24).requires_grad_(False)  # on CPUs PyTorch has no backward of the attention
                self.out = nn.Linear(4, 4)

            def forward(self, x):
                rows, length, _ = x.shape
                q, k, v = self.qkv(x).view(rows, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
                mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
                return self.out(flex_attention(q, k, v, block_mask=mask))

        x, wish = torch.randn(2, 256, 8), {"x": {1: ("length", 129, 256)}}
        document = self.captured(Attends(), lambda out: out.square().mean(), {"x": x}, dynamic=wish)
        (node,) = [n for n in document["nodes"] if n["op"] == "higher_order.flex_attention"]
        self.assertEqual(node["args"][4][0], node["args"][4][1])
        (size,) = [n for n in document["nodes"] if {"ref": n["name"]} == node["args"][4][0]]
        self.assertEqual(size["op"], "aten.sym_size.int")
        self.assertIn("{'sym': 'length'}", str(size))
        self.imported()


class Dispatcher(nn.Module):
    """Experts behind an exchange of counts and one of rows, as TorchTitan's all-to-all dispatcher has them."""

    def __init__(self, group):
        super().__init__()
        self.group, self.expert = group, nn.Linear(4, 4)

    def exchange(self, rows, received, sent):
        return ops.all_to_all_single_autograd(rows, received, sent, self.group)

    @annotate(role="dispatch")
    def dispatch(self, x):
        counts = torch.tensor([x.shape[0]])
        with annotate(role="dispatch", step="token_count_exchange"):
            coming = ops.wait_tensor(ops.all_to_all_single(counts, [1], [1], self.group))
        with annotate(role="dispatch", step="token_count_sync"):
            coming = coming.to("cpu") + 0
        with annotate(role="dispatch", step="token_exchange"):
            return self.exchange(x, [x.shape[0]], [x.shape[0]]) * coming.float().sign()

    def forward(self, x):
        rows = self.dispatch(x)
        with annotate(role="compute"):
            rows = self.expert(rows).relu()
        with annotate(role="combine", step="token_exchange"):
            return self.exchange(rows, [x.shape[0]], [x.shape[0]])


class Annotations(CaptureCase):
    def setUp(self):
        super().setUp()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

    def test_moe_ep_annotations_cover_all_to_all_dispatcher(self):
        model = nn.Sequential(nn.Linear(4, 4), Dispatcher(dist.group.WORLD))
        document = self.captured(model, lambda out: out.square().mean(), torch.randn(4, 4))
        exchanges = [n for n in document["nodes"] if n["op"].startswith("_c10d_functional.all_to_all_single")]
        words = [(n["phase"], n.get("custom")) for n in exchanges]
        rows = {"EP": "dispatch", "EP_token_exchange": "dispatch"}
        back = {"EP": "combine", "EP_token_exchange": "combine"}
        counts = {"EP": "dispatch", "EP_token_count_exchange": "dispatch"}
        self.assertEqual(words[:3], [("forward", counts), ("forward", rows), ("forward", back)])
        self.assertEqual(words[3:], [("backward", back), ("backward", rows)])
        compute = [n for n in document["nodes"] if n["op"] == "aten.addmm.default" and n["module"] == "1.expert"]
        self.assertEqual([n["custom"] for n in compute], [{"EP": "compute"}])


if __name__ == "__main__":
    unittest.main()
