#!/usr/bin/env bash
# A recipe: what it would do, done, and done again out of the cache.
# Usage: examples/05_a_recipe/run.sh [BIN]
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
cd "$(dirname "$0")"
STEPGRAPH_CACHE=$(mktemp -d)
export STEPGRAPH_CACHE
trap 'rm -rf "$STEPGRAPH_CACHE"' EXIT

echo "\$ sg-recipe check recipe.yaml"
sg-recipe check recipe.yaml
echo "\$ sg-recipe run recipe.yaml -j2"
sg-recipe run recipe.yaml -j2
echo "\$ sg-recipe run recipe.yaml --set policy=full"
sg-recipe run recipe.yaml --set policy=full
