#!/usr/bin/env bash
# A pass of one's own as a tool (sub_neg.cc, which the build makes), on a step in which one place must be left alone.
# Usage: examples/06_a_pass/run.sh [BIN]
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$(cd "${1:-build/bin}/../examples" && pwd):$PATH
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo "\$ sg-sub-neg step.sg.txt -o after.sg"
sg-sub-neg step.sg.txt -o "$out/after.sg" 2>&1 | sed "s|$out/||"
echo "\$ sg-clean -q after.sg | sg-print"
sg-clean -q "$out/after.sg" | sg-print -
echo "\$ sg-run -q step.sg.txt --init seed:0 --compare after.sg --bitwise && echo equal"
sg-run -q step.sg.txt --init seed:0 --compare "$out/after.sg" --bitwise && echo equal
