// One step of the run in double beside the recorded one: see rank_run.h.
#pragma once

#include "librun/execute/graph_run.h"

namespace sg {

// Runs step `i` of `wide` after the same step of `recorded`. Integers and booleans are copied from the latter; ops that
// select elements and return indices (topk, sort, max along an axis) take the elements selected there.
Status replay_step(GraphRun& recorded, GraphRun& wide, size_t i);

}  // namespace sg
