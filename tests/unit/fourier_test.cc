// The transform of several lines at once against sums by definition, over lengths of all kinds.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

#include "librun/cpu/fourier_plan.h"

using namespace sg;
using cpu::FourierPlan;
using cpu::SplitLines;

namespace {

struct Numbers {
  std::vector<double> re, im;
  explicit Numbers(int64_t n) : re(static_cast<size_t>(n)), im(static_cast<size_t>(n)) {}
  SplitLines lines() { return {re.data(), im.data()}; }
};

Numbers random_numbers(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  Numbers x(n);
  for (double& v : x.re) v = value(random);
  for (double& v : x.im) v = value(random);
  return x;
}

// Of line 0 of `lanes`.
Numbers transformed(const FourierPlan& plan, Numbers x, int lanes, int line = 0) {
  Numbers work(plan.work_length() * lanes), out(plan.length());
  SplitLines y = plan.run(x.lines(), work.lines(), lanes);
  for (int64_t k = 0; k < plan.length(); ++k) {
    out.re[static_cast<size_t>(k)] = y.re[k * lanes + line];
    out.im[static_cast<size_t>(k)] = y.im[k * lanes + line];
  }
  return out;
}

Numbers by_definition(const Numbers& x) {
  const auto n = static_cast<int64_t>(x.re.size());
  Numbers out(n);
  for (int64_t k = 0; k < n; ++k) {
    long double re = 0, im = 0;
    for (int64_t j = 0; j < n; ++j) {
      const long double angle = -2 * M_PIl * static_cast<long double>(j * k % n) / static_cast<long double>(n);
      const long double a = x.re[static_cast<size_t>(j)], b = x.im[static_cast<size_t>(j)];
      re += a * cosl(angle) - b * sinl(angle), im += a * sinl(angle) + b * cosl(angle);
    }
    out.re[static_cast<size_t>(k)] = static_cast<double>(re), out.im[static_cast<size_t>(k)] = static_cast<double>(im);
  }
  return out;
}

double distance(const Numbers& a, const Numbers& b) {
  double most = 0;
  for (size_t k = 0; k < a.re.size(); ++k) most = std::max(most, std::hypot(a.re[k] - b.re[k], a.im[k] - b.im[k]));
  return most;
}

}  // namespace

TEST_CASE("a Fourier transform is the sum that defines it") {
  std::vector<int64_t> lengths = {256, 257, 512, 729, 1000, 1001, 1024, 1369};  // 257 and 37 * 37: by a convolution
  for (int64_t n = 1; n <= 130; ++n) lengths.push_back(n);
  for (int64_t n : lengths) {
    INFO("length " << n);
    const Numbers x = random_numbers(n, static_cast<uint32_t>(n));
    CHECK(distance(transformed(FourierPlan(n), x, 1), by_definition(x)) < 2e-15 * static_cast<double>(n));
  }
}

TEST_CASE("a line's transform has the same bits whatever is beside it") {
  for (int64_t n : {1, 2, 8, 12, 35, 37, 60, 74, 128, 143}) {
    INFO("length " << n);
    const FourierPlan plan(n);
    const Numbers x = random_numbers(n, 7), alone = transformed(plan, x, 1);
    for (int lanes = 2; lanes <= 9; ++lanes) {
      const int line = lanes / 2;
      Numbers many = random_numbers(n * lanes, static_cast<uint32_t>(lanes));
      many.re[0] = std::numeric_limits<double>::quiet_NaN();  // of line 0
      for (int64_t k = 0; k < n; ++k) {
        many.re[static_cast<size_t>(k * lanes + line)] = x.re[static_cast<size_t>(k)];
        many.im[static_cast<size_t>(k * lanes + line)] = x.im[static_cast<size_t>(k)];
      }
      const Numbers among = transformed(plan, many, lanes, line);
      CHECK(among.re == alone.re);
      CHECK(among.im == alone.im);
    }
  }
}

TEST_CASE("roots of unity lie on the circle, and opposite ones are opposite") {
  for (int64_t n : {1, 2, 3, 4, 7, 8, 12, 1000, 65536})
    for (int64_t k = 0; k < n; ++k) {
      const std::complex<double> root = cpu::root_of_unity(k, n);
      const long double angle = -2 * M_PIl * static_cast<long double>(k) / static_cast<long double>(n);
      REQUIRE(std::abs(root.real() - static_cast<double>(cosl(angle))) < 1.2e-16);
      REQUIRE(std::abs(root.imag() - static_cast<double>(sinl(angle))) < 1.2e-16);
      if (n % 2 == 0) REQUIRE(cpu::root_of_unity((k + n / 2) % n, n) == -root);
    }
}
