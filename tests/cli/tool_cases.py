"""Cases of run_cli_tests.py: sg-print, sg-import, sg-log, sg-explain, stepgraph, and what knows a graph file."""
import json
import os
import re
import shutil
import time

from support import DATA, ROOT, case, expect, read, run, small_binary, small_text, write, write_small


@case
def print_selects():
    write("g.sg", small_binary())
    expect(run(["sg-print", "g.sg", "--node", "mm"]), 0, out=r"# graph rank \*, node %mm\n.*aten.mm.*\n  .*aten.sum")
    expect(run(["sg-print", "g.sg", "-n", "%sum_1"]), 0, out="aten.sum")
    expect(run(["sg-print", "g.sg", "--node", "mm_11"]), 4, "did you mean `%mm_1`")
    expect(run(["sg-print", "g.sg", "--rank", "0"]), 0, out=r"graph rank \*")      # a world of one
    for tool in (["sg-print", "g.sg"], ["sg-export", "g.sg"], ["sg-explain", "g.sg", "mm"]):
        expect(run([*tool, "--rank", "1"]), 4, "holds no rank 1\n.*hint: it holds rank 0")
    expect(run(f"sg-import -q '{DATA}/rank{{r}}/step.json' | sg-print --rank 9"), 4, "hint: it holds ranks 0 to 1")
    write("m.txt", "sg 1.0 world 1\ngraph rank *\n  input %x : f32[4]\n  forward layers.0.mlp\n    %a = aten.relu(%x)\n"
                   "    %b = aten.neg(%a)\n  output %b\n")
    for words in (["sg-print", "m.txt", "--node", "layers.0"], ["sg-explain", "m.txt", "layers.0"]):
        expect(run(words), 4, "`layers.0` is a module of 2 nodes, from %a to %b")
    expect(run(["sg-explain", "%a", "m.txt"]), 3, "%a: error: no such file\n.*the graph comes first: sg-explain m.txt %a")
    expect(run(["sg-print", ""]), 2, "an argument is empty")


@case
def numbers_that_no_tool_can_take_are_refused():
    write("g.txt", small_text())
    expect(run(["sg-sim", "g.txt", "--ranks", "99999999999"]), 2, "`--ranks` takes at most 4294967295")
    largest = str(2**64 - 1)
    for words in (["--init", "seed:" + largest], ["--init", "seed:0", "--seed", largest], ["--init", "seed:0", "--chaos", largest]):
        expect(run(["sg-run", "g.txt", *words]), 0)
    expect(run(["sg-run", "g.txt", "--init", "seed:0", "--seed", str(2**64)]), 2, "whole number")
    expect(run(["sg-bucket", "g.txt", "--plan", "by-size:0"]), 2, "a bucket of 0 bytes holds nothing")
    for plan in ([], ["--plan", "per-block"]):
        expect(run(["sg-bucket", "g.txt", *plan, "--machine", "h100-8"]), 2, "--machine needs --plan auto")
    expect(run(["sg-bucket", "g.txt", "--plan", "auto", "--machine", "h100-8", "-o", "out.sg"]), 0)
    write("s.txt", "sg 1.0 world 1\ngraph rank *\n  symbol s0 input [1, 64] hint 4\n  input %x : f32[s0]\n  forward -\n"
                   "    %a = aten.relu(%x)\n  output %a\n")
    expect(run(["sg-sim", "s.txt", "--assume", "s0=4", "--assume", "s0=8"]), 2, "--assume gives s0 two values: 4 and 8")
    expect(run(["sg-sim", "s.txt", "--assume", "s0=4", "--assume", "s0=4"]), 0)


