#!/usr/bin/env bash
# run_fuzz.sh SECONDS|short: runs each libFuzzer target that long from the kept corpus, under ASan and UBSan.
#
# `short` is for CI: from the same seed the same number of inputs each time, and nothing kept from earlier runs, so that a
# red build is the work of its commit. A finding is written into findings/ of the build folder and fails the run; add its input to the
# corpus with the fix. TARGETS="text fx" runs those alone.
set -eu
cd "$(dirname "$0")/../.."
length=${1:?usage: run_fuzz.sh SECONDS|short}
if ! command -v clang++ >/dev/null 2>&1; then
  echo "SKIPPED: the fuzzers need clang++, which this machine lacks"
  exit 0
fi
# Whole runs need librun built once more: not in CI, where replay_run (tests/CMakeLists.txt) stands for them.
forms=${TARGETS:-binary text capture safetensors fx trace pt2 machine$([ "$length" = short ] || echo " run")}
generator=$(command -v ninja >/dev/null 2>&1 && echo Ninja || echo "Unix Makefiles")
preset=fuzz
[ "$length" != short ] || preset=fuzz-short        # so few inputs are quicker run by slow code than by code that takes long to build
build=build-$preset
cmake -G "$generator" --preset $preset >/dev/null
cmake --build $build -j "${JOBS:-2}" --target $(printf 'fuzz_%s ' $forms)

# Inputs of the short run: what a target does in about five seconds on a slow core.
short_runs() {
  case $1 in safetensors) echo 20000 ;; binary) echo 2000 ;; run) echo 300 ;; *) echo 800 ;; esac
}

mkdir -p $build/findings
status=0
for form in $forms; do
  log=$build/fuzz_$form.log
  if [ "$length" = short ]; then
    found=$(mktemp -d)
    # Comparisons of addresses steer -use_cmp, and addresses are never twice the same.
    limits=(-seed=1 -runs="$(short_runs "$form")" -use_cmp=0 -reload=0
      -max_total_time=15 -timeout=60)
  else
    found=$build/corpus/$form
    mkdir -p "$found"
    limits=(-max_total_time="$length" -timeout=20)
  fi
  begin=$SECONDS
  if $build/bin/fuzz_$form "${limits[@]}" -rss_limit_mb=3000 -max_len=65536 \
      -artifact_prefix="$build/findings/$form-" -print_final_stats=1 "$found" "tests/fuzz/corpus/$form" >"$log" 2>&1; then
    echo "fuzz_$form: no finding in $((SECONDS - begin)) s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
  else
    echo "fuzz_$form: FAILED, the input is in $build/findings"
    grep -E 'ERROR|SUMMARY|runtime error|Assertion' "$log" || tail -20 "$log"
    status=1
  fi
  [ "$length" != short ] || rm -rf "$found"
done
exit $status
