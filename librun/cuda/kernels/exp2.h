// The device's own exponential, for results that are rounded to bf16 or f16, or summed for a logarithm.
#pragma once

#include "librun/cuda/kernels/block.h"
#include "librun/work/math.h"

namespace sg::cuda {

inline constexpr float kLog2E = 1.44269504f;

// Accurate to 2 ulp; 0 where the result would be denormal.
SG_FN float exp2_near(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return math::exp(x * 0.693147181f);
#endif
}

}  // namespace sg::cuda
