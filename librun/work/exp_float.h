// exp, log1p and tanh of a float in float arithmetic only: in a quarter of the time of those in math.h, which go
// through double. Within 1.1, 2 and 1.6 ulp, down to the smallest floats, with the same bits on every instruction set,
// because only + - * / and comparisons are used.
//
// For sums of many terms, for values that are already rounded, and where PyTorch's own float code is no more accurate.
// The double overloads serve kernels written for both types.
#pragma once

#include "librun/work/halves.h"
#include "librun/work/math.h"

namespace sg::math {

// exp(x - less), for a small `less`: the rounding error of x. REQUIRES: -105 < x < 89, or NaN.
SG_INLINE float exp_within(float x, float less = 0) {
  constexpr float kBias = 0x1.8p23f;  // adding and subtracting it rounds to an integer, held in the low bits
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  float shifted = x * 1.44269504f + kBias, n = shifted - kBias;
  float r = ((x - n * kLn2High) - n * kLn2Low) - less;
  float p = 0x1.6a234ep-10f;
  p = p * r + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.55549p-3f;
  p = p * r + 0x1.fffffcp-2f;
  float y = (p * (r * r) + r) + 1.0f;
  uint32_t half = work::word(shifted) >> 1,
           other = work::word(shifted) - half;  // 2^n may not be a float, but two factors of it are
  return y * work::number((half + 127u) << 23) * work::number((other + 127u) << 23);
}

// exp(x) for any x.
SG_INLINE float exp_float(float x) {
  x = x < -104.0f ? -104.0f : x;  // clamped to 0 and infinity; NaN stays
  return exp_within(x > 89.0f ? 89.0f : x);
}
SG_INLINE double exp_float(double x) { return Wide<double>::exp(x); }

// exp(-|x|), within [0, 1].
SG_INLINE float exp_from(float x) {
  float a = abs(x);
  return exp_within(a > 104.0f ? -104.0f : -a);
}
SG_INLINE double exp_from(double x) { return Wide<double>::exp(-abs(x)); }

// Near 0 a polynomial, because 1 - exp(-2x) loses precision there.
SG_INLINE float tanh_float(float x) {
  float z = x * x, p = -0x1.9018080p-8f;
  p = p * z + 0x1.581fa80p-6f;
  p = p * z - 0x1.b928e00p-5f;
  p = p * z + 0x1.110e2e0p-3f;
  p = p * z - 0x1.5555520p-2f;
  float e = exp_from(x + x), far = (1.0f - e) / (1.0f + e);
  return abs(x) < 0.625f ? x + x * (z * p) : x < 0 ? -far : far;
}
SG_INLINE double tanh_float(double x) { return Wide<double>::tanh(x); }

// log(1 + x) for x in [0, 1].
SG_INLINE float log1p_float(float x) {
  float t = (x + x) / (2.0f + x), z = t * t;  // 2 atanh(t / 2)
  float p = 0x1.1ed802p-11f;
  p = p * z + 0x1.1ebcfcp-9f;
  p = p * z + 0x1.99d20ap-7f;
  p = p * z + 0x1.555502p-4f;
  return t + t * (z * p);
}
SG_INLINE double log1p_float(double x) { return Wide<double>::log1p(x); }

}  // namespace sg::math
