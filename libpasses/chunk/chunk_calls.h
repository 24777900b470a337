// Calls: the nodes of a module that a step runs more than once, or piece by piece, are several regions.
//
// One after the other  What takes, by way of nodes outside, what the module has made before, is of a later call: a
// shared
//                      block, or the parts of a container that is not called itself.
// Side by side         Of one call, what shares neither values nor an operand with the rest, and takes floats of its
//                      own: a module called on two inputs.
// Backward             Nodes go with their forward nodes; those without one, with what they take or are taken by.
// Cost                 linear in the nodes between a module's first and last, for modules that are not in one piece
#pragma once

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

// Splits the regions of modules by their calls. `from_data`: by value (chunk_regions.h).
void split_by_calls(const Graph& graph, const std::vector<bool>& from_data, ProgramRegions* found);

}  // namespace sg
