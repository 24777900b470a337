// The nodes of a graph that its caller can tell from their absence: by outputs, by memory of its own, by an error, or
// by what happens on other ranks.
#pragma once

#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

// By node id. Errs on the side of needing: of a symbol that data defines nobody asks whether it is used.
std::vector<bool> needed_nodes(const Graph& graph, const AliasAnalysis& alias);

}  // namespace sg
