#!/usr/bin/env bash
# run_examples.sh BIN NAME [--update]: runs an example and holds what it prints against its expected.txt.
set -eu
bin=$(cd "$1" && pwd)
example=$(cd "$(dirname "$0")/../examples/$2" && pwd)
actual=$("$example/run.sh" "$bin" 2>&1) || { echo "$actual"; echo "$2: run.sh failed"; exit 1; }
if [ ! -e "$example/expected.txt" ]; then   # times and places differ from run to run: it has to succeed, and says how it did
  printf '%s\n' "$actual"
elif [ "${3:-}" = --update ]; then
  printf '%s\n' "$actual" >"$example/expected.txt"
else
  diff -u "$example/expected.txt" <(printf '%s\n' "$actual")
fi
