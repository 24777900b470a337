#!/usr/bin/env bash
# Everything that needs a GPU, in one go.
#
#   tests/gpu/run_on_gpu.sh pack FILE.tar.gz            here: a bundle of what was built, the tests and the captures (relocatable)
#   tests/gpu/run_on_gpu.sh [--python PY] [--out DIR]   there: from an unpacked bundle, or a checkout, which it builds first
#
# Writes DIR/gpu.md (default docs/results): the machine, each part with its outcome, and what was not run and why. Each part has a time
# limit; all of them together fit into 30 minutes. The exit code is 0 when every part that ran has passed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
traces=$root/../shared/traces

pack() {
  local out=$1 folder
  folder=$(mktemp -d)
  local to=$folder/stepgraph/tree
  mkdir -p "$to/build/bin" "$to/build/lib" "$to/build/tests" "$folder/stepgraph/shared/traces"
  cp "$root"/build/bin/{sg-run,sg-import,sg-print,sg-stat,compare_oracle} "$to/build/bin/"
  cp -r "$root/build/lib/stepgraph" "$to/build/lib/"
  cp "$root/build/tests/run_vectors" "$to/build/tests/"
  mkdir -p "$to/tests/conformance"
  cp -r "$root"/tests/{gpu,numeric,bench} "$to/tests/"
  cp -r "$root"/tests/conformance/{vectors,listed.txt} "$to/tests/conformance/"
  for part in single multi shape/gpt2-124m-b4t64 shape/gpt2-124m-b32t1024-amp shape/llama3-1b-b2t8192-bf16; do
    [ -e "$traces/$part" ] || continue
    mkdir -p "$folder/stepgraph/shared/traces/$(dirname "$part")"
    cp -r "$traces/$part" "$folder/stepgraph/shared/traces/$part"
    find "$folder/stepgraph/shared/traces/$part" -name nodes.safetensors -delete
  done
  strip "$to"/build/bin/* "$to/build/tests/run_vectors" 2>/dev/null
  find "$folder" -name __pycache__ -prune -exec rm -r {} +
  tar -C "$folder" -czf "$out" stepgraph
  rm -r "$folder"
  echo "$out: $(du -h "$out" | cut -f1). There: tar xf, then stepgraph/tree/tests/gpu/run_on_gpu.sh"
}

if [ "${1:-}" = pack ]; then
  pack "${2:?the name of the bundle}"
  exit
fi

python=python3 out=$root/docs/results
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) sed -n '2,10p' "$0" | cut -c3-; exit 2 ;;
  esac
done
mkdir -p "$out"
report=$out/gpu.md
failed=0

if [ ! -e "$root/build/lib/stepgraph/libsg_backend_cuda.so" ]; then
  make -C "$root" PRESET=cuda BUILD=build >&2 || { echo "the build failed" >&2; exit 5; }
fi
bin=$root/build/bin

say() { echo "$@" | tee -a "$report"; }
# part TITLE SECONDS COMMAND...: its output, and whether it passed.
part() {
  local title=$1 limit=$2
  shift 2
  say; say "## $title"; say; say '```'
  say "\$ $*"
  timeout "$limit" "$@" 2>&1 | tail -n 60 | tee -a "$report"
  local status=${PIPESTATUS[0]}
  say '```'
  case $status in
    0) say "passed" ;;
    124) say "NOT FINISHED in $limit seconds"; failed=1 ;;
    *) say "FAILED: exit $status"; failed=1 ;;
  esac
}

: > "$report"
say "# The CUDA backend on a GPU"
say
say "Written by tests/gpu/run_on_gpu.sh; nothing in it was edited."
say
say "    $(uname -sr), $(nproc) cores"
if ! nvidia-smi >/dev/null 2>&1; then
  say; say "NOT RUN: this machine has no GPU that nvidia-smi sees."
  exit 5
fi
say "    $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | paste -sd';')"

part "The same cases as in CI, on the device" 400 "$python" "$here/run_gpu_tests.py" --bin "$bin" --vectors "$root/build/tests/run_vectors" --every 1 --all
if command -v compute-sanitizer >/dev/null; then
  part "Races of lanes" 300 compute-sanitizer --tool racecheck --error-exitcode 1 "$root/build/tests/run_vectors" --backend cuda --every 97 \
    --listed "$root/tests/conformance/listed.txt" "$root/tests/conformance/vectors"
  part "Memory of lanes" 300 compute-sanitizer --tool memcheck --error-exitcode 1 "$root/build/tests/run_vectors" --backend cuda --every 97 \
    --listed "$root/tests/conformance/listed.txt" "$root/tests/conformance/vectors"
else
  say; say "NOT RUN: compute-sanitizer (it is not installed): races of lanes were not looked for."
fi
gpus=$(nvidia-smi -L | wc -l)
if [ "$gpus" -lt 2 ]; then
  say; say "NOT RUN: NCCL between GPUs (this machine has $gpus)."
fi
part "Beside PyTorch" 600 "$python" "$root/tests/bench/run_gpu_bench.py" --bin "$bin" --python "$python"
say
say "Not part of this script: Llama and mixture-of-experts steps beside PyTorch, tokens a second with an optimizer, GPU utilisation."
exit $failed
