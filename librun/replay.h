// One step of the double run beside the run as recorded: see rank_run.h.
#pragma once

#include "librun/graph_run.h"

namespace sg {

// Step `i` of `wide`, the same step of `recorded` having run. Integers and booleans are copied from there; ops that
// choose elements and say which (topk, sort, max along an axis) take the elements that were chosen there.
Status replay_step(GraphRun& recorded, GraphRun& wide, size_t i);

}  // namespace sg
