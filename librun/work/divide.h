// Decomposes indices with one division for quotient and remainder.
#pragma once

#include <cstdint>

#include "librun/work/inline.h"

namespace sg::work {

// Returns i % n and sets i to i / n. REQUIRES: i >= 0, n > 0. Most numbers fit 32 bits, which a device divides much
// faster.
SG_INLINE int64_t take_remainder(int64_t* i, int64_t n) {
  if ((static_cast<uint64_t>(*i) | static_cast<uint64_t>(n)) >> 32 == 0) {
    const auto whole = static_cast<uint32_t>(*i), by = static_cast<uint32_t>(n), quotient = whole / by;
    *i = quotient;
    return whole - quotient * by;
  }
  const int64_t quotient = *i / n, rest = *i - quotient * n;
  *i = quotient;
  return rest;
}

}  // namespace sg::work