@case
def a_message_names_a_few_of_many_inputs():
    inputs = "".join(f"  input %x{i} : f32[4]\n" for i in range(52))
    text = "  forward -\n    %s0 = aten.add.Tensor(%x0, %x1)\n"
    text += "".join(f"    %s{i} = aten.add.Tensor(%s{i - 1}, %x{i + 1})\n" for i in range(1, 51))
    write("many.txt", "sg 1.0 world 1\ngraph rank *\n" + inputs + text + "  output %s50\n")
    done = expect(run(["sg-run", "many.txt"]), 3, "52 graph inputs have no value: %x0, %x1, %x2, %x3, %x4 and 47 more")
    assert max(len(line) for line in done.message.splitlines()) < 200, done.message
    write("one.txt", "sg 1.0 world 1\ngraph rank *\n  input %x : f32[4] \"x\"\n  forward -\n    %y = aten.relu(%x)\n  output %y\n")
    expect(run(["sg-run", "one.txt", "--init", "seed:0", "--outputs", "out.safetensors"]), 0)
    data = read("out.safetensors").replace(b'"out0"', b'"x"   ')       # as a file of inputs names it
    write("in.safetensors", data)
    done = expect(run(["sg-run", "one.txt", "--inputs", "in.safetensors", "--expect", "in.safetensors"]), 3, "the graph has no output `x`")
    assert "this is an input: is this the file for --inputs?" in done.message, done.message
    done = expect(run(["sg-run", "one.txt", "--init", "seed:0", "--expect", "none.safetensors"]), 3)
    assert done.message == "sg-run: none.safetensors: error: no such file\n", done.message


@case
def a_size_is_written_alike_everywhere():
    write("g.txt", small_text())
    for size in ("1000000", "1MB", "1000kB", "1000KB", "0.001GB", "1TB", "1TiB", "977 KiB"):
        expect(run(["sg-run", "g.txt", "--init", "seed:0", "--memory-limit", size]), 0)
        expect(run(["sg-recipe", "check", "-"], f"inputs: {{g: g.txt}}\nstages:\n  - clean:\n    assert: ['peak < {size}']\n".encode()), 0)
        expect(run(["sg-remat", "g.txt", "--best-effort", "--peak", size, "-o", "out.sg"]), 0)
    units = "KiB, MiB, GiB, TiB, kB, MB, GB or TB"
    expect(run(["sg-run", "g.txt", "--memory-limit", "foo"]), 2, f'--memory-limit: "foo" is not a size(.|\n)*{units}')
    expect(run(["sg-run", "g.txt", "--plan", "--memory-limit", "foo"]), 2, '--memory-limit: "foo"')
    write("r.yaml", "inputs: {g: g.txt}\nstages: [clean]\n")
    expect(run(["sg-recipe", "run", "r.yaml", "--cache-size", "x"]), 2, '--cache-size: "x" is not a size')
    expect(run(["sg-sweep", "r.yaml", "--peak", "x"]), 2, '--peak: "x" is not a size')
    expect(run(["sg-recipe", "check", "-"], b"inputs: {g: g.txt}\nstages:\n  - clean:\n    assert: ['peak < 3 stones']\n"), 1, units)


@case
def json_is_a_report_or_refused():
    write("g.txt", small_text())
    for words in (["sg-print", "g.txt"], ["sg-print", "g.txt", "--node", "mm"], ["sg-export", "g.txt"], ["sg-sim", "--list"],
                  ["sg-sim", "--show-machine"], ["sg-check", "--list-rules"], ["sg-log", "g.txt", "--replay"]):
        done = expect(run([*words, "--json"]), 2, "--json does not go with it")
        assert done.out == b"", words
    done = expect(run(["sg-run", "g.txt", "--init", "seed:1", "--dry-run", "--json", "-n", "3"]), 0)
    report = json.loads(done.text)
    assert (report["schema"], report["version"], report["steps"]) == ("sg-run-dry", 1, 3), report
    assert report["ranks"][0]["rank"] == 0 and report["ranks"][0]["input_bytes"] > 0, report


@case
def import_lists_and_reports():
    done = expect(run(["sg-import", "--list", os.path.join(DATA, "rank{r}", "step.json")]), 0, out="title +tiny linear")
    assert re.search(r"group +dp \[0 1\]", done.text) and "program   rank *: 8 nodes" in done.text
    report = json.loads(expect(run(["sg-import", "--list", "--json", os.path.join(DATA, "step.json")]), 0).text)
    assert report["nodes"] == 6 and report["world"] == 1
    done = expect(run(["sg-import", "--json", os.path.join(DATA, "step.json"), "-o", "o.sg"]), 0)
    assert json.loads(done.text)["schema"] == "sg-import" and json.loads(done.text)["file"] == "o.sg"


