#!/usr/bin/env bash
# run_fuzz.sh SECONDS: runs each libFuzzer target that long from the kept corpus, under ASan and UBSan.
#
# A finding is written into build-fuzz/findings and fails the run; add its input to the corpus with the fix.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:?usage: run_fuzz.sh SECONDS}
if ! command -v clang++ >/dev/null 2>&1; then
  echo "SKIPPED: the fuzzers need clang++, which this machine lacks"
  exit 0
fi
generator=$(command -v ninja >/dev/null 2>&1 && echo Ninja || echo "Unix Makefiles")
cmake -G "$generator" --preset fuzz >/dev/null
cmake --build build-fuzz -j 2 --target fuzz_binary fuzz_text fuzz_capture fuzz_safetensors fuzz_fx fuzz_trace fuzz_pt2 fuzz_run
mkdir -p build-fuzz/findings
status=0
for form in binary text capture safetensors fx trace pt2 run; do
  mkdir -p "build-fuzz/corpus/$form"
  log=build-fuzz/fuzz_$form.log
  if build-fuzz/bin/fuzz_$form -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=65536 \
      -artifact_prefix="build-fuzz/findings/$form-" -print_final_stats=1 \
      "build-fuzz/corpus/$form" "tests/fuzz/corpus/$form" >"$log" 2>&1; then
    echo "fuzz_$form: no finding in $seconds s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
  else
    echo "fuzz_$form: FAILED, the input is in build-fuzz/findings"
    grep -E 'ERROR|SUMMARY|runtime error|Assertion' "$log" || tail -20 "$log"
    status=1
  fi
done
exit $status
