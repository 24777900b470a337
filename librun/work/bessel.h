// Bessel functions of doubles whose order is 0 or 1, and the Airy function: accurate to about 1e-14 of the largest
// value nearby. Formulas by their numbers in Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
//
// No tables of coefficients: recurrences, series, and sums that converge as fast as these.
#pragma once

#include "librun/work/math.h"

namespace sg::math {

inline constexpr double kGamma = 0.57721566490153286061;  // Euler's constant
inline constexpr double kSmallest = 0x1p-60;              // terms below it are not added

struct Cylinder {
  double j, y;
};

// J_n and Y_n by J_m .. J_0, which the recurrence gives downwards up to one factor, and 1 = J_0 + 2 J_2 + 2 J_4 + ..
// (9.1.46); Y_n by 9.1.88. REQUIRES: n is 0 or 1, 0 < x <= 25
SG_CALL Cylinder cylinder_near(int n, double x) {
  double after = 0, here = 1e-300, total = 0, sum = 0, j0 = 1, j1 = x / 2;
  if (x < 1e-4) {  // the recurrence would overflow; J_2 and J_3 do not count yet
    j0 = 1 - x * x / 4, j1 = x / 2 * (1 - x * x / 8);
    if (n == 0) sum = -x * x / 4;
  } else {
    for (int m = 2 * static_cast<int>(10 + 1.2 * x); m > 0; --m) {  // here = J_m
      if (m % 2 == 0) total += 2 * here;
      if (m >= 2 && m % 2 == n) {
        const int k = m / 2;
        const double share = n == 0 ? 2.0 / k : static_cast<double>(m) / (k * (k + 1.0));
        sum += (k % 2 == 0 ? share : -share) * here;
      }
      j1 = here;
      const double before = 2.0 * m / x * here - after;
      after = here, here = before;
    }
    total += here;
    j0 = here / total, j1 /= total, sum /= total;
  }
  const double wave = n == 0 ? j0 : j1, logarithm = ::log(x / 2) + kGamma - n;
  const double pole = n == 0 ? 0 : j0 / x;
  return {wave, 2 / kPi * (logarithm * wave - pole - sum)};
}

// Hankel's expansions, 9.2.5 to 9.2.10; the shift of the phase is taken out of sine and cosine, exactly.
// REQUIRES: n is 0 or 1, 25 < x < infinity
SG_CALL Cylinder cylinder_far(int n, double x) {
  double p = 0, q = 0, term = 1;
  for (int k = 0; k < 40 && abs(term) > kSmallest; ++k) {
    (k % 2 == 0 ? p : q) += k % 4 < 2 ? term : -term;
    const double odd = 2 * k + 1;
    term *= (4.0 * n - odd * odd) / (8 * (k + 1.0) * x);
  }
  const double s = ::sin(x), c = ::cos(x), scale = 1 / ::sqrt(kPi * x);
  const double cosine = n == 0 ? c + s : s - c, sine = n == 0 ? s - c : -s - c;
  return {scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)};
}

// As in PyTorch, infinities give NaN.
SG_INLINE double bessel_j(int n, double x) {
  const double a = abs(x);
  if (!(a < infinity())) return nan();
  if (a == 0) return n == 0 ? 1 : x;
  const double y = a <= 25 ? cylinder_near(n, a).j : cylinder_far(n, a).j;
  return n == 1 && x < 0 ? -y : y;
}

SG_INLINE double bessel_y(int n, double x) {
  if (!(x >= 0 && x < infinity())) return nan();
  if (x == 0) return -infinity();
  return x <= 25 ? cylinder_near(n, x).y : cylinder_far(n, x).y;
}

// exp(x) K_v(x): the integral of exp(x - x cosh t) cosh(v t) over t >= 0 (9.6.24), by the trapezoidal rule, whose error
// is of the order of exp(x - pi^2 / step): the integrand is smooth up to imaginary parts of pi / 2.
// REQUIRES: 1 <= x <= 30
SG_CALL double scaled_k_integral(double v, double x) {
  constexpr double kStep = 0.125;
  double sum = 0.5, term = 1;
  for (int k = 1; k < 100 && term > kSmallest; ++k) {
    const double half = ::sinh(k * kStep / 2);  // cosh t - 1 = 2 sinh^2 (t / 2)
    term = ::exp(-2 * x * half * half) * ::cosh(v * k * kStep);
    sum += term;
  }
  return sum * kStep;
}

