#!/usr/bin/env python3
"""Runs the commands of a document and holds what they print against what the document says.

run_docs.py --bin DIR [--update] [PAGE...]      "docs/recipes.md"; without one all that have a comment as below

Each page has a scratch folder of its own, with the tools on the PATH. What is done goes by the kind of a block:

    ```console   lines that begin with "$ " are run by bash, in order, with pipefail; a "\\" at their end joins the next
                 line. The lines below one are what it prints, standard error included; "exit N" is added when N is
                 not 0. A line "..." stands for any lines, "..." in a line for any text. Times and rates differ from
                 run to run: see `plain`
    ```pycon     ">>> " and "... " lines are run in one Python for the page; what is below them is what it shows.
                 "..." in a line stands for anything, as doctest's ELLIPSIS has it
    other kinds  are not run

Comments in the page, each on a line of its own, say the rest:

    <!-- docs: copy FROM [TO] -->    a file or folder of the repository goes to the scratch folder
    <!-- docs: link NAME -->         a folder of the repository lies there as well; "build" is the one with the tools
    <!-- docs: file NAME -->         the next block is that file
    <!-- docs: part of PATH -->      the lines of the next block stand in that file of the repository, in this order
    <!-- docs: succeed -->           the commands of the next block have to succeed; what they print is not shown
    <!-- docs: not run: WHY -->      the next block is not run
    <!-- docs: needs WHAT -->        from here on WHAT is needed (torch, numpy, a program); else the rest is skipped

--update writes what was printed into the page, but for blocks with "...".
"""
import argparse
import doctest
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import ROOT, SKIPPED, python_with

SECONDS = 300
COMMENT = re.compile(r"<!-- docs: (copy|link|file|part of|succeed|not run|needs)\b:? ?(.*?) ?-->")
MEASURED = re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)? ?(ns|us|ms|s|tokens/s|[GM]?flop/s|[KMG]iB/s)(?![\w/])")
MODULES = {"numpy": ["numpy"], "torch": ["torch", "safetensors"]}

DRIVER = r"""
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(compile(json.loads(line), "<page>", "single"), names)
        except BaseException as error:
            said = "".join(traceback.format_exception_only(type(error), error))
            print("Traceback (most recent call last):\n    ...\n" + said, end="")
    print(json.dumps(out.getvalue()), flush=True)
"""


def plain(text):
    """Without what differs from run to run: times, of which unit they are, rates, and the width of columns in lines that
    have them."""
    without = lambda found: "# time" if found[3] in ("ns", "us", "ms", "s") else f"# {found[3]}"  # noqa: E731
    lines = []
    for line in text.rstrip("\n").split("\n"):
        steady = MEASURED.sub(without, line)
        lines.append(re.sub(r" +", " ", steady).rstrip() if steady != line else line.rstrip())
    return lines


def matches(expected, actual):
    """Line by line; "..." alone is any number of lines, in a line any text, beside which columns may be of any width."""
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    line, found = expected[0], actual[0] if actual else ""
    if "..." in line:
        line, found = (re.sub(r" +", " ", text) for text in (line, found))
    pattern = ".*".join(map(re.escape, line.split("...")))
    return bool(actual) and re.fullmatch(pattern, found) is not None and matches(expected[1:], actual[1:])


class Block:
    def __init__(self, kind, lines, at):
        self.kind, self.lines, self.at = kind, lines, at        # `at`: the number of its first line in the page


def parts(text):
    """The page as comments ("copy", "FROM TO") and blocks, in order."""
    lines, out, i = text.split("\n"), [], 0
    while i < len(lines):
        comment = COMMENT.fullmatch(lines[i].strip())
        fence = re.fullmatch(r"```(\w*)", lines[i])
        if comment:
            out.append((comment[1], comment[2]))
        elif lines[i].strip().startswith("<!-- docs:"):
            raise AssertionError(f"line {i + 1}: no such comment: {lines[i]}")
        elif fence:
            end = lines.index("```", i + 1)
            out.append(("block", Block(fence[1], lines[i + 1:end], i + 1)))
            i = end
        i += 1
    return out