@case
def import_checks_types():
    source = os.path.join(DATA, "step.json")
    expect(run(["sg-import", "--check", source]), 0, out="types agree")
    expect(run(["sg-import", "--check", os.path.join(DATA, "rank{r}", "step.json")]), 0)
    document = json.loads(read(source))
    document["nodes"][4]["type"]["stride"] = [2, 1]      # t: not what a transposition gives
    write("wrong.json", json.dumps(document))
    expect(run(["sg-import", "--check", "wrong.json"]), 1, out=r"node %t.*recorded .*, inferred f32\[4, 2\] stride \[1, 4\]")
    report = json.loads(expect(run(["sg-import", "--check", "--json", "wrong.json"]), 1).text)
    assert report["unexplained"] == 1 and report["disagreements"][0]["result"] == "t"
    expect(run(["sg-import", "wrong.json"]), 3, "inferred-type")


@case
def one_rank_can_stand_for_all():
    source = os.path.join(DATA, "rank1", "step.json")
    expect(run(["sg-import", "--spmd", source, "-o", "s.sg"]), 0, "2 ranks running one program")
    expect(run(["sg-import", source, "-o", "one.sg"]), 0, "2 ranks in 1 program")
    expect(run(["sg-print", "one.sg"]), 0, out="graph rank 1\n")


@case
def provenance_of_makers_only():
    source = read(os.path.join(DATA, "step.json"))
    import hashlib
    digest = hashlib.sha256(source).hexdigest()
    text = expect(run(["sg-import", "-q", "--text"], source), 0).text
    assert [line for line in text.splitlines() if line.startswith("from ")] == [f"from sg-import 0.1.0 sha256:{digest}"], text
    again = expect(run(["sg-parse", "--text"], text.encode()), 0).text
    assert again == text


@case
def file_knows_graphs():
    if shutil.which("file") is None:
        print("SKIPPED: file_knows_graphs needs file(1), which this machine lacks")
        return
    write_small()
    magic = os.path.join(ROOT, "schema", "file.magic")
    expect(run(["file", "-b", "-m", magic, "small.sg"]), 0, out="^Stepgraph training step")
    assert "Stepgraph" not in run(["file", "-b", "-m", magic, "small.txt"]).text


@case
def umbrella_is_the_tools():
    write("g.sg", small_binary())
    for name in ("import", "print", "parse", "check", "stat"):
        assert expect(run(["stepgraph", "help", name]), 0).out == run([f"sg-{name}", "--help"]).out
        assert expect(run(["stepgraph", name, "--version"]), 0).out == run([f"sg-{name}", "--version"]).out
    assert expect(run(["stepgraph", "print", "g.sg"]), 0).out == small_text()
    expect(run(["stepgraph", "check", "missing"]), 3, "^sg-check: missing")
    expect(run(["stepgraph", "pritn"]), 2, "did you mean `stepgraph print`")
    expect(run(["stepgraph", "../bin/sg-print"]), 2, "unknown command")
    expect(run(["stepgraph", "help", "nope"]), 2, "unknown command")
    assert "Usage" in expect(run(["stepgraph"]), 2).message + run(["stepgraph"]).text


@case
def a_tool_starts_quickly():
    write("g.sg", small_binary())
    best = min(timed(["sg-print", "g.sg"]) for _ in range(10))
    assert best < 0.2, f"{best * 1000:.0f} ms"      # the figure itself (20 ms, release) is held by tests/bench


def timed(command):
    start = time.perf_counter()
    run(command)
    return time.perf_counter() - start


# --- sg-log, sg-explain ---

