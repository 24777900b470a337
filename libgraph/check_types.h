// Recorded types against inferred ones: whether our rules and the capture agree.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"

namespace sg {

// A kind of disagreement that is the recorder's fault and known to be: it is reported with its reason.
struct TypeException {
  std::string_view when;      // "offset", "symbols"
  std::string_view ops;       // comma-separated full names; "*" = any
  std::string_view reason;
};
std::span<const TypeException> type_exceptions();

struct TypeDisagreement {
  const Graph* graph = nullptr;   // the program's graph or a nested one
  NodeId node;
  uint32_t result = 0;
  Type inferred;                  // unknown when `reason` says why nothing could be inferred
  Type recorded;
  std::string reason;
  const TypeException* exception = nullptr;   // null = nobody knows why
};

// Every result whose recorded type differs from the inferred one, in schedule order, nested graphs after the program's.
// Results without a recorded type and ops without a rule are passed over.
std::vector<TypeDisagreement> check_types(const Program& program);

}  // namespace sg
