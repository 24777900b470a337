"""A capture, run node by node by PyTorch straight from its JSON: what exported modules are held against.

Shares nothing with the importer or the exporter. Deliberately plain: a dictionary of values, a loop.
"""
import contextlib
import gzip
import json
import operator

import torch
import torch.distributed as dist

with contextlib.suppress(ImportError):   # torch 2.6 has none
    import torch._inductor.fx_passes.bucketing  # noqa: F401  registers torch.ops.bucketing

PYTHON = {"max": max, "min": min, "sym_max": max, "sym_min": min, "sym_float": float, "sym_not": operator.not_,
          "sym_sum": sum}
SYMPY = {"Max": max, "Min": min, "Mod": operator.mod, "PythonMod": operator.mod, "FloorDiv": operator.floordiv}
WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
        torch.complex64: torch.complex128}
_GROUPS = {}


def _scatter_add(tensor, index, src):
    torch.use_deterministic_algorithms(True)
    try:
        return torch.scatter_add(tensor, 0, index, src)
    finally:
        torch.use_deterministic_algorithms(False)


def _group(ranks):
    ranks = tuple(ranks)
    if ranks not in _GROUPS:
        _GROUPS[ranks] = dist.new_group(list(ranks), use_local_synchronization=True).group_name
    return _GROUPS[ranks]


def _target(name):
    if name == "torchtitan.deterministic_scatter_add.default":
        return _scatter_add
    space, _, rest = name.partition(".")
    if space == "python":
        return PYTHON.get(rest) or getattr(operator, rest)
    target = getattr(torch.ops, space)
    for part in rest.split("."):
        target = getattr(target, part)
    return target


class Replay:
    def __init__(self, path, in_double=False):
        """in_double: all floats are, which tells how far off the recorded ones may be."""
        self._wide = WIDE if in_double else {}
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            self.capture = json.load(file)
        self.groups = {group["name"]: group["ranks"] for group in self.capture.get("groups", [])}

    @torch.no_grad()
    def run(self, inputs):
        """The outputs by name, and what was written of `inputs`, as `mutated.NAME`."""
        inputs = {name: value.to(self._wide.get(value.dtype, value.dtype)) for name, value in inputs.items()}
        for slot in self.capture["inputs"]:
            stride = (slot.get("type") or {}).get("stride")
            if slot["name"] in inputs and stride is not None and all(isinstance(s, int) for s in stride):
                value = inputs[slot["name"]]
                if tuple(stride) != value.stride():
                    inputs[slot["name"]] = torch.empty_strided(value.shape, stride, dtype=value.dtype).copy_(value)
        before = {name: value.clone() for name, value in inputs.items()}
        results = self._graph(self.capture, [inputs.get(slot["name"]) for slot in self.capture["inputs"]], {})
        outputs = {f"out{i}": value for i, value in enumerate(results) if value is not None}
        for name, value in inputs.items():
            if not torch.equal(value.nan_to_num(), before[name].nan_to_num()):
                outputs[f"mutated.{name}"] = value
        return outputs

    def _graph(self, graph, values, symbols):
        env = dict(zip((slot["name"] for slot in graph["inputs"]), values))
        for slot in graph["inputs"]:
            self._learn(slot["type"], env[slot["name"]], symbols)
        for node in graph["nodes"]:
            is_higher = node["op"].startswith("higher_order.")
            argument = lambda value: self._argument(value, env, symbols, is_higher)  # noqa: E731
            args = [argument(value) for value in node.get("args", [])]
            kwargs = {key: argument(value) for key, value in (node.get("kwargs") or {}).items()}
            if node["op"].startswith("_c10d_functional."):
                args = [_group(self.groups[value]) if isinstance(value, str) and value in self.groups else value
                        for value in args]
            env[node["name"]] = _target(node["op"])(*args, **kwargs)
            self._learn(node.get("type"), env[node["name"]], symbols)
        return [self._argument(output["value"] if isinstance(output, dict) and "value" in output else output, env,
                               symbols, False)
                for output in graph["outputs"]]

    def _learn(self, kind, value, symbols):
        """The numbers of symbols that stand alone in a type."""
        if not isinstance(kind, dict):
            return
        pairs = zip(kind["shape"], value.shape) if "tensor" in kind and torch.is_tensor(value) else ()
        if "scalar" in kind:
            pairs = [(kind.get("value"), value)]
        for recorded, actual in pairs:
            if isinstance(recorded, dict) and str(recorded.get("sym", "")).isidentifier():
                symbols.setdefault(recorded["sym"], actual)

    def _argument(self, value, env, symbols, as_tuple):
        again = lambda item: self._argument(item, env, symbols, as_tuple)  # noqa: E731
        if isinstance(value, list):
            return (tuple if as_tuple else list)(again(item) for item in value)
        if not isinstance(value, dict):
            return value
        (kind, content), = value.items()
        if kind == "ref":
            return env[content]
        if kind == "sym":
            return content if isinstance(content, int) else eval(content, {**SYMPY, **symbols})
        if kind in ("dtype", "layout", "memory_format"):
            found = getattr(torch, content)
            return self._wide.get(found, found)
        if kind == "device":
            return torch.device(content)
        if kind == "float":
            return float(content)
        if kind == "complex":
            return complex(*content)
        if kind == "slice":
            return slice(*(again(item) for item in content))
        if kind == "dict":
            return {key: again(item) for key, item in content.items()}
        if kind == "group":
            return _group(self.groups[content])
        if kind == "graph":
            return lambda *args: self._body(self.capture["graphs"][content], args)
        raise ValueError(f"no way to pass {value}")

    def _body(self, graph, args):
        results = self._graph(graph, args, {})
        return results[0] if len(results) == 1 else results
