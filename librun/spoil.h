// Memory that is not to be touched for a while: made useless, and watched by a sum.
#pragma once

#include <cstdint>
#include <span>

#include "librun/tensor.h"

namespace sg {

// Fills what `t` sees with what no program can go on with: NaN, -1, true. What it shares with one of `kept` stays as it
// is, byte for byte where both lie without gaps, else all of it stays.
void spoil(const Tensor& t, std::span<const Tensor> kept);

// A number that changes, as good as always, when a byte does that `t` sees.
uint64_t sum_of_bytes(const Tensor& t);

}  // namespace sg
