#!/usr/bin/env bash
# Everything that needs a GPU, in one go.
#
#   tests/gpu/run_on_gpu.sh pack FILE.tar.xz            here: a bundle of what was built, the tests and the captures (relocatable, <= 40 MiB)
#   tests/gpu/run_on_gpu.sh put-tests FOLDER            here: a bundle's tests alone, which the test gpu/bundle_tests starts from there
#   tests/gpu/run_on_gpu.sh pack-build FILE.tar.xz      here: without tests and scripts, for a machine that this checkout travels to as well
#   tests/gpu/run_on_gpu.sh [--python PY] [--out DIR] [--parts A,B] [--seconds S]   there: from an unpacked bundle, or a checkout, which it builds first
#   SG_BUILD=BUNDLE/stepgraph/tree/build tests/gpu/run_on_gpu.sh ...                                there: from such a checkout
#   tests/gpu/run_on_gpu.sh --dry-run STUB [--out DIR]  anywhere: the same steps with the stand-ins in folder STUB, in short
#
# Writes DIR/h200.md, h100.md or gpu.md by the GPU's name (default DIR: docs/results): the machine, each part with its commands and outcome,
# and what was not run and why. A dry run writes DIR/dry-run.md, and no other file. Each part has a time limit; together they are 30 minutes.
# --parts runs some of them, where a call may not last so long, and writes DIR/h100-A-B.md: cases (420 s), captures (300), sanitizers (400),
# nccl (150; of two GPUs or more 270), bench (540); and, when asked for by name, profiles (150) of our steps alone, whose files are in DIR/profiles.tar.gz. --seconds
# scales the limits of these parts so that they are S together. All that a part prints is in DIR/h100-A-B.log; the report has its end.
# docs/design/013-cuda.md has the calls for a machine that is lent for a quarter of an hour.
# PY is a Python with torch: its CUDA libraries (cuBLASLt, NVRTC, NCCL) are used where the machine has no others. Exit 0: every part that ran
# has passed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
traces=$root/../shared/traces
[ -z "${SG_BUILD:-}" ] || [ -e "$traces" ] || traces=$SG_BUILD/../../shared/traces   # of a bundle
export SG_TRACES=$traces
most_kib=40960
build=${SG_BUILD:-$root/build}

# The tests and scripts of a bundle, into the folder of its tree.
put_tests() {
  local to=$1
  mkdir -p "$to/tests/conformance" "$to/tests/bench" "$to/tools"
  cp -r "$root"/tests/{gpu,numeric} "$root"/tests/{harness,tensor_files}.py "$to/tests/"
  cp "$root"/tests/bench/{run_gpu_bench,peer_gpu,gpu_models}.py "$to/tests/bench/"
  rm -r "$to/tests/gpu/stub"   # what stand-ins are made of: a dry run brings them
  cp -r "$root/tools/capture" "$to/tools/"
  cp -r "$root"/tests/conformance/{vectors,listed.txt} "$to/tests/conformance/"
}

