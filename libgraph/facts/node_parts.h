// The nodes of a job's steps as parts: those of one name, on all ranks, are one.
#pragma once

#include <cstddef>
#include <unordered_map>

#include "libgraph/job.h"

namespace sg {

using NodeParts = std::unordered_map<StrId, size_t, IdHash>;

// The number of each name, in the order of the first program that has it.
inline NodeParts node_parts(const Job& job) {
  NodeParts out;
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes()) out.try_emplace(program->graph.node(n).label, out.size());
  return out;
}

}  // namespace sg
