"""PyTorch's side of run_gpu_bench.py: a training step of gpu_models.py on a GPU.

  peer_gpu.py --model gpt2 --mode eager|compile|graphs [--optimizer]    one JSON line

`graphs` is torch.compile with CUDA graphs (mode="reduce-overhead"); --optimizer adds torch.optim.AdamW (fused).
"""
import argparse
import json
import time

import gpu_models
import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', required=True)
    parser.add_argument('--mode', choices=['eager', 'compile', 'graphs'], default='eager')
    parser.add_argument('--optimizer', action='store_true')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--steps', type=int, default=10)
    parser.add_argument('--warm-up', type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    module, _, inputs = getattr(gpu_models, args.model)(args.device)
    on_gpu = args.device == 'cuda'
    settle = torch.cuda.synchronize if on_gpu else lambda: None
    run = {'eager': lambda m: m, 'compile': torch.compile, 'graphs': lambda m: torch.compile(m, mode='reduce-overhead')}[args.mode](module)
    update = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=on_gpu) if args.optimizer else None
    seconds = []
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for step in range(args.warm_up + args.steps):
        module.zero_grad(set_to_none=True)
        settle()
        begin = time.perf_counter()
        loss = run(**inputs)
        loss.backward()
        if update:
            update.step()
        settle()
        if step >= args.warm_up:
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({'seconds': seconds, 'loss': float(loss.detach()), 'torch': torch.__version__,
                      'peak_bytes': torch.cuda.max_memory_allocated() if on_gpu else 0}))


if __name__ == '__main__':
    main()
