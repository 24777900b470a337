// The transform of several lines at once, of lengths of all kinds, against the defining sums.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

#include "librun/any_device/fourier_by_work.h"
#include "librun/any_device/fourier_plan.h"
#include "tests/support/kernel_call.h"

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

// Runs the plan over `lanes` lines; returns line `line`.
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

namespace {

// What a kernel of complex numbers gives for one line, by work or in buffers of threads.
using Axis = void (*)(KernelCall&, const Tensor&, const Tensor&, int, bool, double);

Numbers along_axis(Axis axis, const Numbers& x, bool forward, double scale) {
  const auto n = static_cast<int64_t>(x.re.size());
  test::Buffer<C128> from({n, 3}), to({n, 3}, {}, {1, n});  // three lines, of which the second is checked
  for (int64_t k = 0; k < n; ++k)
    from.at(3 * k + 1) = C128(x.re[static_cast<size_t>(k)], x.im[static_cast<size_t>(k)]),
                    from.at(3 * k) = C128(1e9, 0);
  ThreadTeam team(2);
  Scratch scratch;
  KernelContext context;
  context.team = &team;
  context.scratch = &scratch;
  KernelCall call(*find_op("aten._fft_c2c.default"), &context);
  axis(call, from.tensor(), to.tensor(), 0, forward, scale);
  Numbers out(n);
  for (int64_t k = 0; k < n; ++k)
    out.re[static_cast<size_t>(k)] = to.at(3 * k + 1).real(), out.im[static_cast<size_t>(k)] = to.at(3 * k + 1).imag();
  return out;
}

}  // namespace

TEST_CASE("by work, too, a Fourier transform is the sum that defines it, and its way back leads back") {
  std::vector<int64_t> lengths = {256, 257, 512, 729, 1000, 1001, 1024, 1369};
  for (int64_t n = 1; n <= 130; ++n) lengths.push_back(n);
  for (int64_t n : lengths) {
    INFO("length " << n);
    const Numbers x = random_numbers(n, static_cast<uint32_t>(n));
    const Numbers there = along_axis(cpu::complex_axis_by_work, x, true, 1);
    CHECK(distance(there, by_definition(x)) < 4e-15 * static_cast<double>(n));
    const double scale = 1 / static_cast<double>(n);
    CHECK(distance(along_axis(cpu::complex_axis_by_work, there, false, scale), x) < 4e-15 * std::log2(n + 1.0));
  }
}
