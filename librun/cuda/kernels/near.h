// Smooth functions whose result is rounded to bf16 or f16 at once: a float in a third of the instructions of
// work/activations.h, by the device's exponential and reciprocal. Within 8 ulp of a float (tanh and gradients as
// there, where they pass through 0), which shows in one of 4,000 roundings to f16 and of 30,000 to bf16.
//
// Infinities and NaN give what activations.h gives.
#pragma once

#include "librun/cuda/kernels/instructions.h"
#include "librun/work/activations.h"

namespace sg::cuda {

// exp(x + more), for a small `more`: the product with log2(e) in two parts. REQUIRES: -105 <= x <= 89, or NaN.
SG_FN float exp_near(float x, float more = 0.0f) {
  constexpr float kLog2ELow = 1.92596303e-8f, kLn2 = 0.693147181f;
  const float power = x * kLog2E;
  const float rest = multiply_add(more, kLog2E, multiply_add(x, kLog2ELow, multiply_add(x, kLog2E, -power)));
  return exp2_denormal(power) * multiply_add(rest, kLn2, 1.0f);
}
SG_FN float exp_anywhere_near(float x) { return exp_near(x < -105.0f ? -105.0f : x > 89.0f ? 89.0f : x); }
SG_FN float exp_from_near(float x) {  // exp(-|x|)
  const float a = math::abs(x);
  return exp_near(a > 105.0f ? -105.0f : -a);
}

struct LogisticNear {
  float value, rest;  // the sigmoid, and 1 minus it
  SG_FN explicit LogisticNear(float x) {
    const float e = exp_from_near(x), large = inverse_near(1.0f + e), small = e * large;
    value = x < 0 ? small : large, rest = x < 0 ? large : small;
  }
};

SG_FN float sigmoid_near(float x) { return LogisticNear(x).value; }
SG_FN float silu_near(float x) { return x * sigmoid_near(x); }
SG_FN float silu_gradient_near(float g, float x) {
  const LogisticNear s(x);
  return g * s.value * multiply_add(x, s.rest, 1.0f);
}

SG_FN float tanh_near(float x) {
  const float z = x * x;
  float p = multiply_add(-0x1.9018080p-8f, z, 0x1.581fa80p-6f);
  p = multiply_add(p, z, -0x1.b928e00p-5f);
  p = multiply_add(p, z, 0x1.110e2e0p-3f);
  p = multiply_add(p, z, -0x1.5555520p-2f);
  const float e = exp_from_near(x + x), far = (1.0f - e) * inverse_near(1.0f + e);
  return math::abs(x) < 0.625f ? multiply_add(x * z, p, x) : x < 0 ? -far : far;
}

// The normal distribution function and its density.
struct NormalNear {
  float below, density;
  SG_FN explicit NormalNear(float x) {
    constexpr float c[] = {0.5f,          -0.6563532f, 0.2876347f, 0.09453857f, -0.07073277f,
                           -0.022511447f, -0.0477977f, 0.080998f,  -0.02815611f};  // of activations.h
    float a = math::abs(x);
    a = a > 14.5f ? 14.5f : a;
    const float square = a * a, bell = exp_near(-0.5f * square, -0.5f * multiply_add(a, a, -square));
    const float t = inverse_near(multiply_add(0.345f, a, 1.0f)), w = 0.345f * a * t;
    float p = c[8];
    SG_UNROLL for (int i = 7; i >= 0; --i) p = multiply_add(p, w, c[i]);
    const float tail = bell * (t * p);
    below = x < 0 ? tail : 1.0f - tail;
    density = static_cast<float>(math::kDensityScale) * bell;
  }
};

SG_FN float gelu_near(float x) { return x * NormalNear(x).below; }
SG_FN float gelu_gradient_near(float g, float x) {
  const NormalNear normal(x);
  return g * multiply_add(x, normal.density, normal.below);
}

SG_FN float gelu_tanh_near(float x) {
  constexpr float kScale = static_cast<float>(math::kGeluScale);
  return x * sigmoid_near(x * multiply_add(static_cast<float>(math::kGeluScale * math::kGeluCubic), x * x, kScale));
}
SG_FN float gelu_tanh_gradient_near(float g, float x) {
  constexpr float kScale = static_cast<float>(math::kGeluScale),
                  kCubic = static_cast<float>(math::kGeluScale * math::kGeluCubic);
  const float near = x < -30 ? -30.0f : x > 30 ? 30.0f : x, square = near * near;  // beyond: 0 or 1
  const LogisticNear s(near * multiply_add(kCubic, square, kScale));
  const float slope = multiply_add(3 * kCubic, square, kScale);
  return g * multiply_add(x, s.value * s.rest * slope, s.value);
}

}  // namespace sg::cuda
