#include "librun/cpu/math_special.h"

#include <array>
#include <cmath>
#include <limits>

#include "librun/work/math.h"

namespace sg::math {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

// exp(-x) I_n(x) for n of 0 and 1, x >= 0. The power series has positive terms only; far out, the asymptotic one.
double scaled_bessel(int n, double x) {
  if (x == infinity()) return 0;
  if (x <= 30) {
    double term = n == 0 ? 1 : x / 2, sum = term;
    for (int k = 1; term > sum * kEps * 0.01; ++k) {
      term *= x * x / 4 / (static_cast<double>(k) * (k + n));
      sum += term;
    }
    return sum * std::exp(-x);
  }
  double term = 1, sum = 1, order = 4.0 * n * n;
  for (int k = 1; k < 40 && std::fabs(term) > kEps * 0.01; ++k) {
    double odd = 2 * k - 1;
    term *= -(order - odd * odd) / (8.0 * k * x);
    sum += term;
  }
  return sum / std::sqrt(2 * kPi * x);
}

double unscaled(double scaled, double x) {
  double half = std::exp(x / 2);  // exp(x) may be beyond what the product is
  return scaled * half * half;
}

}  // namespace

double bessel_i0(double x, bool scaled) {
  if (x != x) return x;
  double a = std::fabs(x), y = scaled_bessel(0, a);
  if (!scaled && a == infinity()) return a;
  return scaled ? y : unscaled(y, a);
}

double bessel_i1(double x, bool scaled) {
  if (x != x) return x;
  double a = std::fabs(x), y = scaled_bessel(1, a);
  if (!scaled) y = a == infinity() ? a : unscaled(y, a);
  return x < 0 ? -y : y;
}

double erfcx(double x) {
  if (x < 0) return x < -27 ? infinity() : 2 * std::exp(x * x) - erfcx(-x);
  if (!(x >= 10)) return std::exp(x * x) * std::erfc(x);
  double term = 1, sum = 1, z = 1 / (2 * x * x);
  for (int k = 1; k < 30 && std::fabs(term) > kEps * 0.01; ++k) term *= -(2 * k - 1) * z, sum += term;
  return sum / (x * std::sqrt(kPi));
}

double log_ndtr(double x) {
  double t = x * kInvSqrt2;
  return x < -1 ? std::log(erfcx(-t) / 2) - t * t : std::log1p(-std::erfc(t) / 2);
}

// A start good to three digits, then Halley's steps on the tail that is the smaller one.
double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return nan();
  if (p == 0 || p == 1) return p == 0 ? -infinity() : infinity();
  double tail = p < 0.5 ? p : 1 - p, t = std::sqrt(-2 * std::log(tail));
  double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int step = 0; step < 4; ++step) {  // x > 0 with the tail above it
    double error = 0.5 * std::erfc(x * kInvSqrt2) - tail;
    double move = error * std::sqrt(2 * kPi) * std::exp(x * x / 2);
    x += move / (1 - x * move / 2);
  }
  return p < 0.5 ? -x : x;
}

// Terms up to an argument of 12, then Euler's and Maclaurin's formula for the rest.
double zeta(double s, double q) {
  if (s == 1) return infinity();
  if (!(s > 1) || q != q) return nan();
  if (q <= 0) {
    if (q == std::floor(q)) return infinity();
    if (s != std::floor(s)) return nan();
  }
  if (q == infinity()) return 0;
  double sum = 0;
  for (int64_t steps = 0; q < 12 && steps < 100000; ++steps, q += 1) sum += std::pow(q, -s);
  constexpr double kBernoulli[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                   5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510};
  double power = std::pow(q, -s);
  sum += power * q / (s - 1) + power / 2;
  double term = s * power / q / 2;  // s (s+1) .. q^(-s-2k+1) / (2k)!
  for (int k = 1; k <= 8; ++k) {
    sum += kBernoulli[k - 1] * term;
    term *= (s + 2 * k - 1) * (s + 2 * k) / (q * q * (2 * k + 1) * (2 * k + 2));
  }
  return sum;
}

double polygamma(double n, double x) {
  if (n == 0) return digamma_core(x);
  double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::exp(lgamma_core(n + 1)) * zeta(n + 1, x);
}

namespace {

double igamma_scale(double a, double x) { return std::exp(a * std::log(x) - x - lgamma_core(a)); }

double lower_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (double k = 1; k < 200000 && term > sum * kEps * 0.1; ++k) term *= x / (a + k), sum += term;
  return sum * igamma_scale(a, x);
}

// Lentz's method for the continued fraction.
double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / (b == 0 ? kTiny : b), h = d;
  for (double k = 1; k < 200000; ++k) {
    double an = -k * (k - a);
    b += 2;
    d = an * d + b, c = b + an / c;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    if (std::fabs(c) < kTiny) c = kTiny;
    h *= d * c;
    if (std::fabs(d * c - 1) < kEps) break;
  }
  return h * igamma_scale(a, x);
}

}  // namespace

double igamma(double a, double x, bool upper) {
  if (!(a >= 0) || !(x >= 0)) return nan();
  if (a == 0) return x > 0 ? !upper : nan();
  if (x == 0) return upper;
  if (a == infinity()) return x == infinity() ? nan() : upper;
  if (x == infinity()) return !upper;
  bool series = x < a + 1;
  double part = series ? lower_series(a, x) : upper_fraction(a, x);
  return series == upper ? 1 - part : part;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x); }

int64_t gcd(int64_t a, int64_t b) {
  auto u = a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
  auto v = b < 0 ? 0 - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (v != 0) {
    uint64_t rest = u % v;
    u = v, v = rest;
  }
  return static_cast<int64_t>(u);
}

}  // namespace sg::math
