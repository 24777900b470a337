#!/usr/bin/env bash
# A DeepSeek-V3 step (mixture of experts; 4 ranks, expert parallel, data-dependent exchanges) run on 4 ranks in this
# process, and held against what PyTorch computed for the same inputs.
# Usage: examples/04_run_a_moe_step/run.sh [BIN [PROFILE]]; the profile goes to PROFILE, else to a folder that is removed.
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
profile=${2:-}
[ -z "$profile" ] || profile=$(realpath -m "$profile")
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo "\$ sg-import 'capture/rank{r}/step.json.gz' -o moe.sg && sg-check moe.sg"
sg-import -q 'capture/rank{r}/step.json.gz' -o "$out/moe.sg"
(cd "$out" && sg-check moe.sg)

echo "\$ sg-run moe.sg --inputs 'capture/rank{r}/inputs.safetensors' --expect 'capture/rank{r}/expected.safetensors' --profile moe.json"
sg-run "$out/moe.sg" --inputs 'capture/rank{r}/inputs.safetensors' --expect 'capture/rank{r}/expected.safetensors' \
  --profile "${profile:-$out/moe.json}"
