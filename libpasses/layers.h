// Layers of a model, by the names of its modules: what prefetch distances and the borders of recomputation are counted
// in.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "libgraph/graph.h"

namespace sg {

// The layers of one graph in the order in which the forward comes to them.
//
// Stack     numbered modules of one parent: "encoder.0", "encoder.1", ... or the children of an nn.Sequential. Only the
//           first number of a name counts. Two stacks of a model ("encoder", "decoder") are one behind the other.
// Single    a numbered module of one op, as a Linear in an nn.Sequential. In a stack where others have modules inside,
//           singles are no layers: they are stem, glue or head. A stack of n singles for the most part is cut into
//           about sqrt(n) layers; the last of these is none, as its backward comes at once. It counts only where no
//           other stack is one of layers.
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
