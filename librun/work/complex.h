// Complex numbers and their elementary functions. Functions are computed in double and rounded once.
//
// Branch cuts, the signs of zeros on them, and exactness near 0, 1 and i follow C; the formulas of the inverse
// functions are Kahan's ("Branch cuts for complex elementary functions").
#pragma once

#include "librun/work/math.h"

namespace sg::math {

template <class T>
struct Cx {
  T re, im;
};
using Complex = Cx<double>;

template <class T>
SG_INLINE Complex widened(Cx<T> a) {
  return {static_cast<double>(a.re), static_cast<double>(a.im)};
}
template <class T>
SG_INLINE Cx<T> rounded(Complex a) {
  return {static_cast<T>(a.re), static_cast<T>(a.im)};
}

// --- arithmetic ---

template <class T>
SG_INLINE Cx<T> plus(Cx<T> a, Cx<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
SG_INLINE Cx<T> minus(Cx<T> a, Cx<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
SG_INLINE Cx<T> times(Cx<T> a, Cx<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// Scaled by the divisor's larger part, so that squares neither overflow nor underflow.
template <class T>
SG_INLINE Cx<T> over(Cx<T> a, Cx<T> b) {
  T re = abs(b.re), im = abs(b.im), scale = re < im ? im : re;
  if (scale == infinity() && a.re - a.re == 0 && a.im - a.im == 0) return {T(0), T(0)};
  T p = b.re / scale, q = b.im / scale, size = b.re * p + b.im * q;
  if (scale == 0) return {a.re / re, a.im / re};
  return {(a.re * p + a.im * q) / size, (a.im * p - a.re * q) / size};
}
template <class T>
SG_INLINE Cx<T> scaled(Cx<T> a, T by) {
  return {a.re * by, a.im * by};
}
template <class T>
SG_INLINE Cx<T> conjugate(Cx<T> a) {
  return {a.re, -a.im};
}

template <class T>
SG_INLINE Cx<T> add_quotient(Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> scale) {  // a + scale b / c
  return rounded<T>(plus(widened(a), over(times(widened(scale), widened(b)), widened(c))));
}
template <class T>
SG_INLINE Cx<T> between(Cx<T> a, Cx<T> b, Cx<T> weight) {  // exact at both ends
  const Complex from = widened(a), to = widened(b), way = minus(to, from), w = widened(weight);
  const bool near = w.re * w.re + w.im * w.im < 0.25;
  return rounded<T>(near ? plus(from, times(w, way)) : minus(to, times(way, minus(Complex{1, 0}, w))));
}
template <class T>
SG_INLINE Cx<T> with_numbers(Cx<T> a, T nan, T above, T below) {  // for parts that are not finite
  auto part = [&](T v) { return v != v ? nan : v - v == 0 ? v : v > 0 ? above : below; };
  return {part(a.re), part(a.im)};
}
// Gradients, computed from results.
template <class T>
SG_INLINE Cx<T> tanh_gradient(Cx<T> g, Cx<T> y) {
  const Complex r = widened(y);
  return rounded<T>(times(widened(g), conjugate(minus(Complex{1, 0}, times(r, r)))));
}
template <class T>
SG_INLINE Cx<T> logistic_gradient(Cx<T> g, Cx<T> y) {
  const Complex r = widened(y);
  return rounded<T>(times(widened(g), conjugate(times(minus(Complex{1, 0}, r), r))));
}

// --- size and angle ---

SG_INLINE double length(double re, double im) { return ::hypot(re, im); }
SG_INLINE float length(float re, float im) {
  double x = re, y = im;
  bool endless = abs(x) == infinity() || abs(y) == infinity();
  return static_cast<float>(endless ? infinity() : __builtin_sqrt(x * x + y * y));
}
template <class T>
SG_INLINE T angle(Cx<T> a) {
  return static_cast<T>(Wide<T>::atan2(a.im, a.re));
}
template <class T>
SG_INLINE Cx<T> direction(Cx<T> a) {  // of magnitude 1, or 0
  double re = a.re, im = a.im, size = sizeof(T) == 8 ? length(re, im) : __builtin_sqrt(re * re + im * im);
  return size == 0 ? Cx<T>{0, 0} : Cx<T>{static_cast<T>(re / size), static_cast<T>(im / size)};
}

// --- roots, exponentials and logarithms ---

SG_INLINE Complex square_root(Complex a) {
  if (a.re == 0 && a.im == 0) return {0, a.im};
  double half = __builtin_sqrt((abs(a.re) + length(a.re, a.im)) / 2), other = abs(a.im) / (2 * half);
  return {a.re < 0 ? other : half, with_sign_of(a.re < 0 ? half : other, a.im)};
}

SG_INLINE Complex turned(double size, double angle) { return {size * ::cos(angle), size * ::sin(angle)}; }

SG_INLINE Complex exponential(Complex a) {
  double size = ::exp(a.re);
  if (a.im == 0) return {size, a.im};
  if (a.im - a.im != 0 && abs(a.re) == infinity()) return {size, size == 0 ? 0 : nan()};  // the angle is undefined
  return turned(size, a.im);
}

// Accurate near 0: exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2.
SG_CALL Complex exp_minus_one(Complex a) {
  double half = ::sin(a.im / 2);
  return {::expm1(a.re) * ::cos(a.im) - 2 * half * half, ::exp(a.re) * ::sin(a.im)};
}

// |a|^2 - 1 = (x - 1) (x + 1) + y^2, which is accurate if |a| is near 1.
template <class T>
SG_INLINE Complex logarithm(Complex a) {
  double size = sizeof(T) == 8 ? length(a.re, a.im) : __builtin_sqrt(a.re * a.re + a.im * a.im);
  double near = Wide<T>::log1p((abs(a.re) - 1) * (abs(a.re) + 1) + a.im * a.im) / 2, far = Wide<T>::log(size);
  return {size > 0.5 && size < 2 ? near : far, Wide<T>::atan2(a.im, a.re)};
}

// |1 + a|^2 - 1 = x (2 + x) + y^2, which is accurate if |1 + a| is near 1.
SG_CALL Complex log_one_plus(Complex a) {
  double most = abs(a.re) < abs(a.im) ? abs(a.im) : abs(a.re);
  double log = most < 0.5 ? ::log1p(a.re * (2 + a.re) + a.im * a.im) / 2 : ::log(length(1 + a.re, a.im));
  return {log, ::atan2(a.im, 1 + a.re)};
}

SG_INLINE Complex power(Complex a, Complex b) {
  if (b.re == 0 && b.im == 0) return {1, 0};
  if (a.re == 0 && a.im == 0 && b.re > 0) return {0, 0};
  return exponential(times(b, logarithm<double>(a)));
}

SG_INLINE Complex logistic(Complex a) { return over(Complex{1, 0}, plus(Complex{1, 0}, exponential({-a.re, -a.im}))); }

// --- trigonometric and hyperbolic functions ---

SG_INLINE Complex multiplied_by_i(Complex a) { return {-a.im, a.re}; }
SG_INLINE Complex divided_by_i(Complex a) { return {a.im, -a.re}; }

// a b, except that a zero `a` stays 0 if b is infinite or NaN.
SG_INLINE double product(double a, double b) { return a == 0 && b - b != 0 ? a : a * b; }

SG_CALL Complex sinh(Complex a) { return {product(::sinh(a.re), ::cos(a.im)), product(::sin(a.im), ::cosh(a.re))}; }
SG_CALL Complex cosh(Complex a) {
  double s = ::sinh(a.re), t = ::sin(a.im);
  return {::cosh(a.re) * ::cos(a.im), s == 0 ? product(s, t) : product(t, s)};
}
SG_CALL Complex tanh(Complex a) {
  double t = ::tan(a.im), slope = 1 + t * t;  // derivative of the tangent
  double s = ::sinh(a.re), below = 1 + slope * s * s;
  bool far = abs(a.re) > 22;  // 1 - |result| is below double precision
  double re = far ? with_sign_of(1, a.re) : slope * __builtin_sqrt(1 + s * s) * s / below;
  double im = far ? 4 * t / slope * ::exp(-2 * abs(a.re)) : t / below;
  return {a.re == 0 ? a.re : re, a.im == 0 ? a.im : im};
}
SG_INLINE Complex sin(Complex a) { return divided_by_i(sinh(multiplied_by_i(a))); }
SG_INLINE Complex cos(Complex a) { return cosh(multiplied_by_i(a)); }
SG_INLINE Complex tan(Complex a) { return divided_by_i(tanh(multiplied_by_i(a))); }

SG_INLINE Complex sinc(Complex a) {
  if (a.re == 0 && a.im == 0) return {1, 0};
  const Complex angle = scaled(a, kPi);
  return over(sin(angle), angle);
}

struct Roots {
  Complex below, above;  // square roots of 1 - a and 1 + a
};
SG_INLINE Roots roots_beside(Complex a) { return {square_root({1 - a.re, -a.im}), square_root({1 + a.re, a.im})}; }

SG_INLINE bool is_endless(Complex a) { return abs(a.re) == infinity() || abs(a.im) == infinity(); }

SG_CALL Complex asin(Complex a) {
  if (is_endless(a)) return {::atan2(a.re, abs(a.im)), with_sign_of(infinity(), a.im)};
  const Roots r = roots_beside(a);
  return {a.re == 0 ? a.re : ::atan2(a.re, times(r.below, r.above).re), ::asinh(times(conjugate(r.below), r.above).im)};
}
SG_CALL Complex acos(Complex a) {
  if (is_endless(a)) return {::atan2(abs(a.im), a.re), with_sign_of(infinity(), -a.im)};
  const Roots r = roots_beside(a);
  return {a.re == 0 ? kHalfPi : 2 * ::atan2(r.below.re, r.above.re), ::asinh(times(conjugate(r.above), r.below).im)};
}
SG_CALL Complex acosh(Complex a) {
  if (is_endless(a)) return {infinity(), ::atan2(a.im, a.re)};
  const Complex below = square_root({a.re - 1, a.im}), above = square_root({a.re + 1, a.im});
  return {::asinh(times(conjugate(below), above).re), 2 * ::atan2(below.im, above.re)};
}
SG_CALL Complex atanh(Complex a) {
  if (is_endless(a)) return {with_sign_of(0, a.re), a.im != a.im ? a.im : with_sign_of(kHalfPi, a.im)};
  const double x = abs(a.re), y = a.im, away = (1 - x) * (1 - x) + y * y;
  return {a.re == 0 ? a.re : with_sign_of(::log1p(4 * x / away) / 4, a.re),
          ::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2};
}
SG_INLINE Complex asinh(Complex a) { return divided_by_i(asin(multiplied_by_i(a))); }
SG_INLINE Complex atan(Complex a) { return divided_by_i(atanh(multiplied_by_i(a))); }

}  // namespace sg::math