class Page:
    def __init__(self, page, bin_dir, folder, update):
        self.page, self.folder, self.update = page, folder, update
        self.path = os.path.join(ROOT, page)
        with open(self.path) as file:
            self.text = file.read()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "STEPGRAPH_CACHE"))}
        self.env.update(HOME=folder, NO_COLOR="1", TERM="dumb", LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1",
                        STEPGRAPH_CACHE=os.path.join(folder, ".cache"),
                        PYTHONPATH=os.pathsep.join(os.path.join(ROOT, "tools", p) for p in ("capture", "python")))
        self.bin, self.shims = os.path.abspath(bin_dir), os.path.join(folder, ".shims")
        os.mkdir(self.shims)
        self.use(sys.executable)
        self.failures, self.ran, self.edits, self.session = [], 0, {}, None

    def use(self, python):
        """`python` and `python3` on the page are this one."""
        self.python = python
        for name in ("python", "python3"):
            shim = os.path.join(self.shims, name)
            with open(shim, "w") as file:
                file.write(f'#!/bin/sh\nexec {python} "$@"\n')
            os.chmod(shim, 0o755)
        examples = os.path.join(os.path.dirname(self.bin), "examples")
        folders = [self.shims, self.bin, examples, os.path.dirname(python), os.environ["PATH"]]
        self.env["PATH"] = os.pathsep.join(folders)

    def has(self, what):
        """False = this and what follows is skipped."""
        return what in self.found if what in MODULES else shutil.which(what) is not None

    def find_python(self, wanted):
        """One Python for the whole page: that which has the most of what it needs, from the first on."""
        for count in range(len(wanted), 0, -1):
            python = python_with(*(module for w in wanted[:count] for module in MODULES[w]))
            if python is not None:
                self.use(python)
                return set(wanted[:count])
        return set()

    def fail(self, line, message):
        self.failures.append(f"{self.page}:{line}: {message}")

    def run(self):
        note, page = None, parts(self.text)
        self.found = self.find_python([value for kind, value in page if kind == "needs" and value in MODULES])
        for kind, value in page:
            if kind == "needs":
                if not self.has(value):
                    print(f"SKIPPED: {self.page}: there is no {value} here, which the rest needs")
                    break
            elif kind == "copy":
                source, _, target = value.partition(" ")
                target = os.path.join(self.folder, target or os.path.basename(source))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                source = os.path.join(ROOT, source)
                shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy(source, target)
            elif kind == "link":
                source = os.path.dirname(self.bin) if value == "build" else os.path.join(ROOT, value)
                os.symlink(source, os.path.join(self.folder, value))
            elif kind != "block":
                note = (kind, value)
            else:
                self.block(value, *(note or ("", "")))
                note = None
        if self.session:
            self.session.stdin.close()
            self.session.wait()
        if self.update and self.edits:
            self.write_updates()

    def block(self, block, note, value):
        if note == "file":
            path = os.path.join(self.folder, value)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write("\n".join(block.lines) + "\n")
        elif note == "part of":
            self.hold_against_file(block, value)
        elif note != "not run" and block.kind == "console":
            self.console(block, shown=note != "succeed")
        elif note != "not run" and block.kind == "pycon":
            self.python_session(block)

    def hold_against_file(self, block, path):
        with open(os.path.join(ROOT, path)) as file:
            rest = iter([line.strip() for line in file])
        for i, line in enumerate(block.lines):
            wanted = line.strip()
            if wanted not in ("", "...") and wanted not in rest:
                return self.fail(block.at + 1 + i, f"{path} has no such line (behind those above): {wanted}")
        self.ran += 1

    # --- console ---

    def console(self, block, shown):
        i, new, lines = 0, [], block.lines
        while i < len(lines):
            if not lines[i].startswith("$ "):
                self.fail(block.at + 1 + i, "a console block begins with a command: " + lines[i])
                return
            begin, command = i, lines[i][2:]
            while command.endswith("\\"):
                i += 1
                command = command[:-1] + lines[i]
            i += 1
            first_output = i
            while i < len(lines) and not lines[i].startswith("$ "):
                i += 1
            actual = self.command(command)
            new += lines[begin:first_output]
            expected = lines[first_output:i]
            self.ran += 1
            if not shown:
                new += expected
                if re.search(r"^exit \d+$", actual, re.M):
                    self.fail(block.at + 1 + begin, f"failed: {command}\n{actual}")
                continue
            holds = matches(plain("\n".join(expected)) if expected else [], plain(actual) if actual else [])
            keep = holds or any("..." in line for line in expected)
            new += expected if keep else actual.rstrip("\n").split("\n") if actual else []
            if not holds and not (self.update and not keep):
                shown_text = "".join(f"  {line}\n" for line in actual.splitlines())
                self.fail(block.at + 1 + begin, f"$ {command}\nprints\n{shown_text}and the page says\n" +
                          "".join(f"  {line}\n" for line in expected))
        if new != lines:
            self.edits[block.at] = (lines, new)

    def command(self, command):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder, env=self.env, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        return text + (f"exit {done.returncode}\n" if done.returncode else "")

    # --- Python ---

    def python_session(self, block):
        if self.session is None:
            self.session = subprocess.Popen([self.python, "-c", DRIVER], cwd=self.folder, env=self.env, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        checker, new, at = doctest.OutputChecker(), [], 0
        text = "\n".join(block.lines) + "\n"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        for example in doctest.DocTestParser().get_examples(text):
            self.session.stdin.write(json.dumps(example.source) + "\n")
            self.session.stdin.flush()
            actual = json.loads(self.session.stdout.readline())
            self.ran += 1
            count = len(example.source.rstrip("\n").split("\n"))
            new += block.lines[example.lineno:example.lineno + count]
            want = example.want if example.want else ""
            same = checker.check_output("\n".join(plain(want)) + "\n", "\n".join(plain(actual)) + "\n", flags)
            if same or "..." in want and self.update:
                new += want.rstrip("\n").split("\n") if want else []
                continue
            new += actual.rstrip("\n").split("\n") if actual else []
            if not self.update:
                shown = f">>> {example.source}shows\n{actual}and the page says\n{want}"
                self.fail(block.at + 1 + example.lineno, shown)
        if new != block.lines:
            self.edits[block.at] = (block.lines, new)

    def write_updates(self):
        lines, shift = self.text.split("\n"), 0
        for at in sorted(self.edits):
            old, new = self.edits[at]
            begin = at + shift
            assert lines[begin:begin + len(old)] == old
            lines[begin:begin + len(old)] = new
            shift += len(new) - len(old)
        with open(self.path, "w") as file:
            file.write("\n".join(lines))
        print(f"updated {self.page}")


def pages_with_commands():
    out = []
    for folder, _, files in sorted(os.walk(os.path.join(ROOT, "docs"))):
        out += [os.path.join(folder, name) for name in sorted(files) if name.endswith(".md")]
    return [page for page in [os.path.join(ROOT, "README.md"), *out] if "<!-- docs:" in open(page).read()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("pages", nargs="*")
    options = parser.parse_args()
    pages = options.pages or pages_with_commands()
    failed = ran = 0
    for name in pages:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.relpath(os.path.abspath(name), ROOT) if os.path.exists(name) else name
            page = Page(path, options.bin, folder, options.update)
            page.run()
        print("\n".join(page.failures), end="\n" if page.failures else "")
        failed, ran = failed + len(page.failures), ran + page.ran
    print(f"{ran - failed} passed, {failed} failed")
    return 1 if failed else 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
