// Puts the nodes of sg-offload into a graph. Internal to the pass.
#pragma once

#include "libpasses/offload_plan.h"

namespace sg {

// REQUIRES: candidates of this graph as it stands
void apply_offloads(Program* program, const std::vector<OffloadCandidate>& candidates, const OffloadChoice& choice);

}  // namespace sg
