// Special functions of doubles: calls, to about 1e-14 where the argument's own rounding allows it.
#pragma once

#include <cstdint>

namespace sg::math {

double bessel_i0(double x, bool scaled);  // modified Bessel functions; scaled: times exp(-|x|)
double bessel_i1(double x, bool scaled);
double erfcx(double x);           // exp(x^2) erfc(x)
double log_ndtr(double x);        // the logarithm of the normal distribution
double ndtri(double p);           // its inverse
double zeta(double s, double q);  // Hurwitz: the sum of (q + k)^-s
double polygamma(double n, double x);
double igamma(double a, double x, bool upper);  // regularised incomplete gamma functions
double sinc(double x);                          // sin(pi x) / (pi x)
int64_t gcd(int64_t a, int64_t b);

}  // namespace sg::math
