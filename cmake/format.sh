#!/usr/bin/env bash
# Lays every C++ file out as .clang-format says; with --check changes nothing and names the files that differ, and lines of
# comments that are longer than 120 columns, which clang-format leaves alone.
# Only version 14 (Debian 12's), because others lay out otherwise: exit 77 where it is absent.
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null 2>&1 && "$candidate" --version | grep -q "version 14\."; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "SKIPPED: the layout of the sources needs clang-format 14, which this machine lacks"
  exit 77
fi

sources() { find . \( -name .git -o -path './build*' -o -name .venv \) -prune -o -type f \( -name '*.cc' -o -name '*.h' -o -name '*.cu' \) -print0; }
if [ "${1:-}" = --check ]; then
  if ! sources | xargs -0 -n 50 "$formatter" --dry-run -Werror; then
    echo "error: these files are not laid out as .clang-format says: make format" >&2
    exit 1
  fi
  if sources | xargs -0 awk 'length > 120 && /^ *\/\// { print FILENAME ":" FNR ": a comment of " length " columns"; bad = 1 } END { exit bad }'; then :; else
    echo "error: comments are folded at 120 columns" >&2
    exit 1
  fi
  echo "$(sources | tr -cd '\0' | wc -c) files are laid out as .clang-format says"
else
  sources | xargs -0 -n 50 "$formatter" -i
fi
