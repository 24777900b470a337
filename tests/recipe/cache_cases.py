"""Cases of run_recipes.py: the cache, where it knows, is broken, too large, read-only, shared, killed."""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

from support import RECIPE, Done, case, expect, given, read, sg, states, write


@case
def what_is_known_is_not_made_again():
    write("r.yaml", RECIPE)
    assert states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)) == {"step": "made", "clean": "made", "remat": "made"}
    first = read("out/default.sg")
    os.remove("out/default.sg")
    assert set(states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)).values()) == {"cached"}
    assert read("out/default.sg") == first
    expect(sg("sg-recipe", "plan", "r.yaml"), 0, out=r"^cached  remat")
    done = expect(sg("sg-recipe", "plan", "r.yaml", "--set", "policy=full"), 0, out=r"^cached  clean")
    assert "(`--policy default` is now `--policy full`)" in done.out, done.out
    assert states(expect(sg("sg-recipe", "run", "r.yaml", "--json", "--set", "policy=full"), 0)) == {"step": "cached", "clean": "cached", "remat": "made"}
    expect(sg("sg-recipe", "run", "r.yaml", "--set", "polici=full"), 2, "no parameter `polici`")


@case
def broken_entries_are_made_again():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    first = read("out/default.sg")
    rng = random.Random(1)
    for entry in glob.glob("cache/v1/*/*.sg"):
        data = bytearray(read(entry))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.5:
            data = data[:rng.randrange(len(data))]
        with open(entry, "wb") as f:
            f.write(data)
    assert set(states(expect(sg("sg-recipe", "run", "r.yaml", "--json"), 0)).values()) == {"made"}
    assert read("out/default.sg") == first
    # a cache that cannot be written costs nothing else
    expect(sg("sg-recipe", "run", "r.yaml", cache="/dev/null/none"), 0)
    assert read("out/default.sg") == first


@case
def the_cache_keeps_to_its_size():
    write("r.yaml", RECIPE)
    for policy in ("default", "full", "none"):
        expect(sg("sg-recipe", "run", "r.yaml", "--set", "policy=" + policy, "--cache-size", "1MiB"), 0)
    total = sum(os.path.getsize(p) for p in glob.glob("cache/v1/*/*"))
    assert total <= 1 << 20, total
    expect(sg("sg-recipe", "run", "r.yaml", "--cache-size", "big"), 2, "is not a size")


@case
def a_matrix_shares_what_is_equal():
    write("r.yaml", RECIPE.replace("parameters: {policy: default}", "matrix: {policy: [default, full, none]}"))
    done = expect(sg("sg-recipe", "run", "r.yaml", "--json", "-j3"), 0)
    found = states(done)
    assert len(found) == 9 and list(found.values()).count("made") == 5, found      # import and clean once
    digests = {s["name"]: s["digest"] for s in json.loads(done.out)["steps"]}
    assert digests["policy=default/clean"] == digests["policy=full/clean"] and digests["policy=default/remat"] != digests["policy=full/remat"]
    one = expect(sg("sg-recipe", "run", "r.yaml", "--json", "-j1", "--no-cache"), 0)
    assert digests == {s["name"]: s["digest"] for s in json.loads(one.out)["steps"]}
    assert len(os.listdir("out")) == 3
    write("clash.yaml", open("r.yaml").read().replace("out/$policy.sg", "out/one.sg"))
    expect(sg("sg-recipe", "check", "clash.yaml"), 1, "use the same file: out/one.sg")
    expect(sg("sg-recipe", "check", "r.yaml", "--set", "policy=full"), 0, out="valid, 2 stages$")


