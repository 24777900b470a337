"""eager_chunk: what it computes, what it writes into a capture, what it refuses."""

import copy
import unittest
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask

from stepgraph_capture import CaptureError, OutputTypeError, eager_chunk
from support import CaptureCase


class Block(nn.Module):
    """Rows of the batch do not see each other."""

    def __init__(self):
        super().__init__()
        self.ff = nn.Linear(4, 4)
        self.seen = []

    def forward(self, x, attention_masks=None, positions=None, scale=1.0):
        self.seen.append((x, attention_masks, positions))
        x = self.ff(x) * scale
        return x if positions is None else x + positions[..., None]


class Model(nn.Module):
    def __init__(self, block=Block):
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(2))
        self.head = nn.Linear(4, 1)

    def forward(self, x, **kwargs):
        for layer in self.layers:
            x = layer(x, **kwargs)
        return self.head(x)


def loss(out):
    return out.square().mean()


class Values(CaptureCase):
    def gradients(self, model, x, **kwargs):
        loss(model(x, **kwargs)).backward()
        return [parameter.grad for parameter in model.parameters()]

    def test_the_same_as_whole(self):
        for chunks, dim, rows in ((2, 0, 4), (2, 0, 5), (3, 0, 7), (4, 0, 4), (2, 1, 5), (3, -2, 4)):
            with self.subTest(chunks=chunks, dim=dim, rows=rows):
                model = Model()
                x = torch.randn(rows, rows, 4)
                wanted, got = self.gradients(copy.deepcopy(model), x), self.gradients(
                    eager_chunk(model, "layers.*", chunks, dim), x
                )
                torch.testing.assert_close(got, wanted)
                sizes = [seen[0].shape[dim] for seen in model.layers[0].seen]
                self.assertEqual(len(sizes), chunks)
                self.assertEqual(sum(sizes), rows)
                self.assertLessEqual(max(sizes) - min(sizes), 1)
                self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_parts_are_contiguous(self):
        model = eager_chunk(Model(), "layers.*", 2, 1)
        model(torch.randn(3, 4, 4))
        self.assertTrue(all(seen[0].is_contiguous() for seen in model.layers[0].seen))

    def test_a_deep_copy_runs_on_its_own_weights(self):
        model = eager_chunk(Model(), "layers.*")
        twin = copy.deepcopy(model)
        nn.init.zeros_(twin.layers[0].ff.weight)
        x = torch.randn(2, 4)
        self.assertFalse(torch.equal(model(x), twin(x)))
        self.assertEqual(len(twin.layers[0].seen), 2)

    def test_transformer_batch_chunking_splits_positions_by_batch(self):
        model = eager_chunk(Model(), "layers.0", 2)
        positions = torch.arange(8.0).view(4, 2)
        model.layers[0](torch.randn(4, 2, 4), positions=positions)
        self.assertTrue(torch.equal(model.layers[0].seen[1][2], positions[2:]))
        model.layers[0](torch.randn(4, 2, 4), None, positions[0])  # no batch: whole
        self.assertTrue(torch.equal(model.layers[0].seen[-1][2], positions[0]))
        model.layers[0](torch.randn(4, 2, 4), None, positions[:1])
        self.assertEqual(model.layers[0].seen[-1][2].shape, (1, 2))

    def test_flat_tokens_with_their_positions(self):
        model = eager_chunk(Model(), "layers.0", 2)
        model.layers[0](torch.randn(5, 4), positions=torch.arange(5.0))
        self.assertEqual([list(seen[2]) for seen in model.layers[0].seen], [[0, 1, 2], [3, 4]])

    def test_splits_block_mask_batch_metadata(self):
        documents = torch.tensor([0, 1, 2, 3])

        def own_document(b, h, q, k):
            return (q >= k) & (documents[b] >= 0) & (documents[b] % 2 == 0)

        whole = create_block_mask(own_document, 4, 1, 256, 256, device="cpu")
        shared = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
        model = eager_chunk(Model(), "layers.0", 3)
        model.layers[0](torch.randn(4, 2, 4), {"full": whole, "causal": shared})
        start = 0
        for x, masks, _ in model.layers[0].seen:
            rows = x.shape[0]
            self.assertTrue(torch.equal(masks["full"].kv_num_blocks, whole.kv_num_blocks[start : start + rows]))
            self.assertTrue(torch.equal(masks["full"].to_dense(), whole.to_dense()[start : start + rows]))
            self.assertEqual(masks["causal"].kv_num_blocks.shape[0], 1)
            for b in range(rows):
                self.assertEqual(
                    bool(masks["full"].mask_mod(torch.tensor(b), 0, torch.tensor(1), torch.tensor(0))),
                    (start + b) % 2 == 0,
                )
            start += rows
        with self.assertRaisesRegex(CaptureError, "along the batch only"):
            eager_chunk(Model(), "layers.0", 2, 1).layers[0](torch.randn(4, 2, 4), whole)

    def test_outputs_of_tuples_and_lists(self):
        class Pair(NamedTuple):
            left: torch.Tensor
            more: list

        class Many(nn.Module):
            def forward(self, x):
                return Pair(x, [x + 1, (x * 2, None)])

        model = eager_chunk(nn.ModuleDict({"m": Many()}), "m", 3)
        x = torch.randn(4, 2)
        out = model["m"](x)
        self.assertIsInstance(out, Pair)
        torch.testing.assert_close((out.left, out.more[0], out.more[1][0]), (x, x + 1, x * 2))
        self.assertIsNone(out.more[1][1])


