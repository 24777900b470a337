// Two graphs on the same inputs: at the same sizes, and with their outputs side by side.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "librun/session.h"

namespace sg {

// What to bind in each graph so that both run at one size: --bind where the graph has the name, then the numbers that
// the other graph has for an input of the same name or FQN (of all ranks alike; sizes that differ between ranks stay
// theirs). Inputs that have different numbers in both are an error (cannot apply).
struct CommonSizes {
  std::vector<SizeBinding> first, second;
};
Result<CommonSizes> find_common_sizes(const Job& first, const Job& second, const SessionOptions& options);

// Where the second graph has each output of the first, out{i} by position in the first; a name that is not there has no
// counterpart. By what they are: the loss, the gradient or the new value of an input of some name; what says nothing of
// itself, by position where both graphs have equally many.
std::unordered_map<std::string, std::string> pair_outputs(const Graph& first, const Graph& second);

}  // namespace sg
