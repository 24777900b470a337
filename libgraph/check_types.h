// Recorded types against inferred ones: whether our rules and the capture agree.
#pragma once

#include <string>
#include <vector>

#include "libgraph/job.h"

namespace sg {

struct TypeDisagreement {
  const Graph* graph = nullptr;   // the program's graph or a nested one
  NodeId node;
  uint32_t result = 0;
  Type inferred;                  // unknown when `reason` says why nothing could be inferred
  Type recorded;
  std::string reason;
};

// Every result whose recorded type differs from the inferred one, in schedule order, nested graphs after the program's.
// Results without a recorded type and ops without a rule are passed over.
std::vector<TypeDisagreement> check_types(const Program& program);

}  // namespace sg
