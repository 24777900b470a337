// Elementary functions that a compiler turns into vector code: no calls, no tables, no branches.
//
// For float they are computed in double and rounded once: within 0.51 ulp of the true value over all floats (special
// values as C has them), and the same bits on every instruction set, since only + - * / and sqrt are used. The double
// forms, for --numerics f64, are the C library's: about 1 ulp, and no promise on bits across machines.
//
//     for (i...) y[i] = math::exp(x[i]);             vectorises inside a function marked SG_CLONES (isa.h)
//
// `Wide<T>` holds the functions before the last rounding, to be composed: Wide<float>::exp takes and gives double.
#pragma once

#include <cmath>
#include <cstdint>

#include "librun/work/inline.h"

namespace sg::math {

inline constexpr double kPi = 3.14159265358979323846, kHalfPi = 1.57079632679489661923;
inline constexpr double kLn2 = 0.69314718055994530942, kInvLn2 = 1.44269504088896340736,
                        kInvLn10 = 0.43429448190325182765;
inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kDensityScale = 0.39894228040143267794;  // 1/sqrt(2 pi)

// --- steps ---

SG_INLINE uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
SG_INLINE double from_bits(uint64_t u) { return __builtin_bit_cast(double, u); }
SG_INLINE double nan() { return __builtin_nan(""); }
SG_INLINE double infinity() { return __builtin_inf(); }
template <class T>
SG_INLINE T abs(T x) {
  return sizeof(T) == 4 ? static_cast<T>(__builtin_fabsf(static_cast<float>(x))) : static_cast<T>(__builtin_fabs(x));
}
SG_INLINE double with_sign_of(double magnitude, double sign) {
  constexpr uint64_t top = uint64_t{1} << 63;
  return from_bits((bits_of(magnitude) & ~top) | (bits_of(sign) & top));
}

// c ? a : b without a branch, where both are worth computing at once and the compiler would rather not.
SG_INLINE double select(bool c, double a, double b) {
  uint64_t mask = -static_cast<uint64_t>(c);
  return from_bits((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

// c[0] + c[1] x + c[2] x^2 + ..., neighbours first: a processor works at several sums at once.
template <int N>
SG_INLINE double polynomial(double x, const double (&c)[N]) {
  if constexpr (N == 1) {
    return c[0];
  } else {
    double pair[(N + 1) / 2];
#pragma GCC unroll 16
    for (int i = 0; i < N / 2; ++i) pair[i] = c[2 * i] + c[2 * i + 1] * x;
    if constexpr (N % 2 != 0) pair[N / 2] = c[N - 1];
    return polynomial(x * x, pair);
  }
}

// Added and taken away: rounds to an integer, which sits in the low bits.
inline constexpr double kRoundBias = 0x1.8p52;

// x rounded to an integer, ties to even. Exact for all of double.
SG_INLINE double round_even(double x) {
  double a = abs(x);
  double r = (a + 0x1p52) - 0x1p52;
  return with_sign_of(a < 0x1p52 ? r : a, x);
}

// --- cores: double in and out, good to about 1e-12 relative, for arguments within the range of float ---

struct Exponent {
  double scale;  // 2^n
  double rest;   // exp(x) / 2^n - 1
};

SG_INLINE Exponent split_exp(double x) {
  constexpr double c[] = {0.4999999999995507,   0.16666666666662583,    0.041666666786337556,   0.008333333344209506,
                          0.001388883909064138, 0.00019841224581544105, 2.4867883453521802e-05, 2.761757684835413e-06};
  x = x > 700.0 ? 700.0 : x;  // beyond what float holds, within what double does; NaN stays
  x = x < -700.0 ? -700.0 : x;
  double shifted = x * kInvLn2 + kRoundBias;
  double n = shifted - kRoundBias;
  double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  return {from_bits((bits_of(shifted) + 1023) << 52), r * (1.0 + r * polynomial(r, c))};
}

SG_INLINE double exp_core(double x) {
  Exponent e = split_exp(x);
  return e.scale + e.scale * e.rest;
}

SG_INLINE double expm1_core(double x) {
  Exponent e = split_exp(x);
  double y = e.scale * e.rest + (e.scale - 1.0);
  return x == 0.0 ? x : y;  // keeps -0
}

// log of m with sqrt(1/2) <= 1 + f < sqrt(2), given f
SG_INLINE double log_near_one(double f) {
  constexpr double c[] = {0.3333333333333335,  0.19999999999949722, 0.14285714313001635, 0.11111105565129939,
                          0.09091444727837474, 0.07665855309105386, 0.07308292712444311};
  double s = f / (2.0 + f), z = s * s;
  return 2.0 * s * (1.0 + z * polynomial(z, c));
}

struct Logarithm {
  double exponent;  // k
  double rest;      // x / 2^k - 1, with sqrt(1/2) <= 1 + rest < sqrt(2)
};

SG_INLINE Logarithm split_log(double x) {  // REQUIRES: for a number that is finite, positive and normal
  constexpr uint64_t kOne = 0x3FF0000000000000, kSqrtHalf = 0x3FE6A09E667F3BCD;
  uint64_t biased = (bits_of(x) + (kOne - kSqrtHalf)) >> 52;
  double k = from_bits(biased | 0x4330000000000000) - (0x1p52 + 1023.0);
  double m = from_bits(bits_of(x) - ((biased - 1023) << 52));
  return {k, m - 1.0};
}

SG_INLINE double log_ends(double x, double y) {  // y = log(x), put right for the x that it does not hold for
  y = x < infinity() ? y : x;                    // infinity and NaN
  y = x == 0.0 ? -infinity() : y;
  return x < 0.0 ? nan() : y;
}

SG_INLINE double log_core(double x) {
  Logarithm l = split_log(x);
  return log_ends(x, l.exponent * kLn2 + log_near_one(l.rest));
}

SG_INLINE double log1p_core(double x) {
  double u = 1.0 + x;
  Logarithm l = split_log(u);
  double f = l.exponent == 0.0 ? x : l.rest;  // exact where it counts
  double y = log_ends(u, l.exponent * kLn2 + log_near_one(f));
  return x == 0.0 ? x : y;
}

// erfc(x) / exp(-x^2) for x >= 0, to infinity
SG_INLINE double erfc_scaled(double x) {
  constexpr double c[] = {0.1880628113875071,  0.1880759332840583,  0.17742245428137884,  0.15847817863390068,
                          0.11631997026182801, 0.13939584968747093, -0.09330967646079015, 0.38106619544544534,
                          -0.6148378894414123, 0.7761012367621861,  -0.7016510755109432,  0.3860433759440681,
                          -0.1159190253379828, 0.014751661064663076};
  double t = 3.0 / (3.0 + x);
  return t * polynomial(t, c);
}

SG_INLINE double erfc_positive(double x) { return exp_core(-x * x) * erfc_scaled(x); }  // for x >= 0

SG_INLINE double erfc_core(double x) {
  double y = erfc_positive(abs(x));
  return x < 0.0 ? 2.0 - y : y;
}

SG_INLINE double erf_core(double x) {
  constexpr double c[] = {1.128379167095494,      -0.37612638902808615,    0.11283791658548713,
                          -0.026866169050599326,  0.0052239671935439,      -0.0008547933736519633,
                          0.00012046261269779797, -1.4795031400662045e-05, 1.5306373163641084e-06,
                          -1.0469110332151208e-07};
  double a = abs(x), small = x * polynomial(x * x, c);
  return select(a < 1.0, small, with_sign_of(1.0 - erfc_positive(a), x));
}

// Any argument, infinite ones too.
SG_INLINE double atan_core(double x) {
  constexpr double c[] = {-0.3333333333333092,  0.19999999997723208,  -0.14285713930151892,
                          0.11111089637647514,  -0.09090255665139077, 0.07681041344029722,
                          -0.06550878776298272, 0.05168725600039612,  -0.027231188880779692};
  double a = abs(x);
  bool large = a > 2.414213562373095, middle = a > 0.41421356237309503;
  double above = large ? -1.0 : a - 1.0, below = large ? a : a + 1.0;
  double t = (middle ? above : a) / (middle ? below : 1.0);
  double base = large ? kHalfPi : 0.5 * kHalfPi;
  double z = t * t;
  return with_sign_of((middle ? base : 0.0) + t * (1.0 + z * polynomial(z, c)), x);
}

SG_INLINE double atan2_core(double y, double x) {
  double ay = abs(y), ax = abs(x);
  double q = (ay == ax && ay != 0.0) ? 1.0 : ay / ax;  // 1 for two infinities
  q = (ay == 0.0 && ax == 0.0) ? 0.0 : q;
  double angle = atan_core(q);
  bool left = (bits_of(x) >> 63) != 0;
  angle = left ? kPi - angle : angle;
  angle = (x != x || y != y) ? nan() : angle;
  return with_sign_of(angle, y);
}

struct Turn {
  double rest;       // the angle less n quarter turns, within [-pi/4, pi/4]
  uint64_t quarter;  // n, modulo 4 and more
};

inline constexpr double kTurnLimit = 0x1p18;  // of `turn_small`: beyond it, turn_any

SG_INLINE Turn turn_small(double x) {  // REQUIRES: |x| <= kTurnLimit
  double shifted = x * 0x1.45f306dc9c883p-1 + kRoundBias;
  double n = shifted - kRoundBias;
  double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  return {r, bits_of(shifted)};
}

Turn turn_any(float x);  // any float, exactly reduced; NaN for those that are not finite. A call.

SG_INLINE double sin_quarter(Turn t) {  // sin of the rest, then moved by the quarters
  constexpr double s[] = {-0.16666666666663882, 0.008333333331077422, -0.0001984126691523504, 2.7555990399839905e-06,
                          -2.4805587179980646e-08};
  constexpr double c[] = {0.04166666666666468, -0.0013888888887276056, 2.4801585209738397e-05, -2.755636931675049e-07,
                          2.070056539736993e-09};
  double r = t.rest, z = r * r;
  double sine = r + r * (z * polynomial(z, s));
  double cosine = (1.0 - 0.5 * z) + z * z * polynomial(z, c);
  double y = (t.quarter & 1) ? cosine : sine;
  return from_bits(bits_of(y) ^ ((t.quarter & 2) << 62));
}

// In a loop that shall vectorise: these for |x| <= kTurnLimit, then again for the rare others.
SG_INLINE double sin_small(double x) { return x == 0.0 ? x : sin_quarter(turn_small(x)); }
SG_INLINE double cos_small(double x) {
  Turn t = turn_small(x);
  return sin_quarter({t.rest, t.quarter + 1});
}
SG_INLINE double tan_small(double x) { return sin_small(x) / cos_small(x); }

SG_INLINE double pow_core(double x, double y) {  // x and y are floats
  double ax = abs(x);
  double p = (y == 0.0 || ax == 1.0) ? y * 0.0 : y * log_core(ax);
  p = (y == 0.0 || x == 1.0) ? 0.0 : p;  // 1, even for NaN
  p = (ax == 1.0 && abs(y) == infinity()) ? 0.0 : p;
  double r = exp_core(p);
  bool whole = round_even(y) == y, even = round_even(0.5 * y) == 0.5 * y;
  bool negative = (bits_of(x) >> 63) != 0;
  r = (negative && whole && !even) ? -r : r;
  return (x < 0.0 && ax != infinity() && !whole) ? nan() : r;
}

// --- the functions before their last rounding ---

template <class T>
struct Wide;

template <>
struct Wide<float> {
  SG_INLINE static double exp(double x) { return exp_core(x); }
  SG_INLINE static double expm1(double x) { return expm1_core(x); }
  SG_INLINE static double log(double x) { return log_core(x); }
  SG_INLINE static double log1p(double x) { return log1p_core(x); }
  SG_INLINE static double erf(double x) { return erf_core(x); }
  SG_INLINE static double erfc(double x) { return erfc_core(x); }
  SG_INLINE static double atan(double x) { return atan_core(x); }
  SG_INLINE static double atan2(double y, double x) { return atan2_core(y, x); }
  SG_INLINE static double pow(double x, double y) { return pow_core(x, y); }
  SG_INLINE static double tanh(double x) {
    double t = expm1_core(2.0 * abs(x));
    return with_sign_of(t / (t + 2.0), x);
  }
  SG_INLINE static double sinh(double x) {
    double t = expm1_core(abs(x));
    return with_sign_of(0.5 * (t + t / (t + 1.0)), x);
  }
  SG_INLINE static double cosh(double x) {
    double e = exp_core(abs(x));
    return 0.5 * (e + 1.0 / e);
  }
  SG_INLINE static double asinh(double x) {
    double a = abs(x);
    double more = a < 1e30 ? a * a / (1.0 + __builtin_sqrt(1.0 + a * a)) : a;
    return with_sign_of(log1p_core(a + more), x);
  }
  SG_INLINE static double acosh(double x) {
    double t = x - 1.0;
    return x < 1.0 ? nan() : log1p_core(t + __builtin_sqrt(t * (t + 2.0)));
  }
  SG_INLINE static double atanh(double x) {
    double a = abs(x);
    return with_sign_of(0.5 * log1p_core(2.0 * a / (1.0 - a)), x);
  }
  SG_INLINE static double asin(double x) { return atan_core(x / __builtin_sqrt((1.0 - x) * (1.0 + x))); }
  SG_INLINE static double acos(double x) { return 2.0 * atan_core(__builtin_sqrt((1.0 - x) / (1.0 + x))); }
  SG_INLINE static double exp2(double x) { return exp_core(x * kLn2); }
  SG_INLINE static double log2(double x) { return log_core(x) * kInvLn2; }
  SG_INLINE static double log10(double x) { return log_core(x) * kInvLn10; }
};

template <>
struct Wide<double> {
  SG_INLINE static double exp(double x) { return ::exp(x); }
  SG_INLINE static double expm1(double x) { return ::expm1(x); }
  SG_INLINE static double log(double x) { return ::log(x); }
  SG_INLINE static double log1p(double x) { return ::log1p(x); }
  SG_INLINE static double erf(double x) { return ::erf(x); }
  SG_INLINE static double erfc(double x) { return ::erfc(x); }
  SG_INLINE static double atan(double x) { return ::atan(x); }
  SG_INLINE static double atan2(double y, double x) { return ::atan2(y, x); }
  SG_INLINE static double pow(double x, double y) { return ::pow(x, y); }
  SG_INLINE static double tanh(double x) { return ::tanh(x); }
  SG_INLINE static double sinh(double x) { return ::sinh(x); }
  SG_INLINE static double cosh(double x) { return ::cosh(x); }
  SG_INLINE static double asinh(double x) { return ::asinh(x); }
  SG_INLINE static double acosh(double x) { return ::acosh(x); }
  SG_INLINE static double atanh(double x) { return ::atanh(x); }
  SG_INLINE static double asin(double x) { return ::asin(x); }
  SG_INLINE static double acos(double x) { return ::acos(x); }
  SG_INLINE static double exp2(double x) { return ::exp2(x); }
  SG_INLINE static double log2(double x) { return ::log2(x); }
  SG_INLINE static double log10(double x) { return ::log10(x); }
};

// --- the functions, rounded: T is float or double ---

template <class T>
SG_INLINE T exp(T x) {
  return static_cast<T>(Wide<T>::exp(x));
}
template <class T>
SG_INLINE T log(T x) {
  return static_cast<T>(Wide<T>::log(x));
}
template <class T>
SG_INLINE T log1p(T x) {
  return static_cast<T>(Wide<T>::log1p(x));
}
template <class T>
SG_INLINE T expm1(T x) {
  return static_cast<T>(Wide<T>::expm1(x));
}
template <class T>
SG_INLINE T tanh(T x) {
  return static_cast<T>(Wide<T>::tanh(x));
}
template <class T>
SG_INLINE T erf(T x) {
  return static_cast<T>(Wide<T>::erf(x));
}
template <class T>
SG_INLINE T pow(T x, T y) {
  return static_cast<T>(Wide<T>::pow(x, y));
}
template <class T>
SG_INLINE T sqrt(T x) {
  return sizeof(T) == 4 ? static_cast<T>(__builtin_sqrtf(static_cast<float>(x)))
                        : static_cast<T>(__builtin_sqrt(static_cast<double>(x)));
}
template <class T>
SG_INLINE T rsqrt(T x) {
  return T(1) / math::sqrt(x);  // both are rounded to T, as in PyTorch: its bits
}

// Any argument; these do not vectorise (see sin_small).
float sin(float x);
float cos(float x);
float tan(float x);
inline double sin(double x) { return ::sin(x); }
inline double cos(double x) { return ::cos(x); }
inline double tan(double x) { return ::tan(x); }

}  // namespace sg::math
