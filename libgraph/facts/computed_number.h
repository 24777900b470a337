// What a size op gives by Python's arithmetic, for whoever knows the numbers that it takes.
#pragma once

#include <functional>
#include <optional>

#include "libgraph/graph.h"
#include "libgraph/scalar.h"

namespace sg {

// Python's arithmetic (python.ceil) on literals and on what `number_of` says of values; none of other ops, and where
// one argument is not a number.
std::optional<Scalar> computed_number(const Graph& graph, NodeId n,
                                      const std::function<std::optional<Scalar>(ValueId)>& number_of);

}  // namespace sg
