"""Graphs that PyTorch itself makes, as what sg-import reads and as what it must give.

For each model: the text of its graph (print_readable in several variants), the same graph as capture JSON, written from the
graph module and not from the text, and inputs with the values that PyTorch computes from them.
"""
import inspect
import json
import operator
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from safetensors.torch import save_file
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.experimental.proxy_tensor import make_fx

DTYPES = {torch.float32: 'float32', torch.float64: 'float64', torch.float16: 'float16', torch.bfloat16: 'bfloat16',
          torch.int64: 'int64',
          torch.int32: 'int32', torch.int16: 'int16', torch.int8: 'int8', torch.uint8: 'uint8', torch.bool: 'bool',
          torch.complex64: 'complex64', torch.complex128: 'complex128'}


# --- a graph module as capture JSON ---

def size(value):
    return value if isinstance(value, int) else {'sym': str(value).replace(' ', '')}


def type_of(value):
    if isinstance(value, torch.Tensor):
        return {'tensor': DTYPES[value.dtype], 'shape': [size(s) for s in value.shape],
                'stride': [size(s) for s in value.stride()],
                'offset': size(value.storage_offset()), 'device': str(value.device)}
    if isinstance(value, (list, tuple)):
        return [type_of(v) for v in value]
    for kinds, name in (((bool, torch.SymBool), 'bool'), ((int, torch.SymInt), 'int'),
                        ((float, torch.SymFloat), 'float')):
        if isinstance(value, kinds):
            symbolic = not isinstance(value, (bool, int, float))
            return {'scalar': name} if symbolic and name != 'int' else {'scalar': name, 'value': size(value)}
    return None


class Writer:
    def __init__(self):
        self.graphs = {}
        self.names = {}              # of nested graphs, by module

    def name_nested(self, module):
        """Each nested graph keeps its own name, the outer ones first; where that is taken, behind those around it."""
        level = [(child, name, ())
                 for name, child in module.named_children() if isinstance(child, torch.fx.GraphModule)]
        while level:
            below = []
            for child, own, around in level:
                name, outer = own, list(around)
                while name in self.names.values() and outer:
                    name = f'{outer.pop()}.{name}'
                self.names[child] = name
                below += [(c, n, (*around, own))
                          for n, c in child.named_children() if isinstance(c, torch.fx.GraphModule)]
            level = below

    def arg(self, a, module):
        if isinstance(a, torch.fx.Node):
            target = module
            if a.op == 'get_attr':
                for part in a.target.split('.'):
                    target = getattr(target, part)
                if isinstance(target, torch.fx.GraphModule):
                    return {'graph': self.names[target]}
            return {'ref': a.name}
        if isinstance(a, (list, tuple)):
            return [self.arg(x, module) for x in a]
        if isinstance(a, dict):
            return {'dict': {k: self.arg(v, module) for k, v in a.items()}}
        if isinstance(a, slice):
            return {'slice': [self.arg(x, module) for x in (a.start, a.stop, a.step)]}
        if isinstance(a, torch.dtype):
            return {'dtype': DTYPES[a]}
        if isinstance(a, torch.device):
            return {'device': str(a)}
        if isinstance(a, torch.layout):
            return {'layout': str(a).replace('torch.', '')}
        if isinstance(a, torch.memory_format):
            return {'memory_format': str(a).replace('torch.', '')}
        if isinstance(a, complex):
            return {'complex': [a.real, a.imag]}
        if isinstance(a, float) and (a != a or a in (float('inf'), float('-inf'))):
            return {'float': 'nan' if a != a else 'inf' if a > 0 else '-inf'}
        if isinstance(a, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return {'op': str(a)}
        if isinstance(a, (torch.SymInt,)):
            return {'sym': str(a)}
        return a

    def op(self, target):
        if isinstance(target, torch._ops.OpOverload):
            return str(target)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return 'higher_order.' + target.name()
        if getattr(target, '__module__', '') == '_operator':
            return 'python.' + target.__name__
        if getattr(target, '__module__', '').startswith('torch') and target.__name__.startswith('sym_'):
            return 'python.' + target.__name__
        return f'{target.__module__}.{target.__name__}'

    def graph(self, module):
        inputs, nodes, outputs, constants = [], [], [], []
        for n in module.graph.nodes:
            value = n.meta.get('val')
            if n.op == 'placeholder':
                inputs.append({'name': n.name, 'type': type_of(value) or {'opaque': 'object'},
                               'kind': 'tangent' if n.name.startswith('tangents_') else 'input'})
            elif n.op == 'get_attr':
                target = module
                for part in n.target.split('.'):
                    target = getattr(target, part)
                if isinstance(target, torch.fx.GraphModule):
                    self.graphs[self.names[target]] = self.graph(target)
                else:
                    constants.append({'name': n.name, 'type': type_of(target), 'kind': 'constant', 'fqn': n.target})
            elif n.op == 'call_function':
                node = {'name': n.name, 'op': self.op(n.target), 'args': [self.arg(a, module) for a in n.args],
                        'type': type_of(value), 'phase': 'forward'}
                if n.kwargs:
                    node['kwargs'] = {k: self.arg(v, module) for k, v in n.kwargs.items()}
                if n.target is operator.getitem and isinstance(value, (list, tuple)):
                    node['type'] = type_of(value)
                nodes.append(node)
            elif n.op == 'output':
                flat, _ = torch.utils._pytree.tree_flatten(n.args[0])
                outputs = [{'value': {'ref': o.name} if isinstance(o, torch.fx.Node) else None,
                            'kind': 'other' if isinstance(o, torch.fx.Node) else 'none'} for o in flat]
        return {'inputs': inputs + constants, 'nodes': nodes, 'outputs': outputs}

    def capture(self, module):
        self.name_nested(module)
        whole = {'format': 'step-capture', 'version': 1, 'title': 'test', **self.graph(module)}
        whole['graphs'] = self.graphs
        return whole


def constants_of(module):
    out = {}
    for n in module.graph.nodes:
        if n.op == 'get_attr':
            target = module
            for part in n.target.split('.'):
                target = getattr(target, part)
            if isinstance(target, torch.Tensor):
                out[n.name] = target
    return out


# --- models ---

class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, stride=2, groups=2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n(self.a(x))), 2)
        return F.gelu(self.b(x)).mean()


