#!/usr/bin/env python3
"""Writes the tiny captures of tests/data/cli: a linear layer with its gradient, alone and on two data-parallel ranks."""
import json
import os

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli")


def tensor(shape, stride):
    return {"tensor": "float32", "shape": shape, "stride": stride, "device": "cpu"}


def node(name, op, args, kind, phase, seq, **more):
    out = {"name": name, "op": op, "args": args, "type": kind, "module": "layer", "phase": phase, "seq": seq}
    out["source"] = {"file": "model.py", "line": 7 if phase == "forward" else 8, "function": "forward"}
    out.update(more)
    return out


def capture(rank, world):
    ref = lambda name: {"ref": name}
    like = {"kwargs": {"pin_memory": False, "memory_format": {"memory_format": "preserve_format"}}}
    nodes = [
        node("mm", "aten.mm.default", [ref("x"), ref("w")], tensor([2, 3], [3, 1]), "forward", 1),
        node("sum_1", "aten.sum.default", [ref("mm")], tensor([], []), "forward", 2),
        node("ones_like", "aten.ones_like.default", [ref("sum_1")], tensor([], []), "backward", 2, **like),
        node("expand", "aten.expand.default", [ref("ones_like"), [2, 3]], tensor([2, 3], [0, 0]), "backward", 2),
        node("t", "aten.t.default", [ref("x")], tensor([4, 2], [1, 4]), "backward", 1),
        node("mm_1", "aten.mm.default", [ref("t"), ref("expand")], tensor([4, 3], [3, 1]), "backward", 1),
    ]
    gradient = "mm_1"
    if world > 1:
        group = str(7 + rank)      # a group's name may differ from rank to rank
        nodes.append(node("all_reduce", "_c10d_functional.all_reduce.default", [ref("mm_1"), "sum", group],
                          tensor([4, 3], [3, 1]), "backward", 1))
        nodes.append(node("wait_tensor", "_c10d_functional.wait_tensor.default", [ref("all_reduce")],
                          tensor([4, 3], [3, 1]), "backward", 1))
        gradient = "wait_tensor"
    return {
        "format": "step-capture", "version": 1, "title": "tiny linear", "producer": {"torch": "2.15.0"},
        "world": {"size": world, "rank": rank, **({"mesh": {"axes": ["dp"], "shape": [world]}} if world > 1 else {})},
        "groups": [{"name": str(7 + rank), "axis": "dp", "ranks": list(range(world))}] if world > 1 else [],
        "symbols": [], "guards": [],
        "inputs": [
            {"name": "w", "type": tensor([4, 3], [3, 1]), "kind": "parameter", "fqn": "layer.weight"},
            {"name": "x", "type": tensor([2, 4], [4, 1]), "kind": "input", "fqn": "x"},
        ],
        "nodes": nodes,
        "outputs": [{"value": ref("sum_1"), "kind": "loss"},
                    {"value": ref(gradient), "kind": "gradient", "of": "layer.weight"}],
    }


def write(path, document):
    lines = []
    for key, value in document.items():
        if key in ("inputs", "nodes", "outputs"):
            rows = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f' "{key}": [\n{rows}\n ]')
        else:
            lines.append(f' "{key}": {json.dumps(value, separators=(",", ":"))}')
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write(os.path.join(HERE, "step.json"), capture(0, 1))
    for r in range(2):
        write(os.path.join(HERE, f"rank{r}", "step.json"), capture(r, 2))
