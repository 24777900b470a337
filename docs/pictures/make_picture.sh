#!/usr/bin/env bash
# Makes docs/pictures/ep-overlap.png, the picture in the README: the small MoE step of examples/04_run_a_moe_step before and after
# the passes of examples/recipes/ep-overlap.yaml, as sg-view shows it in Chromium.
# Usage: docs/pictures/make_picture.sh [BIN]
set -eu -o pipefail
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sg-import -q '../../examples/04_run_a_moe_step/capture/rank{r}/step.json.gz' -o "$out/step.sg"
sg-clean -q "$out/step.sg" | sg-remat -q --policy default | sg-chunk -q --modules 'layers.*.moe' --chunks 2 \
  | sg-overlap -q --isolate-only | sg-bucket -q --plan per-block | sg-overlap -q --strategy reference -o "$out/overlapped.sg"
(cd "$out" && sg-view -q step.sg overlapped.sg -o page.html)
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1360,680 --virtual-time-budget=8000 \
  --screenshot=ep-overlap.png "file://$out/page.html" 2>/dev/null
# Fewer colours, where a Python with Pillow is at hand: a third of the bytes.
"${STEPGRAPH_PYTHON:-python3}" -c 'from PIL import Image; p = "ep-overlap.png"; Image.open(p).convert("RGB").quantize(160, dither=0).save(p, optimize=True)' \
  || echo "the picture keeps all its colours: there is no Pillow"
