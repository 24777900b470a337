#!/usr/bin/env bash
# check_bundle.sh BUILD STUB: the bundle for a machine with a GPU holds all that run_on_gpu.sh needs there. It is packed, unpacked
# elsewhere, and walked through with the stand-ins in folder STUB. Exit 77 where BUILD has no CUDA backend.
set -euo pipefail
build=$(cd "$1" && pwd) stub=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -e "$build/lib/stepgraph/libsg_backend_cuda.so" ]; then
  echo "SKIPPED: built without the cuda backend"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
SG_BUILD=$build "$here/run_on_gpu.sh" pack "$folder/bundle.tar.xz"
tar -C "$folder" -xf "$folder/bundle.tar.xz"
"$folder/stepgraph/tree/tests/gpu/run_on_gpu.sh" --dry-run "$stub" --python "${STEPGRAPH_PYTHON:-python3}" --out "$folder/out"
