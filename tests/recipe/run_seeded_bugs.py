#!/usr/bin/env python3
"""Seeded bugs: the result of one stage of a recipe is mutated, and `sg-recipe bisect` has to find the stage.

run_seeded_bugs.py --bin DIR [--bugs N] [--first SEED] [-j N] [--table]

A bug is a node of the stage's result that is another one: a literal, an op, an operand. It changes the bits of some
output (else it is none, and another is drawn), and the tool that has it has it always: wherever its result has that node,
it is mutated. So the node is all that bisection ends with, where it was there before the stage. --table prints what was
found.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")

# Stages that give the bits of their input; of a tool that occurs twice only one has the bug: it is told by its options.
STEPS = {
    "gpt2": (os.path.join(EXAMPLES, "02_a_real_step", "gpt2-tiny.json.gz"),
             [("clean", ""), ("remat", "--policy full"), ("offload", "--all --least 1KiB"),
              ("overlap", "--strategy reference"), ("concretize", "")]),
    "moe": (os.path.join(EXAMPLES, "04_run_a_moe_step", "capture", "rank{r}", "step.json.gz"),
            [("clean", ""), ("remat", "--policy default"), ("overlap", "--isolate-only"),
             ("bucket", "--plan per-block")]),
}
OTHER_OP = {"add.Tensor": "sub.Tensor", "sub.Tensor": "add.Tensor", "mul.Tensor": "add.Tensor", "tanh": "sigmoid",
            "rsqrt": "sqrt", "silu": "tanh", "neg": "abs", "relu": "neg", "exp": "tanh", "sigmoid": "tanh",
            "mul.Scalar": "add.Scalar"}

WRAPPER = """#!{python}
import subprocess, sys
done = subprocess.run([{tool!r}, *sys.argv[1:]], stdin=sys.stdin.buffer, stdout=subprocess.PIPE)
if done.returncode != 0 or {option!r} not in " ".join(sys.argv) + " ":
    sys.stdout.buffer.write(done.stdout)
    sys.exit(done.returncode)
