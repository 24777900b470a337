"""PyTorch's side of run_gpu_bench.py: a GPT-2 124M step (forward, loss, backward) on a GPU, in plain torch.

  peer_gpu.py --batch 32 --length 1024 --dtype bf16 --mode eager|compile|graphs    one JSON line

`graphs` is torch.compile with CUDA graphs (mode="reduce-overhead"). Dropout is off, weights are made up, as in sg-run --init.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 12, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = lambda t: t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
        q, k, v = map(heads, self.attention(self.norm_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate='tanh'))


class Model(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).float().view(-1, VOCABULARY), labels.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--batch', type=int, default=32)
    parser.add_argument('--length', type=int, default=1024)
    parser.add_argument('--dtype', choices=['f32', 'bf16'], default='bf16')
    parser.add_argument('--mode', choices=['eager', 'compile', 'graphs'], default='eager')
    parser.add_argument('--steps', type=int, default=10)
    parser.add_argument('--warm-up', type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model(args.length).cuda().train()
    tokens = torch.randint(0, VOCABULARY, (args.batch, args.length), device='cuda')
    run = {'eager': lambda m: m, 'compile': torch.compile, 'graphs': lambda m: torch.compile(m, mode='reduce-overhead')}[args.mode](model)
    seconds = []
    torch.cuda.reset_peak_memory_stats()
    for step in range(args.warm_up + args.steps):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast('cuda', torch.bfloat16, enabled=args.dtype == 'bf16'):
            loss = run(tokens, tokens)
        loss.backward()
        torch.cuda.synchronize()
        if step >= args.warm_up:
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({'seconds': seconds, 'loss': float(loss.detach()), 'peak_bytes': torch.cuda.max_memory_allocated(),
                      'torch': torch.__version__,
                      'cuda': torch.version.cuda, 'device': torch.cuda.get_device_name()}))


if __name__ == '__main__':
    main()
