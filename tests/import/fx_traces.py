"""TORCH_TRACE logs that PyTorch writes: fx_traces.py FOLDER. Each case runs in a fork of its own, which logs into its own folder.

Per case: CASE/log/*.log, values.safetensors (inputs, by what the model calls them) and expected.safetensors, computed by
eager PyTorch. Inductor traces and decomposes as ever, but nothing is compiled: its graphs run as they are.
"""
import glob
import math
import os
import shutil
import sys
import traceback

CASES = {
    'linear-eager': dict(model='mlp', backend='aot_eager'),
    'linear-inductor': dict(model='mlp', backend='inductor'),
    'dynamic': dict(model='mlp', backend='aot_eager', dynamic=True),
    'inference': dict(model='mlp', backend='aot_eager', grad=False),
    'break': dict(model='broken', backend='aot_eager'),
    'recompile': dict(model='mlp', backend='aot_eager', shapes=(3, 5), dynamic=False),
    'planes-inductor': dict(model='planes', backend='inductor'),
    'words-inductor': dict(model='words', backend='inductor'),
    'attention-dynamic': dict(model='attention', backend='aot_eager', dynamic=True),
    'attention-inductor-dynamic': dict(model='attention', backend='inductor', dynamic=True),
    'planes-dynamic': dict(model='planes', backend='inductor', dynamic=True),
    'arithmetic-dynamic': dict(model='arithmetic', backend='aot_eager', dynamic=True),
    'underscores': dict(model='underscores', backend='aot_eager'),
    'dropout-inductor': dict(model='dropout', backend='inductor', comparable=False),
    'ranks-inductor': dict(model='shared', backend='inductor', ranks=2),
}
ARGUMENTS = {'underscores': '_x'}  # what a model calls its argument, where it is not x


def model_of(kind):
    """A model whose result is its loss, and what makes an input of so many rows."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
            self.register_buffer('shift', torch.arange(4.0))

        def forward(self, x):
            h = F.silu(self.up_proj(x))
            if kind == 'broken':
                print('', end='')
                torch._dynamo.graph_break()
            loss = (self.down(h) + self.shift).square().sum()
            if kind == 'shared':
                import torch.distributed._functional_collectives as shared
                loss = shared.all_reduce(loss, 'sum', torch.distributed.group.WORLD)
            return loss

    class Planes(nn.Module):
        """Max pools with and without padding, a batch norm with its counter, upsampling, padding by reflection."""

        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
            x = F.interpolate(F.max_pool2d(self.second(x), 3, 2, 1), scale_factor=2, mode='bilinear', align_corners=False)
            x = F.group_norm(x.to(memory_format=torch.channels_last), 2)
            return F.pad(x, (1, 1, 1, 1), mode='reflect').square().mean()

    class Words(nn.Module):
        """A table with a padding row, attention, a layer norm, things turned round."""

        def __init__(self):
            super().__init__()
            self.table, self.norm, self.head = nn.Embedding(11, 8, padding_idx=0), nn.LayerNorm(8), nn.Linear(8, 11)

        def forward(self, x):
            h = self.norm(self.table(x))
            h = h + F.scaled_dot_product_attention(h, h.flip(1), h.roll(1, -1), is_causal=True)
            return F.cross_entropy(self.head(h).flatten(0, 1), x.flatten())

    class Attention(nn.Module):
        """Views of stacks whose sizes are symbols: storage offsets that a log does not tell."""

        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
            self.encoder, self.attention = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.MultiheadAttention(8, 2)
            self.qkv = nn.Linear(8, 24)

        def forward(self, x):
            x, _ = self.attention(x, x, x)
            q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.encoder(x)).chunk(3, -1))
            both = torch.stack([(q @ k.mT).softmax(-1) @ v, q])
            return both[1].transpose(0, 1)[1:].square().mean() + (both[0][:, None].expand(-1, 3, -1, -1, -1)).cos().mean()

    class Arithmetic(nn.Module):
        """Roots, powers, quotients and roundings of sizes and of numbers that Dynamo takes from Python's modules."""

        def __init__(self):
            super().__init__()
            self.slope, self.head = 0.5, nn.Linear(4, 8)

        def forward(self, x):
            rows, h = x.size(0), self.head(x)
            scale = 1 / math.sqrt(rows) + math.log2(rows) / math.pi + math.sin(rows) - math.tanh(math.cos(self.slope))
            h = F.scaled_dot_product_attention(h[None], h[None], h[None])[0] * scale
            part = max(min(math.ceil(rows / 2), rows), math.floor(rows * 0.5), int(rows / 3), 1)
            return (h[:part] * abs(1 - rows) ** 2).square().mean() + torch.zeros(rows // 2 + 1).sum() * (rows % 2)

    class Underscores(nn.Module):
        """Names that Dynamo calls alike."""

        def __init__(self):
            super().__init__()
            for i, name in enumerate(('w', '_w', '__w', 'a_b', 'a__b')):
                self.register_parameter(name, nn.Parameter(torch.randn(4)))
            self.register_buffer('_shift', torch.randn(4))
            self.register_buffer('shift', torch.randn(4))
            self._part, self.part = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))

        def forward(self, _x):
            h = self._part(_x) * self.w + self._w * self.__dict__['_parameters']['__w'] + self._shift
            return (self.part(h) * self.a_b - self.a__b * self.shift).sin().sum()

    class Dropout(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x):
            return F.dropout(self.head(F.dropout(x, 0.5)), 0.25).square().sum()

    if kind == 'attention':
        return Attention(), lambda rows: torch.randn(5, rows, 8)
    if kind == 'planes':
        return Planes(), lambda rows: torch.randn(rows, 3, 12, 12)
    if kind == 'words':
        return Words(), lambda rows: torch.randint(11, (rows, 6))
    if kind == 'arithmetic':
        return Arithmetic(), lambda rows: torch.randn(rows, 4)
    if kind == 'underscores':
        return Underscores(), lambda rows: torch.randn(rows, 4)
    return (Dropout() if kind == 'dropout' else Mlp()), lambda rows: torch.randn(rows, 4)


