// ValueNumbers: which values of a graph are equal whatever the inputs are: equal op, equal arguments, nothing in
// between that could make a difference. Random ops, writes, effects and opaque ops are equal to themselves only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "libgraph/alias.h"

namespace sg {

class ValueNumbers {
 public:
  // Collectives count as functions of their arguments when `collectives`: equal launches give equal results.
  ValueNumbers(const Graph& graph, const AliasAnalysis& alias, bool collectives);

  // The first node that computes what `n` does; `n` itself when there is none before.
  NodeId leader(NodeId n) const { return leader_[n.index]; }

 private:
  friend class NumberBuilder;
  std::vector<NodeId> leader_;  // by node
};

}  // namespace sg
