"""python -m stepgraph_capture: exit codes, messages, what it writes."""

import contextlib
import os
import pty
import subprocess
import sys
import unittest

from interpreter import ROOT
from support import CaptureCase

_STEPS = """
import torch

def as_tuple():
    return torch.nn.Linear(4, 2), lambda out: out.sum(), torch.ones(3, 4)

def as_mapping():
    return dict(model=torch.nn.Linear(4, 2), loss_fn=torch.nn.functional.cross_entropy, inputs=torch.ones(2, 4),
                targets=torch.tensor([0, 1]), dynamic={"input": {0: "batch"}, "targets": {0: "batch"}})

def nothing():
    return None

def broken():
    raise KeyError("left out")

class Step(torch.nn.Module):
    def __init__(self, rule):
        super().__init__()
        self.linear, self.rule = torch.nn.Linear(4, 2), rule

    def forward(self, x):
        return self.rule(self.linear(x))

def misshapen():
    return Step(lambda y: y @ torch.ones(3, 3)), lambda out: out.sum(), torch.ones(3, 4)

def not_on_cpus():  # PyTorch lists each backend, on lines of their own
    call = lambda y: torch.ops.aten._flash_attention_forward(y, y, y, None, None, 1, 1, 0.0, True, False)[0]
    return Step(call), lambda out: out.sum(), torch.ones(3, 4)

def by_value():
    return Step(lambda y: y if (y * 0 == 0).all() else y * 2), lambda out: out.sum(), torch.ones(3, 4)

def with_dropout():
    return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout()), lambda out: out.sum(), torch.ones(3, 4)
"""


class Command(CaptureCase):
    def setUp(self):
        super().setUp()
        with open(os.path.join(self.folder, "steps.py"), "w") as file:
            file.write(_STEPS)

    def run_command(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "capture")}
        return subprocess.run(
            [sys.executable, "-m", "stepgraph_capture", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    def test_a_file_and_a_module(self):
        result = self.run_command(os.path.join(self.folder, "steps.py:as_tuple"), "-o", self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("step.json", result.stderr)
        self.imported()
        result = self.run_command("steps:as_mapping", "-o", self.folder, "--title", "two classes")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.imported()
        self.assertIn('"title": "two classes"', open(os.path.join(self.folder, "step.json")).read())

    def test_failures_are_one_line(self):
        for arguments, code, words in (
            (["steps.py"], 2, "is not MODULE:FUNCTION"),
            (["nowhere:step"], 2, "cannot import nowhere"),
            (["nowhere.py:step"], 2, "nowhere.py: no such file"),
            (["steps:nobody"], 2, "has no function nobody"),
            (["steps:nothing"], 4, "has to return"),
            (["steps:broken"], 4, "steps.py:15 in broken: KeyError"),
            (["steps:misshapen"], 4, "steps.py:26 in <lambda>: RuntimeError"),
            (["steps:not_on_cpus"], 4, " ... [--traceback: all of it]"),
        ):
            with self.subTest(arguments=arguments):
                result = self.run_command(*arguments, "-o", self.folder)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
                self.assertIn(words, result.stderr)

    def test_what_cannot_be_written_is_exit_5(self):
        result = self.run_command("steps:as_tuple", "-o", os.path.join(self.folder, "steps.py"))
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("error: cannot write into", result.stderr)

    def test_traceback_where_it_is_asked_for(self):
        for step, words in (("nothing", "CaptureError"), ("broken", 'raise KeyError("left out")')):
            result = self.run_command(f"steps:{step}", "-o", self.folder, "--traceback")
            self.assertIn("Traceback (most recent call last)", result.stderr)
            self.assertIn(words, result.stderr)

    def test_success_is_one_line(self):
        """PyTorch tells its log of a number that fake tensors do not have; the capture has it from the real ones."""
        result = self.run_command("steps:by_value", "-o", self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.strip().splitlines(), [f"stepgraph_capture: wrote {self.folder}/step.json"])

    def test_the_note_of_the_capture(self):
        result = self.run_command("steps:with_dropout", "-o", os.path.join(self.folder, "out"))
        self.assertEqual(result.returncode, 0, result.stderr)
        note, wrote = result.stderr.splitlines()
        self.assertRegex(note, "^stepgraph_capture: note: .*random")
        self.assertRegex(wrote, "^stepgraph_capture: wrote .*step.json$")

    def test_a_terminal_sees_what_it_waits_for(self):
        """One line, which is gone in the end; what a pipe gets is the other cases' success in one line."""
        terminal, side = pty.openpty()
        command = [sys.executable, "-m", "stepgraph_capture", "steps.py:as_tuple", "-o", self.folder]
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "capture")}
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stderr=side)
        os.close(side)
        seen = b""
        with contextlib.suppress(OSError):  # nobody writes any more
            while part := os.read(terminal, 4096):
                seen += part
        os.close(terminal)
        self.assertEqual(process.wait(), 0, seen)
        lines = [line.split(b" (at ")[0] for line in seen.split(b"\r\033[K")]
        phases = (b"runs the model", b"traces the step", b"describes the graph", b"holds the graph against the model",
                  b"writes the capture")
        self.assertEqual(lines[1:-1], [b"stepgraph_capture: " + phase for phase in phases])
        self.assertEqual(lines[-1].strip(), f"stepgraph_capture: wrote {self.folder}/step.json".encode())

    def test_an_old_torch_is_one_line(self):
        os.mkdir(os.path.join(self.folder, "torch"))
        for version in ("2.5.1+cpu", "2.6.0"):
            with open(os.path.join(self.folder, "torch", "__init__.py"), "w") as file:
                file.write(f"__version__ = {version!r}")
            result = self.run_command("steps:as_tuple", "-o", self.folder)
            self.assertEqual(result.returncode, 1)
            words = f"PyTorch {version} is too old: stepgraph_capture needs 2.6 or newer"
            self.assertEqual([words in line for line in result.stderr.splitlines()] == [True], version == "2.5.1+cpu")

    def test_help(self):
        result = self.run_command("--help")
        self.assertEqual(result.returncode, 0)
        for words in ("exit codes:", "examples:", "--fake", "torchrun"):
            self.assertIn(words, result.stdout)
        self.assertEqual(self.run_command("steps:as_tuple").returncode, 2)


if __name__ == "__main__":
    unittest.main()
