// Rewriting: copying a node, and replacing one by another, so that everything that belongs to a node moves with it.
// Links to erased forward nodes need no care: the writer of a graph omits them.
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
