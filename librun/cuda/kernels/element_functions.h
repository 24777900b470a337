// The functions that element_ops.def is written with.
#pragma once

#include "librun/cuda/kernels/view.h"
#include "librun/work/activations.h"

namespace sg::cuda {

template <class T>
struct Cx {
  T re, im;
};

// --- floats ---

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
SG_FN double length(double a, double b) { return ::hypot(a, b); }
SG_FN float length(float a, float b) {
  double x = a, y = b, r = ::sqrt(x * x + y * y);
  bool endless = math::abs(x) == math::infinity() || math::abs(y) == math::infinity();
  return static_cast<float>(endless ? math::infinity() : r);
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
SG_FN double log_add(double a, double b) {
  if (a == b && math::abs(a) == math::infinity()) return a;
  double most = a < b ? b : a, distance = math::abs(a - b);
  return a != a || b != b ? math::nan() : most + math::Wide<T>::log1p(math::Wide<T>::exp(-distance));
}
template <class T>
SG_FN bool finite(T a) {
  return a - a == 0;
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

// --- complex numbers ---

template <class T>
SG_FN Cx<T> times(Cx<T> a, Cx<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
SG_FN Cx<T> plus(Cx<T> a, Cx<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
SG_FN Cx<T> minus(Cx<T> a, Cx<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
SG_FN Cx<T> over(Cx<T> a, Cx<T> b) {
  T re = math::abs(b.re), im = math::abs(b.im), scale = re < im ? im : re;
  if (scale == math::infinity() && a.re - a.re == 0 && a.im - a.im == 0) return {T(0), T(0)};
  T p = b.re / scale, q = b.im / scale, size = b.re * p + b.im * q;
  if (scale == 0) return {a.re / re, a.im / re};
  return {(a.re * p + a.im * q) / size, (a.im * p - a.re * q) / size};
}

}  // namespace sg::cuda