// K_n by 9.6.13 and 9.6.11. REQUIRES: n is 0 or 1, 0 < x <= 1
SG_CALL double k_near(int n, double x) {
  const double z = x * x / 4, logarithm = ::log(x / 2) + kGamma;
  double term = 1, harmonic = 0, sum = 0;  // term = z^k / k! / (k + n)!
  for (int k = 0; k < 20 && term > kSmallest; ++k) {
    if (n == 0) sum += term * (harmonic - logarithm);
    else sum += term * (logarithm - harmonic - 0.5 / (k + 1));
    harmonic += 1.0 / (k + 1);
    term *= z / ((k + 1.0) * (k + 1.0 + n));
  }
  return n == 0 ? sum : 1 / x + x / 2 * sum;
}

// The modified Bessel function of the second kind; scaled: times exp(x).
SG_CALL double bessel_k(int n, double x, bool scaled) {
  if (!(x >= 0)) return nan();
  if (x == 0) return infinity();
  if (x == infinity()) return 0;
  if (x <= 1) return k_near(n, x) * (scaled ? ::exp(x) : 1);
  double y = 0;
  if (x <= 30) {
    y = scaled_k_integral(n, x);
  } else {  // 9.7.2
    double term = 1;
    for (int k = 0; k < 40 && abs(term) > kSmallest; ++k) {
      y += term;
      const double odd = 2 * k + 1;
      term *= (4.0 * n - odd * odd) / (8 * (k + 1.0) * x);
    }
    y *= ::sqrt(kHalfPi / x);
  }
  return scaled ? y : y * ::exp(-x);
}

// sin(x) / x
SG_INLINE double spherical_j0(double x) {
  if (abs(x) == infinity()) return 0;
  return abs(x) < 1e-8 ? 1 : ::sin(x) / x;
}

// Ai for -10 <= x <= 2: Taylor's series of y'' = x y from 0, in steps of at most 2.
SG_CALL double airy_near(double x) {
  double y = 0.35502805388781723926, slope = -0.25881940379280679840, at = 0;  // 10.4.4, 10.4.5
  while (at != x) {
    const double step = x - at < -1 ? -1 : x - at;
    double before = 0, here = y, after = slope;  // the coefficients k - 1 .. k + 1
    double value = 0, change = 0, power = 1;     // power = step^k
    for (int k = 0; k < 60; ++k) {
      value += here * power;
      change += (k + 1) * after * power;
      const double next = (at * here + before) / ((k + 1.0) * (k + 2.0));
      before = here, here = after, after = next;
      power *= step;
    }
    y = value, slope = change, at += step;
  }
  return y;
}

// By K_1/3 (10.4.14), and 10.4.59, 10.4.60 for large arguments. As in PyTorch, infinities give NaN.
SG_CALL double airy(double x) {
  const double a = abs(x);
  if (!(a < infinity())) return nan();
  if (x >= -10 && x <= 2) return airy_near(x);
  const double z = 2 * a * ::sqrt(a) / 3;
  if (x > 0 && z <= 30) return ::sqrt(x / 3) / kPi * scaled_k_integral(1.0 / 3, z) * ::exp(-z);
  double p = 0, q = 0, term = 1;
  for (int k = 0; k < 40 && term > kSmallest; ++k) {
    const bool is_odd = k % 2 != 0;
    if (x > 0) p += is_odd ? -term : term;
    else (is_odd ? q : p) += k % 4 < 2 ? term : -term;
    term *= (6 * k + 1.0) * (6 * k + 5.0) / (72 * (k + 1.0) * z);
  }
  const double scale = ::sqrt(kPi * ::sqrt(a));
  if (x > 0) return p * ::exp(-z) / (2 * scale);
  const double s = ::sin(z), c = ::cos(z);  // of z + pi / 4, times the root of 2
  return ((s + c) * p - (c - s) * q) / (scale * ::sqrt(2.0));
}

}  // namespace sg::math
