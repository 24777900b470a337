// The order of a tensor's axes in memory, so that a joined value is laid out like the original.
#pragma once

#include <optional>
#include <vector>

#include "libgraph/job.h"

namespace sg {

using AxisOrder = std::vector<uint32_t>;

// The axes from slowest to fastest, if permuting the tensor in that order makes it contiguous; none if no permutation
// does.
std::optional<AxisOrder> axes_in_memory(Pool* pool, const Program& program, const Type& type);

// Finds the axes other than `kept` along which `type` repeats elements (stride 0), and sets their sizes in `type` to 1.
std::vector<uint32_t> take_repeated_axes(Pool* pool, Type* type, uint32_t kept);

AxisOrder same_order(size_t rank);
bool is_identity(const AxisOrder& order);
AxisOrder inverse(const AxisOrder& order);
uint32_t position_in(const AxisOrder& order, uint32_t axis);
Arg axes_arg(const AxisOrder& order);

}  // namespace sg
