#!/usr/bin/env python3
"""What is made from the option tables besides --help: completions in real shells, manual pages, packages.

run_shell_tests.py --bin DIR [--build DIR] [NAME...]
  Shells are driven over a terminal: a line is typed, then Tab, then Return; a function in the tool's place prints the
  words it got.
  What is not here (zsh, fish, mandoc) is skipped aloud; `cmake/install-dependencies.sh --tests` installs it.
"""
import argparse
import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from harness import Cases  # noqa: E402

CASES = Cases()
case = CASES.add
BIN = BUILD = None
SKIPPED = set()

GRAPH = """sg 1.0 job "small" world 1
graph rank *
  symbol batch input [1, 64] hint 4
  param %w : f32[8, 8] "w"
  input %x : f32[batch, 8] "x"

  forward layers.0.mlp
    %mm_first  = aten.mm(%x, %w)
  forward layers.1.mlp
    %relu_last = aten.relu(%mm_first)
  forward -
    %of_no_module = aten.neg(%relu_last)

  output %of_no_module
"""

RECIPE = """parameters: {policy: default}
matrix: {chunks: [2, 4]}
inputs: {step: step.txt}
stages:
  - clean
  - remat: {policy: $policy}
"""


def have(program):
    found = shutil.which(program) is not None
    if not found and program not in SKIPPED:
        SKIPPED.add(program)
        print(f"SKIPPED: what needs {program}, which is not here (cmake/install-dependencies.sh --tests)")
    return found


def environment():
    env = dict(os.environ, PATH=BIN + os.pathsep + os.environ["PATH"], HOME=os.getcwd(), TERM="dumb", LC_ALL="C.UTF-8")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ENV", "BASH_ENV", "ZDOTDIR", "PROMPT_COMMAND"):
        env.pop(name, None)
    return env


def run(command, code=0, **more):
    done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, env=environment(),
                          timeout=300, **more)
    said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.returncode == code, f"exit {done.returncode}, not {code}: {command}\n{said}"
    return done.stdout


class Shell:
    """An interactive shell in which the tools print their words."""

    START = {
        "bash": (["bash", "--norc", "--noprofile", "-i"],
                 "bind 'set enable-bracketed-paste off'; bind 'set bell-style none';"
                 " bind 'set completion-query-items 0'; bind 'set page-completions off';"
                 " source <(stepgraph completions bash); for t in {tools}; do"
                 " eval \"$t() {{ printf 'GOT'; printf '<%s>' \\\"\\$@\\\"; echo; }}\"; done\n"),
        "zsh": (["zsh", "-f", "-i"],
                "PROMPT= RPROMPT=; unsetopt beep promptcr promptsp; unset zle_bracketed_paste; LISTMAX=0;"
                " autoload -Uz compinit; compinit -D -u; source <(stepgraph completions zsh);"
                " for t in {tools}; do eval \"$t() {{ printf GOT; printf '<%s>' \\\"\\$@\\\"; echo; }}\"; done\n"),
        "fish": (["fish", "--no-config", "-i"],
                 "function fish_prompt; end; stepgraph completions fish | source;"
                 " for t in {tools}; eval \"function $t; printf GOT; printf '<%s>' \\$argv; echo; end\"; end\n"),
    }

    def __init__(self, name):
        words, start = self.START[name]
        self.name, self.seen = name, ""
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.execvpe(words[0], words, environment())
        import fcntl
        import struct
        import termios
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        time.sleep(0.3)
        tools = sorted({line.split()[0] for line, _ in LINES})
        self.send(start.format(tools=" ".join(tools)))
        self.send("echo REA''DY\n")
        self.wait("READY")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def wait(self, pattern, seconds=20):
        end = time.time() + seconds
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.time()))
            assert ready, f"{self.name}: no /{pattern}/ in {self.seen!r}"
            self.seen += os.read(self.terminal, 65536).decode(errors="replace")
        match = re.search(pattern, self.seen)
        self.seen = self.seen[match.end():]
        return match

    def complete(self, line):
        """The words that the tool gets when Tab and Return are pressed behind `line`; a | is where the cursor is."""
        before, _, after = line.partition("|")
        self.send(before + after)
        self.send("\x02" * len(after))                       # Ctrl-B: a character to the left
        self.send("\t")
        time.sleep(0.15)
        self.send("\n")
        words = self.wait(r"GOT((?:<[^\r\n]*>)?)\r?\n")[1]
        return re.findall(r"<([^>]*)>", words)

    def close(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)


