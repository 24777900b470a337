// Special functions of doubles, by series and fractions: accurate to about 1e-14, as far as the argument's own rounding
// permits.
//
// Long and rarely used, hence calls on devices (SG_CALL).
#pragma once

#include <cmath>
#include <cstdint>

#include "librun/work/math.h"

namespace sg::math {

inline constexpr double kEps = 0x1p-52;

// --- gamma function ---

SG_CALL double lgamma_core(double x) {
#ifdef __CUDA_ARCH__
  return ::lgamma(x);
#else
  int sign;
  return ::lgamma_r(x, &sign);  // lgamma would write a global variable
#endif
}

// The asymptotic series for x >= 10; below that, recurrence up to it. REQUIRES: x > 0, or NaN
SG_CALL double digamma_positive(double x) {
  double below = 0;
  for (; x < 10; x += 1) below -= 1.0 / x;
  double z = 1.0 / (x * x);
  constexpr double c[] = {8.33333333333333333333e-2,  -8.33333333333333333333e-3, 3.96825396825396825397e-3,
                          -4.16666666666666666667e-3, 7.57575757575757575758e-3,  -2.10927960927960927961e-2,
                          8.33333333333333333333e-2};
  double tail = x < 1e17 ? z * polynomial(z, c) : 0;
  return ::log(x) - 0.5 / x - tail + below;
}

// Negative arguments use reflection.
SG_INLINE double digamma_core(double x) {
  if (x == 0) return with_sign_of(infinity(), -x);
  if (!(x < 0)) return digamma_positive(x);
  double whole = ::trunc(x);
  return whole == x ? nan() : digamma_positive(1.0 - x) - kPi / ::tan(kPi * (x - whole));
}

// q^-s. Whole exponents, as of derivatives of digamma, take a few products.
SG_INLINE double falling_power(double q, double s) {
  constexpr double kMostProducts = 16;
  if (s != ::floor(s) || !(s <= kMostProducts)) return ::pow(q, -s);
  double power = q;
  for (double k = 1; k < s; ++k) power *= q;
  return 1 / power;
}

// The Hurwitz zeta function: the sum of (q + k)^-s. Direct terms up to an argument of 12, then the Euler-Maclaurin
// formula.
SG_CALL double zeta(double s, double q) {
  if (s == 1) return infinity();
  if (!(s > 1) || q != q) return nan();
  if (q <= 0) {
    if (q == ::floor(q)) return infinity();
    if (s != ::floor(s)) return nan();
  }
  if (q == infinity()) return 0;
  double sum = 0;
  for (int64_t steps = 0; q < 12 && steps < 100000; ++steps, q += 1) sum += falling_power(q, s);
  constexpr double kBernoulli[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                   5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510};
  double power = falling_power(q, s);
  sum += power * q / (s - 1) + power / 2;
  double term = s * power / q / 2;  // s (s+1) .. q^(-s-2k+1) / (2k)!
  for (int k = 1; k <= 8; ++k) {
    sum += kBernoulli[k - 1] * term;
    term *= (s + 2 * k - 1) * (s + 2 * k) / (q * q * (2 * k + 1) * (2 * k + 2));
  }
  return sum;
}

SG_INLINE double polygamma(double n, double x) {
  if (n == 0) return digamma_core(x);
  double sign = ::fmod(n, 2.0) == 0 ? -1 : 1;
  const double factorial = n == 1 ? 1 : ::exp(lgamma_core(n + 1));
  return sign * factorial * zeta(n + 1, x);
}

SG_INLINE double igamma_scale(double a, double x) { return ::exp(a * ::log(x) - x - lgamma_core(a)); }

SG_INLINE double lower_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (double k = 1; k < 200000 && term > sum * kEps * 0.1; ++k) term *= x / (a + k), sum += term;
  return sum * igamma_scale(a, x);
}

// The continued fraction, by Lentz's method.
SG_INLINE double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / (b == 0 ? kTiny : b), h = d;
  for (double k = 1; k < 200000; ++k) {
    double an = -k * (k - a);
    b += 2;
    d = an * d + b, c = b + an / c;
    d = 1 / (abs(d) < kTiny ? kTiny : d);
    if (abs(c) < kTiny) c = kTiny;
    h *= d * c;
    if (abs(d * c - 1) < kEps) break;
  }
  return h * igamma_scale(a, x);
}

// The regularised incomplete gamma functions.
SG_CALL double igamma(double a, double x, bool upper) {
  if (!(a >= 0) || !(x >= 0)) return nan();
  if (a == 0) return x > 0 ? !upper : nan();
  if (x == 0) return upper;
  if (a == infinity()) return x == infinity() ? nan() : upper;
  if (x == infinity()) return !upper;
  bool series = x < a + 1;
  double part = series ? lower_series(a, x) : upper_fraction(a, x);
  return series == upper ? 1 - part : part;
}

// --- Bessel functions ---

