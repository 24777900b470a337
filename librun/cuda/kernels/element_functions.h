// Functions used by element_ops.def.
#pragma once

#include "librun/cuda/kernels/view.h"
#include "librun/work/activations.h"
#include "librun/work/bessel.h"  // called by what generate.cc writes
#include "librun/work/complex.h"
#include "librun/work/orthogonal.h"
#include "librun/work/special.h"

namespace sg::cuda {

using math::Cx, math::widened, math::rounded;
using math::plus, math::minus, math::times, math::over;

// --- floats ---

template <work::Eighth E>
SG_FN float through_eighth(float x) {
  return work::from_eighth<E>(work::to_eighth<E>(x));
}

template <class T>
SG_FN T larger(T a, T b) {
  return a != a ? a : (a < b || b != b) ? b : a;
}
template <class T>
SG_FN T smaller(T a, T b) {
  return a != a ? a : (b < a || b != b) ? b : a;
}
SG_FN float modulo(float a, float b) { return ::fmodf(a, b); }
SG_FN double modulo(double a, double b) { return ::fmod(a, b); }

template <class T>
SG_FN T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  T left = modulo(a, b), whole_part = (a - left) / b;
  if (left != 0 && (b < 0) != (left < 0)) whole_part -= 1;
  if (whole_part == 0) return static_cast<T>(math::with_sign_of(0, a / b));
  T whole = static_cast<T>(::floor(whole_part));
  return whole_part - whole > T(0.5) ? whole + 1 : whole;
}
template <class T>
SG_FN T floor_rest(T a, T b) {
  T left = modulo(a, b);
  return left != 0 && (b < 0) != (left < 0) ? left + b : left;
}
template <class T>
SG_FN T logit(T x, T low, T high) {
  double p = x < low ? low : x > high ? high : x;
  return static_cast<T>(math::Wide<T>::log(p / (1.0 - p)));
}
SG_FN bool is_small(float x) { return math::abs(x) <= static_cast<float>(math::kTurnLimit); }
SG_FN float sine(float x) {
  return static_cast<float>(is_small(x) ? math::sin_small(x) : ::sin(static_cast<double>(x)));
}
SG_FN float cosine(float x) {
  return static_cast<float>(is_small(x) ? math::cos_small(x) : ::cos(static_cast<double>(x)));
}
SG_FN float tangent(float x) {
  return static_cast<float>(is_small(x) ? math::tan_small(x) : ::tan(static_cast<double>(x)));
}
SG_FN double sine(double x) { return ::sin(x); }
SG_FN double cosine(double x) { return ::cos(x); }
SG_FN double tangent(double x) { return ::tan(x); }
template <class T>
SG_FN bool finite(T a) {
  return a - a == 0;
}
template <class T>
SG_FN bool endless(T a) {
  return a == a && !finite(a);
}
template <class T>
SG_FN bool close(T a, T b, T rtol, T atol) {
  T error = math::abs(a - b);
  return a == b || (finite(error) && error <= atol + math::abs(rtol * b));
}

// --- activations ---

template <class T>
SG_FN T within_six(T y) {
  y = y < 0 ? T(0) : y;
  return y > 6 ? T(6) : y;
}

// --- integers ---

SG_FN int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
SG_FN uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }
SG_FN int64_t divisor(int64_t b, const Report& report) {
  if (b == 0) report.raise(Fault::Kind::division);
  return b == 0 ? 1 : b;
}
SG_FN int64_t quotient(int64_t a, int64_t b) { return b == -1 ? wrap(0 - bits(a)) : a / b; }
SG_FN int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
SG_FN int64_t floor_quotient(int64_t a, int64_t b) { return quotient(a, b) - (rest(a, b) != 0 && (a < 0) != (b < 0)); }
SG_FN int64_t floor_rest(int64_t a, int64_t b) {
  int64_t r = rest(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
SG_FN int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t out = 1, b = bits(base);
  for (auto e = bits(exponent); e != 0; e >>= 1, b *= b)
    if (e & 1) out *= b;
  return wrap(out);
}

}  // namespace sg::cuda