def prepare():
    with open("step.txt", "w") as f:
        f.write(GRAPH)
    with open("recipe.yaml", "w") as f:
        f.write(RECIPE)
    run("sg-parse -q step.txt -o step.sg")


BEHIND = "sg-print --node rel| step.sg"                     # the graph stands behind the cursor

# A line, and the words behind the tool's name after Tab: what the candidates begin with alike, where there are several.
LINES = [
    ("sg-sim --machine=h1", ["--machine=h100-"]),
    ("sg-print --expl", ["--explain"]),
    ("sg-print --explain ste|", None),                      # two files begin so
    ("sg-print step.s", ["step.sg"]),
    ("sg-print step.sg --node mm", ["step.sg", "--node", "mm_first"]),
    (BEHIND, ["--node", "relu_last", "step.sg"]),
    ("sg-print step.sg --node=mm", ["step.sg", "--node=mm_first"]),
    ("sg-explain step.sg rel", ["step.sg", "relu_last"]),
    ("sg-sim --machine=b2", ["--machine=b200-8"]),
    ("sg-sim -m h2", ["-m", "h200-8"]),
    ("sg-print --output=step.s", ["--output=step.sg"]),
    ("sg-sim --error-format gi", ["--error-format", "github"]),
    ("sg-chunk step.sg --modules layers.", ["step.sg", "--modules", "layers.*"]),
    ("sg-chunk step.sg --along=se", ["step.sg", "--along=seq"]),
    ("sg-concretize step.sg --bind ba", ["step.sg", "--bind", "batch="]),
    ("sg-remat step.sg --save op=aten.r", ["step.sg", "--save", "op=aten.relu.default"]),
    ("sg-run --init se", ["--init", "seed:"]),
    ("sg-run --watch nan,i", ["--watch", "nan,inf"]),
    ("sg-pipe step.sg --pass rem", ["step.sg", "--pass", "remat"]),
    ("sg-pipe step.sg --pass 'remat --pol|'", ["step.sg", "--pass", "remat --policy"]),
    ("sg-pipe step.sg --pass 'chunk --modules layers.*.|'", ["step.sg", "--pass", "chunk --modules layers.*.mlp"]),
    ("sg-recipe pl", ["plan"]),
    ("sg-recipe run recipe.yaml --set po", ["run", "recipe.yaml", "--set", "policy="]),
    ("sg-recipe run recipe.yaml --set chunks=4", ["run", "recipe.yaml", "--set", "chunks=4"]),
    ("sg-recipe bisect recipe.yaml cl", ["bisect", "recipe.yaml", "clean"]),
    ("sg-sweep recipe.yaml --over remat.bu", ["recipe.yaml", "--over", "remat.budget="]),
    ("sg-sweep recipe.yaml --stage cl", ["recipe.yaml", "--stage", "clean"]),
    ("stepgraph pri", ["print"]),
    ("stepgraph print step.sg --node mm", ["print", "step.sg", "--node", "mm_first"]),
    ("stepgraph help doc", ["help", "doctor"]),
    ("stepgraph completions fi", ["completions", "fish"]),
    ("sg-print nothing-like-it", ["nothing-like-it"]),
]


def lines_in(name):
    if not have(name):
        return
    prepare()
    shell = Shell(name)
    try:
        wrong = []
        for line, words in LINES:
            if name == "fish" and line == BEHIND:            # fish shows its completions no words behind the cursor
                continue
            got = shell.complete(line)
            if words is not None and got != words:
                wrong.append(f"{name}: {line!r} became {got}, not {words}")
        assert not wrong, "\n".join(wrong)
    finally:
        shell.close()


@case
def completions_in_bash():
    lines_in("bash")


@case
def completions_in_zsh():
    lines_in("zsh")


@case
def completions_in_fish():
    lines_in("fish")


