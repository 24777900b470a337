// Size arithmetic that has become numbers: literals where it is an argument, and the nodes that nobody needs any more
// gone.
#pragma once

#include <functional>
#include <optional>

#include "libgraph/graph.h"
#include "libgraph/scalar.h"

namespace sg {

// What Python's arithmetic gives for arguments that are numbers; none of other ops, and where one is not a number.
std::optional<Scalar> computed_number(const Graph& graph, NodeId n);

// The number that a result of a size op is known to be, as an argument; none when it is not.
std::optional<Arg> known_size(const Graph& graph, ValueId v);

// Replaces arguments; returns the nodes changed. `said(node, value)` is called for each argument, and may be empty.
size_t replace_known_sizes(Graph* graph, const std::function<void(NodeId, ValueId)>& said = {});

// Erases size ops whose results nobody uses; returns how many.
size_t erase_unused_sizes(Graph* graph);

}  // namespace sg
