// The order of a tensor's axes in memory, so that what is put together lies as the whole did.
#pragma once

#include <optional>
#include <vector>

#include "libgraph/job.h"

namespace sg {

using AxisOrder = std::vector<uint32_t>;

// The axes from the slowest to the fastest, where permuting them so gives a contiguous tensor; none when no permutation
// does.
std::optional<AxisOrder> axes_in_memory(Pool* pool, const Program& program, const Type& type);

// Axes along which `type` shows the same elements again (stride 0), but for `kept`; in `type` they are 1 then.
std::vector<uint32_t> take_repeated_axes(Pool* pool, Type* type, uint32_t kept);

AxisOrder same_order(size_t rank);
bool is_identity(const AxisOrder& order);
AxisOrder inverse(const AxisOrder& order);
uint32_t position_in(const AxisOrder& order, uint32_t axis);
Arg axes_arg(const AxisOrder& order);

}  // namespace sg
