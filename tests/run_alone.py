#!/usr/bin/env python3
"""Every source compiles by itself: in a batch (SG_UNITY) a file gets along on its neighbours' includes.

run_alone.py --build DIR           the sources that the last commits touched, at most 40, the newest first
run_alone.py --build DIR --all     all of them; some 15 minutes of one core

They are only parsed (-fsyntax-only), by the commands of DIR/compile_commands.json.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

from harness import ROOT, Tally, run, skip

MOST = 40


def commands(build):
    """Source -> (folder, command that compiles it), members of a batch by the command of the batch."""
    out = {}
    with open(os.path.join(build, "compile_commands.json")) as f:
        entries = json.load(f)
    for entry in entries:
        words = [w for w in shlex.split(entry["command"]) if os.path.basename(w) != "ccache"]
        sources = [entry["file"]]
        if "/Unity/" in entry["file"]:
            with open(entry["file"]) as f:
                sources = re.findall(r'^#include "(.+)"$', f.read(), re.M)
        for source in sources:
            if source.endswith(".cc"):
                parse = [source if w == entry["file"] else w for w in words[:words.index("-o")]]
                out[os.path.relpath(source, ROOT)] = (entry["directory"], parse + ["-fsyntax-only", "-c", source])
    return out


def touched():
    """Sources by the newest commit that touched them; None without a history."""
    done = subprocess.run(["git", "log", "--format=", "--name-only", "-n", "300"], cwd=ROOT, capture_output=True, text=True)
    return list(dict.fromkeys(done.stdout.split())) if done.returncode == 0 else None


def parse(folder, command):
    run(*command, cwd=folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build's folder")
    parser.add_argument("--all", action="store_true", help="not those alone that were touched")
    args = parser.parse_args()
    known = commands(args.build)
    chosen = sorted(known)
    if not args.all:
        history = touched()
        if history is None:
            return skip("there is no history to tell which sources were touched")
        chosen = [source for source in history if source in known][:MOST]

    tally = Tally()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, parsed in [(source, pool.submit(parse, *known[source])) for source in chosen]:
            tally.hold(source, parsed.result)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
