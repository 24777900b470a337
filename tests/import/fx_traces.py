"""TORCH_TRACE logs that PyTorch writes: fx_traces.py FOLDER. Run with TORCH_TRACE unset; each case runs in a process of its own.

Per case: CASE/log/*.log, values.safetensors (inputs, by what the model calls them) and expected.safetensors, computed by
eager PyTorch.
"""
import glob
import os
import shutil
import subprocess
import sys

CASES = {
    'linear-eager': dict(model='mlp', backend='aot_eager'),
    'linear-inductor': dict(model='mlp', backend='inductor'),
    'dynamic': dict(model='mlp', backend='aot_eager', dynamic=True),
    'inference': dict(model='mlp', backend='aot_eager', grad=False),
    'break': dict(model='broken', backend='aot_eager'),
    'recompile': dict(model='mlp', backend='aot_eager', shapes=(3, 5), dynamic=False),
}


def run_case(name, folder):
    """In a process of its own, with TORCH_TRACE set."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from safetensors.torch import save_file
    case = CASES[name]
    torch.manual_seed(1)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
            self.register_buffer('shift', torch.arange(4.0))

        def forward(self, x):
            h = F.silu(self.up_proj(x))
            if case['model'] == 'broken':
                print('', end='')
                torch._dynamo.graph_break()
            return (self.down(h) + self.shift).square().sum()

    model = Mlp()
    compiled = torch.compile(model, backend=case['backend'], dynamic=case.get('dynamic'))
    values, expected = {}, {}
    for rows in case.get('shapes', (3,)):
        x = torch.randn(rows, 4)
        model.zero_grad()
        with torch.set_grad_enabled(case.get('grad', True)):
            loss = compiled(x)
        if case.get('grad', True):
            loss.backward()
        eager = {'x': x, **dict(model.named_parameters()), **dict(model.named_buffers())}
        model.zero_grad()
        with torch.set_grad_enabled(case.get('grad', True)):
            want = model(x)
        expected = {'loss': want.detach().clone()} if case.get('grad', True) else {'out0': want.detach().clone()}
        if case.get('grad', True):
            want.backward()
            expected.update({f'gradient:{n}': p.grad.clone() for n, p in model.named_parameters()})
        values = {n: v.detach().clone() for n, v in eager.items()}
    if case.get('grad', True):
        values['tangents_1'] = torch.ones(())
    save_file(values, f'{folder}/values.safetensors')
    save_file(expected, f'{folder}/expected.safetensors')


def main(folder):
    for name in CASES:
        out = os.path.join(folder, name)
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        environment = dict(os.environ, TORCH_TRACE=out + '/log', TORCHINDUCTOR_FORCE_DISABLE_CACHES='1',
                           TORCHINDUCTOR_CACHE_DIR=out + '/cache')
        done = subprocess.run([sys.executable, os.path.abspath(__file__), '--case', name, out], env=environment,
                              capture_output=True, text=True)
        logs = glob.glob(out + '/log/*.log')
        shutil.rmtree(out + '/cache', ignore_errors=True)
        if done.returncode != 0 or not logs:
            print(f'{name}: PyTorch could not: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no log"}')


if __name__ == '__main__':
    if sys.argv[1] == '--case':
        run_case(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1])
