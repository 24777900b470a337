#!/usr/bin/env bash
# check_bundle_tests.sh: what a bundle holds of the tests is whole: its scripts start from there, with all that they import.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$here/run_on_gpu.sh" put-tests "$folder/tree"
for script in gpu/run_gpu_tests.py bench/run_gpu_bench.py; do
  (cd "$folder" && python3 -I -B -c '
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")' "$folder/tree/tests/$script" >/dev/null) || { echo "FAILED: $script"; exit 1; }
  echo "ok     $script starts"
done
