#!/usr/bin/env python3
"""run_golden.py [--bin DIR] [--update] [FILTER]: runs the golden tests under tests/golden/.

A golden is one text file: what to run, the input, and what must come out.

    # RUN: sg-print %s           run by sh with --bin first in PATH; %s is this file's input, %t a fresh file to write
    # EXIT: 3                    the exit code of the last command (default 0)
    sg 1.0                       the input: everything up to the separator, comments included
    ...
    ---- expected ----
    ...                          stdout and stderr together

Several RUN lines run in turn in one fresh folder and their outputs follow one another; all but the last must exit 0.
The input is named as the golden is, so line numbers in messages are those of the golden itself. Paths are cut to the
file's name and tool versions to VERSION. --update rewrites the expected part; a mismatch shows a unified diff.
A file whose name begins with `bad-` must fail, and its output must name a line and a column.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SEPARATOR = "---- expected ----\n"
ROOT = Path(__file__).resolve().parent / "golden"


class Golden:
    def __init__(self, path):
        self.path = path
        content = path.read_bytes().decode("utf-8", "surrogateescape")
        self.input, separator, self.expected = content.partition(SEPARATOR)
        self.has_expected = bool(separator)
        header = self.input.split("\n")
        self.commands = [line[7:].strip() for line in header if line.startswith("# RUN: ")]
        exits = [line[8:].strip() for line in header if line.startswith("# EXIT: ")]
        self.exit = int(exits[0]) if exits else 0

    def run(self, bin_dir):
        """The normalised output, and a complaint (empty when all is well) about exit codes."""
        if not self.commands:
            return "", "no RUN line"
        output = b""
        env = dict(os.environ, PATH=f"{bin_dir}{os.pathsep}{os.environ['PATH']}", NO_COLOR="1", LC_ALL="C.UTF-8")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / self.path.name
            source.write_bytes(self.input.encode("utf-8", "surrogateescape"))
            for i, command in enumerate(self.commands):
                command = command.replace("%s", str(source)).replace("%t", str(Path(folder) / "out"))
                try:
                    done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60)
                except subprocess.TimeoutExpired:
                    return "", f"`{command}` ran for more than 60 seconds"
                output += done.stdout
                wanted = self.exit if i + 1 == len(self.commands) else 0
                if done.returncode != wanted:
                    text = normalise(output, folder)
                    return text, f"`{self.commands[i]}` exited with {done.returncode}, not {wanted}"
            return normalise(output, folder), ""

    def check(self, bin_dir, update):
        """(passed, what to print)"""
        actual, complaint = self.run(bin_dir)
        name = self.path.relative_to(ROOT)
        if complaint:
            return False, f"FAILED {name}: {complaint}\n{actual}"
        if self.path.name.startswith("bad-") and (self.exit == 0 or not re.search(r":\d+:\d+: (.*: )?error", actual)):
            return False, f"FAILED {name}: a bad- golden must fail and name line and column\n{actual}"
        if actual == self.expected and self.has_expected:
            return True, ""
        if update:
            content = self.input + ("" if self.input.endswith("\n") else "\n") + SEPARATOR + actual
            self.path.write_bytes(content.encode("utf-8", "surrogateescape"))
            return True, f"updated {name}"
        diff = difflib.unified_diff(self.expected.splitlines(True), actual.splitlines(True), "expected", "actual")
        return False, f"FAILED {name}\n" + "".join(line if line.endswith("\n") else line + "\n" for line in diff)


def normalise(output, folder):
    text = output.decode("utf-8", "surrogateescape")
    text = text.replace(folder + "/", "")
    text = re.sub(r"\b(sg-[a-z]+|stepgraph) \d+\.\d+\.\d+\b", r"\1 VERSION", text)
    if text and not text.endswith("\n"):
        text += "\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=str(ROOT.parent.parent / "build" / "bin"), help="where the tools lie")
    parser.add_argument("--update", action="store_true", help="rewrite what is expected")
    parser.add_argument("filter", nargs="?", default="", help="only goldens whose path contains this")
    args = parser.parse_args()

    # help/ holds what --help prints, word for word; tests/cli compares it
    paths = [p for p in sorted(ROOT.rglob("*.txt"))
             if args.filter in str(p.relative_to(ROOT)) and p.relative_to(ROOT).parts[0] != "help"]
    bin_dir = Path(args.bin).resolve()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        results = list(pool.map(lambda p: Golden(p).check(bin_dir, args.update), paths))
    for _, message in results:
        if message:
            print(message.rstrip("\n"))
    failed = sum(not passed for passed, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    if not results:
        print(f"no golden matches `{args.filter}`")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.exit(1)
