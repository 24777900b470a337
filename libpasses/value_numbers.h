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
  // What collectives and waits are: functions of their arguments, as others are (equal launches give equal results), or
  // equal to themselves only, for who may not take one for another.
  enum class Launches { functions, themselves };

  ValueNumbers(const Graph& graph, const AliasAnalysis& alias, Launches launches);

  // The first node that computes what `n` does; `n` itself when there is none before.
  NodeId leader(NodeId n) const { return leader_[n.index]; }

 private:
  friend class NumberBuilder;
  std::vector<NodeId> leader_;  // by node
};

}  // namespace sg
