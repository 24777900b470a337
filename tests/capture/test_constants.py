"""What a capture tells of its constants: small ones are in it, of others it has the digest."""

import hashlib
import os
import shutil
import subprocess
from unittest import mock

import torch
from safetensors.torch import save_file
from torch import nn

from stepgraph_capture import CaptureError, constants

from support import CaptureCase


class Scales(nn.Module):
    """Constants of several types, small and large, one that its graph sees conjugated."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.small = torch.linspace(0.5, 1.5, 8)
        self.half = torch.arange(8, dtype=torch.bfloat16)
        self.mask = torch.arange(8) % 3 > 0
        self.turn = torch.tensor([1 + 2j, 3 - 1j])
        self.large = torch.linspace(0, 1, 80)

    def forward(self, x):
        y = self.layer(x * self.small) * self.half.float() * self.large[:8]
        return torch.where(self.mask, y, 0).sum() * (self.turn.conj() * self.turn).real.sum()


class Constants(CaptureCase):
    def test_what_travels_and_what_has_a_digest(self):
        document = self.captured(Scales(), None, (torch.randn(4, 8),))
        entries = {entry["name"]: entry for entry in document["inputs"] if entry["kind"] == "constant"}
        values = {name: value for name, value in self.values("inputs").items() if name in entries}
        self.assertEqual(set(values), set(entries))
        kinds = []
        for name, value in values.items():
            data = value.reshape(-1).view(torch.uint8).numpy().tobytes()
            kinds.append("bytes" if len(data) <= 256 else "sha256")
            told = data.hex() if kinds[-1] == "bytes" else hashlib.sha256(data).hexdigest()
            self.assertEqual(entries[name]["digest"], f"{kinds[-1]}:{told}")
        self.assertEqual((kinds.count("bytes"), kinds.count("sha256")), (4, 1))

    def test_a_step_is_run_without_a_file(self):
        """--init needs no file for constants: small ones are in the graph, others in the capture's folder."""
        document = self.captured(Scales(), None, (torch.randn(4, 8),))
        self.imported()
        graph, made = os.path.join(self.folder, "step.sg"), os.path.join(self.folder, "made")
        self.tool("sg-run", graph, "--init", "seed:0", "--outputs", made)

        names = [entry["name"] for entry in document["inputs"] if entry["kind"] == "constant"]
        given = {name: value for name, value in self.values("inputs").items() if name in names}
        elsewhere = os.path.join(self.folder, "elsewhere")
        os.mkdir(elsewhere)
        moved = shutil.copy(graph, elsewhere)
        save_file(given, os.path.join(self.folder, "constants"))
        as_made = ("--init", "seed:0", "--expect", made, "--bitwise")
        self.tool("sg-run", moved, "--inputs", os.path.join(self.folder, "constants"), *as_made)
        self.tool("sg-run", moved, "--data", self.folder, *as_made)
        self.tool("sg-run", moved, "--data", os.path.join(self.folder, "inputs.safetensors"), *as_made)
        command = [os.path.join(os.environ["SG_BIN"], "sg-run"), moved, "--init", "seed:0"]
        refused = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("1 graph input has no value: `large`", refused.stderr)

    def test_wide_complex_numbers_are_in_pairs(self):
        """As rotations are kept that are computed in double."""

        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8)
                self.turns = [torch.polar(torch.ones(16, 4).double(), torch.arange(64.0).view(16, 4).double())]

            def forward(self, x):
                pairs = torch.view_as_complex(self.layer(x).double().unflatten(-1, (4, 2)))
                return torch.view_as_real(pairs * self.turns[0][: x.shape[0]] + self.turns[0].conj().sum()).square().sum()

        self.captured(Turned(), None, (torch.randn(6, 8),))
        self.assertNotIn(torch.complex128, {value.dtype for value in self.values("inputs").values()})
        self.assertIn("aten.view_as_complex(%_tensor_constant0_pairs)", self.imported())

    def test_one_of_complex128_that_is_returned_is_refused(self):
        model, table = nn.Linear(4, 3), torch.randn(3, dtype=torch.complex128)
        with self.assertRaisesRegex(CaptureError, "a tensor beside the loss is of complex128"):
            self.captured(model, lambda out: (out.sum(), table), (torch.randn(2, 4),))

    def test_those_that_the_code_has_a_name_for(self):
        model, reference = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).requires_grad_(False)
        model.table = torch.linspace(0, 1, 3)

        def step(x):
            loss = ((model(x) - reference(x)) * model.table * torch.tensor([1.0, 2.0, 4.0])).square().sum()
            loss.backward()
            return loss.detach()

        document = self.captured(model, None, {"x": torch.randn(5, 4)}, train_step=step)
        names = {entry.get("fqn") for entry in document["inputs"] if entry["kind"] == "constant"}
        of_reference = {f"reference.{name}" for name, _ in reference.named_parameters()}
        self.assertEqual(names, {*of_reference, "table", None})
        self.assertIn('"reference.1.weight"', self.imported())

    def test_ranks_that_differ_keep_it_to_their_files(self):
        of_ranks = [{"a": "bytes:00", "b": "bytes:01"}, {"a": "bytes:00", "b": "bytes:02"}, {"a": "bytes:00"}]
        entries = [{"name": "a"}, {"name": "b"}, {"name": "x"}]
        mine = {"a": torch.zeros(1, dtype=torch.uint8), "b": torch.ones(1, dtype=torch.uint8)}
        with mock.patch.object(constants.world, "of_each_rank", lambda value: [value, *of_ranks[1:]]):
            constants.add_data(entries, mine)
        self.assertEqual(entries, [{"name": "a", "digest": "bytes:00"}, {"name": "b"}, {"name": "x"}])
