"""Cases of run_cli_tests.py: streams and forms of graphs, sources that are recognised or refused, pipes."""
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import zlib

from harness import is_sanitized
from support import (DATA, READERS, case, environment, expect, given, read, run, run_on_terminal, small_binary,
                     small_text, write)


@case
def every_form_from_file_and_stream():
    text, binary = small_text(), small_binary()
    write("g.sg", binary)
    write("renamed.bin", text)      # the content tells, never the name
    for arguments, stdin in ((["g.sg"], b""), (["renamed.bin"], b""), (["-"], text), ([], binary), (["-"], binary)):
        assert expect(run(["sg-print"] + arguments, stdin), 0).out == text
        assert expect(run(["sg-parse"] + arguments, stdin), 0).out == binary
        expect(run(["sg-check"] + arguments, stdin), 0, out="valid")


@case
def data_on_stdout_only():
    done = expect(run(["sg-import", os.path.join(DATA, "step.json")]), 0, r"^sg-import: read .*step.json: 6 nodes")
    assert done.out == small_binary()
    done = expect(run(["sg-import", os.path.join(DATA, "step.json"), "-q"]), 0)
    assert done.err == b""


@case
def output_form_follows_the_name():
    for name, is_text in (("a.txt", True), ("a.sg.txt", True), ("a.sg", False), ("a", False)):
        expect(run(["sg-parse", "-o", name], small_text()), 0, rf"wrote {re.escape(name)}: 6 nodes")
        assert read(name).startswith(b"sg 1.0") == is_text, name
    expect(run(["sg-parse", "--text", "-o", "b.sg"], small_text()), 0)
    assert read("b.sg").startswith(b"sg 1.0")
    assert expect(run(["sg-parse", "-o", "-"], small_text()), 0).out == small_binary()


@case
def captures_are_no_graphs_and_graphs_no_captures():
    for tool in READERS:
        expect(run([tool, os.path.join(DATA, "step.json")]), 3, "capture.*\n.*hint: import it first")
    expect(run(["sg-import"], small_binary()), 3, "graph already")
    expect(run(["sg-import"], small_text()), 3, "graph already")


@case
def other_sources_are_recognised_and_refused():
    for content, said in ((b"PK\x03\x04....", "not a whole zip archive"),
                          (b"graph():\n    %a : [num_users=1] = placeholder[target=a]\n", r"<stdin>:1:1: error: this is `print\(graph\)`"),
                          (b"class M(torch.nn.Module):\n    def forward(self, a):\n", "<stdin>:1:1: error: `M` has no return at its end"),
                          (b'V1121 02:33:03.218000 13001 a.py:28] {"str": ["x", 1]}\n', "the trace holds no artefacts")):
        expect(run(["sg-import"], content), 3, said)
    for content in (b"hello\n", b"\0\0\0\0", b"<html>", bytes(range(256))):
        expect(run(["sg-import"], content), 3, "unknown kind: sg-import reads capture JSON")
    expect(run(["sg-import", "--from", "pt2", os.path.join(DATA, "step.json")]), 3, "not a whole zip archive")
    expect(run(["sg-import"], b"PK\x03\x04...."), 3, "<stdin>: error: not a whole zip archive")


@case
def options_of_other_sources_are_refused():
    capture, archive = os.path.join(DATA, "step.json"), os.path.join(DATA, "..", "pt2", "tied", "model.pt2")
    done = expect(run(["sg-import", capture, "--rank", "2"]), 2, "--rank does not apply to a capture source")
    assert "name the file of that rank" in done.message and done.out == b""
    for words, said in (([capture, "--model", "foo"], "--model is for torch.export archives"),
                        ([capture, "--compile-id", "0/0"], "--compile-id is for a TORCH_TRACE log"),
                        ([capture, "--data", "w.safetensors"], "--data does not apply to a capture source"),
                        ([capture, "--list", "--model", "foo"], "--model does not apply"),
                        ([capture, "--list", "--check"], "--list and --check write a report each"),
                        ([archive, "--spmd"], "--spmd does not apply to a pt2 source"),
                        ([archive, "--rank", "0"], "--rank is for a TORCH_TRACE log")):
        expect(run(["sg-import", *words]), 2, said)
    expect(run(["sg-import", capture, "--spmd", "-q"]), 0)