// exp(-x) I_n(x) for n = 0 and 1, x >= 0: the power series, whose terms are positive; for large x the asymptotic
// series.
SG_CALL double scaled_bessel(int n, double x) {
  if (x == infinity()) return 0;
  if (x <= 30) {
    double term = n == 0 ? 1 : x / 2, sum = term;
    for (int k = 1; term > sum * kEps * 0.01; ++k) {
      term *= x * x / 4 / (static_cast<double>(k) * (k + n));
      sum += term;
    }
    return sum * ::exp(-x);
  }
  double term = 1, sum = 1, order = 4.0 * n * n;
  for (int k = 1; k < 40 && abs(term) > kEps * 0.01; ++k) {
    double odd = 2 * k - 1;
    term *= -(order - odd * odd) / (8.0 * k * x);
    sum += term;
  }
  return sum / ::sqrt(2 * kPi * x);
}

SG_INLINE double unscaled(double scaled, double x) {
  double half = ::exp(x / 2);  // exp(x) may overflow where the product does not
  return scaled * half * half;
}

// The modified Bessel functions; scaled: times exp(-|x|).
SG_INLINE double bessel_i0(double x, bool scaled) {
  if (x != x) return x;
  double a = abs(x), y = scaled_bessel(0, a);
  if (!scaled && a == infinity()) return a;
  return scaled ? y : unscaled(y, a);
}

SG_INLINE double bessel_i1(double x, bool scaled) {
  if (x != x) return x;
  double a = abs(x), y = scaled_bessel(1, a);
  if (!scaled) y = a == infinity() ? a : unscaled(y, a);
  return x < 0 ? -y : y;
}

// --- normal distribution ---

// exp(x^2) erfc(x). REQUIRES: x >= 0, or NaN
SG_CALL double erfcx_positive(double x) {
  if (!(x >= 10)) return ::exp(x * x) * ::erfc(x);
  double term = 1, sum = 1, z = 1 / (2 * x * x);
  for (int k = 1; k < 30 && abs(term) > kEps * 0.01; ++k) term *= -(2 * k - 1) * z, sum += term;
  return sum / (x * ::sqrt(kPi));
}

SG_INLINE double erfcx(double x) {
  if (!(x < 0)) return erfcx_positive(x);
  return x < -27 ? infinity() : 2 * ::exp(x * x) - erfcx_positive(-x);
}

// The logarithm of the distribution function.
SG_INLINE double log_ndtr(double x) {
  double t = x * kInvSqrt2;
  return x < -1 ? ::log(erfcx(-t) / 2) - t * t : ::log1p(-::erfc(t) / 2);
}

// A start accurate to two digits, then Newton's method on the smaller of erf and erfc.
SG_CALL double erfinv_core(double x) {
  double a = abs(x);
  if (!(a <= 1)) return nan();
  if (a == 1) return with_sign_of(infinity(), x);
  if (a == 0) return x;
  double l = log1p_core(-a * a), b = 2 / (kPi * 0.147) + 0.5 * l;
  double y = __builtin_sqrt(__builtin_sqrt(b * b - l / 0.147) - b);
  for (int step = 0; step < 3; ++step) {
    double error = a < 0.5 ? ::erf(y) - a : (1 - a) - ::erfc(y);
    y -= error / (1.1283791670955126 * ::exp(-y * y));
  }
  return with_sign_of(y, x);
}

// The inverse distribution function: a start accurate to three digits, then Halley's method on the smaller tail; in the
// middle, where that tail says little, by erfinv.
SG_CALL double ndtri_core(double p) {
  if (!(p >= 0 && p <= 1)) return nan();
  if (p == 0 || p == 1) return p == 0 ? -infinity() : infinity();
  if (p > 0.25 && p < 0.75) return erfinv_core(2 * p - 1) / kInvSqrt2;
  double tail = p < 0.5 ? p : 1 - p, t = ::sqrt(-2 * ::log(tail));
  double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int step = 0; step < 4; ++step) {  // x > 0 with the tail above it
    double error = 0.5 * ::erfc(x * kInvSqrt2) - tail;
    double move = error * ::sqrt(2 * kPi) * ::exp(x * x / 2);
    x += move / (1 - x * move / 2);
  }
  return p < 0.5 ? -x : x;
}

// --- both inverses for floats, by polynomials, which vectorize: relative errors below 1e-9 ---

// erfinv(x) / x. REQUIRES: w = -log(1 - x^2) <= 5
SG_INLINE double erfinv_near(double w) {
  constexpr double c[] = {1.5014093511388096,      0.24664027679066655,    -0.0041773181313383501,
                          -0.0012527081004887429,  0.0002182512468907248,  -4.9958665908706237e-06,
                          -3.417522055795466e-06,  4.7863945933477257e-07, 1.3816774835770286e-08,
                          -1.0853547162468457e-08, 8.1491165899639167e-10, 1.2297983076171301e-10,
                          -2.0256114325178912e-11};
  return polynomial(w - 2.5, c);
}

