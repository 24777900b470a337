// Rewriting: making a node again, and putting one in another's place, so that all that belongs to a node goes with it.
// Links to forward nodes that were erased need no care: who writes a graph leaves them out.
#pragma once

#include <functional>
#include <string_view>

#include "libgraph/graph.h"

namespace sg {

// What `n` is made of, to make it again: op, arguments, result types, phase, module, source, metadata and forward link.
// Names are left to the graph.
NodeSpec spec_of(const Graph& graph, NodeId n);

// A copy of `n` before `position` (none = at the end). Value arguments go through `operand`. The results are called as
// those of `n` with `suffix` behind, made unique.
using OperandMap = std::function<ValueId(ValueId)>;
NodeId copy_node(Graph* graph, NodeId n, NodeId position, const OperandMap& operand, std::string_view suffix);

// The results of `n` are those of `by` from now on, one by one. REQUIRES: equal counts
void replace_results(Graph* graph, NodeId n, NodeId by);

}  // namespace sg