@case
def log_tells_and_replays():
    write_small()
    expect(run("sg-parse -q small.txt -o a.sg && sg-clean -q a.sg -o b.sg && sg-remat -q b.sg --policy full -o c.sg"), 0)
    done = expect(run(["sg-log", "c.sg"]), 0, out=r"(?s)\n2  sg-clean\n.*\n3  sg-remat --policy full\n.*\n=  this graph\n     is      sha256:")
    document = json.loads(expect(run(["sg-log", "c.sg", "--json"]), 0).out)
    assert document["schema"] == "sg-log" and [s["tool"] for s in document["history"]] == ["sg-import", "sg-clean", "sg-remat"], document
    assert document["digest"] in done.text and document["history"][2]["options"] == {"policy": "full"}
    import hashlib
    assert document["digest"] == "sha256:" + hashlib.sha256(read("c.sg")).hexdigest()
    for earlier, words in (("a.sg", "steps 2 to 3 done again: the same bytes"), ("b.sg", "step 3 done again: the same bytes")):
        expect(run(["sg-log", "c.sg", earlier, "--replay"]), 0, out=words)
    expect(run(["sg-log", "c.sg", "c.sg", "--replay"]), 0, out="^no step to do again: the graphs are the same bytes$")
    same = json.loads(expect(run(["sg-log", "c.sg", "c.sg", "--replay", "--json"]), 0).out)
    assert same == {"schema": "sg-log-replay", "version": 1, "first": 4, "steps": 0, "same": True, "other": ""}, same
    expect(run(["sg-log", "b.sg", "c.sg", "--replay"]), 4, "that graph was made from this one")
    expect(run("sg-clean -q c.sg -o d.sg && sg-log b.sg d.sg --replay"), 4, "that graph was made from this one")
    expect(run("sg-clean -q b.sg -o e.sg && sg-log c.sg e.sg --replay"), 4, "that graph is not in the history")
    expect(run(["sg-log", "-", "--replay"], b"sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[4]\n  output %x\n"), 4, "no history")
    expect(run(["sg-log", "c.sg", "a.sg"]), 2, "one graph")
    write("replay.sh", expect(run(["sg-log", "c.sg", "--replay"]), 0).out)
    expect(run(f"sh replay.sh {DATA}/step.json > again.sg && cmp again.sg c.sg"), 0)
    # Another option in the history than was used: the step that makes another graph is named. A tool that is none is not run.
    text = run(["sg-print", "c.sg"]).text
    write("lies.txt", text.replace('{"policy": "full"}', '{"policy": "none"}'))
    expect(run(["sg-log", "lies.txt", "a.sg", "--replay"]), 1, out="step 3 sg-remat --policy none made another graph")
    write("rm.txt", text.replace("from sg-clean", "from rm"))
    for given in (["rm.txt"], ["rm.txt", "a.sg"]):
        expect(run(["sg-log", *given, "--replay"]), 4, "`rm` is not a pass of this version")
    expect(run("sg-reduce -q c.sg --fails true -o small.sg && sg-log small.sg --replay"), 4, "`sg-reduce` is not a pass")
    write("odd.txt", text.replace('{"policy": "full"}', '{"output": "x"}'))
    for given in (["odd.txt"], ["odd.txt", "b.sg"]):
        expect(run(["sg-log", *given, "--replay"]), 4, "no option --output")


@case
def explain_tells_of_nodes():
    write("g.txt", """sg 1.0 world 2
group @dp [0 1]

graph rank *
  symbol u0 data [0, 8]
  guard u0 <= 8
  input %n : i64[]
  param %w : f32[4, 4] "layer.w"
  forward layer
  %u = aten._local_scalar_dense(%n) : int u0
  %r = aten.relu(%w) : f32[4, 4]
  %e = aten.expand(%r, [%u, 4, 4]) : f32[u0, 4, 4] stride [0, 4, 1]
  %g = _c10d_functional.all_reduce(%r, "sum", @dp) : f32[4, 4]
  %d = _c10d_functional.wait_tensor(%g) : f32[4, 4]
  output %e
  output %d
""")
    expect(run(["sg-explain", "g.txt", "%r"]), 0, out=r"(?s)^node       %r = aten.relu.*from       %w  param : f32\[4, 4\]  layer.w\nused by    %e .*%g .*memory     64 B at offset 0 of the arena.*feeds      %g  all_reduce @dp, 64 B, 1 node away")
    expect(run(["sg-explain", "g.txt", "e"]), 0, out=r"(?s)symbols    symbol u0 data \[0, 8\], defined by %u\n             guard u0 <= 8")
    expect(run(["sg-explain", "g.txt", "w"]), 0, out=r'(?s)^input      param %w.*memory     that of an input')
    document = json.loads(expect(run(["sg-explain", "g.txt", "r", "--json"]), 0).out)
    assert document["schema"] == "sg-explain" and document["feeds"][0]["name"] == "g" and document["memory"]["bytes"] == 64, document
    expect(run("sg-remat -q g.txt --policy full | sg-explain - r"), 0)
    expect(run(["sg-explain", "g.txt", "rr"]), 4, "did you mean")
    expect(run(["sg-explain", "g.txt"]), 2, "a graph and a node")
    expect(run(["sg-explain", "g.txt", "r", "--rank", "7"]), 4, "no rank 7")


