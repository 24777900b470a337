// exp of a float in float alone: four times as fast as math::exp, within 1 ulp, the same bits on every instruction set.
// For sums of many, and where what goes in is rounded already. Below 2^-126 the result is 0.
#pragma once

#include <bit>
#include <cstdint>

#include "librun/cpu/isa.h"
#include "librun/work/math.h"

namespace sg::cpu {

SG_INLINE float exp_float(float x) {
  constexpr float kBias = 0x1.8p23f;  // added and taken away: rounds to an integer
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kLowest = -87.33654f, kHighest = 88.72283f;
  float within = x < kLowest ? kLowest : x > kHighest ? kHighest : x;  // NaN stays
  float n = (within * 1.44269504f + kBias) - kBias;
  n = n > 127.0f ? 127.0f : n;
  float r = (within - n * kLn2High) - n * kLn2Low;
  float p = 0x1.6a234ep-10f;
  p = p * r + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.55549p-3f;
  p = p * r + 0x1.fffffcp-2f;
  float y = (p * (r * r) + r) + 1.0f;
  uint32_t exponent = std::bit_cast<uint32_t>(n + kBias) - std::bit_cast<uint32_t>(kBias) + 127u;
  y *= std::bit_cast<float>(exponent << 23);
  y = x < kLowest ? 0.0f : y;
  return x > kHighest ? __builtin_inff() : y;
}

SG_INLINE double exp_float(double x) { return math::exp(x); }

}  // namespace sg::cpu