text = subprocess.run([{print!r}, "-"], input=done.stdout, stdout=subprocess.PIPE, check=True).stdout.decode()
text = text.replace({old!r}, {new!r}, 1)
made = subprocess.run([{parse!r}, "-q", "-"], input=text.encode(), stdout=subprocess.PIPE, check=True)
sys.stdout.buffer.write(made.stdout)
"""


def sg(bin_dir, *words, **more):
    return subprocess.run([os.path.join(bin_dir, words[0]), *words[1:]], capture_output=True, timeout=3600, **more)


def mutated(rng, text):
    """A line of a node, and what it is with a bug; None when the draw was none."""
    lines = [l for l in text.splitlines() if re.match(r"    %\w+ = aten\.", l)]
    line = rng.choice(lines)
    head, call, rest = re.match(r"(    %\w+ = )(aten\.[\w.]+\(.*?\))(\s+: .*)", line).groups()
    kind = rng.choice(("literal", "op", "operand"))
    if kind == "literal":
        numbers = [m for m in re.finditer(r"(?<=[ (])\d+\.\d+(e-?\d+)?(?=[,)])", call)]
        if not numbers:
            return None
        at = rng.choice(numbers)
        new = call[:at.start()] + repr(float(at[0]) * 1.25 + 0.5) + call[at.end():]
    elif kind == "op":
        op = re.match(r"aten\.([\w.]+)\(", call)[1]
        if op not in OTHER_OP:
            return None
        new = f"aten.{OTHER_OP[op]}({call[len(op) + 6:]}"
    else:
        operands = re.findall(r"%\w+", call)
        types = dict(re.findall(r"^    (%\w+) = .*?\)\s+: (.*?)(?:  .*)?$", text[:text.index(line)], re.M))
        alike = [v for v in types for o in operands if o in types and v != o and types[v] == types[o]]
        if not alike:
            return None
        other = rng.choice(alike)
        old = rng.choice([o for o in operands if o in types and types[o] == types[other] and o != other])
        new = re.sub(re.escape(old) + r"\b", other, call, count=1)
    return (line, head + new + rest) if new != call else None


def gives_other_bits(bin_dir, folder, before, after):
    done = sg(bin_dir, "sg-run", "-q", before, "--init", "seed:0", "--compare", after, "--bitwise", "--threads", "1")
    return done.returncode == 1


class Bug:
    def __init__(self, bin_dir, seed):
        self.bin, self.seed, self.rng = bin_dir, seed, random.Random(seed)
        self.step = "moe" if seed % 10 == 9 else "gpt2"
        self.source, self.stages = STEPS[self.step]
        self.at = self.rng.randrange(len(self.stages))

    def plant(self, folder):
        """The stage's result with a bug: the line and its other one."""
        graph = sg(self.bin, "sg-import", "-q", self.source).stdout
        for name, options in self.stages[:self.at + 1]:
            before, graph = graph, sg(self.bin, f"sg-{name}", "-q", "-", *options.split(), input=graph).stdout
        self.input_text = sg(self.bin, "sg-print", "-", input=before).stdout.decode()
        text = sg(self.bin, "sg-print", "-", input=graph).stdout.decode()
        good, bad = os.path.join(folder, "good.sg"), os.path.join(folder, "bad.sg")
        with open(good, "wb") as f:
            f.write(graph)
        for _ in range(400):
            found = mutated(self.rng, text)
            if found is None or text.count(found[0]) != 1:
                continue
            made = sg(self.bin, "sg-parse", "-q", "-", "-o", bad, input=text.replace(*found, 1).encode())
            if made.returncode == 0 and gives_other_bits(self.bin, folder, good, bad):
                return found
        raise AssertionError("no bug was found that changes a result")

    def install(self, folder, old, new):
        """A folder of tools of which one has the bug."""
        tools = os.path.join(folder, "bin")
        os.mkdir(tools)
        name, options = self.stages[self.at]
        for tool in sorted(set(os.listdir(self.bin))):
            if not tool.startswith("sg-") or tool == f"sg-{name}":
                continue
            if tool == "sg-recipe":            # it looks for the tools where it lies itself
                shutil.copy2(os.path.join(self.bin, tool), tools)
            else:
                os.symlink(os.path.join(self.bin, tool), os.path.join(tools, tool))
        path = os.path.join(tools, f"sg-{name}")
        with open(path, "w") as f:
            real = {t: os.path.join(self.bin, f"sg-{t}") for t in (name, "print", "parse")}
            f.write(WRAPPER.format(python=sys.executable, tool=real[name], option=options, print=real["print"],
                                   parse=real["parse"], old=old, new=new))
        os.chmod(path, 0o755)
        return tools

    def hunt(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new = self.plant(folder)
            tools = self.install(folder, old, new)
            recipe = os.path.join(folder, "r.yaml")
            with open(recipe, "w") as f:
                f.write(f"inputs:\n  step: {{import: '{self.source}'}}\nstages:\n")
                for name, options in self.stages:
                    words = re.findall(r"--(\S+)(?: ([^-]\S*))?", options)
                    f.write(f"  - {name}: {{" + ", ".join(f"{o}: {v or 'true'}" for o, v in words) + "}\n")
            done = sg(tools, "sg-recipe", "bisect", recipe, "--pipes", "--no-cache", cwd=folder)
            return self.verdict(done, old.split()[0], old)

    def verdict(self, done, node, line):
        out = done.stdout.decode()
        stage = self.stages[self.at][0]
        found = re.search(r"^the first bad one is (\S+) ", out)
        right = done.returncode == 1 and found is not None and found[1] == stage
        span = re.search(r"may touch (?:(%\S+)(?: \(.*\))? alone|(\d+) of (\d+) nodes: )", out)
        size = 0 if span is None else 1 if span[1] else int(span[2])
        was_there = line in self.input_text
        if was_there and size == 1 and span[1] != node:
            right = False
        return {"seed": self.seed, "step": self.step, "stage": stage, "right": right, "size": size,
                "was_there": was_there,
                "text": out if right else f"{out}{done.stderr.decode()[-3000:]}\nplanted: {line}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--bugs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line a bug, as they come")
    options = parser.parse_args()
    bin_dir = os.path.abspath(options.bin)
    seeds, found = range(options.first, options.first + options.bugs), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for f in pool.map(lambda seed: Bug(bin_dir, seed).hunt(), seeds):
            found.append(f)
            if not f["right"]:
                print(f"seed {f['seed']}: {f['step']}, {f['stage']}: not found\n{f['text']}")
            if options.verbose:
                print({key: value for key, value in f.items() if key != "text"}, flush=True)
    if options.table:
        rows = collections.defaultdict(list)
        for f in found:
            rows[f["step"], f["stage"]].append(f)
        for (step, stage), some in sorted(rows.items()):
            there = [f for f in some if f["was_there"]]
            right, one = sum(f["right"] for f in some), sum(f["size"] == 1 for f in there)
            print(f"| {step} | {stage} | {len(some)} | {right} | {len(there)} | {one} |")
    failed = sum(not f["right"] for f in found)
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