@case
def exported_programs_bring_their_weights():
    source = os.path.join(DATA, "..", "pt2", "tied", "model.pt2")
    done = expect(run(["sg-import", source, "-o", "t.sg"]), 0, r"wrote t.safetensors: 3 tensors")
    assert os.path.exists("t.sg") and os.path.exists("t.safetensors")
    expect(run(["sg-check", "t.sg"]), 0)
    done = expect(run(["sg-import", source]), 0, r"3 tensors of weights and constants not written: name a file with --data")
    expect(run(f"sg-import {source} --data w.safetensors | sg-check"), 0, out="valid")
    assert read("w.safetensors") == read("t.safetensors")
    done = expect(run(["sg-import", "--list", source]), 0, out=r"e.weight  f32\[16, 8\]")
    report = json.loads(expect(run(["sg-import", "--list", "--json", source]), 0).text)
    assert report["kind"] == "pt2" and report["models"][0]["nodes"] == 7
    expect(run(["sg-import", "--model", "other", source]), 3, "no model `other`")
    with open("w.safetensors", "r+b") as older:     # of an import, and with other bytes
        older.seek(-1, os.SEEK_END)
        older.write(b"?")
    before = read("w.safetensors")
    os.makedirs("full/rank0.sg")                      # where the graph cannot go, its weights do not
    for weights in ("new.safetensors", "w.safetensors"):
        expect(run(["sg-import", source, "-o", "full/rank{r}.sg", "--data", weights]), 5, "cannot write")
    assert read("w.safetensors") == before and not os.path.exists("new.safetensors")
    expect(run(["sg-import", source, source]), 3, "a second pt2 source")
    expect(run(["sg-import", "--check", source]), 0, out="agree")
    expect(run(["sg-import"], b"{}"), 3, "<stdin>")
    expect(run(["sg-import"], gzip.compress(b"nonsense")), 3, "<stdin>")


def long_capture(nodes, bad=None):
    """A chain of so many negations; the type recorded for node `bad` is wrong in a way that no rule can repair."""
    typed = lambda name, size=4: {"name": name, "type": {"tensor": "float32", "shape": [size], "stride": [1], "device": "cpu"}}
    chain = [{**typed(f"n{i}"), "op": "aten.neg.default", "args": [{"ref": f"n{i - 1}" if i else "x"}], "kwargs": {}} for i in range(nodes)]
    if bad is not None:
        chain[bad]["type"]["stride"] = [-3]
    return json.dumps({"format": "step-capture", "version": 1, "producer": {"torch": "2.15"}, "world": {"size": 1, "rank": 0},
                       "inputs": [{**typed("x"), "kind": "input", "fqn": "x"}], "nodes": chain,
                       "outputs": [{"value": {"ref": f"n{nodes - 1}"}, "kind": "other"}]}).encode()


@case
def imports_written_ahead_are_those_written_after():
    whole = long_capture(5000)
    one = expect(run(["sg-import", "-q", "-j1"], whole), 0).out
    assert expect(run(["sg-import", "-q", "-j2"], whole), 0).out == one and len(one) > 100000
    expect(run(["sg-import", "-q", "-j2", "-o", "long.sg"], whole), 0)
    assert read("long.sg") == one
    for jobs in ("-j1", "-j2"):
        expect(run(["sg-import", jobs, "-o", "none.sg"], long_capture(5000, bad=4000)), 3, "not a valid graph: 1 finding$")
        assert not os.path.exists("none.sg")


@case
def gzip_is_read():
    assert expect(run(["sg-import", "-q"], gzip.compress(read(os.path.join(DATA, "step.json")))), 0).out != b""


