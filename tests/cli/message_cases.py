"""Cases of run_cli_tests.py: places, caps, machine formats and colour of messages."""
import json
import re
import subprocess

from support import case, expect, run, run_on_terminal, small_binary, small_text, write

BROKEN = b"""sg 1.0 job "broken" world 1

graph rank *
  input %x : f32[2, 2] "x"

  forward -
    %relu = aten.relu(%y) : f32[2, 2]

  output %relu
"""


@case
def text_errors_have_line_caret_and_sum():
    done = expect(run(["sg-print"], BROKEN), 3, r"sg-print: <stdin>:7:\d+: error: ")
    lines = done.message.splitlines()
    assert any("%relu = aten.relu(%y)" in line for line in lines)
    caret = next(i for i, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1][lines[caret].index("^"):].startswith(("%y", "y")), done.message
    assert re.search("1 error$|1 finding$", lines[-1]), lines[-1]
    assert done.out == b""


@case
def findings_of_a_text_show_the_line():
    write("bad.txt", small_text().replace(b"aten.mm(%x, %w)", b"aten.mm(%w, %x)"))
    done = expect(run(["sg-check", "bad.txt"]), 1, r"sg-check: bad.txt:\d+:\d+: .*error: ", out="bad.txt: invalid")
    assert "%mm = aten.mm(%w, %x)" in done.message.replace("  ", " ")
    expect(run(["sg-print", "bad.txt"]), 3, r"bad.txt: error: not a valid graph: \d+ finding")


@case
def each_graph_gets_a_verdict():
    write("a.sg", small_binary())
    write("bad.txt", small_text().replace(b"aten.mm(%x, %w)", b"aten.mm(%w, %x)"))
    done = expect(run(["sg-check", "a.sg", "bad.txt"]), 1)
    assert [line.split(",")[0] for line in done.text.splitlines()] == ["a.sg: valid", "bad.txt: invalid"]
    done = expect(run(["sg-check", "a.sg", "bad.txt", "missing.sg", "--json"]), 3)
    report = json.loads(done.text)
    assert report["schema"] == "sg-check" and report["version"] == 1
    assert [f["verdict"] for f in report["files"]] == ["valid", "invalid", "unreadable"]
    assert expect(run(["sg-check", "-q", "a.sg"]), 0).out == b""


@case
def findings_are_capped_and_rules_listed():
    lines = [f"    %a{i} = aten.mm(%x, %x) : f32[2, 3]" for i in range(30)]
    text = "sg 1.0 job \"many\" world 1\ngraph rank *\n  input %x : f32[2, 2] \"x\"\n  forward -\n"
    write("many.txt", text + "\n".join(lines) + "\n  output %a0\n")
    done = expect(run(["sg-check", "many.txt"]), 1, "note: 10 more not shown", out="30 findings")
    assert done.message.count("error:") == 20
    assert expect(run(["sg-check", "many.txt", "--max-findings=2"]), 1, "28 more").message.count("error:") == 2
    expect(run(["sg-check", "--list-rules"]), 0, out="(?m)^inferred-type: ")


