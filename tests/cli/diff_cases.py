"""Cases of run_cli_tests.py: sg-diff."""
import json
import os
import re

from json_schema import check_schema
from support import ROOT, case, expect, read, run, small_text, write


@case
def diff_exit_codes_and_streams():
    text = small_text()
    write("a", text)
    write("b", text.replace(b"aten.relu", b"aten.tanh").replace(b"aten.mm", b"aten.relu"))
    done = expect(run(["sg-diff", "a", "a"]), 0)
    assert (done.out, done.err) == (b"", b"")
    assert run(["sg-diff", "a", "-"], text).code == 0 and run(["sg-diff", "-", "a"], text).code == 0
    expect(run("sg-parse a | sg-diff a -"), 0)
    expect(run(["sg-diff", "a", "no-such"]), 2, "no such file")
    expect(run(["sg-diff", "a", "-"], text[:100]), 2, "error")
    expect(run(["sg-diff", "a"]), 2, "compares two graphs")
    expect(run(["sg-diff", "-", "-"], text), 2, "standard input is named twice")
    expect(run(["sg-diff", "--ignore", "nmae", "a", "a"]), 2, "did you mean `name`")
    expect(run(["sg-diff", "--stat", "--json", "a", "a"]), 2, "--json")
    expect(run(["sg-diff", "--stat", "--side", "a", "a"]), 2, "exclude each other")


@case
def diff_reports_in_every_form():
    text = small_text()
    lines = text.decode().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if " = aten." in line)
    name = re.search(r"%([\w.]+) =", lines[at]).group(1)
    write("a", text)
    write("b", re.sub(rf"%{re.escape(name)}\b", "%other", text.decode()))
    done = expect(run(["sg-diff", "a", "b"]), 1, out=r"^--- a\n\+\+\+ b\n")
    assert f"-   %{name} = " in done.text and "+   %other = " in done.text and done.err == b""
    expect(run(["sg-diff", "--ignore=name", "a", "b"]), 0)
    expect(run(["sg-diff", "--name-only", "a", "b"]), 1, out="renamed %other")
    expect(run(["sg-diff", "--stat", "a", "b"]), 1, out="1 renamed")
    expect(run(["sg-diff", "--side", "a", "b"], env={"COLUMNS": "100"}), 1, out=r" \| ")
    expect(run(["sg-diff", "a", "b", "-o", "report"]), 1)
    assert read("report") == done.out
    assert b"\x1b[" in run(["sg-diff", "--color=always", "a", "b"]).out
    document = json.loads(expect(run(["sg-diff", "--json", "a", "b"]), 1).out)
    check_schema(document, json.loads(read(os.path.join(ROOT, "schema", "sg-diff.schema.json"))))
    assert document["programs"][0]["counts"]["renamed"] == 1 and not document["same"]
    assert json.loads(run(["sg-diff", "--json", "a", "a"]).out)["same"]
    done = expect(run(["sg-diff", "--format=github", "a", "b"]), 1, out=r"^::error file=a,line=\d+,title=sg-diff edit::")
    line = int(re.search(r"line=(\d+)", done.text).group(1))
    assert lines[line - 1].split()[0] == f"%{name}", lines[line - 1]
    assert run(["sg-diff", "--format=github", "a", "a"]).out == b""
    import xml.etree.ElementTree as tree
    assert len(tree.fromstring(run(["sg-diff", "--format=junit", "a", "b"]).out).findall(".//failure")) == 1
    assert not tree.fromstring(run(["sg-diff", "--format=junit", "a", "a"]).out).findall(".//failure")
    sarif = json.loads(run(["sg-diff", "--format=sarif", "a", "b"]).out)
    assert sarif["version"] == "2.1.0" and len(sarif["runs"][0]["results"]) == 1
    assert sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    rules = [rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]]
    assert all(r["ruleId"] in rules and r["level"] == "error" and r["message"]["text"] for r in sarif["runs"][0]["results"]), sarif
    write("a {0}", text)
    odd = json.loads(run(["sg-diff", "--format=sarif", "a {0}", "b"]).out)
    assert odd["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20%7B0%7D", odd
    os.mkfifo("pipe")                      # it gives its text once: no lines are looked up in it, as nobody would write again
    assert json.loads(expect(run("cat a > pipe & sg-diff --format=sarif pipe b"), 1).out)["runs"][0]["results"]
    for width in (60, 100, 200):           # long lines go on in the next row
        side = run(["sg-diff", "--side", "a", "b"], env={"COLUMNS": str(width)}).text
        hunks = side[side.index("@@"):].splitlines()
        assert max(map(len, hunks[:8])) <= width and not any(row.endswith(" ") for row in hunks), hunks


@case
def diff_costs():
    text = small_text()
    write("a", text)
    lines = text.decode().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if " = aten.mm(" in line)
    name = re.search(r"%([\w.]+) =", lines[at]).group(1)
    write("b", "".join(lines[:at + 1] + [lines[at].replace(f"%{name} =", "%extra =")] + lines[at + 1:]))      # the product twice
    rows = lambda *args: {r["key"]: r["after"] - r["before"] for r in json.loads(expect(run(["sg-diff", "--json", *args, "a", "b"]), 1).out)["costs"]}
    assert rows()["critical_path_us"] > 0 and rows()["nodes"] == 1 and rows()["flops"] > 0, rows()
    write("slow.yaml", "name: slow\nbase: h100-8\ndevice:\n  kernel_us: 500\nhost:\n  launch_us: 1\n")
    assert rows("--machine", "slow.yaml")["critical_path_us"] > 400, rows("--machine", "slow.yaml")
    assert "critical_path_us" not in rows("--machine", "none") and rows("--no-cost") == {}
    expect(run(["sg-diff", "a", "b"]), 1, out="critical path on h100-8 ")
    expect(run(["sg-diff", "--machine", "h100", "a", "b"]), 2, "there is no machine `h100`")