@case
def the_ends_of_an_input_are_looked_at_first():
    """A large file that cannot be what it begins like is not read, or unpacked, to its end."""
    def peak(command, code, message):
        """In MiB."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
        said = process.stderr.read().decode(errors="replace")
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == code and re.search(message, said), (process.returncode, said)
        return 0 if is_sanitized(os.path.join(given.bin, command[0])) else used.ru_maxrss >> 10
    graph, large = small_binary(), 1900 << 20
    for name, size, head in (("cut.sg", large, graph), ("larger.sg", 3 << 30, graph), ("text.sg.txt", large, small_text())):
        write(name, head)
        os.truncate(name, size)
    assert peak(["sg-check", "cut.sg"], 3, f"the file ends after {large} bytes, without its seal") < 100
    assert peak(["sg-check", "larger.sg"], 3, "ends after 3221225472 bytes, without its seal|larger than 2 GiB") < 100
    assert peak(["sg-check", "text.sg.txt"], 3, "text.sg.txt:") < 200
    for name, head, said in (("zeros", b"", "not JSON"), ("object", b'{"a": 1', "not JSON")):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        packed = packer.compress(head) + b"".join(packer.compress(bytes(1 << 24)) for _ in range(12)) + packer.flush()
        write(name + ".json.gz", packed)
        assert peak(["sg-import", name + ".json.gz"], 3, said) < 100, name
    with open("sealed.sg", "wb") as f:                     # the seal is there, and not for so many bytes
        f.write(graph)
        f.seek(large)
        f.write(graph[-48:])
    assert peak(["sg-check", "sealed.sg"], 3, "the seal is for .* bytes, but there are") < 100


@case
def unreadable_inputs():
    os.mkdir("folder")
    write("empty", b"")
    for tool in READERS + ["sg-import"]:
        expect(run([tool, "missing.sg"]), 3, "missing.sg: error: no such file")
        expect(run([tool, "folder"]), 3, "folder: error: (this is )?a folder")
        expect(run([tool, "empty"]), 3, "empty: error: the input is empty")
        expect(run([tool], b""), 3, "<stdin>: error: the input is empty\n.*hint: the program before it")
        expect(run(f"{tool} <&-"), 3, "<stdin>: error")
    for tool in READERS:
        for junk in (b"hello\n", b"\0" * 100, b"\xff" * 100, b"sgg 1.0\n", b"\n\n\n", b"# only a comment\n"):
            expect(run([tool], junk), 3, "<stdin>")
        expect(run(f"yes | {tool}"), 3, "not a graph")             # endless, and not ours: no waiting, no memory
        expect(run(f"{tool} /dev/zero"), 3, "not a graph")


@case
def terminal_as_input_is_usage():
    master, slave = pty.openpty()
    for tool in READERS + ["sg-import"]:
        done = subprocess.run([tool], stdin=slave, capture_output=True, env=environment(), timeout=30)
        assert done.returncode == 2 and b"Usage:" in done.stderr and done.stdout == b"", (tool, done)
    os.close(master)
    os.close(slave)


@case
def binary_to_a_terminal_is_refused():
    write("g.sg", small_binary())
    code, out = run_on_terminal(["sg-parse", "g.sg"])
    assert code == 2 and "terminal" in out and "SGSEAL" not in out, (code, out)
    code, out = run_on_terminal(["sg-parse", "g.sg", "-f"])
    assert code == 0 and "SGSEAL" in out, (code, out)
    code, out = run_on_terminal(["sg-parse", "g.sg", "--text"])
    assert code == 0 and "sg 1.0" in out, (code, out)


# --- pipes ---

@case
def pipes():
    source = os.path.join(DATA, "step.json")
    assert expect(run(f"sg-import -q {source} | sg-print"), 0).out == small_text()
    assert expect(run(f"sg-import -q {source} | sg-print | sg-parse | sg-print -"), 0).out == small_text()
    expect(run(f"sg-import -q {source} | sg-print | sg-check"), 0, out="valid")


@case
def truncated_pipe_is_an_error_of_the_next_tool():
    binary = small_binary()
    for length in sorted({1, 3, 7, 8, 40, len(binary) // 2, len(binary) - 49, len(binary) - 48, len(binary) - 1}):
        write("cut.sg", binary[:length])
        done = expect(run("cat cut.sg | sg-print"), 3, "<stdin>")
        assert done.out == b"", length
    write("cut.sg", binary[:len(binary) - 5])
    expect(run("cat cut.sg | sg-print"), 3, "the stream from sg-import ended early")
    done = expect(run("sg-print cut.sg"), 3, r"cut.sg:@\d+: error: the file ends after \d+ bytes, without its seal \(written by sg-import\)")
    assert "pipe" not in done.message and "copy it or make it again" in done.message, done.message
    expect(run(f"sg-import -q {DATA}/step.json | head -c 300 | sg-check"), 3)
    expect(run("sg-import missing.json | sg-print"), 3, "(?s)missing.json.*the input is empty")


@case
def broken_pipe_is_quiet():
    write("big.txt", big_text(20000))
    expect(run("sg-parse big.txt -o big.sg -q"), 0)
    done = expect(run("sg-print big.sg | head -1"), 0, out=r"^sg 1\.0")
    assert done.err == b"", done.message
    done = run("(sg-print big.sg; echo code $? >&2) | head -1")
    assert done.message == "code 141\n", done.message
    process = subprocess.Popen(["sh", "-c", "trap '' PIPE; exec sg-print big.sg"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment())
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGPIPE and process.stderr.read() == b""
    process.stderr.close()
    write("small.txt", small_text())
    write("r.yaml", "inputs: {step: small.txt}\nstages: [clean]\n")
    for command in (["sg-recipe", "plan", "r.yaml"], ["sg-recipe", "schema"],
                    ["sg-sweep", "r.yaml", "--no-cache", "--fresh"]):      # which run other tools
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=60)
        os.close(writer)
        assert done.returncode == -signal.SIGPIPE and b"error" not in done.stderr, (command, done)


def big_text(nodes):
    lines = ["sg 1.0 job \"big\" world 1", "graph rank *", "  input %x : f32[2, 2] \"x\"", "  forward -"]
    previous = "x"
    for i in range(nodes):
        lines.append(f"    %relu_{i} = aten.relu(%{previous}) : f32[2, 2]")
        previous = f"relu_{i}"
    return "\n".join(lines + ["", f"  output %{previous}", ""])


@case
def a_page_is_refused_by_a_terminal():
    write("g.txt", small_text())
    code, out = run_on_terminal(["sg-view", "g.txt"])
    assert code == 2 and "write it to a file: -o step.html" in out and "<html" not in out, out[:400]
    code, out = run_on_terminal(["sg-view", "g.txt", "--format", "dot"])
    assert code == 0 and out.startswith("digraph"), out[:400]
    assert b"<html" in expect(run(["sg-view", "g.txt"]), 0).out


@case
def a_byte_order_mark_is_skipped():
    text = small_text()
    write("g.txt", text), write("bom.txt", b"\xef\xbb\xbf" + text)
    assert expect(run(["sg-print", "bom.txt"]), 0).out == expect(run(["sg-print", "g.txt"]), 0).out
    expect(run(["sg-check", "-"], b"\xef\xbb\xbf" + text), 0)
    write("c.json", b"\xef\xbb\xbf" + read(f"{DATA}/rank0/step.json"))
    expect(run(["sg-import", "--spmd", "c.json", "-o", "c.sg"]), 0)
    write("m.yaml", b"\xef\xbb\xbfname: mine\nbase: h100-8\n")
    expect(run(["sg-sim", "g.txt", "-m", "m.yaml"]), 0)
