#!/usr/bin/env python3
"""check_nodes.py CAPTURE INPUTS DUMP: each node of a run, held against PyTorch's op on the same arguments. For people.

  sg-run step.sg --inputs INPUTS --dump-nodes DUMP        # DUMP may hold {r}; give this script one rank's files
  check_nodes.py rank0/step.json rank0/inputs.safetensors dump0.safetensors

Every op gets the arguments that *our* run gave it, so a difference is that op's own and not inherited. Prints a line a
node that differs in bits, and a summary by op. Needs torch and safetensors from the registry.
"""
import collections
import gzip
import json
import operator
import sys

import torch
from safetensors.torch import load_file


def load_json(path):
    with (gzip.open(path) if path.endswith('.gz') else open(path)) as f:
        return json.load(f)


class Unknown(Exception):
    pass


def value_of(arg, values):
    if isinstance(arg, list):
        return [value_of(a, values) for a in arg]
    if not isinstance(arg, dict):
        return arg
    if 'ref' in arg:
        if arg['ref'] not in values:
            raise Unknown
        return values[arg['ref']]
    if 'dtype' in arg:
        return getattr(torch, arg['dtype'].replace('torch.', ''))
    if 'float' in arg:
        return float(arg['float'])
    if 'device' in arg:
        return torch.device('cpu')
    if 'layout' in arg:
        return torch.strided
    if 'memory_format' in arg:
        return getattr(torch, arg['memory_format'].replace('torch.', ''))
    raise Unknown


def find_op(name):
    namespace, op, overload = (name.split('.') + ['default'])[:3]
    if namespace != 'aten':
        raise Unknown
    return getattr(getattr(torch.ops.aten, op), overload)


def shaped(value, kind):
    """A dumped value in the strides that the capture records."""
    if not isinstance(value, torch.Tensor) or 'stride' not in kind or not all(isinstance(s, int) for s in kind['stride']):
        return value
    if any(s == 0 and n > 1 for s, n in zip(kind['stride'], kind['shape'])):
        return value
    out = torch.empty_strided(value.shape, kind['stride'], dtype=value.dtype)
    return out.copy_(value)


def main():
    capture, inputs, dump = load_json(sys.argv[1]), load_file(sys.argv[2]), load_file(sys.argv[3])
    values, kinds, results_of = dict(inputs), {}, collections.defaultdict(list)
    for node in capture['nodes']:
        kinds[node['name']] = node.get('type') or {}
        if node['op'] == 'python.getitem':
            results_of[node['args'][0]['ref']].append((node['args'][1], node['name']))
    for name, value in dump.items():
        values[name] = shaped(value, kinds.get(name, {}) if isinstance(kinds.get(name), dict) else {})
    count, different = collections.Counter(), collections.Counter()
    for node in capture['nodes']:
        try:
            op = find_op(node['op'])
            args = [value_of(a, values) for a in node['args']]
            kwargs = {k: value_of(v, values) for k, v in (node.get('kwargs') or {}).items()}
            args = [a.clone() if isinstance(a, torch.Tensor) and node['op'].split('.')[1].endswith('_') else a
                    for a in args]
            theirs = op(*args, **kwargs)
        except Unknown:
            continue
        except Exception as error:                  # an op that refuses contiguous copies of its views, for one
            print(f"{node['name']}: {node['op']}: {str(error).splitlines()[0][:100]}")
            continue
        pairs = [(node['name'], theirs)] if isinstance(theirs, torch.Tensor) else \
            [(n, theirs[i]) for i, n in results_of[node['name']] if isinstance(theirs[i], torch.Tensor)] if isinstance(theirs, (tuple, list)) else []
        for name, their in pairs:
            if name not in dump or node['op'].split('.')[1].startswith(('empty', 'new_empty')):
                continue
            count[node['op']] += 1
            ours = dump[name]
            if ours.shape != their.shape or not torch.equal(ours, their.contiguous()):
                different[node['op']] += 1
                gap = (ours.double() - their.double()).abs().max().item() if ours.shape == their.shape and not ours.is_complex() else float('nan')
                print(f"{name}: {node['op']} {ours.dtype} {list(ours.shape)}: max abs {gap:.3g}, scale {their.abs().max().item():.3g}, "
                      f"{(ours != their).sum().item() if ours.shape == their.shape else '?'} of {ours.numel()} differ")
    for op in sorted(different):
        print(f'{op}: {different[op]} of {count[op]} differ in bits')


if __name__ == '__main__':
    main()
