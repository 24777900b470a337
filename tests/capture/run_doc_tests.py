#!/usr/bin/env python3
"""run_doc_tests.py --bin BIN: docs/capture.md as it is written: its files are made, its commands run, in order.

Python blocks before the first command are `train.py`, later ones are run. Of the console blocks the ones that
make a venv are left out: this Python has torch already.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

from interpreter import ROOT, use_python_with_torch

use_python_with_torch()


def blocks():
    with open(os.path.join(ROOT, "docs", "capture.md")) as file:
        return re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), re.M | re.S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.path.abspath(options.bin), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.path.join(ROOT, "tools", "capture")}
    ran, said = 0, ""
    with tempfile.TemporaryDirectory() as folder:
        for kind, body in blocks():
            script = os.path.join(folder, "again.py" if ran else "train.py")
            if kind == "python":
                with open(script, "w") as file:
                    file.write(body)
                commands = [f"python {script}"] if ran else []
            else:
                commands = [
                    line[2:] for line in body.splitlines() if "venv" not in line and not line.startswith("$ pip")
                ]
            for command in commands:
                result = subprocess.run(
                    command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
                )
                said += result.stdout
                ran += 1
                print(f"{'ok   ' if result.returncode == 0 else 'FAIL '} {command}")
                if result.returncode != 0:
                    print(result.stdout + result.stderr)
                    return 1
    if "values are as expected" not in said:
        print("FAIL  sg-run compared nothing")
        return 1
    print(f"{ran} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
