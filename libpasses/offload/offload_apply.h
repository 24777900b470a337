// Puts the nodes of sg-offload into a graph, and keeps to them when others put more there.
#pragma once

#include "libpasses/offload/offload_plan.h"

namespace sg {

// REQUIRES: candidates of this graph as it stands
void apply_offloads(Program* program, const std::vector<OffloadCandidate>& candidates, const OffloadChoice& choice);

// For passes that make nodes behind the forward which read values of the forward (sg-remat): where such a value is
// away, they read what came back, fetched earlier if they need it earlier. Returns how many nodes read something else
// now.
size_t settle_offloads(Program* program);

}  // namespace sg
