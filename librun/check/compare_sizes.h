// Running two graphs on the same inputs: common sizes, and pairs of outputs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "librun/session.h"

namespace sg {

class Graph;

// The bindings that make both graphs run at the same sizes: --bind where the graph has the name, then the numbers that
// the other graph has for an input of the same name or FQN (if equal on all ranks of a program; sizes that differ
// between these stay). An input with different numbers in the two graphs is an error (cannot apply).
struct CommonSizes {
  std::vector<SizeBinding> first, second;
};
Result<CommonSizes> find_common_sizes(const Job& first, const Job& second, const SessionOptions& options);

// Maps each output of the first graph, out{i} by position, to its name in the second; a missing name has no
// counterpart. Outputs are matched by their meaning: the loss, the gradient or the new value of a named input; outputs
// without one by position, if both graphs have equally many.
std::unordered_map<std::string, std::string> pair_outputs(const Graph& first, const Graph& second);

}  // namespace sg
