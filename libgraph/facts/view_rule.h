// Whether an op that may alias (reshape, flatten, contiguous, to) returned a view of its argument: decided by strides.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/graph.h"

namespace sg {

enum class ViewAnswer : uint8_t { no, yes, maybe };

// Does `result` of node `n` share the storage of its argument `source`? With `values`, symbolic sizes are decided for
// those; without (null), the answer holds for all sizes, and is `maybe` where sizes decide.
// REQUIRES: the op has the trait kMayAlias.
ViewAnswer result_is_view(const Graph& graph, NodeId n, ValueId source, ValueId result, const SizeValues* values);

// Whether a tensor of `shape` and `stride` can be seen under `new_shape` without a copy. The element counts are equal.
bool can_view(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
              const std::vector<int64_t>& new_shape);

}  // namespace sg
