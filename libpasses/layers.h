// Layers of a model, derived from module names: the unit of prefetch distances and of recomputation borders.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "libgraph/graph.h"

namespace sg {

// The layers of one graph, in the order in which the forward reaches them.
//
// Stack     numbered modules of one parent: "encoder.0", "encoder.1", ... or the children of an nn.Sequential. Only the
//           first number of a name counts. Layers of a second stack ("decoder") are numbered after those of the first.
// Single    a numbered module of one op, such as a Linear in an nn.Sequential. In a stack where other members contain
//           modules, singles are not layers but stem, glue or head. A stack of n members, most of them singles and none
//           containing modules, is cut into about sqrt(n) layers; the last of these is no layer, because its backward
//           follows immediately. Such a stack counts only if the model has no other kind.
// Cost      one pass over the nodes.
class Layers {
 public:
  explicit Layers(const Graph& graph);

  int32_t of(const Graph& graph, NodeId n) const {
    const auto it = by_module_.find(graph.node(n).module);
    return it == by_module_.end() ? -1 : it->second;
  }

 private:
  std::unordered_map<StrId, int32_t, IdHash> by_module_;  // no entry = in none
};

}  // namespace sg
