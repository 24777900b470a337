// Nodes that use gradients without passing them on: those that reduce them to single numbers (the norm for clipping, a
// check that they are finite), those that update inputs of the graph with them (a parameter, its momentum), and results
// that only such nodes read, or outputs that are neither gradients nor the loss.
#pragma once

#include <vector>

#include "libgraph/facts/alias.h"
#include "libgraph/graph.h"

namespace sg {

// Makes its results of its arguments and nothing else, at any time.
bool is_timeless(const Graph& graph, NodeId n);

// By node: whether it is one. Never what the loss is made of, nor what makes the gradient of a parameter that is a
// single number. Linear in the graph.
std::vector<bool> find_consumers(const Graph& graph, const AliasAnalysis& alias);

}  // namespace sg