@case
def completions_offer_all_there_is():
    """What is listed, as the tools say it to every shell."""
    prepare()
    def offered(*words):
        answer = run([words[0], "--complete", "words", str(len(words) - 2), *words[1:]])
        return [line.split("\t")[0] for line in answer.split("\n")[1:] if line.split("\t")[0]]
    assert {"--node", "--rank", "--output", "--json"} <= set(offered("sg-print", "-"))
    assert "--node" not in offered("sg-print", "--node", "a", "-")              # once given, not again
    assert "--pass" in offered("sg-pipe", "--pass", "clean", "--")              # but where it may be repeated
    assert offered("sg-pipe", "--pass", "") == ["clean", "remat", "chunk", "offload", "bucket", "overlap", "concretize"]
    policies = ["default", "full", "all", "none", "tags"]
    assert offered("sg-pipe", "--pass", "remat --policy ") == ["remat --policy " + p for p in policies]
    assert "remat --json" not in offered("sg-pipe", "--pass", "remat --")       # a stage has its pass's options
    assert "remat --best-effort" in offered("sg-pipe", "--pass", "remat --")    # and one that all passes have
    assert offered("sg-stat", "--by", "") == ["phase", "module", "op"]
    assert offered("sg-stat", "step.sg", "--by", "op", "--", "--j") == []       # no operand left
    assert offered("sg-chunk", "step.sg", "--modules", "layers.1") == ["layers.1", "layers.1.mlp"]
    assert offered("sg-chunk", "missing.sg", "--modules", "") == []
    assert offered("sg-recipe", "run", "recipe.yaml", "--set", "chunks=") == ["chunks=2", "chunks=4"]
    assert offered("sg-explain", "step.sg", "%re") == ["%relu_last"]
    assert offered("sg-print", "--no-such=", ) == []
    with open("broken.sg", "w") as f:
        f.write("sg 1.0 job")
    assert offered("sg-print", "broken.sg", "--node", "") == []
    run(["sg-print", "--complete"])                                             # nothing to answer, and no crash
    for words in (["bash", "x", ""], ["bash", "99", "sg-print --"], ["zsh", "7", "a"], ["fish", "0", "'"],
                  ["nosh", "0"]):
        run(["sg-print", "--complete", *words])


@case
def manual_pages_lint():
    tools = json.loads(run("stepgraph --help-json"))["commands"]
    names = ["stepgraph"] + ["sg-" + c for c in tools if c not in ("completions", "help")]
    for name in names:
        with open(name + ".1", "w") as f:
            f.write(run([name, "--help-man"]))
        options = json.loads(run([name, "--help-json"]))
        page = open(name + ".1").read()
        for o in options["options"] + options["common_options"]:
            assert "\\fB\\-\\-" + o["name"].replace("-", "\\-") + "\\fR" in page, (name, o["name"])
    if have("mandoc"):
        said = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *[n + ".1" for n in names]], capture_output=True,
                              text=True)
        assert said.stdout == "" and said.returncode == 0, said.stdout[:2000]
    if have("groff"):
        for name in names:
            said = subprocess.run(["groff", "-ww", "-z", "-man", "-Tutf8", name + ".1"], capture_output=True, text=True)
            assert said.returncode == 0 and said.stderr == "", said.stderr[:2000]
            text = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", name + ".1"], capture_output=True,
                                  text=True).stdout
            assert name.upper() + "(1)" in text and "--help-all" in text and "EXIT STATUS" in text, name