class Refusals(CaptureCase):
    def refused(self, pattern, function, kind=CaptureError):
        with self.assertRaisesRegex(kind, pattern):
            function()

    def test_patterns(self):
        self.refused("no module matches", lambda: eager_chunk(Model(), "blocks.*"))
        self.refused("no module matches", lambda: eager_chunk(Model(), "layers"[:-1]))
        self.refused("no module with 'moe' inside", lambda: eager_chunk(Model(), "layers.*", containing="moe"))
        self.refused("2 or more", lambda: eager_chunk(Model(), "layers.*", 1))
        self.refused("contract", lambda: eager_chunk(Model(), "layers.*", contract="expert"))
        self.assertIsInstance(CaptureError("x"), ValueError)

    def test_patterns_match_component_by_component(self):
        model = eager_chunk(Model(), "l*.?", containing="f?")
        self.assertTrue(all(hasattr(layer, "_stepgraph_chunks") for layer in model.layers))
        self.assertFalse(hasattr(model.layers[0].ff, "_stepgraph_chunks"))

    def test_idempotent(self):
        model = eager_chunk(eager_chunk(Model(), "layers.*"), "layers.*")
        model(torch.randn(4, 4))
        self.assertEqual(len(model.layers[0].seen), 2)
        self.refused("already chunked, into 2", lambda: eager_chunk(model, "layers.*", 3))

    def test_inputs(self):
        layer = eager_chunk(Model(), "layers.0", 2).layers[0]
        self.refused("too short for 2 chunks", lambda: layer(torch.randn(1, 4)))
        self.refused("first positional", lambda: layer(x=torch.randn(4, 4)))
        self.refused("has no dimension", lambda: eager_chunk(Model(), "layers.0", 2, 3).layers[0](torch.randn(4, 4)))

    def test_transformer_batch_chunking_rejects_same_extent_tensor_mask(self):
        layer = eager_chunk(Model(), "layers.0", 2).layers[0]
        self.refused(r"got attention_masks, a tensor\[4, 4\]", lambda: layer(torch.randn(4, 4), torch.ones(4, 4)))
        self.refused("got attention_masks", lambda: layer(torch.randn(4, 4), attention_masks={"m": torch.ones(4, 4)}))
        self.refused("got attention_masks", lambda: layer(torch.randn(4, 4), torch.ones(3, 4)))
        layer(torch.randn(4, 4), torch.ones(1, 4))  # the same for all of the batch

    def test_arguments_named_by_the_user(self):
        layer = eager_chunk(Model(), "layers.0", 2, split=["attention_masks"]).layers[0]
        layer(torch.randn(4, 4), torch.arange(4))
        self.assertEqual([list(seen[1]) for seen in layer.seen], [[0, 1], [2, 3]])
        layer = eager_chunk(Model(), "layers.0", 2, whole=["attention_masks"]).layers[0]
        layer(torch.randn(4, 4), torch.arange(4))
        self.assertEqual([list(seen[1]) for seen in layer.seen], [[0, 1, 2, 3]] * 2)

    def test_moe_chunking_splits_activation_only(self):
        """The experts have as many rows as the batch, and stay whole."""

        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))
                self.register_buffer("seen_rows", torch.zeros(4))
                self.shapes = []

            def forward(self, x):
                self.shapes.append((tuple(x.shape), tuple(self.weight.shape)))
                self.seen_rows += x.sum(0).detach()
                return x @ self.weight

        layer = Experts()
        x = torch.randn(4, 4)
        wanted = layer(x)
        total = layer.seen_rows.clone()
        eager_chunk(nn.ModuleDict({"moe": layer}), "moe", 2, contract="moe")
        layer.shapes.clear()
        torch.testing.assert_close(layer(x), wanted)
        self.assertEqual(layer.shapes, [((2, 4), (4, 4))] * 2)
        torch.testing.assert_close(layer.seen_rows, 2 * total)

    def test_moe_chunking_rejects_extra_tensor_input(self):
        layer = eager_chunk(Model(), "layers.0", contract="moe").layers[0]
        layer(torch.randn(4, 4))
        self.refused(r"called with \(tensor\[4, 4\], tensor\[4\]\)", lambda: layer(torch.randn(4, 4), torch.ones(4)))
        self.refused("positions=tensor", lambda: layer(torch.randn(4, 4), positions=torch.ones(4)))

    def test_rejects_unsupported_output_type(self):
        class Returns(nn.Module):
            def __init__(self, make):
                super().__init__()
                self.make = make

            def forward(self, x):
                return self.make(x)

        for make, words in (
            (lambda x: {"x": x}, "is dict"),
            (lambda x: 3, "is int"),
            (lambda x: (x, x.sum()), r"output\[1\]"),
            (lambda x: x if x[0, 0] > 0 else None, "in its chunks"),
        ):
            model = eager_chunk(nn.ModuleDict({"m": Returns(make)}), "m")
            x = torch.tensor([[1.0], [-1.0]])
            self.refused(words, lambda: model["m"](x), OutputTypeError)
        self.assertTrue(issubclass(OutputTypeError, TypeError))


