// Inputs that each step is to be given anew, as a learning rate that the captured step sets by what Python counts.
#pragma once

#include <algorithm>
#include <string_view>

#include "libgraph/graph.h"

namespace sg {

inline constexpr std::string_view kScheduledKey = "scheduled";  // a free key of the input, which captures set to true

inline bool is_scheduled(const Graph& graph, const Input& input) {
  return std::ranges::any_of(input.extra, [&](const KeyValue& entry) {
    return graph.pool().strings[entry.key] == kScheduledKey && graph.pool().strings[entry.json] == "true";
  });
}

}  // namespace sg