def as_nobody():
    """Root may write anywhere."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


@case
def a_read_only_cache_serves_and_is_left_alone():
    write("r.yaml", RECIPE.replace("    output: out/$policy.sg\n", ""))
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    os.chmod(".", 0o755)
    for folder, _, files in os.walk("cache"):
        os.chmod(folder, 0o555)
        for f in files:
            os.chmod(os.path.join(folder, f), 0o444)
    before = sorted(glob.glob("cache/v1/*/*"))
    try:
        done = expect(sg("sg-recipe", "run", "r.yaml", "--json", preexec_fn=as_nobody), 0)
        assert set(states(done).values()) == {"cached"}
        done = expect(sg("sg-recipe", "run", "r.yaml", "--json", "--set", "policy=full", "--cache-size", "1KiB",
                         preexec_fn=as_nobody), 0)
        assert states(done) == {"step": "cached", "clean": "cached", "remat": "made"}, done.out
        assert sorted(glob.glob("cache/v1/*/*")) == before
    finally:
        for folder, _, _ in os.walk("cache"):
            os.chmod(folder, 0o755)


@case
def a_full_disk_under_the_cache_costs_nothing_else():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0)
    whole = read("out/default.sg")
    run = f"STEPGRAPH_CACHE=full/cache exec {os.path.join(given.bin, 'sg-recipe')} run r.yaml --json"
    os.mkdir("full")
    disk = "mount -t tmpfs -o size=300k none full"
    if subprocess.run(["unshare", "-rm", "sh", "-c", disk], stderr=subprocess.DEVNULL).returncode != 0:
        print("SKIPPED: a_full_disk_under_the_cache: no disk can be mounted here")
        return

    def on_full_disk(script):
        return Done(subprocess.run(["unshare", "-rm", "sh", "-c", f"{disk} && {script}"], capture_output=True,
                                   timeout=120))

    done = expect(on_full_disk(f"({run}) && find full -type f >&2"), 0)
    assert set(states(done).values()) == {"made"} and read("out/default.sg") == whole
    assert not re.search(r"\.(tmp|part)", done.message), done.message
    # A result that has no room is an error that says so, and what stood there before is as it was.
    write("o.yaml", RECIPE.replace("output: out/$policy.sg", "output: full/out.sg"))
    done = on_full_disk(f"echo old > full/out.sg && head -c 200000 /dev/zero > full/else && (cd . && {run.replace('r.yaml', 'o.yaml --no-cache')}); echo $? >&2; cat full/out.sg >&2")
    assert "No space left" in done.message and done.message.endswith("5\nold\n"), done.message


@case
def two_runners_on_one_cache():
    write("r.yaml", RECIPE.replace("parameters: {policy: default}", "matrix: {policy: [default, full]}"))
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"))
    command = [os.path.join(given.bin, "sg-recipe"), "run", "r.yaml", "--json", "-j2"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) for _ in range(2)]
    answers = [json.loads(p.communicate()[0]) for p in both]
    assert all(p.returncode == 0 for p in both)
    assert [[s["digest"] for s in a["steps"]] for a in answers][0] == [s["digest"] for s in answers[1]["steps"]]


@case
def a_killed_runner_leaves_nothing_broken():
    write("r.yaml", RECIPE)
    expect(sg("sg-recipe", "run", "r.yaml", "--no-cache"), 0)
    whole = read("out/default.sg")
    began = time.time()
    expect(sg("sg-recipe", "run", "r.yaml", cache="other"), 0)
    length = time.time() - began
    rng = random.Random(7)
    env = dict(os.environ, STEPGRAPH_CACHE=os.path.abspath("cache"))
    for _ in range(given.kills):
        if rng.random() < 0.3:
            shutil.rmtree("cache", ignore_errors=True)
        if rng.random() < 0.5 and os.path.exists("out/default.sg"):
            os.remove("out/default.sg")
        runner = subprocess.Popen([os.path.join(given.bin, "sg-recipe"), "run", "r.yaml"], stderr=subprocess.DEVNULL, env=env,
                                  start_new_session=True)
        time.sleep(rng.random() * length)
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
        assert not os.path.exists("out/default.sg") or read("out/default.sg") == whole
        for entry in glob.glob("cache/v1/*/*.sg"):
            subprocess.run([os.path.join(given.bin, "sg-check"), "-q", entry], check=True, stdout=subprocess.DEVNULL)
    expect(sg("sg-recipe", "run", "r.yaml"), 0)
    assert read("out/default.sg") == whole
