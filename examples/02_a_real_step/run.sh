#!/usr/bin/env bash
# Real captures of PyTorch: a 2-layer GPT-2 step on one rank, and a Llama step with tensor and data parallelism on four.
# Usage: examples/02_a_real_step/run.sh [BIN]; prints expected.txt.
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo '$ sg-import gpt2-tiny.json.gz -o gpt2.sg && sg-check gpt2.sg'
sg-import -q gpt2-tiny.json.gz -o "$out/gpt2.sg"
(cd "$out" && sg-check gpt2.sg)

echo '$ sg-import gpt2-tiny.json.gz --check                 # our types against those PyTorch recorded'
sg-import -q gpt2-tiny.json.gz --check

echo '$ sg-print gpt2.sg | sed -n "/forward transformer.h.0.attn$/,/forward transformer.h.0.ln_2/p"'
sg-print "$out/gpt2.sg" | sed -n '/forward transformer.h.0.attn$/,/forward transformer.h.0.ln_2/p'

echo "\$ sg-import 'llama-fsdp2-tp2/rank{r}.json.gz' | sg-stat -"
sg-import -q 'llama-fsdp2-tp2/rank{r}.json.gz' | sg-stat -

echo "\$ sg-import 'llama-fsdp2-tp2/rank{r}.json.gz' | head -c 1000 | sg-check -"
sg-import -q 'llama-fsdp2-tp2/rank{r}.json.gz' | head -c 1000 | sg-check - 2>&1 || echo "exit $?"
