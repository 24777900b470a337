// Memory that must not be accessed for a while: filled with garbage, and guarded by a checksum.
#pragma once

#include <cstdint>
#include <span>

#include "librun/tensor.h"

namespace sg {

// Fills the elements of `t` with useless values: NaN, -1, true. What it shares with one of `kept` is preserved, byte
// for byte if both have no gaps; otherwise all of `t` is preserved.
void spoil(const Tensor& t, std::span<const Tensor> kept);

// A checksum of the bytes of `t`'s elements.
uint64_t sum_of_bytes(const Tensor& t);

}  // namespace sg
