#!/usr/bin/env bash
# A graph written by hand: check it, complete it, turn it into a file and back, and see what a mistake looks like.
# Usage: examples/01_a_graph_as_text/run.sh [BIN]; prints expected.txt.
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo '$ sg-check step.sg.txt'
sg-check step.sg.txt

echo '$ sg-parse step.sg.txt -o step.sg && sg-print step.sg          # types are inferred'
sg-parse -q step.sg.txt -o "$out/step.sg"
sg-print "$out/step.sg"

echo '$ sg-print step.sg | sg-parse - | cmp - step.sg                # to the byte'
sg-print "$out/step.sg" | sg-parse - | cmp - "$out/step.sg" && echo same

echo "\$ sed 's/mm(%x, %weight_t)/mm(%x, %weight)/' step.sg.txt | sg-check -"
sed 's/mm(%x, %weight_t)/mm(%x, %weight)/' step.sg.txt | sg-check - 2>&1 || echo "exit $?"

echo "\$ sed 's/%square  /%sqare  /' step.sg.txt | sg-check -"
sed 's/%square  /%sqare  /' step.sg.txt | sg-check - 2>&1 || echo "exit $?"
