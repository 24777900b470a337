#!/usr/bin/env python3
"""run_golden_ci.py --bin DIR: what docs/tasks/goldens-in-ci.md says of shells, and docs/diff.md of git, done as written.

It is done in a scratch repository. Shell blocks and the steps of the workflow are taken out of the documents and run;
the capture is that of examples/02_a_real_step.
"""
import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = ROOT / "examples" / "02_a_real_step" / "gpt2-tiny.json.gz"


def blocks(document, language):
    text = (ROOT / "docs" / document).read_text()
    return [m[1] for m in re.finditer(rf"^```{language}\n(.*?)^```\n", text, re.S | re.M)]


def steps(workflow):
    """What the workflow's steps run, by name or by their first line."""
    out = {}
    for part in re.split(r"^      - ", workflow, flags=re.M)[1:]:
        name = re.search(r"name: (.*)", part)
        run = re.search(r"run: \|\n((?: {10}.*\n)+)", part) or re.search(r"run: (.*)", part)
        if run:
            script = "".join(line[10:] for line in run[1].splitlines(keepends=True)) if "\n" in run[1] else run[1]
            out[name[1] if name else script] = script
    return out


class Repository:
    def __init__(self, bin_dir, folder):
        self.folder = Path(folder)
        keep = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        self.env = {**keep, "PATH": f"{Path(bin_dir).resolve()}{os.pathsep}{os.environ['PATH']}", "HOME": folder,
                    "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                    "GIT_COMMITTER_EMAIL": "a@b",
                    "GITHUB_STEP_SUMMARY": f"{folder}/summary", "GIT_PAGER": "cat", "TERM": "dumb"}

    def run(self, script, code=0):
        done = subprocess.run(["bash", "-e", "-c", script], cwd=self.folder, env=self.env, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == code, f"exit {done.returncode}, not {code}:\n{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def edit_capture(self, old, new):
        path = self.folder / "capture" / "step.json.gz"
        text = gzip.decompress(path.read_bytes()).decode()
        assert old in text, old
        path.write_bytes(gzip.compress(text.replace(old, new).encode()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    make_step, first, check, bless, rule = blocks("tasks/goldens-in-ci.md", "sh")
    # The second block has the steps that take the place of the recipe's in the first.
    workflow = steps("".join(blocks("tasks/goldens-in-ci.md", "yaml")))
    with tempfile.TemporaryDirectory() as folder:
        repo = Repository(args.bin, folder)
        for part in ("train", "capture"):
            (repo.folder / part).mkdir()
        (repo.folder / "train" / "make_step.sh").write_text(make_step)
        (repo.folder / "capture" / "step.json.gz").write_bytes(CAPTURE.read_bytes())
        repo.run("git init -q -b main . && git add . && git commit -qm start")
        repo.run(first)
        assert repo.run(check) == ""
        golden = (repo.folder / "train" / "step.sg.txt").read_text()

        def compare(code):
            (repo.folder / "summary").write_text("")
            repo.run(workflow["sh train/make_step.sh > new.sg"])
            return repo.run(workflow["compare"], code), (repo.folder / "summary").read_text()

        assert compare(0) == ("", "```\n```\n")

        # Somebody changes the model: the clip of tanh's argument.
        repo.edit_capture("0.044715", "0.044716")
        repo.run(check, 1)
        annotations, summary = compare(1)
        place = re.search(r"^::error file=train/step.sg.txt,line=(\d+),", annotations, re.M)
        assert place and "0.044715" in golden.splitlines()[int(place[1]) - 1], annotations
        assert "-   %" in summary and "0.044716" in summary and summary.startswith("```\n--- train/step.sg.txt"), summary
        repo.run("sg-diff --format junit train/step.sg.txt new.sg | grep -q '<failure'")
        repo.run(rule)                                               # the peak is what it was

        # A break is no difference.
        repo.run("sh train/make_step.sh | head -c 2000 > new.sg")
        repo.run(workflow["compare"], 2)
        (repo.folder / "capture" / "step.json.gz").rename(repo.folder / "away")
        repo.run(check.splitlines()[0], 3)                           # make_step.sh says it before anything is compared
        (repo.folder / "away").rename(repo.folder / "capture" / "step.json.gz")

        repo.run(bless)
        assert "0.044716" in repo.run("git diff --cached -- train/step.sg.txt")
        repo.run("git commit -qam blessed")
        assert repo.run(check) == ""

        # Two branches bless: a conflict, mended by making it again.
        repo.run("git checkout -q -b other HEAD~1")
        repo.edit_capture("0.044715", "0.044717")
        repo.run(bless + "git commit -qam other")
        repo.run("git merge -q main", 1)
        repo.run("git checkout -q --ours capture/step.json.gz")
        repo.run(bless + "git add capture && git commit -qm merged")
        assert repo.run(check) == ""

        # docs/diff.md, "In git".
        section = (ROOT / "docs" / "diff.md").read_text().split("## In git\n")[1].split("\n\n")[0]
        commands = [line.split("  #")[0].strip() for line in section.splitlines() if line.startswith("    ")]
        repo.run("sh train/make_step.sh > step.sg && git add step.sg && git commit -qm binary")
        repo.edit_capture("0.044717", "0.044718")
        repo.run("sh train/make_step.sh > step.sg")
        shown = repo.run("\n".join(c.replace("git difftool", "git difftool -y") for c in commands) + "\ngit diff -- step.sg")
        tool, _, text = shown.partition("diff --git")
        assert "+   %" in tool and "0.044718" in tool, shown
        assert re.search(r"^-    %.*0\.044717", text, re.M) and re.search(r"^\+    %.*0\.044718", text, re.M), text
    print("docs/tasks/goldens-in-ci.md and docs/diff.md hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
