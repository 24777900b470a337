// ValueNumbers: which values of a graph are equal for all inputs: same op, equal arguments, and nothing in between that
// could change the result. Random ops, writes, effects and opaque ops are equal only to themselves.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

class ValueNumbers {
 public:
  // How collectives and waits are treated: as functions of their arguments (equal launches give equal results), or as
  // equal only to themselves, for passes that must not substitute one for another.
  enum class Launches { functions, themselves };

  ValueNumbers(const Graph& graph, const AliasAnalysis& alias, Launches launches);

  // The first node that computes the same as `n`; `n` itself if there is none before it.
  NodeId leader(NodeId n) const { return leader_[n.index]; }

 private:
  friend class NumberBuilder;
  std::vector<NodeId> leader_;  // by node
};

}  // namespace sg
