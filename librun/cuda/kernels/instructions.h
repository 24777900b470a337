// Instructions of the device that the C++ of our other functions does not reach: its exponential and reciprocal, and
// the fused multiplication.
#pragma once

#include "librun/cuda/kernels/block.h"
#include "librun/work/math.h"

namespace sg::cuda {

inline constexpr float kLog2E = 1.44269504f;

// 2^x for results that are rounded to bf16 or f16, or summed for a logarithm: accurate to 2 ulp; 0 where the result
// would be denormal.
SG_FN float exp2_near(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return math::exp(x * 0.693147181f);
#endif
}

// The same, with denormal results.
SG_FN float exp2_denormal(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return static_cast<float>(math::Wide<float>::exp2(x));
#endif
}

// 1 / x for 1 <= x <= 2^100, within 1 ulp.
SG_FN float inverse_near(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// x * by + y with one rounding.
SG_FN float multiply_add(float x, float by, float y) {
#ifdef __CUDACC__
  return __fmaf_rn(x, by, y);
#else
  return ::fmaf(x, by, y);
#endif
}

}  // namespace sg::cuda