def backend_of(name):
    if name != 'inductor':
        return name
    from torch._inductor.compile_fx import compile_fx
    return lambda graph, inputs: compile_fx(graph, inputs, inner_compile=lambda inner, *_, **__: inner)


def run_case(name, folder, rank=0):
    """In a process of its own."""
    import torch
    from safetensors.torch import save_file
    case = CASES[name]
    torch.manual_seed(1)
    model, batch = model_of(case['model'])
    compiled = torch.compile(model, backend=backend_of(case['backend']), dynamic=case.get('dynamic'))
    values, expected = {}, {}
    torch.manual_seed(2 + rank)
    for rows in case.get('shapes', (3,)):
        x = batch(rows)
        values = {n: v.detach().clone() for n, v in {ARGUMENTS.get(case['model'], 'x'): x, **dict(model.named_parameters()), **dict(model.named_buffers())}.items()}
        model.zero_grad()
        with torch.set_grad_enabled(case.get('grad', True)):
            loss = compiled(x)
        if case.get('grad', True):
            loss.backward()
        model.load_state_dict({n: v for n, v in values.items() if n in model.state_dict()}, strict=False)
        model.zero_grad()
        with torch.set_grad_enabled(case.get('grad', True)):
            want = model(x)
        expected = {'loss': want.detach().clone()} if case.get('grad', True) else {'out0': want.detach().clone()}
        if case.get('grad', True):
            want.backward()
            expected.update({f'gradient:{n}': p.grad.clone() for n, p in model.named_parameters()})
    if case.get('grad', True):
        values['tangents_1'] = torch.ones(())
    save_file(values, f'{folder}/values.safetensors')
    if case.get('comparable', True):
        save_file(expected, f'{folder}/expected.safetensors')


def run_in_forks(name, out):
    """One a rank. PyTorch is imported once, with TORCH_TRACE set."""
    ranks = CASES[name].get('ranks', 1)
    children = [run_in_fork(name, out, rank, ranks) for rank in range(ranks)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def run_in_fork(name, out, rank, ranks):
    import torch
    child = os.fork()
    if child:
        return child
    try:
        handler = torch._logging._internal.LOG_TRACE_HANDLER
        handler.root_dir, handler.stream = out + '/log', None
        if ranks > 1:
            torch.distributed.init_process_group('gloo', init_method=f'file://{out}/store', rank=rank, world_size=ranks)
            os.makedirs(f'{out}/{rank}', exist_ok=True)
        run_case(name, f'{out}/{rank}' if ranks > 1 else out, rank)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(folder):
    os.environ.update(TORCH_TRACE=os.path.join(folder, 'none'), TORCHINDUCTOR_FORCE_DISABLE_CACHES='1')
    import torch
    import torch._dynamo
    torch.set_num_threads(1)
    for name in CASES:
        out = os.path.join(folder, name)
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out + '/log')
        if run_in_forks(name, out) != 0 or not glob.glob(out + '/log/*.log'):
            print(f'{name}: PyTorch could not')
    shutil.rmtree(os.path.join(folder, 'none'), ignore_errors=True)


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
