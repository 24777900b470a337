// Gradients of distances whose norm is the largest difference.
#include "librun/work/distances.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/rng.h"

using sg::test::Rng;
namespace work = sg::work;

TEST_CASE("the gradient of an infinite distance goes to the largest difference, also where distances are f32") {
  constexpr int64_t kRows = 9, kWidth = 5, kPairs = kRows * (kRows - 1) / 2;
  Rng rng(1);
  std::vector<double> x(kRows * kWidth), whole(kPairs), grad(kPairs, 1), slopes(x.size());
  for (double& v : x) v = static_cast<float>(static_cast<double>(rng.below(1 << 20)) / 999983.0);
  for (bool is_single : {true, false}) {
    const work::Norm norm{std::numeric_limits<double>::infinity(), is_single};
    const work::PairDistances distances{norm, x.data(), kRows, kWidth, whole.data()};
    for (int64_t row = 0; row < kRows; ++row) distances(row);
    if (is_single)
      for (double& d : whole) d = static_cast<float>(d);
    const work::PairDistanceSlope slope{norm, x.data(), grad.data(), whole.data(), kRows, kWidth, slopes.data()};
    std::vector<double> expected(x.size());
    for (int64_t a = 0; a < kRows; ++a)
      for (int64_t b = a + 1; b < kRows; ++b) {
        int64_t largest = 0;
        const auto apart = [&](int64_t i) { return x[a * kWidth + i] - x[b * kWidth + i]; };
        for (int64_t i = 1; i < kWidth; ++i)
          if (std::fabs(apart(i)) > std::fabs(apart(largest))) largest = i;
        const double sign = apart(largest) > 0 ? 1 : -1;
        expected[a * kWidth + largest] += sign, expected[b * kWidth + largest] -= sign;
      }
    for (int64_t i = 0; i < kRows * kWidth; ++i) slope(i);
    CHECK(slopes == expected);
  }
}