@case
def packages_hold_it_all():
    if BUILD is None or not have("cpack"):
        return
    run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", os.getcwd()])
    archive, = glob.glob("stepgraph-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall("unpacked", filter="data") if hasattr(tarfile, "data_filter") else tar.extractall("unpacked")
    top, = glob.glob("unpacked/stepgraph-*")
    for file in ("bin/sg-print", "bin/stepgraph", "share/man/man1/sg-print.1",
                 "share/bash-completion/completions/sg-print", "share/zsh/site-functions/_stepgraph",
                 "share/fish/vendor_completions.d/stepgraph.fish", "share/stepgraph/schema/recipe.schema.json",
                 "share/stepgraph/tools/capture/pyproject.toml", "share/stepgraph/tools/python/pyproject.toml",
                 "share/stepgraph/docs/cli.md", "share/stepgraph/examples/02_a_real_step/run.sh"):
        assert os.path.exists(f"{top}/{file}"), file
    prepare()
    assert "relu_last" in run([f"{top}/bin/stepgraph", "print", "step.sg"])
    report = json.loads(run([f"{top}/bin/stepgraph", "doctor", "--no-torch", "--need", "tools,manuals", "--json"]))
    assert top in report["findings"][0]["text"], report["findings"][0]
    debs = glob.glob("*.deb")
    if not debs:
        return
    main, = [d for d in debs if d.startswith("stepgraph_")]
    if have("dpkg-deb"):
        info = run(["dpkg-deb", "-I", main])
        version = run("stepgraph --version").split()[2]
        assert re.search(rf"Package: stepgraph\n(.*\n)* Version: {re.escape(version)}\n", info), info
        listed = run(["dpkg-deb", "-c", main])
        assert "./usr/bin/sg-run" in listed and "./usr/share/man/man1/sg-run.1" in listed
        assert "libsg_comm_mpi" not in listed
        if shutil.which("dpkg-shlibdeps"):
            assert re.search(r"Depends: .*libzip\d", info) and "openmpi" not in re.search("Depends: .*", info)[0], info
        for plugin in debs:
            if plugin != main:
                assert f"stepgraph (= {version})" in run(["dpkg-deb", "-I", plugin])


@case
def doctor():
    report = json.loads(run("stepgraph doctor --no-torch --json"))
    assert (report["schema"], report["version"]) == ("sg-doctor", 1)
    findings = {f["name"]: f for f in report["findings"]}
    assert list(findings) == ["tools", "processor", "memory", "cache", "manuals", "mpi", "cuda", "nccl"]
    assert all(f["state"] in ("ok", "absent", "broken") and f["text"] for f in report["findings"])
    assert findings["tools"]["state"] == "ok" and findings["processor"]["facts"][1]["value"] != "0"
    text = run("stepgraph doctor --no-torch")
    for f in findings.values():
        assert f"{f['state']:8}{f['name']:11}" in text, text
    run("stepgraph doctor --no-torch --need tools,processor --need memory")
    run("stepgraph doctor --need kuda", 2)
    run("stepgraph doctor --no-torch --need torch", 2)
    # A part of an installation is broken, and said.
    os.makedirs("a/bin")
    for tool in ("stepgraph", "sg-doctor", "sg-print"):
        shutil.copy(os.path.join(BIN, tool), "a/bin")
    with open("a/bin/sg-run", "w") as f:
        f.write("#!/bin/sh\necho 'sg-run (Stepgraph) 0.0.1'\n")
    os.chmod("a/bin/sg-run", 0o755)
    said = run("a/bin/stepgraph doctor --no-torch", 1)
    for line in (r"broken  tools .*; missing: sg-import, .*; of another version, or do not start: sg-run$",
                 "absent  manuals ", "absent  mpi .*not part of this build"):
        assert re.search("(?m)^" + line, said), said
    run("a/bin/stepgraph doctor --no-torch --need mpi", 1)
    # Pythons: one that has PyTorch (said by a stand-in), one that has not, none.
    has = "echo /p; echo 2.9.9; echo cpu; echo 0.5; echo 0.1"
    for name, script, wanted in (("with", has, r"(?m)^ok +torch +PyTorch 2\.9\.9 \(cpu\) in /p$"),
                                 ("without", "exit 1", r"(?m)^absent +torch +\S+without has no PyTorch")):
        with open(name, "w") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(name, 0o755)
        said = run(f"STEPGRAPH_PYTHON={os.getcwd()}/{name} stepgraph doctor")
        assert re.search(wanted, said), said
    assert "there is no ./none" in run("STEPGRAPH_PYTHON=./none stepgraph doctor")
    stub = os.path.join(BUILD, "tests", "gpu", "stub") if BUILD else ""
    if os.path.exists(os.path.join(stub, "libcuda.so.1")):
        said = run(f"LD_LIBRARY_PATH={stub} stepgraph doctor --no-torch --need cuda,nccl")
        assert re.search(r"(?m)^ok +cuda .*sg-run --backend cuda", said), said


def main():
    global BIN, BUILD
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--build", help="the build folder, for packages")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    BIN = os.path.abspath(args.bin)
    BUILD = os.path.abspath(args.build) if args.build else None
    return CASES.run(args.names)


if __name__ == "__main__":
    sys.exit(main())
