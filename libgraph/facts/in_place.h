// In-place reuse: whether the result of a node may be put in the memory of an argument that dies there.
//
// Ops that are pointwise, or work row by row (the softmax family): element i of the result is written where element i
// of the argument was, so every backend, with any number of threads and any vector width, reads it before it is
// overwritten. Anything else that the node reads in that memory is also element i of the same view, or disjoint from
// the result.
#pragma once

#include <cstdint>
#include <optional>

#include "libgraph/expr/sizes.h"
#include "libgraph/facts/alias.h"
#include "libgraph/op.h"

namespace sg {

// Where the memory of a plan may begin: at multiples of this, or of the next power of two for what is smaller.
constexpr int64_t kPlanAlignment = 64;
int64_t plan_alignment(int64_t bytes);

bool reuses_in_place(const OpInfo& op);

// A value, and how long its storage is.
struct StoredValue {
  ValueId value;
  int64_t bytes;
};

// Bytes into the storage of `argument` where that of `result` may begin; none = it may not lie there. The caller has
// seen to it that the storage of `argument` dies at `n` and that nothing else may alias it.
// REQUIRES: reuses_in_place, and `result` is the first value of a storage made by `n`.
std::optional<int64_t> in_place_offset(const Graph& graph, const AliasAnalysis& alias, const SizeValues& values,
                                       NodeId n, StoredValue result, StoredValue argument);

}  // namespace sg
