#!/usr/bin/env python3
"""Graphs that run, edited word by word, through sg-run: whatever the edit makes of them, no crash, no hang, no internal error.

hostile_texts.py --bin DIR [--edits N] [--seed N] [TEXT...]

The texts are those of tests/fuzz/corpus/run, or the given ones. An edit changes a number, an element type, a truth value or
a word, drops an argument, or puts another value in its place. A run that fails ends with a documented exit code and says
why; an error of the run is one line. The text of a case that does not is kept as hostile-SEED-N.txt.
"""
import argparse
import glob
import os
import random
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DTYPES = ["f32", "f64", "bf16", "f16", "i64", "i32", "i16", "u8", "bool", "c64"]
NUMBERS = ["0", "1", "2", "3", "5", "7", "-1", "-2", "64", "1099511627776", "9223372036854775807",
           "-9223372036854775808"]
WORDS = ["sum", "summ", "tanh", "none", "avg", "left", "floor", "mean", ""]
ALLOWED = {0, 1, 3, 4, 5, 6}           # yes, no, unreadable, cannot apply, resources, a rank failed
NUMBER = r"(?<![\w.%@\"])-?\d+(?![\w.])"


def replace_one(line, pattern, give, rng):
    found = list(re.finditer(pattern, line))
    if not found:
        return line
    m = rng.choice(found)
    return line[:m.start()] + give(m) + line[m.end():]


def other_number(m, rng):
    near = str(int(m.group()) + rng.choice([-2, -1, 1, 2]))
    return near if rng.random() < 0.6 else rng.choice(NUMBERS)


def edited(lines, rng):
    """The lines with one edit in one of them."""
    at = rng.choice([i for i, line in enumerate(lines) if re.match(r"\s+(%|input |param |buffer )", line)])
    values = re.findall(r"^\s+(?:input |param |buffer )?(%\w+)", "\n".join(lines[:at]), re.M) or ["%x"]
    edits = [
        (NUMBER, lambda m: other_number(m, rng)),
        (NUMBER, lambda m: other_number(m, rng)),
        (r"\b(?:" + "|".join(DTYPES) + r")\b", lambda m: rng.choice(DTYPES)),
        (r"\b(?:true|false)\b", lambda m: "false" if m.group() == "true" else "true"),
        (r"(?<=[\[(, ])%\w+(?=[\], )])", lambda m: rng.choice(values)),
        (r", [^,\[\]()]+(?=[,)\]])", lambda m: ""),
        (r"(?<=[=( ])\"\w*\"(?=[,)])", lambda m: '"%s"' % rng.choice(WORDS)),
    ]
    pattern, give = rng.choice(edits)
    return lines[:at] + [replace_one(lines[at], pattern, give, rng)] + lines[at + 1:]


def fault(binary, text):
    """What is wrong with how sg-run takes the text; None for nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        command = [os.path.join(binary, "sg-run"), "-q", file.name, "--init", "seed:1", "--memory-limit", "256MiB",
                   "--timeout", "20"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
        except subprocess.TimeoutExpired:
            return "it hangs"
    errors = len(re.findall(r"(?:^|: )error: ", done.stderr, re.M))
    if done.returncode not in ALLOWED:
        return "exit code %d: %s" % (done.returncode, done.stderr.strip()[-300:])
    if done.returncode != 0 and errors == 0:
        return "exit code %d without a reason: %r" % (done.returncode, done.stderr[-300:])
    if done.returncode in (4, 5, 6) and errors != 1:
        return "%d errors: %s" % (errors, done.stderr.strip()[-600:])
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--edits", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("texts", nargs="*")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    names = args.texts or sorted(glob.glob(os.path.join(ROOT, "tests/fuzz/corpus/run/*.txt")))
    texts = [(name, open(name).read().split("\n")) for name in names]
    cases = [(name, "as it is", lines) for name, lines in texts]
    for n in range(args.edits):
        name, lines = texts[n % len(texts)]
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            lines = edited(lines, rng)
        cases.append((name, "edit %d" % n, lines))
    faults = 0
    for n, (name, what, lines) in enumerate(cases):
        why = fault(args.bin, "\n".join(lines))
        if why is None:
            continue
        faults += 1
        kept = "hostile-%d-%d.txt" % (args.seed, n)
        with open(kept, "w") as file:
            file.write("\n".join(lines))
        print("FAILED %s, %s (kept as %s): %s" % (os.path.basename(name), what, kept, why))
    print("%d texts, %d edits: %s" % (len(texts), args.edits, "%d faults" % faults if faults else "no fault"))
    return 1 if faults or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
