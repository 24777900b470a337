// Size arithmetic with known results: replaces arguments by literals and erases nodes that become unused.
#pragma once

#include <functional>
#include <optional>

#include "libgraph/graph.h"
#include "libgraph/scalar.h"

namespace sg {

// The result of Python's arithmetic for arguments that are numbers; none for other ops, or if an argument is not a
// number.
std::optional<Scalar> computed_number(const Graph& graph, NodeId n);

// The number that a result of a size op is known to be, as an argument; none if it is not known.
std::optional<Arg> known_size(const Graph& graph, ValueId v);

// Replaces arguments; returns how many nodes changed. `said(node, value)` is called for each replaced argument, and may
// be empty.
size_t replace_known_sizes(Graph* graph, const std::function<void(NodeId, ValueId)>& said = {});

// Erases size ops whose results nobody uses; returns how many.
size_t erase_unused_sizes(Graph* graph);

}  // namespace sg