@case
def diff_cuts_long_lists():
    def job(count, prefix="x"):
        inputs = "".join(f"  input %{prefix}{i} : f32[4]\n" for i in range(count))
        return "sg 1.0 world 1\n\ngraph rank *\n" + inputs + "".join(f"  output %{prefix}{i}\n" for i in range(count))
    write("a", job(30)), write("b", job(3)), write("c", job(30, "y"))
    done = expect(run(["sg-diff", "a", "b"]), 1)
    assert len(re.findall("input removed", done.text)) == 7 and "21 more (--full shows them)" in done.text, done.text
    assert len(re.findall("input removed", run(["sg-diff", "--full", "a", "b"]).text)) == 27
    expect(run(["sg-diff", "a", "c"]), 1, out="30 inputs changed only in name")


def annotated(*args):
    """The file and line of each edit that --format=github and --format=sarif tell; they agree."""
    github = re.findall(r"::error file=([^,]+)(?:,line=(\d+))?,title=sg-diff edit", run(["sg-diff", "--format=github", *args]).text)
    results = json.loads(run(["sg-diff", "--format=sarif", *args]).out)["runs"][0]["results"]
    places = [r["locations"][0]["physicalLocation"] for r in results if r["ruleId"] == "edit"]
    sarif = [(p["artifactLocation"]["uri"], str(p.get("region", {}).get("startLine", ""))) for p in places]
    assert github == sarif, (github, sarif)
    return github


@case
def diff_annotates_the_lines_of_the_parser():
    body = " input %x : f32[{0}]\n %y = aten.{1}(%x)\n output %y\n"
    two = lambda *ops: 'sg 1.0 job "x" world 2\n' + "".join(f"graph rank {r}\n" + body.format(r + 2, op) for r, op in enumerate(ops))
    write("a", two("relu", "relu")), write("b", two("tanh", "relu")), write("c", two("relu", "tanh"))
    assert annotated("a", "b") == [("a", "4")] and annotated("a", "c") == [("a", "8")]       # each rank's own program
    head = 'sg 1.0 job "x" world 1\ngraph rank *\n  input %x : f32[2]\n'
    write("t1", head + "\t%y = aten.relu(%x)\n  %\"z z\"=aten.relu(%y)\n  %u , %v=aten.max.dim(%\"z z\", 0)\n  output %u\n")
    for line, old, new in ((4, "aten.relu(%x)", "aten.tanh(%x)"), (5, "aten.relu(%y)", "aten.exp(%y)"), (6, "max.dim", "min.dim")):
        write("t2", read("t1").decode().replace(old, new))
        assert annotated("t1", "t2") == [("t1", str(line))], (line, annotated("t1", "t2"))
    rank = lambda r, op: 'sg 1.0 job "x" world 2\n' + f"graph rank {r}\n" + body.format(r + 2, op)
    for r in (0, 1):
        write(f"a{r}.txt", rank(r, "relu")), write(f"b{r}.txt", rank(r, ("relu", "exp")[r]))
    assert annotated("a{r}.txt", "b{r}.txt") == [("a1.txt", "4")]                            # the text of the rank
    expect(run("sg-parse a > a.sg && sg-parse b | sg-diff --format=github a.sg -"), 1, out="^::error file=a.sg,title=sg-diff edit::")


@case
def diff_says_another_where_both_sides_are_called_the_same():
    head = 'sg 1.0 job "x" world 1\ngraph rank *\n  input %x : f32[2]\n'
    write("a", head + "  %y = aten.relu(%x)\n  %z = aten.relu(%y)\n  output %z\n")
    write("b", head + "  %y = aten.tanh(%x)\n  %z = aten.exp(%y)\n  output %z\n")
    done = expect(run(["sg-diff", "a", "b"]), 1, out="value: another %z")
    assert not re.search(r"(\S+) -> \1(\s|$)", done.text), done.text
    assert run(["sg-diff", "--format=github", "a", "b"]).text.endswith("2 added, 2 removed: %25y, %25z\n")


@case
def diff_names_only():
    head = 'sg 1.0 job "x" world {0}\n{1}graph rank *\n  input %x : f32[2]\n'
    write("a", head.format(2, "group @dp [0 1]\n") + "  %y = aten.relu(%x)\n  %z = aten.exp(%y)\n  output %y\n  grad %z of %x\n")
    write("b", head.format(4, "group @dp [0 1] [2 3]\n") + "  param %w : f32[2] \"fc.w\"\n  %y = aten.relu(%x)\n  %t = aten.exp(%y)\n  %z = aten.exp(%t)\n"
                                                         "  output %t\n  grad %z of %x\n")
    lines = expect(run(["sg-diff", "--name-only", "a", "b"]), 1).text.splitlines()
    assert {"world changed", "group changed @dp", "input added %w", "output changed %t"} <= set(lines), lines
    assert all(re.fullmatch(r"(world |(group|input|output) )?(added|removed|changed|renamed|moved)( [%@]\w+)?", x) for x in lines), lines
