#!/usr/bin/env python3
"""run_model_bench.py --bin BIN [--rounds K] [--threads T] [--only TEXT]: whole training steps of small models, here and in PyTorch eager.

Forward, loss and backward in f32, captured by tools/capture. Both sides run the step on the same values with as many threads, in
turns, K rounds of some steps each; a round's figure is the least of its steps, a model's the median of the rounds' ratios. Run it
with a Python that has torch, torchvision and transformers.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.normpath(os.path.join(HERE, '..', '..', 'tools', 'capture')))
from stepgraph_capture import capture  # noqa: E402

STEPS, WARM_UP, TOKENS = 6, 1, 4096


class UNet(nn.Module):
    """Two levels down and up, of group norms and SiLU."""

    def __init__(self, width=32):
        super().__init__()
        self.down = nn.ModuleList([self.block(3, width), self.block(width, 2 * width), self.block(2 * width, 4 * width)])
        self.rise = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)])
        self.up = nn.ModuleList([self.block(4 * width, 2 * width), self.block(2 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def block(into, out):
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU(),
                             nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.rise[0](self.down[2](F.max_pool2d(second, 2)))
        x = self.rise[1](self.up[0](torch.cat([x, second], 1)))
        return self.last(self.up[1](torch.cat([x, first], 1)))


def next_token(out, tokens):
    return F.cross_entropy(out.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def gpt2():
    config = GPT2Config(n_layer=4, n_embd=256, n_head=8, vocab_size=TOKENS, n_positions=256, attn_pdrop=0, resid_pdrop=0,
                        embd_pdrop=0, use_cache=False)
    tokens = torch.randint(TOKENS, (4, 256))
    return GPT2LMHeadModel(config), {'input_ids': tokens}, tokens, next_token


def llama():
    config = LlamaConfig(num_hidden_layers=4, hidden_size=256, intermediate_size=704, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=TOKENS, use_cache=False)
    tokens = torch.randint(TOKENS, (4, 256))
    return LlamaForCausalLM(config), {'input_ids': tokens}, tokens, next_token


def vit():
    model = torchvision.models.VisionTransformer(64, 8, 4, 4, 192, 768, num_classes=100)
    return model, {'x': torch.randn(8, 3, 64, 64)}, torch.randint(100, (8,)), F.cross_entropy


def resnet18():
    return torchvision.models.resnet18(num_classes=100), {'x': torch.randn(8, 3, 96, 96)}, torch.randint(100, (8,)), F.cross_entropy


def unet():
    return UNet(), {'x': torch.randn(4, 3, 64, 64)}, torch.randn(4, 3, 64, 64), F.mse_loss


def run_ours(args, folder):
    command = [os.path.join(args.bin, 'sg-run'), '-q', os.path.join(folder, 'step.sg'), '--inputs',
               os.path.join(folder, 'inputs.safetensors'), '--steps', str(STEPS), '--threads', str(args.threads), '--json']
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return min(json.loads(done.stdout)['step_seconds'][WARM_UP:])


def run_theirs(model, inputs, targets, loss):
    seconds = []
    for _ in range(STEPS):
        model.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        loss(model(**inputs), targets).backward()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[WARM_UP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--only', default='', help='models whose names have TEXT')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        processor = next((line.split(':')[1].strip() for line in f if line.startswith('model name')), 'unknown')
    print(f'{processor}, {os.cpu_count()} cores, torch {torch.__version__}, {args.threads} threads each')
    for make in (resnet18, unet, vit, gpt2, llama):
        if args.only not in make.__name__:
            continue
        torch.manual_seed(0)
        model, inputs, targets, loss = make()
        model.train()
        with tempfile.TemporaryDirectory() as folder:
            capture(model=model, loss_fn=loss, inputs=inputs, targets=targets, out_dir=folder)
            subprocess.run([os.path.join(args.bin, 'sg-import'), '-q', os.path.join(folder, 'step.json'), '-o',
                            os.path.join(folder, 'step.sg')], check=True)
            rounds = [(run_ours(args, folder), run_theirs(model, inputs, targets, loss)) for _ in range(args.rounds)]
        ours, theirs = (1e3 * statistics.median(side) for side in zip(*rounds))
        ratio = statistics.median(a / b for a, b in rounds)
        print(f'{make.__name__:10} sg-run {ours:7.1f} ms   PyTorch eager {theirs:7.1f} ms   ratio {ratio:.2f}', flush=True)


if __name__ == '__main__':
    main()
