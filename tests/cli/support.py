"""What the cases of run_cli_tests.py share: the tools, commands and what is expected of them, a small graph, its ranks."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from harness import ROOT, Cases  # noqa: E402

DATA = os.path.join(ROOT, "tests", "data", "cli")
TOOLS = ["sg-bucket", "sg-check", "sg-chunk", "sg-clean", "sg-concretize", "sg-diff", "sg-doctor", "sg-explain",
         "sg-export", "sg-import", "sg-log", "sg-offload", "sg-overlap", "sg-parse", "sg-pipe", "sg-print",
         "sg-recipe", "sg-reduce", "sg-remat", "sg-run", "sg-sim", "sg-stat", "sg-sweep", "sg-view", "stepgraph"]
READERS = ["sg-bucket", "sg-check", "sg-chunk", "sg-clean", "sg-concretize", "sg-export", "sg-log", "sg-offload",
           "sg-parse", "sg-print", "sg-remat", "sg-run", "sg-sim", "sg-stat", "sg-view"]  # they take a graph

CASES = Cases()
case = CASES.add
given = SimpleNamespace(bin=None, probe=None, update=False)  # on the command line


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.text, self.message = out.decode(errors="replace"), err.decode(errors="replace")


def environment(extra=None):
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LANG")}
    env["PATH"] = given.bin + os.pathsep + env["PATH"]
    env.update(extra or {})
    return env


def run(command, stdin=b"", env=None, **more):
    """command: a list, or a string for sh. Standard input is empty unless given."""
    shell = isinstance(command, str)
    done = subprocess.run(["sh", "-c", command] if shell else command, input=stdin, capture_output=True,
                          env=environment(env), timeout=60, **more)
    return Done(done.returncode, done.stdout, done.stderr)


def expect(done, code, message=None, out=None):
    assert done.code == code, f"exit {done.code}, not {code}\nstdout: {done.text[:400]}\nstderr: {done.message[:1200]}"
    if message is not None:
        assert re.search(message, done.message), f"no /{message}/ in stderr: {done.message[:1200]}"
    if out is not None:
        assert re.search(out, done.text), f"no /{out}/ in stdout: {done.text[:1200]}"
    return done


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, content):
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def run_on_terminal(command, env=None, stderr=None, stdin=b""):
    """Standard output (and error) are a terminal. Returns (exit code, what came out)."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=slave, stderr=stderr or slave,
                               env=environment(env))
    os.close(slave)
    process.stdin.write(stdin)
    process.stdin.close()
    out = b""
    while True:
        ready, _, _ = select.select([master], [], [], 30)
        try:
            chunk = os.read(master, 65536) if ready else b""
        except OSError:
            chunk = b""
        if not chunk:
            break
        out += chunk
    os.close(master)
    return process.wait(timeout=30), out.decode(errors="replace")


def small_text():
    return run(["sg-import", os.path.join(DATA, "step.json"), "-q", "--text"]).out


def small_binary():
    return run(["sg-import", os.path.join(DATA, "step.json"), "-q"]).out


def write_small():
    write("small.txt", small_text())
    write("small.sg", small_binary())


def copy_ranks(count):
    shutil.copytree(DATA, "d")
    document = json.loads(read("d/rank1/step.json"))
    for rank in range(count):
        document["world"].update(size=count, rank=rank, mesh={"axes": ["dp"], "shape": [count]})
        document["groups"][0].update(name=str(7 + rank), ranks=list(range(count)))
        for node in document["nodes"]:
            if node["name"] == "all_reduce":
                node["args"][2] = str(7 + rank)
        os.makedirs(f"d/rank{rank}", exist_ok=True)
        write(f"d/rank{rank}/step.json", json.dumps(document))
