"""What the cases share: a folder each, and captures as Python objects."""

import gzip
import json
import os
import subprocess
import tempfile
import unittest

import torch

from stepgraph_capture import capture


class CaptureCase(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def captured(self, model, loss_fn, inputs, **more):
        """The capture of a step, as an object."""
        path = capture(model, loss_fn, inputs, self.folder, **more)
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            return json.load(file)

    def values(self, name):
        from safetensors.torch import load_file

        return load_file(os.path.join(self.folder, name + ".safetensors"))

    def tool(self, name, *arguments):
        command = [os.path.join(os.environ["SG_BIN"], name), *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{command}: {result.stdout}{result.stderr}")
        return result.stdout

    def imported(self):
        """The graph of the capture in this case's folder, verified, as text; sg-run has the expected results."""
        graph = os.path.join(self.folder, "step.sg")
        self.tool("sg-import", "-q", os.path.join(self.folder, "step.json"), "-o", graph)
        self.tool("sg-check", graph)
        paths = [os.path.join(self.folder, name) for name in ("inputs.safetensors", "expected.safetensors")]
        said = self.tool("sg-run", graph, "--inputs", paths[0], "--expect", paths[1])
        self.assertIn("values are as expected", said)
        return self.tool("sg-print", graph)

    def check_steps(self, step, inputs, count=4):
        """Those of sg-run are those that PyTorch makes now."""
        self.imported()
        graph, values = (os.path.join(self.folder, name) for name in ("step.sg", "inputs.safetensors"))
        said = json.loads(self.tool("sg-run", graph, "--inputs", values, "--steps", str(count), "--json"))
        theirs = [step(**inputs).item() for _ in range(count)]
        torch.testing.assert_close(said["ranks"][0]["losses"], theirs, rtol=1e-5, atol=0)
