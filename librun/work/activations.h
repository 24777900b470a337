// Smooth activations and their gradients, as PyTorch defines them: one definition for blocks of elements on the CPU and
// for single elements on devices. T is float or double.
//
// All are based on exp(-|x|) or exp(-x^2 / 2), which are in [0, 1], so that tails keep their precision. Those of float
// are computed in float: within 3 ulp (mish 4, gelu in its tail 8), except where a gradient passes through 0 and where
// the argument of the exponential is itself rounded (gelu by tanh, softplus with a beta). PyTorch's own are no more
// accurate.
#pragma once

#include "librun/work/exp_float.h"

namespace sg::math {

template <class T>
SG_INLINE T sigmoid(T x) {
  T e = exp_from(x);
  return (x < 0 ? e : T(1)) / (1 + e);
}

template <class T>
struct Logistic {
  T value, rest;  // the sigmoid, and 1 minus it
};

template <class T>
SG_INLINE Logistic<T> logistic(T x) {
  T e = exp_from(x), large = 1 / (1 + e), small = e * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
}

template <class T>
SG_INLINE T silu(T x) {
  return x * sigmoid(x);  // NaN for -infinity
}

template <class T>
SG_INLINE T silu_gradient(T g, T x) {
  Logistic<T> s = logistic(x);
  return g * s.value * (1 + x * s.rest);
}

// --- log(1 + exp(x)) ---

template <class T>
SG_INLINE T log_sigmoid(T x) {
  return (x > 0 ? T(0) : x) - log1p_float(exp_from(x));
}

template <class T>
SG_INLINE T log_sigmoid_gradient(T g, T x) {
  return g * sigmoid(-x);
}

template <class T>
SG_INLINE T softplus(T x, T beta, T threshold) {
  T scaled = x * beta;
  return scaled > threshold ? x : -log_sigmoid(-scaled) / beta;
}

template <class T>
SG_INLINE T softplus_gradient(T g, T x, T beta, T threshold) {
  T scaled = x * beta;
  return scaled > threshold ? g : g * sigmoid(scaled);
}

// mish is x times tanh(log(1 + exp(x))), a ratio of polynomials in exp(x).
template <class T>
struct MishGate {
  T value, slope;
};

template <class T>
SG_INLINE MishGate<T> mish_gate(T x) {
  T e = exp_from(x), square = e * e;
  T above = x < 0 ? square + 2 * e : 1 + 2 * e, more = x < 0 ? T(2) : 2 * square;
  T inverse = 1 / (above + more);
  return {above * inverse, 4 * (x < 0 ? e : square) * (1 + e) * inverse * inverse};
}

template <class T>
SG_INLINE T mish(T x) {
  return x * mish_gate(x).value;
}

template <class T>
SG_INLINE T mish_gradient(T g, T x) {
  MishGate<T> gate = mish_gate(x);
  return g * (gate.value + x * gate.slope);
}

// --- gelu: x times the normal distribution function at x ---

template <class T>
struct Normal {
  T below;    // the normal distribution function
  T density;  // at x
};

SG_INLINE Normal<double> normal_at(double x) {
  double square = x * x, density = square > 1400.0 ? 0.0 : kDensityScale * ::exp(-0.5 * square);
  return {0.5 * ::erfc(-x * kInvSqrt2), density};
}

SG_INLINE Normal<float> normal_at(float x) {
  constexpr float c[] = {0.5f,          -0.6563532f, 0.2876347f, 0.09453857f, -0.07073277f,
                         -0.022511447f, -0.0477977f, 0.080998f,  -0.02815611f};
  float a = abs(x);
  a = a > 14.5f ? 14.5f : a;                                                // beyond it the result is 0; NaN stays
  float head = work::number(work::word(a) & 0xFFFFF000u), rest = a - head;  // half the digits, so the square is exact
  float bell = exp_within(-0.5f * (head * head), 0.5f * (rest * (a + head)));
  float k = 0.345f * a, t = 1.0f / (1.0f + k), w = k * t, p = c[8];
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) p = p * w + c[i];
  float tail = bell * (t * p);
  return {x < 0 ? tail : 1.0f - tail, static_cast<float>(kDensityScale) * bell};
}

template <class T>
SG_INLINE T gelu(T x) {
  return x * normal_at(x).below;  // NaN for -infinity, as in PyTorch
}

template <class T>
SG_INLINE T gelu_gradient(T g, T x) {
  Normal<T> normal = normal_at(x);
  return g * (normal.below + x * normal.density);  // NaN at the infinities, as in PyTorch
}

// By tanh: x (1 + tanh(u)) / 2 is x times the sigmoid of 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3).

inline constexpr double kGeluScale = 2 * 0.79788456080286535588, kGeluCubic = 0.044715;

template <class T>
SG_INLINE T gelu_tanh(T x) {
  return x * sigmoid(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x));
}

template <class T>
SG_INLINE T gelu_tanh_gradient(T g, T x) {
  T near = x < -30 ? T(-30) : x > 30 ? T(30) : x, square = near * near;  // beyond: 0 or 1, and squares overflow
  Logistic<T> s = logistic(T(kGeluScale) * (near + T(kGeluCubic) * square * near));
  T slope = T(kGeluScale) * (1 + 3 * T(kGeluCubic) * square);
  return g * (s.value + x * (s.value * s.rest * slope));
}

}  // namespace sg::math
