"""PyTorch's side of run_step_bench.py: GPT-2 124M, 4 x 64 tokens, forward + loss + backward, on the CPU.

  peer_gpt2.py --save FILE               weights (by FQN), tokens, labels: what sg-run gets as --inputs
  peer_gpt2.py --time FILE [--compile]   one JSON line: seconds of each step, loss, resident memory

Needs torch, transformers and safetensors from the registry (run_step_bench.py makes the environment).
"""
import argparse
import json
import resource
import time

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel


def make_model():
    torch.manual_seed(0)
    config = GPT2Config(n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(config).train()


def save(path):
    model = make_model()
    tensors = {name: p.detach().clone().contiguous() for name, p in model.named_parameters()}
    tokens = torch.randint(0, 50257, (4, 64))
    save_file({**tensors, "input_ids": tokens, "labels": tokens.clone()}, path)


def measure(path, compiled, threads, warm_up, steps):
    torch.set_num_threads(threads)
    data = load_file(path)
    model = make_model()
    model.load_state_dict({k: v for k, v in data.items() if k not in ("input_ids", "labels")}, strict=False)
    tokens, labels = data["input_ids"], data["labels"]

    def forward():   # the loss of the capture: each position's own label
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))

    run = torch.compile(forward) if compiled else forward
    seconds = []
    for step in range(warm_up + steps):
        model.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        loss = run()
        loss.backward()
        if step >= warm_up:
            seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "loss": float(loss.detach()), "resident": peak, "torch": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save")
    parser.add_argument("--time")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    if args.save:
        save(args.save)
    if args.time:
        measure(args.time, args.compile, args.threads, args.warm_up, args.steps)


if __name__ == "__main__":
    main()
