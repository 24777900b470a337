// Orthogonal polynomials of a degree that is data: PyTorch's special_*_polynomial_*.
//
// In double, whatever the element type: where a recurrence in f32 overflows on the way (and gives NaN in PyTorch), it
// goes on. Degrees are cut to whole numbers; negative ones, and those that are none, give 0.
#pragma once

#include <cstdint>

#include "librun/work/math.h"

namespace sg::math {

enum class Polynomial : uint8_t {
  chebyshev_t,
  chebyshev_u,
  chebyshev_v,
  chebyshev_w,
  hermite_h,
  hermite_he,
  laguerre,
  legendre
};

SG_INLINE double alternate(double value, double n) { return ::fmod(n, 2.0) == 0 ? value : -value; }

// The Chebyshev polynomials by the angle whose cosine is x, |x| < 1.
SG_INLINE double chebyshev_angle(Polynomial kind, double x, double n) {
  const double angle = ::acos(x);
  switch (kind) {
    case Polynomial::chebyshev_t: return ::cos(n * angle);
    case Polynomial::chebyshev_u: return ::sin((n + 1) * angle) / ::sin(angle);
    case Polynomial::chebyshev_v: return ::cos((n + 0.5) * angle) / ::cos(angle / 2);
    default: return ::sin((n + 0.5) * angle) / ::sin(angle / 2);
  }
}

// The same by hyperbolic functions, |x| > 1; V_n(-x) = (-1)^n W_n(x).
SG_INLINE double chebyshev_growth(Polynomial kind, double x, double n) {
  const bool is_turned = x < 0 && (kind == Polynomial::chebyshev_v || kind == Polynomial::chebyshev_w);
  const bool is_v = (kind == Polynomial::chebyshev_v) != is_turned;
  const double t = ::acosh(abs(x));
  double y = 0;
  if (kind == Polynomial::chebyshev_t) y = ::cosh(n * t);
  else if (kind == Polynomial::chebyshev_u) y = ::sinh((n + 1) * t) / ::sinh(t);
  else y = is_v ? ::cosh((n + 0.5) * t) / ::cosh(t / 2) : ::sinh((n + 0.5) * t) / ::sinh(t / 2);
  return x < 0 ? alternate(y, n) : y;
}

// The values at 1 and -1.
SG_INLINE double chebyshev_end(Polynomial kind, double x, double n) {
  switch (kind) {
    case Polynomial::chebyshev_t: return x > 0 ? 1 : alternate(1, n);
    case Polynomial::chebyshev_u: return x > 0 ? n + 1 : alternate(n + 1, n);
    case Polynomial::chebyshev_v: return x > 0 ? 1 : alternate(2 * n + 1, n);
    default: return x > 0 ? 2 * n + 1 : alternate(1, n);
  }
}

SG_CALL double chebyshev(Polynomial kind, double x, double n) {
  if (abs(x) == 1) return chebyshev_end(kind, x, n);
  if (n > 8 && abs(x) < 1) return chebyshev_angle(kind, x, n);
  if (n > 128) return abs(x) < infinity() ? chebyshev_growth(kind, x, n) : nan();
  double before = 1, here = 2 * x;
  if (kind == Polynomial::chebyshev_t) here = x;
  if (kind == Polynomial::chebyshev_v) here = 2 * x - 1;
  if (kind == Polynomial::chebyshev_w) here = 2 * x + 1;
  if (n == 0) return before;
  for (int k = 2; k <= static_cast<int>(n); ++k) {
    const double next = 2 * x * here - before;
    before = here, here = next;
  }
  return here;
}

// `most`: beyond this degree, NaN.
SG_CALL double by_recurrence(Polynomial kind, double x, double n, double most) {
  if (n == 0) return 1;
  if (kind == Polynomial::legendre && abs(x) == 1) return x > 0 ? 1 : alternate(1, n);
  if (kind == Polynomial::laguerre && x == 0) return 1;
  double before = 1, here = x;
  if (kind == Polynomial::hermite_h) here = 2 * x;
  if (kind == Polynomial::laguerre) here = 1 - x;
  if (n > 1 && n > most) return nan();
  for (int k = 1; k < static_cast<int>(n) && here == here; ++k) {
    double next = 0;
    switch (kind) {
      case Polynomial::hermite_h: next = 2 * x * here - 2.0 * k * before; break;
      case Polynomial::hermite_he: next = x * here - static_cast<double>(k) * before; break;
      case Polynomial::laguerre: next = ((2 * k + (1 - x)) * here - k * before) / (k + 1); break;
      default: next = ((2 * k + 1) * x * here - k * before) / (k + 1);
    }
    before = here, here = next;
  }
  return here;
}

// PyTorch's limits of Hermite polynomials are 128 and 512, by element type. It has none of the others: a loop of any
// length; here 65536, and NaN beyond.
template <class T>
SG_INLINE T polynomial_of_degree(T kind, T x, T degree, T shifted) {
  const auto which = static_cast<Polynomial>(static_cast<int>(kind));
  const double n = ::trunc(degree), at = shifted != 0 ? 2.0 * x - 1 : x;
  if (!(n >= 0 && n < 0x1p63)) return 0;
  if (which <= Polynomial::chebyshev_w) return static_cast<T>(chebyshev(which, at, n));
  const bool hermite = which == Polynomial::hermite_h || which == Polynomial::hermite_he;
  return static_cast<T>(by_recurrence(which, at, n, !hermite ? 65536 : sizeof(T) == 4 ? 128 : 512));
}

}  // namespace sg::math
