// ShrinkParts: which nodes of a job's steps are taken away together, as numbered parts.
//
// Ends      All ends of one collective are one part, on every rank that takes part in it: the sender's node and the
//           receiver's, whatever their names. A call whose body launches it is such an end. Nobody could take an end
//           away alone: the others would wait for it forever.
// Names     With all ranks at once, the other nodes are one part where they have one name, and so are collectives
//           of one number in a family of groups; with each rank alone, every node of a program is a part.
// Order     Programs by their place in the job, nodes by the schedule; a part stands where its first node does.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/edit/shrink.h"
#include "libgraph/job.h"

namespace sg {

class ShrinkParts {
 public:
  ShrinkParts(const Job& job, PartScope scope);

  size_t count() const { return count_; }
  // Of a node of the main graph of the job's program of that index.
  size_t of(size_t program, NodeId n) const { return part_[program][n.index]; }

 private:
  std::vector<std::vector<uint32_t>> part_;  // by program, then node
  uint32_t count_ = 0;
};

}  // namespace sg
