"""Recipes without an end, or longer than anybody writes one: refused in time and in words."""
import os
import resource
import subprocess

from harness import is_sanitized
from support import GRAPH, case, expect, given, sg, write


@case
def what_has_no_end_is_not_read_to_it():
    def limit():
        if not is_sanitized(os.path.join(given.bin, "sg-recipe")):
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    recipe = lambda *words: sg("sg-recipe", *words, preexec_fn=limit)
    write("g.txt", GRAPH)
    os.symlink("/dev/zero", "zero.yaml")
    expect(recipe("check", "zero.yaml"), 1, "zero.yaml: error: has more than 4 MiB")
    write("r.yaml", "include: zero.yaml\nstages: [clean]\n")
    expect(recipe("check", "r.yaml"), 1, "r.yaml:1:10: error: cannot include zero.yaml: has more than 4 MiB")
    write("r.yaml", "inputs: {g: g.txt}\nmachine: zero.yaml\nstages: [clean]\n")
    expect(recipe("check", "r.yaml"), 1, "r.yaml:2:10: error: has more than 1 MiB")
    os.mkfifo("pipe")
    for source in "/dev/zero", "pipe":                 # a recipe reads what it takes by content more than once
        write("r.yaml", "inputs: {g: " + source + "}\nstages: [clean]\n")
        expect(recipe("run", "r.yaml"), 3, source + ": error: .*not a regular file")
        write("r.yaml", "inputs: {g: g.txt}\nstages:\n  - clean:\n    run: {inputs: " + source + "}\n")
        expect(recipe("run", "r.yaml"), 1, r"r.yaml:4:10: error: clean: .*not a regular file")


@case
def long_lists_end_in_time_or_are_refused():
    write("g.txt", GRAPH)
    start = "inputs: {g: g.txt}\nstages:\n"
    write("r.yaml", start + "  - remat\n" + 999 * "  - clean\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 0, "clean:999: sg-clean is meant to run before sg-remat", out="1,?000 stages")
    write("r.yaml", start + 1001 * "  - clean\n")
    expect(sg("sg-recipe", "check", "r.yaml"), 1, "r.yaml:3:3: error: more than 1,000 stages")
    for key in "parameters", "matrix":
        write("r.yaml", start + "  - clean\n" + key + ":\n" + "".join(f"  p{i}: 1\n" for i in range(10_001)))
        expect(sg("sg-recipe", "check", "r.yaml"), 1, f"r.yaml:5:3: error: `{key}` has more than 10,000 entries")


@case
def a_folder_that_is_gone_is_no_bug():
    write("g.txt", GRAPH)
    write("r.yaml", f"inputs: {{g: '{os.path.abspath('g.txt')}'}}\nstages: [clean, remat]\n")
    with open("r.yaml", "rb") as recipe:
        for threads in ("1", "4"):
            recipe.seek(0)
            gone = os.path.abspath("gone")
            os.mkdir(gone)
            command = f'cd {gone}; rmdir {gone}; exec {given.bin}/sg-recipe run - --no-cache -j{threads}'
            done = subprocess.run(["sh", "-c", command], stdin=recipe, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, (done.returncode, done.stderr)
