"""Cases of run_cli_tests.py: sg-sim."""
import json
import re

from support import case, expect, read, run, write, write_small


@case
def sim_reports():
    write_small()
    done = expect(run(["sg-sim", "small.txt", "-m", "h200-8"]), 0, out=r"(?s)^h200-8: .* a step, simulated; 1 rank\n  compute .*critical path: time, .*\n")
    doc = json.loads(expect(run(["sg-sim", "small.txt", "--json", "--trace", "t.json"]), 0).text)
    assert doc["schema"] == "sg-sim" and doc["machine"] == "h100-8" and doc["critical_path"], doc
    parts = doc["compute_us"] + sum(doc["exposed_us"].values()) + doc["copy_us"] + doc["host_us"] + doc["tail_us"]
    assert abs(parts - doc["makespan_us"]) < 1e-6 * doc["makespan_us"], doc
    events = [e for e in json.loads(read("t.json"))["traceEvents"] if e["ph"] == "X"]
    assert events and max(e["ts"] + e["dur"] for e in events) <= doc["makespan_us"] * (1 + 1e-9), events[:3]
    faster = json.loads(expect(run(["sg-sim", "small.txt", "--json", "--set", "device.kernel_us=0.1", "--set", "host=0.01x"]), 0).text)
    assert faster["makespan_us"] < doc["makespan_us"], (faster, doc)


@case
def sim_machines():
    write_small()
    expect(run(["sg-sim", "small.txt", "--ranks", "0"]), 2, "`--ranks` takes a number from 1 up")
    expect(run(["sg-sim", "--list"]), 0, out=r"(?m)^h100-8 +8 x H100")
    expect(run(["sg-sim", "--show-machine", "-m", "b200-8", "--set", "pcie=2x", "-o", "mine.yaml"]), 0)
    expect(run(["sg-sim", "--show-machine", "--trace", "t.json"]), 2, "--show-machine simulates nothing")
    expect(run(["sg-sim", "small.txt", "-m", "mine.yaml"]), 0, out="^b200-8: ")
    expect(run(["sg-sim", "small.txt", "-m", "h100"]), 2, "there is no machine `h100`")
    expect(run(["sg-sim", "small.txt", "-m", "./none.yaml"]), 3, "none.yaml")
    write("bad.yaml", "name: x\nbase: h100-8\nnetwork:\n  nvlink_gbps: 3\n")
    expect(run(["sg-sim", "small.txt", "-m", "bad.yaml"]), 3, r"bad.yaml:4:3: error: a machine has no `network.nvlink_gbps`")
    expect(run(["sg-sim", "small.txt", "--set", "nvlnk=2x"]), 2, "did you mean `nvlink`")
    expect(run(["sg-sim", "small.txt", "--set", "nvlink=3"]), 2, "give a factor")
    expect(run(["sg-sim", "small.txt", "--set", "nvlink=0x"]), 2, "a factor of 0")
    for number in ("1e-308", "1e300"):
        expect(run(["sg-sim", "small.txt", "--set", "device.memory_gbps=" + number]), 2, "from 1e-9 to 1e15")
        write("far.yaml", f"name: x\nbase: h100-8\ndevice: {{memory_gbps: {number}}}\n")
        expect(run(["sg-sim", "small.txt", "-m", "far.yaml"]), 3, "far.yaml:3:.*from 1e-9 to 1e15")


@case
def sim_is_held_against_a_profile_and_fitted_to_it():
    write("step.txt", """sg 1.0 world 2
group @g [0 1]
graph rank *
  input %x : f32[512, 512] "x"
  %s = _c10d_functional.all_reduce(%x, "sum", @g)
  %y = aten.mm(%x, %x)
  %v = _c10d_functional.wait_tensor(%s)
  %z = aten.add.Tensor(%y, %v)
  output %z
""")
    expect(run(["sg-run", "step.txt", "--init", "seed:0", "--steps", "3", "--profile", "p.json"]), 0)
    held = ["sg-sim", "step.txt", "-m", "cpu-here", "--measured", "p.json"]
    expect(run(held), 0, out=r"(?s)measured by sg-run: .* a step \(3 steps, 2 ranks\); simulated .*\n  matmul .*\n  exposed all_reduce ")
    expect(run([*held, "--trace", "both.json"]), 0)
    names = {e["args"]["name"] for e in json.loads(read("both.json"))["traceEvents"] if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1", "simulated: each of 2 ranks"}, names
    expect(run([*held, "--calibrate", "-o", "fit.yaml"]), 0)
    held[3] = "fit.yaml"
    rows = json.loads(expect(run([*held, "--json"]), 0).text)["measured"]["residuals"]
    fitted = [r for r in rows if r["what"] != "exposed" and r["measured_us"] > 0]
    assert fitted and all(abs(r["simulated_us"] / r["measured_us"] - 1) < 0.01 for r in fitted), rows
    write("no.json", "{}")
    expect(run([*held[:-1], "no.json"]), 3, "no.json: error: not a trace")
    expect(run([*held[:-1], "none.json"]), 3, "none.json")
    write("other.txt", "sg 1.0\ngraph rank *\n  input %x : f32[8]\n  %else = aten.add.Tensor(%x, %x)\n  output %else\n")
    expect(run(["sg-sim", "other.txt", "--measured", "p.json"]), 4, "p.json: error: the profile is of another graph: none of its 4 nodes")
    expect(run([*held, "--calibrate", "--json"]), 2, "--calibrate writes a machine")
    expect(run(["sg-sim", "step.txt", "--calibrate"]), 2, "needs no graph")
    expect(run(["sg-sim", "step.txt", "--repeats", "3"]), 2, "--repeats needs --calibrate")


@case
def this_machine_is_measured():
    write_small()
    expect(run(["sg-sim", "--calibrate", "--repeats", "0"]), 2, "--repeats takes 1 to 1000")
    expect(run(["sg-sim", "--calibrate", "--ranks", "257"]), 2, "--ranks takes 1 to 256")
    done = expect(run(["sg-sim", "--calibrate", "--ranks", "2", "--repeats", "1", "-o", "here.yaml"]), 0)
    yaml = read("here.yaml").decode()
    assert re.search(r"(?m)^#   device.f32_tflops +[0-9.e-]+ +\+0.0 % +\+0.0 %$", yaml), yaml
    assert re.search(r"f8_tflops: 0\b", yaml), yaml
    assert "2 ranks of" in yaml and "network.exchange.within_gbps" in yaml, yaml
    expect(run(["sg-sim", "small.txt", "-m", "here.yaml"]), 0, out="^cpu-here: ")
