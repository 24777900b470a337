// The order of a tensor's axes in memory, so that what is put together lies as the whole did.
#pragma once

#include <optional>
#include <vector>

#include "libgraph/job.h"

namespace sg {

using AxisOrder = std::vector<uint32_t>;

// The axes from the slowest to the fastest, where permuting them so gives a contiguous tensor; none when no permutation does.
std::optional<AxisOrder> axes_in_memory(Pool* pool, const Program& program, const Type& type);

bool is_identity(const AxisOrder& order);
AxisOrder inverse(const AxisOrder& order);
uint32_t position_in(const AxisOrder& order, uint32_t axis);
Arg axes_arg(const AxisOrder& order);

}  // namespace sg
