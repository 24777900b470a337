#!/usr/bin/env bash
# Three recipes, from recomputation to expert-parallel overlap on 4 ranks: run, and each the bytes of a shell pipe.
# Usage: examples/recipes/run.sh [BIN]
set -eu -o pipefail
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
cd "$(dirname "$0")"
STEPGRAPH_CACHE=$(mktemp -d)
export STEPGRAPH_CACHE
trap 'rm -rf "$STEPGRAPH_CACHE"' EXIT
capture='../04_run_a_moe_step/capture/rank{r}/step.json.gz'

same_as_recipe() { # RECIPE STAGE: standard input is what the recipe's stage gave
  sha256sum >"$STEPGRAPH_CACHE/pipe"
  digest=$(cut -d ' ' -f 1 "$STEPGRAPH_CACHE/pipe")
  sg-recipe run "$1" --json -q | grep -q "\"name\":\"$2\",[^}]*\"digest\":\"sha256:$digest\"" && echo "the pipe gives the bytes of $2 in $1"
}

for recipe in remat auto-chunk ep-overlap; do
  echo "\$ sg-recipe run $recipe.yaml"
  sg-recipe run $recipe.yaml
done

sg-import -q "$capture" | sg-clean -q | sg-remat -q --policy full | same_as_recipe remat.yaml policy=full/remat
sg-import -q "$capture" | sg-clean -q | sg-chunk -q --auto --chunks 4 --min-output 1KiB | same_as_recipe auto-chunk.yaml chunk
sg-import -q "$capture" | sg-clean -q | sg-remat -q --policy default | sg-chunk -q --modules 'layers.*.moe' --chunks 2 \
  | sg-overlap -q --isolate-only | sg-bucket -q --plan per-block | sg-overlap -q --strategy reference | sg-concretize -q \
  | same_as_recipe ep-overlap.yaml concretize