@case
def machine_formats_parse():
    write("b.txt", BROKEN)
    report = json.loads(expect(run(["sg-print", "--error-format=json", "b.txt"]), 3).message)
    assert report["schema"] == "sg-diagnostics" and report["version"] == 1 and report["tool"] == "sg-print"
    first = report["diagnostics"][0]
    assert (first["severity"], first["file"], first["line"]) == ("error", "b.txt", 7) and first["column"] > 0
    sarif = json.loads(expect(run(["sg-print", "--error-format", "sarif", "b.txt"]), 3).message)
    result = sarif["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert sarif["version"] == "2.1.0" and place["region"]["startLine"] == 7
    assert place["artifactLocation"]["uri"] == "b.txt"
    done = expect(run(["sg-print", "--error-format=github", "b.txt"]), 3)
    assert re.match(r"::error file=b.txt,line=7,col=\d+,title=[\w-]+::", done.message), done.message
    for fmt in ("json", "sarif"):      # a usage error too, and nothing wrong at all
        json.loads(expect(run(["sg-print", f"--error-format={fmt}", "--nope"]), 2).message)
        json.loads(expect(run(["sg-print", f"--error-format={fmt}"], small_text()), 0).message)


@case
def reports_carry_no_control_characters():
    write("g.txt", '''sg 1.0 job "evil \\u001b[31mred\\u0007 \\r over\\nagain" world 2
group @"d\\u001b[1mp" [0 1]
graph rank *
  param %n : f32[4] "fqn\\u001b[33m\\nnext"
  forward "mod\\u001b[34m.1\\u0085"
    at "file\\u001b[35m.py":3 "fun\\u001b[36m"
    %z = aten.relu(%n)
    %r = _c10d_functional.all_reduce(%z, "sum", @"d\\u001b[1mp")
    %w = _c10d_functional.wait_tensor(%r)
    %l = aten.sum(%w)
  loss %l
''')
    write("h.txt", open("g.txt", "rb").read().replace(b"aten.relu", b"aten.neg"))
    for command in ("sg-stat g.txt", "sg-stat g.txt --by op", "sg-stat g.txt --by phase", "sg-sim g.txt", "sg-run g.txt --plan", "sg-check g.txt",
                    "sg-diff g.txt h.txt", "sg-diff g.txt h.txt --stat", "sg-diff g.txt h.txt --side", "sg-explain g.txt z", "sg-log g.txt",
                    "sg-view g.txt --format dot", "sg-view g.txt --format svg", "sg-print g.txt", "sg-export g.txt", "sg-run g.txt --init seed:0"):
        done = run(command)
        for text in (done.out, done.message.encode()):
            found = [c for c in text.decode() if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]
            assert not found, (command, found, text)
    for command in ("sg-stat g.txt", "sg-sim g.txt", "sg-run g.txt --plan", "sg-diff g.txt h.txt", "sg-explain g.txt z", "sg-view g.txt"):
        out = run(command + " --json").out
        assert "\x85" in json.dumps(json.loads(out), ensure_ascii=False), (command, out)
    assert run("sg-stat g.txt").text.startswith("evil \\x1b[31mred\\x07 \\r over\\nagain\n")
    colored = run("sg-diff g.txt h.txt --color always").out
    assert b"\x1b[1m" in colored and b"\x07" not in colored and b"\r" not in colored, colored


@case
def messages_carry_no_control_characters():
    write("e.txt", BROKEN.replace(b"%y", b"\x1b[31m%y"))
    done = expect(run(["sg-print", "e.txt"]), 3)
    assert b"\x1b" not in done.err and b"\\x1b" in done.err
    expect(run(["sg-print", "no\x1b[2Jsuch"]), 3, r"no\\x1b")


@case
def color_follows_terminal_and_environment():
    for env, flags, colored in (({}, [], True), ({"NO_COLOR": "1"}, [], False), ({"NO_COLOR": ""}, [], True),
                                ({"TERM": "dumb"}, [], False), ({}, ["--color=never"], False),
                                ({"NO_COLOR": "1"}, ["--color=always"], True)):
        _, out = run_on_terminal(["sg-print", "missing"] + flags, env={"TERM": "xterm", **env})
        assert ("\x1b[" in out) == colored, (env, flags, out)
    assert b"\x1b" not in run(["sg-print", "missing"]).err
    assert b"\x1b" in run(["sg-print", "missing", "--color=always"]).err
    _, out = run_on_terminal(["sg-print", "missing"], stderr=subprocess.DEVNULL)
    assert "\x1b" not in out


@case
def tensors_do_not_come_from_standard_input():
    write("a.sg", small_binary())
    done = expect(run(["sg-run", "a.sg", "--inputs", "-"]), 3, "standard input holds no tensors")
    assert "write them to a file" in done.message


@case
def findings_stand_in_the_order_of_lines_and_the_cap_has_a_name():
    body = "".join(f"  %v{i} = aten.relu(%x) : f32[{i + 3}]\n" for i in range(9))
    write("g", 'sg 1.0 job "g" world 1\ngraph rank *\n  input %x : f32[2]\n  %b = aten.add.Tensr(%x, %x) : f32[2]\n' + body
          + "  output %v8\n" + "  grad %b of %x\n")
    done = expect(run(["sg-check", "g", "--max-findings", "100"]), 1)
    lines = [int(n) for n in re.findall(r"^sg-check: g:(\d+):", done.message, re.M)]
    assert lines == sorted(lines) and len(lines) > 9, lines
    expect(run(["sg-check", "g"]), 1, r"g:4:3: .*warning: %b calls aten.add.Tensr, .*\[op-name\]\n +%b = aten.add.Tensr")
    done = expect(run(["sg-check", "g", "--max-findings", "3"]), 1, r"more not shown(.|\n)*note: --max-findings N shows the first N")
    errors = [int(n) for n in re.findall(r"^sg-check: g:(\d+):\d+: .*error", done.message, re.M)]
    assert errors == sorted(errors)[:3] and errors[0] == 5, errors
    write("t", "sg 1.0\n" + 'graph rank *\n' + "  %y = aten.relu(%z\n" * 30)
    assert expect(run(["sg-check", "t", "--max-findings", "25"]), 3).message.count(": error: ") >= 25


@case
def a_result_without_a_type_is_warned_about_as_sg_run_refuses_it():
    head = 'sg 1.0 job "x" world 1\ngraph rank *\n  input %x : f32[4]\n'
    write("g", head + "  %i = aten.nonzero(%x)\n  %j = aten.add.Tensor(%i, %i)\n  loss %j\n")
    done = expect(run(["sg-check", "g"]), 0, r"g:4:3: .*warning: the result of aten.nonzero.default has no type, nor has that of 1 further node: "
                                             r"sg-run refuses such a graph \[result-type\]\n +%i = aten.nonzero(.|\n)*hint: .*symbol u0 data")
    assert "g: valid" in done.text
    expect(run(["sg-run", "g", "--init", "seed:0"]), 4, "a result without a type(.|\n)*symbol u0 data")
    write("g", head + "  %y = aten.relu(%x)\n  output %y\n")
    assert "warning" not in expect(run(["sg-check", "g"]), 0).message
