// The order of equal elements, where PyTorch leaves it open: the places that an unstable sort, argsort or topk gives.
// sg-run keeps the input's order; PyTorch's depends on the processor.
#pragma once

#include <string>

#include "libgraph/graph.h"

namespace sg {

// The nearest node that `n` depends on, in its own graph, for such places. none = there is none.
NodeId tie_order_behind(const Graph& graph, NodeId n);

// What to do where a step went another way at `n`; empty where no such node is behind it.
std::string tie_order_hint(const Graph& graph, NodeId n);

}  // namespace sg