class Metadata(CaptureCase):
    def test_traces_overlap_metadata(self):
        document = self.captured(eager_chunk(Model(), "layers.*", 3), loss, torch.randn(7, 4))
        seen = {}
        for node in document["nodes"]:
            words = node.get("custom")
            if words:
                key = (words["chunked_region_fqn"], words["chunked_region_role"], words.get("chunk_id"), node["phase"])
                seen.setdefault(key, []).append(node["op"])
        for layer in ("layers.0", "layers.1"):
            for phase in ("forward", "backward"):
                for chunk in range(3):
                    self.assertTrue(seen[layer, "body", chunk, phase], (layer, chunk, phase))
            self.assertEqual(seen[layer, "split_boundary", None, "forward"][0], "aten.split_with_sizes.default")
            self.assertEqual(seen[layer, "materialization", None, "forward"], ["aten.cat.default"])
            self.assertEqual(set(seen[layer, "materialization", None, "backward"]), {"aten.slice.Tensor"})
        self.assertIn("layers.1", self.imported())

    def test_what_a_checkpoint_computes_again_stays_in_its_chunk(self):
        from torch.utils.checkpoint import checkpoint

        class Remembering(nn.Linear):
            def wave(self, x):
                return super().forward(x).sin()

            def forward(self, x):
                return checkpoint(self.wave, x, use_reentrant=False)

        model = eager_chunk(nn.Sequential(nn.Linear(4, 4), Remembering(4, 4)), "1", 2)
        document = self.captured(model, loss, torch.randn(4, 4))
        again = [n for n in document["nodes"] if n["phase"] == "backward" and n["op"] == "aten.addmm.default"]
        self.assertEqual(sorted(node["custom"]["chunk_id"] for node in again), [0, 1])
        self.imported()

    def test_a_symbolic_batch(self):
        document = self.captured(
            eager_chunk(Model(), "layers.*", 2), loss, {"x": torch.randn(6, 4)}, dynamic={"x": {0: "batch"}}
        )
        self.assertEqual(len(document["symbols"]), 1)
        self.imported()


if __name__ == "__main__":
    unittest.main()
