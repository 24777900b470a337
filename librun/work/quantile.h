// Distributions that have a shape: what a uniform number becomes, and how a number that was drawn follows its
// parameter.
//
// Quantiles turn one uniform number in [0, 1) into one draw, so that a draw depends on its place alone
// (librun/random.h), where rejection would take a varying number of them. Slopes are the derivatives of a draw by its
// parameter at a fixed probability: -(dF/da) / density.
#pragma once

#include "librun/work/special.h"

namespace sg::math {

// --- gamma distribution, of scale 1 ---

// Newton's method for the logarithm of x, and halving where it leaves the bounds.
SG_CALL double gamma_quantile(double a, double u) {
  if (a == 0 || u <= 0) return 0;
  if (!(a > 0) || !(u < 1)) return nan();
  const double scale = lgamma_core(a);
  double low = (::log(u) + scale + ::log(a)) / a;  // P is at most x^a / gamma(a + 1), and for small x it is that
  if (low < -700) return ::exp(low);
  double high = ::log(a + 10 * ::sqrt(a) + 50), t = low < ::log(a) ? ::log(a) : low;  // beyond it all is 1 in a double
  for (int round = 0; round < 200; ++round) {
    const double x = ::exp(t), off = u < 0.5 ? igamma(a, x, false) - u : (1 - u) - igamma(a, x, true);
    (off < 0 ? low : high) = t;
    double next = t - off / ::exp(a * t - x - scale);
    if (!(next >= low && next <= high)) next = low + (high - low) / 2;
    const double step = abs(next - t);
    t = next;
    if (step <= 4 * kEps * (1 + abs(t))) break;
  }
  return ::exp(t);
}

// A number and its derivative by the parameter.
struct Slope {
  double value = 0, by = 0;
};
SG_INLINE Slope operator+(Slope x, Slope y) { return {x.value + y.value, x.by + y.by}; }
SG_INLINE Slope operator*(Slope x, Slope y) { return {x.value * y.value, x.by * y.value + x.value * y.by}; }
SG_INLINE Slope operator/(Slope x, Slope y) {
  const double v = x.value / y.value;
  return {v, (x.by - v * y.by) / y.value};
}

// A continued fraction, one part at a time, by Lentz's method.
class SlopedFraction {
 public:
  SG_INLINE explicit SlopedFraction(Slope first) : h_(first), c_(first), d_{0, 0} {}
  // Adds above / (below + ...). False: nothing changes any more.
  SG_INLINE bool add(Slope above, Slope below) {
    d_ = Slope{1, 0} / kept(below + above * d_);
    c_ = kept(below + above / c_);
    const Slope part = c_ * d_;
    h_ = h_ * part;
    return abs(part.value - 1) > kEps || abs(part.by) > kEps;
  }
  SG_INLINE Slope value() const { return h_; }

 private:
  SG_INLINE static Slope kept(Slope x) { return abs(x.value) < 1e-300 ? Slope{1e-300, x.by} : x; }
  Slope h_, c_, d_;
};

SG_CALL double gamma_slope(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return nan();
  if (x == 0) return 0;
  const double by_scale = ::log(x) - digamma_core(a);
  if (x < a + 1) {  // P = scale * sum
    Slope term = Slope{1, 0} / Slope{a, 1}, sum = term;
    for (double k = 1; k < 200000 && term.value > sum.value * kEps * 0.01; ++k) {
      term = term * (Slope{x, 0} / Slope{a + k, 1});
      sum = sum + term;
    }
    return -x * (sum.by + sum.value * by_scale);
  }
  SlopedFraction below({x + 1 - a, -1});  // Q = scale / fraction
  for (double k = 1; k < 200000; ++k)
    if (!below.add({-k * (k - a), k}, {x + 1 - a + 2 * k, -1})) break;
  const Slope rest = Slope{1, 0} / below.value();
  return x * (rest.by + rest.value * by_scale);
}

// --- beta distribution, as an element of Dirichlet's ---

// The continued fraction of the incomplete beta function I_x(p, q) p / (x^p (1 - x)^q / B(p, q)).
SG_INLINE Slope beta_fraction(Slope p, Slope q, double x) {
  SlopedFraction below({1, 0});
  const Slope minus_x{-x, 0}, one{1, 0};
  for (double m = 0; m < 100000; ++m) {
    const Slope here{m, 0}, twice{2 * m, 0};
    const Slope odd = minus_x * (p + here) * (p + q + here) / ((p + twice) * (p + twice + one));
    bool changes = below.add(odd, one);
    const Slope next{m + 1, 0}, rest = q + Slope{-(m + 1), 0};
    const Slope even = Slope{x, 0} * next * rest / ((p + twice + one) * (p + twice + Slope{2, 0}));
    changes |= below.add(even, one);
    if (!changes) break;
  }
  return one / below.value();
}

// Of an element x of a draw with concentration `a` out of `total`, as torch._dirichlet_grad has it: over (1 - x) as
// well.
SG_CALL double dirichlet_slope(double x, double a, double total) {
  const double b = total - a;
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1)) return nan();
  if (x == 0 || x == 1) return 0;
  const double by_scale = ::log(x) - digamma_core(a) + digamma_core(total);
  if (x * (total + 2) < a + 1) {
    const Slope part = beta_fraction({a, 1}, {b, 0}, x) / Slope{a, 1};
    return -x * (part.by + part.value * by_scale);
  }
  const Slope rest = beta_fraction({b, 0}, {a, 1}, 1 - x) / Slope{b, 0};
  return x * (rest.by + rest.value * by_scale);
}

// --- counts ---

// From the number at the mode on, whose probability and that of all up to it are known, to the least one with more than
// u up to it. above(k), the probability of k + 1 by that of k; below(k), that of k - 1 by that of k.
template <class Above, class Below>
SG_INLINE double walked(double k, double each, double upto, double u, const Above& above, const Below& below) {
  for (; k > 0 && u < upto - each; --k) upto -= each, each *= below(k);
  for (; u >= upto && each > 0; ++k) each *= above(k), upto += each;
  return k;
}

SG_CALL double poisson_quantile(double rate, double u) {
  if (!(rate >= 0)) return nan();
  if (rate == 0) return 0;
  const double k = ::floor(rate);
  const double each = ::exp(k * ::log(rate) - rate - lgamma_core(k + 1)), upto = igamma(k + 1, rate, true);
  return walked(
      k, each, upto, u, [=](double at) { return rate / (at + 1); }, [=](double at) { return at / rate; });
}

SG_CALL double binomial_quantile(double count, double p, double u) {
  if (!(count >= 0) || !(p >= 0 && p <= 1)) return nan();
  count = ::floor(count);
  if (count == 0 || p == 0) return 0;
  if (p == 1) return count;
  const double k = ::floor((count + 1) * p), odds = p / (1 - p);
  const double each = ::exp(lgamma_core(count + 1) - lgamma_core(k + 1) - lgamma_core(count - k + 1) + k * ::log(p) +
                            (count - k) * log1p_core(-p));
  auto below = [=](double at) { return at / (count - at + 1) / odds; };
  double upto = each, one = each;
  for (double at = k; at > 0 && one > upto * kEps; --at) one *= below(at), upto += one;
  return walked(
      k, each, upto, u, [=](double at) { return at < count ? (count - at) / (at + 1) * odds : 0; }, below);
}

}  // namespace sg::math