SIZED = """sg 1.0 world 1
graph rank *
  symbol a input [1, 100] hint 6
  symbol b input [1, 100] hint 3
  guard {guard} at "model.py":7
  input %x : f32[a]
  input %y : f32[b]
  output %x
"""


@case
def concretize_drops_no_guard_that_cannot_hold():
    for guard, binds, message in (("(a*b) % 4 == 2", ["a=4"], r"model.py:7: error: the guard 0 == 2 does not hold"),
                                  ("a == 2*b", ["a=3"], "no sizes are left that meet all ranges and guards"),
                                  ("a == 2*b", ["a=4", "b=3"], "the guard .* does not hold: it would be 4 and 6")):
        write("sized.txt", SIZED.format(guard=guard))
        expect(run(["sg-concretize", "sized.txt", *[w for b in binds for w in ("--bind", b)], "-o", "out.sg"]), 4, message)
        assert not os.path.exists("out.sg")
    write("sized.txt", SIZED.format(guard="a == 2*b"))
    done = expect(run(["sg-concretize", "sized.txt", "--bind", "a=8", "-o", "out.txt"]), 0, "a = 8, b = 4")
    assert b"f32[4]" in read("out.txt"), done
    expect(run(["sg-run", "sized.txt", "--init", "seed:0", "--bind", "a=8"]), 0)


@case
def run_holds_the_first_graph_to_what_is_expected():
    write("g.txt", b"sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.relu(%x) : f32[4]\n  output %y\n")
    write("h.txt", b"sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[4]\n  %y = aten.exp(%x) : f32[4]\n  output %y\n")
    expect(run(["sg-run", "g.txt", "--init", "seed:0", "--outputs", "g.safetensors"]), 0)
    expect(run(["sg-run", "h.txt", "--init", "seed:0", "--outputs", "h.safetensors"]), 0)
    both = ["sg-run", "g.txt", "--init", "seed:0", "--compare", "g.txt", "--expect"]
    expect(run([*both, "g.safetensors"]), 0, out="as expected")
    expect(run([*both, "h.safetensors"]), 1, out="not as expected")
    expect(run([*both, "none.safetensors"]), 3, "none.safetensors")


@case
def plan_holds_to_a_limit_and_runs_nothing():
    write_small()
    expect(run(["sg-run", "small.sg", "--plan", "--memory-limit", "1GiB"]), 0)
    expect(run(["sg-run", "small.sg", "--plan", "--memory-limit", "1"]), 1, "beyond the inputs, the limit is 1")
    expect(run(["sg-run", "small.sg", "--plan", "--expect", "x"]), 2, "--plan runs nothing")
    dry = ["sg-run", "small.sg", "--init", "seed:0", "--dry-run"]
    expect(run([*dry, "--outputs", "out.safetensors"]), 0)
    expect(run([*dry, "--profile", "/proc/y"]), 5, "/proc/y")
    expect(run([*dry, "--compare", "none.sg"]), 3, "none.sg")
    assert not os.path.exists("out.safetensors")
    expect(run("sg-run - --compare - --init seed:0 < small.sg"), 2, "standard input is named twice")
    expect(run("sg-check - - < small.sg"), 2, "standard input is named twice")


@case
def print_leaves_the_history_out():
    write("g.txt", small_text())
    expect(run("sg-clean -q g.txt | sg-clean -q -o g.sg"), 0)
    whole, bare = run(["sg-print", "g.sg"]).text, expect(run(["sg-print", "g.sg", "--no-history"]), 0).text
    assert "\nfrom sg-clean" in whole and "\nfrom " not in bare
    assert [x for x in whole.splitlines() if not x.startswith("from ")] == bare.splitlines()
    write("bare.txt", bare.encode())
    expect(run(["sg-diff", "g.sg", "bare.txt"]), 0)
