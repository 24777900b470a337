#include "librun/work/quantile.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace sg;

namespace {

constexpr double kShapes[] = {0.003, 0.05, 0.4, 1, 1.7, 6, 35, 400, 20000};
constexpr double kChances[] = {1e-9, 0.002, 0.1, 0.37, 0.5, 0.8, 0.99, 1 - 1e-9};

// The difference of two draws of the same probability whose parameters are near to each other.
template <class Quantile>
double difference(const Quantile& at, double a) {
  const double step = a * 1e-5;
  return (at(a + step) - at(a - step)) / (2 * step);
}

}  // namespace

TEST_CASE("a gamma quantile has the probability that it was asked for") {
  for (double a : kShapes)
    for (double u : kChances) {
      const double x = math::gamma_quantile(a, u);
      INFO("shape " << a << ", probability " << u << ", quantile " << x);
      if (x < 1e-280) continue;  // of small shapes: nearly nothing
      if (u < 0.5) CHECK(math::igamma(a, x, false) == Approx(u).epsilon(1e-9));
      else CHECK(math::igamma(a, x, true) == Approx(1 - u).epsilon(1e-9));
    }
  CHECK(math::gamma_quantile(2, 0) == 0);
  CHECK(math::gamma_quantile(1, 0.5) == Approx(std::log(2)).epsilon(1e-14));  // an exponential distribution
  CHECK(std::isnan(math::gamma_quantile(-1, 0.5)));
}

TEST_CASE("the slope of a gamma draw is how the quantile follows the shape") {
  for (double a : kShapes)
    for (double u : kChances) {
      const double x = math::gamma_quantile(a, u);
      INFO("shape " << a << ", probability " << u << ", quantile " << x);
      if (x < 1e-100) continue;
      const double expected = difference([=](double shape) { return math::gamma_quantile(shape, u); }, a);
      CHECK(math::gamma_slope(a, x) == Approx(expected).epsilon(2e-5));
    }
}

TEST_CASE("the slope of an element of a Dirichlet draw, by the incomplete beta function of whole parameters") {
  // The probability of x or less with concentrations a and b is a sum if b is whole; this is its derivative by a.
  auto by_shape = [](double a, int b, double x) {
    double term = std::pow(x, a), rate = std::log(x), sum = 0;
    for (int k = 0; k < b; ++k) sum += term * rate, term *= (a + k) / (k + 1) * (1 - x), rate += 1 / (a + k);
    return sum;
  };
  int compared = 0;
  for (double a : {0.07, 0.6, 1.0, 3.4, 20.0})
    for (int b : {1, 2, 9})
      for (double x : {0.01, 0.2, 0.5, 0.77, 0.98}) {
        INFO("concentrations " << a << " and " << b << ", at " << x);
        const double density = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + (a - 1) * std::log(x) +
                                        (b - 1) * std::log1p(-x));
        const double by = by_shape(a, b, x);
        if (std::abs(by) < 1e-6) continue;  // nothing but rounding is left of the sum
        CHECK(math::dirichlet_slope(x, a, a + b) == Approx(-by / density / (1 - x)).epsilon(1e-8));
        ++compared;
      }
  CHECK(compared > 60);
  CHECK(math::dirichlet_slope(1, 2, 3) == 0);
}

TEST_CASE("counts are the least with more than the probability up to them") {
  auto least = [](double u, const auto& each) {
    double sum = 0;
    for (int k = 0;; ++k)
      if (sum += each(k); sum > u) return k;
  };
  for (double u : {1e-6, 0.003, 0.2, 0.45, 0.81, 0.999}) {
    for (double rate : {0.01, 0.9, 4.0, 31.5, 600.0}) {
      auto each = [=](int k) { return std::exp(k * std::log(rate) - rate - std::lgamma(k + 1.0)); };
      INFO("rate " << rate << ", probability " << u);
      CHECK(math::poisson_quantile(rate, u) == least(u, each));
    }
    for (int count : {1, 7, 60, 900})
      for (double p : {0.02, 0.5, 0.93}) {
        auto each = [=](int k) {
          return std::exp(std::lgamma(count + 1.0) - std::lgamma(k + 1.0) - std::lgamma(count - k + 1.0) +
                          k * std::log(p) + (count - k) * std::log1p(-p));
        };
        INFO(count << " trials of " << p << ", probability " << u);
        CHECK(math::binomial_quantile(count, p, u) == least(u, each));
      }
  }
  CHECK(math::poisson_quantile(0, 0.7) == 0);
  CHECK(math::binomial_quantile(5, 1, 0.2) == 5);
  CHECK(math::binomial_quantile(5, 0, 0.9) == 0);
}