class Mixed(nn.Module):
    """Splits, indices, comparisons, complex numbers, infinities, negative strides of thought."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))
        self.register_buffer('scale', torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        a, b, c = x.split([1, 2, 3], dim=-1)
        mask = torch.full((4, 4), float('-inf')).triu(1)
        z = torch.view_as_complex(torch.stack([b[..., 0], b[..., 1]], -1).contiguous()) * (0.5 - 2j)
        y = torch.softmax((x @ self.w)[:4, :4] + mask, -1)
        y = y.masked_fill(y > 0.5, 0.25).clamp(min=-1e-3, max=1.0)
        top, where = y.topk(2, dim=-1)
        out = (c * self.scale)[:, [2, 0]].sum() + z.abs().sum() + top.sum() + y.gather(1, where).pow(3).mean() + a.new_ones(2).sum()
        return torch.where(out > 0, out, -out)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5)

    def forward(self, x):
        y = self.l(x).clone()
        y[1:3].add_(2.0)
        y[:, 0].mul_(3.0).clamp_(max=4)
        return y.sigmoid_().sum()


class Dropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        return F.layer_norm(F.dropout(self.l(x), 0.25, True), (8,)).square().sum()


class Branch(nn.Module):
    """A graph with graphs inside it."""

    def forward(self, x):
        def inner(p, q):
            def deep_true(r):
                return r.cos(), r.sin()

            def deep_false(r):
                return r.sin(), r.cos()
            c, s = torch.cond(q.sum() > 1, deep_true, deep_false, (p,))
            return c + s

        def other(p, q):
            return p - q
        return torch.cond(x.sum() > 0, inner, other, (x, x * 2)).sum()


class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        b, s = ids.shape
        h = self.e(ids).view(b * s, 8)
        h = h + torch.arange(b * s, device=h.device)[:, None]
        pad = h.new_zeros(s // 2 + 1, 8)
        h = torch.cat([h, pad])[: b * s]
        return F.cross_entropy(self.l(h), ids.reshape(-1))


def joint_of(model, inputs, dynamic=None):
    """The joint, forward and backward graphs of AOTAutograd: of each its capture and its texts."""
    graphs = {}

    def keep(name):
        def compiler(gm, example):
            graphs[name] = Writer().capture(gm), variants(gm)
            return make_boxed_func(gm)
        return compiler

    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import default_partition

    def partition(joint, *args, **kwargs):
        graphs['joint'] = Writer().capture(joint), variants(joint)
        return default_partition(joint, *args, **kwargs)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=keep('forward'), bw_compiler=keep('backward'), partition_fn=partition), dynamic=dynamic, fullgraph=True)
    compiled(*inputs).backward()
    return graphs


def traced(model, inputs, mode='fake'):
    """Forward, loss and gradients in one graph of make_fx."""
    params = dict(model.named_parameters())

    def step(params, buffers, *args):
        loss = torch.func.functional_call(model, {**params, **buffers}, args)
        names = list(params)
        return (loss, *torch.autograd.grad(loss, [params[n] for n in names]))
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    return make_fx(step, tracing_mode=mode)({k: v.detach().requires_grad_() for k, v in params.items()}, buffers,
                                            *inputs), params, buffers


def exported(model, inputs, dynamic=None):
    return torch.export.export(model, inputs, dynamic_shapes=dynamic)


def write_texts(folder, name, capture, texts):
    os.makedirs(folder, exist_ok=True)
    with open(f'{folder}/{name}.json', 'w') as f:
        json.dump(capture, f)
    for variant, text in texts.items():
        with open(f'{folder}/{name}.{variant}.txt', 'w') as f:
            f.write(text)


def write_case(folder, name, module, values=None):
    write_texts(folder, name, Writer().capture(module), variants(module))
    if values is None:
        return
    inputs = {n: v for n, v in zip([p.name for p in module.graph.nodes if p.op == 'placeholder'], values) if isinstance(v, torch.Tensor)}
    keep = {n: v.detach().clone().contiguous() for n, v in {**inputs, **constants_of(module)}.items()}
    with torch.no_grad():
        results, _ = torch.utils._pytree.tree_flatten(torch.fx.Interpreter(module).run(*[v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values], enable_io_processing=False))
    save_file(keep, f'{folder}/{name}.inputs.safetensors')
    save_file({f'out{i}': r.detach().contiguous().clone() for i, r in enumerate(results) if isinstance(r, torch.Tensor)}, f'{folder}/{name}.expected.safetensors')


def variants(module):
    def text(**options):
        return module.print_readable(print_output=False, **options)
    found = {'plain': text(), 'strides': text(include_stride=True),
             'full': text(include_stride=True, include_device=True),
             'colored': text(include_stride=True, include_device=True, colored=True)}
    if 'expanded_def' in inspect.signature(module.print_readable).parameters:   # not in torch 2.6
        found['expanded'] = text(include_stride=True, include_device=True, expanded_def=True)
    return found


def main(folder):
    torch.manual_seed(0)
    models = {'convolution': (Convolution(), (torch.randn(2, 3, 8, 8),)), 'mixed': (Mixed(), (torch.randn(4, 6),)),
              'in_place': (InPlace(), (torch.randn(4, 5),)), 'dropout': (Dropout(), (torch.randn(4, 8),)),
              'branch': (Branch(), (torch.randn(3, 3, requires_grad=True),)),
              'sizes': (Sizes(), (torch.randint(0, 20, (3, 4)),))}
    for name, (model, inputs) in models.items():
        if name == 'branch':                                   # PyTorch cannot yet differentiate it
            continue
        module, params, buffers = traced(model, inputs)
        values = [*params.values(), *buffers.values(), *inputs]
        write_case(folder, f'{name}-traced', module, None if name == 'dropout' else values)
        for dynamic in (False, True) if name in ('sizes', 'mixed') else (False,):
            suffix = '-dynamic' if dynamic else ''
            for part, (capture, texts) in joint_of(model, inputs, dynamic).items():
                write_texts(folder, f'{name}{suffix}-{part}', capture, texts)
    batch = torch.export.Dim('batch', min=2, max=64)
    for name, dynamic in (('convolution', None), ('branch', None), ('sizes', ({0: batch},)), ('mixed', None),
                          ('in_place', None)):
        model, inputs = models[name]
        inputs = tuple(i.detach() for i in inputs)
        module = exported(model.eval(), inputs, dynamic).graph_module
        write_case(folder, f'{name}-export', module)


if __name__ == '__main__':
    import sys
    main(sys.argv[1])