pack() {
  local out=$1 with_tests=$2 folder
  folder=$(mktemp -d)
  local to=$folder/stepgraph/tree
  mkdir -p "$to/build/bin" "$to/build/lib" "$to/build/tests" "$folder/stepgraph/shared/traces"
  # The tools that the cases and the benchmark call.
  local tools
  tools=$(grep -hoE "tool\('sg-[a-z]+'\)" "$root"/tests/{gpu,numeric,bench}/run_{gpu_tests,numbers,gpu_bench}.py "$root"/tests/gpu/*_cases.py 2>/dev/null |
    sort -u | cut -d"'" -f2)
  for tool in $tools compare_oracle; do cp "$build/bin/$tool" "$to/build/bin/" || return 1; done
  cp -r "$build/lib/stepgraph" "$to/build/lib/" || return 1
  cp "$build/tests/run_vectors" "$to/build/tests/" || return 1
  # What the programs are linked with, and another machine may have in another version or not at all. Not what every one has.
  mkdir -p "$to/build/lib/carried"
  ldd "$to"/build/bin/* "$to/build/lib/stepgraph/libsg_backend_cuda.so" "$to/build/tests/run_vectors" |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' | xargs -r cp -L -t "$to/build/lib/carried" || return 1
  [ "$with_tests" != yes ] || put_tests "$to"
  for part in single multi shape/gpt2-124m-b4t64 shape/gpt2-124m-b32t1024-amp shape/llama3-1b-b2t8192-bf16; do
    [ -e "$traces/$part" ] || continue
    mkdir -p "$folder/stepgraph/shared/traces/$(dirname "$part")"
    cp -r "$traces/$part" "$folder/stepgraph/shared/traces/$part"
    find "$folder/stepgraph/shared/traces/$part" -name nodes.safetensors -delete
    # Variants of steps that are there: without them the bundle is as small as it has to be.
    rm -rf "$folder/stepgraph/shared/traces/$part"/*-eagerchunk* "$folder/stepgraph/shared/traces/$part"/*-chunkedloss*
  done
  strip "$to"/build/bin/* "$to/build/tests/run_vectors" "$to"/build/lib/stepgraph/* 2>/dev/null
  find "$folder" -name __pycache__ -prune -exec rm -r {} +
  XZ_OPT=-9 tar -C "$folder" -cJf "$out" stepgraph   # a window over all binaries, which have their libraries in common
  rm -r "$folder"
  local size
  size=$(du -k "$out" | cut -f1)
  echo "$out: $size KiB. There: tar xf (or python3 -m tarfile -e), then stepgraph/tree/tests/gpu/run_on_gpu.sh"
  [ "$size" -le "$most_kib" ] || { echo "the bundle is larger than $most_kib KiB" >&2; return 1; }
}

case ${1:-} in
  pack) pack "${2:?the name of the bundle}" yes; exit ;;
  put-tests) put_tests "${2:?a folder}"; exit ;;
  pack-build) pack "${2:?the name of the bundle}" no; exit ;;
esac

python=python3 out=$root/docs/results stub= parts= seconds=0
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --parts) parts=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --dry-run) stub=$(cd "$2" && pwd) || exit 2; shift 2 ;;
    *) sed -n '2,17p' "$0" | cut -c3-; exit 2 ;;
  esac
done
wants() { { [ -z "$parts" ] && [ "$1" != profiles ]; } || [[ ",$parts," = *",$1,"* ]]; }
declare -A limits=([cases]=420 [captures]=300 [sanitizers]=400 [nccl]=150 [bench]=540 [profiles]=150)
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$gpus" -lt 2 ] || limits[nccl]=270
together=0
for part in ${parts//,/ }; do
  [ -n "${limits[$part]:-}" ] || { echo "there is no part '$part'" >&2; exit 2; }
done
for part in "${!limits[@]}"; do wants "$part" && together=$((together + limits[$part])); done
[ "$seconds" -gt 0 ] 2>/dev/null || seconds=$together
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
failed=0

if [ ! -e "$build/lib/stepgraph/libsg_backend_cuda.so" ]; then
  [ -z "$stub" ] || { echo "a dry run needs what was built" >&2; exit 5; }
  make -C "$root" PRESET=cuda BUILD=build >&2 || { echo "the build failed" >&2; exit 5; }
fi
bin=$build/bin

# Where torch's packages keep the CUDA libraries.
library_folders() {
  "$python" - 2>/dev/null <<'END'
import glob, os, site, sys
for base in site.getsitepackages() + [site.getusersitepackages()]:
    print('\n'.join(glob.glob(os.path.join(base, 'nvidia', '*', 'lib'))))
END
}
# Of the libraries that came along, those that this machine lacks: others' programs keep what is theirs.
carried=$(mktemp -d)
trap 'rm -rf "$carried"' EXIT
for library in "$build"/lib/carried/*; do
  [ ! -e "$library" ] || /sbin/ldconfig -p | grep -qF "${library##*/} " || ln -s "$library" "$carried/"
done
if [ -n "$stub" ]; then
  export LD_LIBRARY_PATH=$stub:$carried SG_STUB_DEVICES=1 SG_STUB_NVRTC=1
  SG_CUDA_CACHE=$(mktemp -d)
  export SG_CUDA_CACHE
  name="stand-ins (dry run: nothing below was measured)" report=$out/dry-run.md
else
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$carried:$(library_folders | paste -sd:)
  # In a container the driver may lie where the loader does not look; nothing is put before what it finds.
  for folder in /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
    [ ! -e "$folder/libcuda.so.1" ] || LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder
  done
  export LD_LIBRARY_PATH
  name=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | paste -sd';')
  # A driver that nobody holds open starts the GPU anew for each program, which takes seconds; no setting is touched.
  for device in /dev/nvidia[0-9]*; do
    [ ! -r "$device" ] || exec {held}<"$device"
  done
  case $name in *H200*) report=$out/h200.md ;; *H100*) report=$out/h100.md ;; *) report=$out/gpu.md ;; esac
