"""torch.export archives, imported and run, held against PyTorch's results.

run_pt2.py --bin DIR [--cases DIR]... [-v]
  A case is a folder with model.pt2, inputs.safetensors (user inputs by name) and expected.safetensors. tests/data/pt2 holds
  small ones (make_pt2.py makes them), tests/data/pt2_versions those of each torch since 2.6; the GPT-2 exports lie in ../shared/traces/formats, and where they are absent that is said.
  expected-exit.txt, in a case: the exit code of sg-run and a text of its message, for ops that have no kernel.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from tensor_files import read_tensors, write_tensors  # noqa: E402

EXPORTS = os.path.join(ROOT, "..", "shared", "traces", "formats", "gpt2-tiny-export")


class Runner:
    def __init__(self, bin_dir, verbose):
        self.bin, self.verbose, self.failed, self.passed = bin_dir, verbose, [], 0

    def tool(self, name, *args):
        return subprocess.run([os.path.join(self.bin, name), *args], capture_output=True, text=True, timeout=300)

    def check(self, title, ok, message):
        if ok:
            self.passed += 1
            if self.verbose:
                print("ok  ", title)
        else:
            self.failed.append(title)
            print("FAIL", title, "\n    " + message.strip().replace("\n", "\n    "))

    def import_pt2(self, title, pt2, folder):
        graph = os.path.join(folder, "graph.sg")
        done = self.tool("sg-import", pt2, "-o", graph)
        if done.returncode != 0:
            self.check(title, False, done.stderr)
            return None
        return graph

    def run(self, title, pt2, inputs, expected, exit_code=0, message="", **options):
        """Imports, merges the weights beside the graph with `inputs`, runs, compares with `expected` (tensors by name)."""
        with tempfile.TemporaryDirectory() as folder:
            graph = self.import_pt2(title, pt2, folder)
            if graph is None:
                return
            weights = os.path.join(folder, "graph.safetensors")
            tensors = read_tensors(weights) if os.path.exists(weights) else {}
            tensors.update(inputs)
            write_tensors(os.path.join(folder, "all.safetensors"), tensors)
            write_tensors(os.path.join(folder, "expected.safetensors"), expected)
            bind = [w for b in options.get("bind", []) for w in ("--bind", b)]
            done = self.tool("sg-run", graph, "--inputs", os.path.join(folder, "all.safetensors"),
                             "--expect", os.path.join(folder, "expected.safetensors"), *bind)
            ok = done.returncode == exit_code and message in done.stderr + done.stdout
            self.check(title, ok, f"exit {done.returncode}: {done.stderr[-1500:]}")


def gpt2_exports(runner):
    if not os.path.isdir(EXPORTS):
        print(f"{EXPORTS} is absent: the GPT-2 exports are not run")
        return
    inputs = read_tensors(os.path.join(EXPORTS, "inputs.safetensors"))
    expected = read_tensors(os.path.join(EXPORTS, "expected.safetensors"))
    for name in ("forward", "forward-dynamic", "forward-core-aten"):
        runner.run(f"gpt2 {name}", os.path.join(EXPORTS, name + ".pt2"), inputs, expected)
    # The loss is a mean over equal sequences: the batch twice over has the same one, its halves have it as their mean.
    for times in (2, 5):
        more = {n: (d, [s[0] * times, *s[1:]], b * times) for n, (d, s, b) in inputs.items()}
        runner.run(f"gpt2 forward-dynamic, batch {2 * times}", os.path.join(EXPORTS, "forward-dynamic.pt2"), more,
                   expected)
    too_many = {n: (d, [s[0] * 40, *s[1:]], b * 40) for n, (d, s, b) in inputs.items()}
    runner.run("gpt2 forward-dynamic, beyond its range", os.path.join(EXPORTS, "forward-dynamic.pt2"), too_many,
               expected, 4)


def run_cases(runner, folder):
    for name in sorted(os.listdir(folder)):
        case = os.path.join(folder, name)
        if not os.path.exists(os.path.join(case, "model.pt2")):
            continue
        inputs, expected = (read_tensors(os.path.join(case, f + ".safetensors")) for f in ("inputs", "expected"))
        options = {}
        if os.path.exists(os.path.join(case, "run.json")):
            with open(os.path.join(case, "run.json")) as f:
                options = json.load(f)
        runner.run(os.path.relpath(case, os.path.dirname(os.path.dirname(case))), os.path.join(case, "model.pt2"),
                   inputs, expected, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--cases", action="append")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    runner = Runner(os.path.abspath(args.bin), args.v)
    data = os.path.join(ROOT, "tests", "data")
    versions = os.path.join(data, "pt2_versions")
    for folder in args.cases or [os.path.join(data, "pt2")] + sorted(os.path.join(versions, v)
                                                                     for v in os.listdir(versions)):
        run_cases(runner, folder)
    gpt2_exports(runner)
    print(f"{runner.passed} passed, {len(runner.failed)} failed")
    sys.exit(1 if runner.failed or runner.passed == 0 else 0)


if __name__ == "__main__":
    main()
