// Results that an exported module lays out by itself, because a view counts on how they lie.
//
// A graph has the strides that tracing saw. PyTorch's eager kernels lay some results out otherwise where an argument or
// the traced result is permuted (batch norms, softplus_backward, mse_loss_backward), and what is computed from these
// follows: a view that is legal in the graph then is not in an eager run.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/graph.h"

namespace sg::python {

// By ValueId: not 0 for a result of an op that takes its layout from its arguments and has an argument or a result that
// does not lie contiguously, where a view below it, directly or behind other ops, fails or means something else on
// other strides. Of all others eager and traced strides are the same. O(arguments).
std::vector<uint8_t> counted_layouts(const Graph& graph);

}  // namespace sg::python
