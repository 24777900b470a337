#!/usr/bin/env bash
# Every way in, and back: a TORCH_TRACE log, a .pt2, FX text and a model become graphs, and a graph a Python module.
# Usage: examples/03_ways_in/run.sh [BIN]. What needs PyTorch is left out, aloud, where python3 (or $STEPGRAPH_PYTHON) has none.
set -eu
PATH=$(cd "${1:-build/bin}" && pwd):$PATH
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
show() { echo "\$ $*"; "$@"; }

# The job that runs already: TORCH_TRACE=folder python train.py
show sg-import -q step.trace.log -o "$out/trace.sg"

# What torch.export saved; its weights come to lie beside the graph.
show sg-import -q step.pt2 -o "$out/exported.sg"

# What somebody pasted: gm.print_readable()
show sg-import -q step.fx.txt -o "$out/text.sg"

echo "# the first two give PyTorch's loss; the weights of the archive serve both"
show sg-run "$out/exported.sg" --inputs "$out/exported.safetensors" --inputs batch.safetensors --expect expected.safetensors
show sg-run "$out/trace.sg" --inputs "$out/exported.safetensors" --inputs batch.safetensors --init seed:0 --expect expected.safetensors

python=${STEPGRAPH_PYTHON:-python3}
if ! "$python" -c 'import torch, safetensors' 2>/dev/null; then
  echo "SKIPPED: $python has no torch and safetensors: the model was not captured, and no graph taken back to it"
  exit 0
fi
export PYTHONPATH=$root/tools/capture PYTHONDONTWRITEBYTECODE=1
show "$python" -m stepgraph_capture model.py:step -o "$out/capture"
show sg-import -q "$out/capture/step.json" -o "$out/captured.sg"
show sg-run "$out/captured.sg" --inputs "$out/capture/inputs.safetensors" --expect "$out/capture/expected.safetensors"

# And back: a module of plain torch calls, run in PyTorch.
show sg-export "$out/captured.sg" -o "$out/step.py"
show "$python" "$out/step.py" "$out/capture/inputs.safetensors" --expect "$out/capture/expected.safetensors"
