// The arithmetic of reductions over a group, shared by all transports: comm.h defines it.
#pragma once

#include <cstdint>
#include <span>

#include "librun/comm/comm.h"

namespace sg {

// outputs[k][i] = reduction over r of inputs[r][i], for all k and i < count. An output may be the same memory as an
// input, but must not overlap one otherwise. REQUIRES: can_reduce(reduction.kind, dtype), at least one input.
void reduce_elements(const Reduction& reduction, DType dtype, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, int64_t count);

// outputs[k][i] = input[i]; an output that is the input is skipped.
void copy_bytes(const std::byte* input, std::span<std::byte* const> outputs, int64_t bytes);

}  // namespace sg