fi
[ -z "$parts" ] || report=${report%.md}-${parts//,/-}.md
log=/dev/null
[ -n "$stub" ] || { log=${report%.md}.log; : > "$log"; }
if [ -z "$name" ]; then
  echo "NOT RUN: this machine has no GPU that nvidia-smi sees." >&2
  exit 5
fi

say() { echo "$@" | tee -a "$report"; }
scaled() { echo $(($1 * seconds / together)); }
# part TITLE SECONDS COMMAND...: its output, how long it took, and whether it passed. A dry run has a quarter of the time.
part() {
  local title=$1 limit
  limit=$(scaled "$2")
  shift 2
  [ -z "$stub" ] || limit=$((limit / 4))
  say; say "## $title"; say; say '```'
  say "\$ $*"
  local begin=$SECONDS
  timeout -k 5 "$limit" "$@" 2>&1 | tee -a "$log" | tail -n 60 | tee -a "$report"
  local status=${PIPESTATUS[0]}
  say '```'
  case $status in
    0) say "passed in $((SECONDS - begin)) of at most $limit seconds" ;;
    77) say "SKIPPED: nothing of it could be tried" ;;
    124 | 137) say "NOT FINISHED in $limit seconds"; failed=1 ;;
    *) say "FAILED: exit $status"; failed=1 ;;
  esac
}
not_run() { say; say "NOT RUN: $*"; }

: > "$report"
say "# The CUDA backend on a GPU"
say
say "Written by tests/gpu/run_on_gpu.sh; nothing in it was edited."
say
say "    $(uname -sr), $(nproc) cores"
say "    $name"
if ! lacks=$(ldd "$bin/sg-run" "$build/lib/stepgraph/libsg_backend_cuda.so" "$build/tests/run_vectors" 2>&1 | grep 'not found'); then
  lacks=
fi
[ -z "$lacks" ] || { say "NOT RUN: this machine lacks libraries: $lacks"; exit 5; }
say "    $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo "from a bundle")"

cases=("$python" "$here/run_gpu_tests.py" --bin "$bin" --vectors "$build/tests/run_vectors")
vectors=("$build/tests/run_vectors" --backend cuda --listed "$root/tests/conformance/listed.txt" --listed "$root/tests/gpu/listed.txt")
if ! wants cases; then
  not_run "the cases of CI: not asked for."
elif [ -n "$stub" ]; then
  part "The same cases as in CI" 480 "${cases[@]}" --stub "$stub" --every 97 --only same_bits
  part "Chains and recorded segments" 240 "${cases[@]}" --stub "$stub" --only recording
  part "Cases side by side" 480 "${cases[@]}" --stub "$stub" --jobs 2 --only pro   # products and profiles
else
  # The vectors are one program, which says what it found when it ends: with less time there are fewer of them.
  part "The same cases as in CI, on the device" 420 "${cases[@]}" --jobs 8 --every $(((5 * 420 - 1) / $(scaled 420) + 1)) --without captures
fi
if ! wants captures; then
  not_run "the captures: not asked for."
elif [ -z "$stub" ]; then
  part "The captures, on the device" 300 "${cases[@]}" --all --only captures
fi
if ! wants sanitizers; then
  not_run "compute-sanitizer: not asked for."