// The same. REQUIRES: 5 <= w <= 16, as of any float next to 1
SG_INLINE double erfinv_far(double w) {
  constexpr double c[] = {2.9513285783839294,     1.003619726306622,       0.0071597749651295698,
                          -0.0054080676953789644, 0.0038831553706594776,   -0.0025718698214488495,
                          0.0012763562060361081,  -0.00032819111055578857, -9.7794604503752074e-05,
                          0.00015105070555442501, -5.9389590981960821e-05, -1.1216486070929882e-05,
                          1.2463518875698488e-05};
  return polynomial(__builtin_sqrt(w) - 3.118033988749895, c);
}

template <class T>
SG_INLINE T erfinv(T x) {
  if constexpr (sizeof(T) == 8) {
    return erfinv_core(x);
  } else {
    const double wide = x, a = abs(wide), w = -log_core((1.0 - a) * (1.0 + a));
    const double inside = wide * select(w < 5.0, erfinv_near(w), erfinv_far(w));
    const double y = select(a == 1.0, with_sign_of(infinity(), wide), inside);
    return static_cast<T>(select(a <= 1.0, y, nan()));
  }
}

// -ndtri(p) / t for t = sqrt(-2 log(p)). REQUIRES: 2.2 <= t <= 14.5, as of any float
SG_INLINE double ndtri_far(double t) {
  constexpr double c[] = {0.8387181698510332,  -0.99762033854984289, -1.0565513462265561, 0.91672434765055366,
                          -1.1403101915574394, 1.8148621952438406,   -3.513867222235576,  7.2738782877460135,
                          -16.952001983792211, 77.819200379458692,   -236.65188589965436, -534.29547054683303,
                          2090.0112978577731,  14981.946145019503,   -49195.144261737376};
  return polynomial(1.0 / t - 0.2617554858934169, c);
}

template <class T>
SG_INLINE T ndtri(T p) {
  if constexpr (sizeof(T) == 8) {
    return ndtri_core(p);
  } else {
    const double wide = p, tail = wide < 0.5 ? wide : 1.0 - wide, x = 2.0 * wide - 1.0;
    const double t = __builtin_sqrt(-2.0 * log_core(tail));
    const double near = x * erfinv_near(-log_core(4.0 * tail * (1.0 - tail))) / kInvSqrt2;
    const double y = select(t < 2.2, near, with_sign_of(t * ndtri_far(t), x));
    return static_cast<T>(select(tail > 0.0, y, tail == 0.0 ? with_sign_of(infinity(), x) : nan()));
  }
}

// --- others ---

SG_INLINE double sinc(double x) { return x == 0 ? 1 : ::sin(kPi * x) / (kPi * x); }  // sinc of pi x

// -x log(x); 0 at 0.
template <class T>
SG_INLINE double entropy(double x) {
  if (x != x) return x;
  return x > 0 ? -x * Wide<T>::log(x) : x == 0 ? 0.0 : -infinity();
}

// log(exp(a) + exp(b))
template <class T>
SG_INLINE double log_add(double a, double b) {
  if (a == b && abs(a) == infinity()) return a;
  double most = a < b ? b : a, distance = abs(a - b);
  return a != a || b != b ? nan() : most + Wide<T>::log1p(Wide<T>::exp(-distance));
}

SG_INLINE int64_t gcd(int64_t a, int64_t b) {
  auto u = a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
  auto v = b < 0 ? 0 - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (v != 0) {
    uint64_t rest = u % v;
    u = v, v = rest;
  }
  return static_cast<int64_t>(u);
}

SG_INLINE int64_t lcm(int64_t a, int64_t b) {
  int64_t g = gcd(a, b);
  uint64_t product = static_cast<uint64_t>(g == 0 ? 0 : a / g) * static_cast<uint64_t>(b);
  return static_cast<int64_t>(product) < 0 ? static_cast<int64_t>(0 - product) : static_cast<int64_t>(product);
}

SG_INLINE float next(float x, float y) { return ::nextafterf(x, y); }
SG_INLINE double next(double x, double y) { return ::nextafter(x, y); }

// The same for bf16: the upper half of a float.
SG_INLINE float next_bf16(float x, float y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  uint32_t u = __builtin_bit_cast(uint32_t, x) >> 16;
  if (x == 0) u = y > 0 ? 1 : 0x8001;
  else u += (y > x) == (x > 0) ? 1 : -1;
  return __builtin_bit_cast(float, u << 16);
}

// The gradient is `outside` if x is not in [low, 1 - low].
template <class T>
SG_INLINE T logit_gradient(T g, T x, T low, T outside) {
  double p = x;
  return x < low || x > 1 - low ? outside
         : p == 0 || p == 1     ? static_cast<T>(g * infinity())
                                : static_cast<T>(g / (p * (1.0 - p)));
}

}  // namespace sg::math