elif [ -z "$stub" ] && command -v compute-sanitizer >/dev/null; then
  part "Races of lanes" 200 compute-sanitizer --tool racecheck --error-exitcode 1 "${vectors[@]}" --every 397 "$root/tests/conformance/vectors"
  part "Memory of lanes" 200 compute-sanitizer --tool memcheck --error-exitcode 1 "${vectors[@]}" --every 397 "$root/tests/conformance/vectors"
else
  not_run "compute-sanitizer (it is not installed, or this is a dry run): races of lanes were not looked for."
  part "Some vectors" 200 "${vectors[@]}" --every 397 "$root/tests/conformance/vectors"
fi

# NCCL by itself, one rank on one GPU; then two processes on one GPU, which NCCL takes for two machines (NCCL_HOSTID).
# A machine that is alone may have no other interface than lo, and no InfiniBand.
if wants nccl; then
  printf 'sg 1.0 world 1\ngroup @all [0]\ngraph rank *\n  input %%x : f32[8, 3] "x"\n  %%s = _c10d_functional.all_reduce(%%x, "sum", @all) : f32[8, 3]\n  %%w = _c10d_functional.wait_tensor(%%s) : f32[8, 3]\n  output %%w\n' > "$out/.one.txt"
  sed 's/world 1/world 2/; s/\[0\]/[0 1]/' "$out/.one.txt" > "$out/.two.txt"
  export NCCL_DEBUG=WARN   # why NCCL refuses, if it does
  only=${CUDA_VISIBLE_DEVICES:-0}
  part "NCCL with one rank" 60 "$bin/sg-run" "$out/.one.txt" --init seed:0 --backend cuda --comm nccl --explain
  part "NCCL between two processes on one GPU" 90 bash -c \
    "rank() { RANK=\$1 WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=${only%%,*} NCCL_HOSTID=host\$1 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 SG_CUDA_SHARE=1 '$bin/sg-run' '$out/.two.txt' --init seed:0 --backend cuda --comm nccl --timeout $(($(scaled 90) / 2)) --rendezvous '$out/.meet'; }; rank 1 & other=\$!; rank 0 && wait \$other"
  if [ "$gpus" -ge 2 ]; then
    rm -f "$out/.meet"
    part "NCCL between two GPUs, a process each" 60 bash -c \
      "rank() { RANK=\$1 WORLD_SIZE=2 '$bin/sg-run' '$out/.two.txt' --init seed:0 --backend cuda --comm nccl --timeout $(($(scaled 60) / 2)) --rendezvous '$out/.meet'; }; rank 1 & other=\$!; rank 0 && wait \$other"
    part "NCCL between two GPUs, ranks as threads" 60 "$bin/sg-run" "$out/.two.txt" --init seed:0 --backend cuda --comm nccl --timeout $(($(scaled 60) / 2))
  fi
  rm -f "$out/.one.txt" "$out/.two.txt" "$out/.meet"
  unset NCCL_DEBUG
else
  not_run "NCCL: not asked for."
fi
[ "$gpus" -ge 2 ] || not_run "NCCL between GPUs (this machine has $gpus)."

bench=("$python" "$root/tests/bench/run_gpu_bench.py" --bin "$bin" --python "$python" --traces "$traces")
if ! wants bench; then
  not_run "the benchmark: not asked for."
elif [ -n "$stub" ] && ! "$python" -c 'import torch' 2>/dev/null; then
  not_run "the benchmark, in small: there is no torch to capture its models with."
elif [ -n "$stub" ]; then
  SG_BENCH_SIZE=small part "The benchmark, in small" 240 "${bench[@]}" --rounds 1
else
  part "Beside PyTorch" 540 "${bench[@]}" --seconds "$(scaled 520)"
fi
if wants profiles; then
  profiles=$(mktemp -d)
  part "Where our time goes" 150 "${bench[@]}" --profiles "$profiles"
  tar -C "$profiles" -czf "$out/profiles.tar.gz" . && rm -r "$profiles"
fi
say
say "Took $SECONDS seconds."
[ -z "$stub" ] || rm -rf "$SG_CUDA_CACHE"
exit $failed
