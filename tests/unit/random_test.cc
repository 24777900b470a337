#include "librun/random.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <set>
#include <vector>

using namespace sg;

TEST_CASE("Philox-4x32-10 gives the published vectors") {
  // Known answers of the algorithm's authors (Random123, kat_vectors).
  CHECK(work::philox({{0, 0, 0, 0}}, 0, 0) == work::Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(work::philox({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u) ==
        work::Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(work::philox({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u) ==
        work::Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("what one key draws is what it drew when this was written") {
  // Regression values: a change here changes the numbers of every run with random ops or --init.
  const RandomKey key(7, 3, 11, 2);
  CHECK(key.block(5) == work::Words{0xd86edc23u, 0xb56c39ccu, 0xee0593d2u, 0x8940713au});
  CHECK(uniform(key, 6) == 0x1.7ac52p-4);
  CHECK(normal(key, 6) == -0x1.403b5d87dbdf8p-1);
  CHECK(normal(key, 7) == -0x1.b04aa145f370ep-2);
  CHECK(key.word(21) == key.block(5)[1]);
  CHECK(key.word64(9) == (uint64_t{key.block(4)[2]} << 32 | key.block(4)[3]));
  CHECK(key.block(uint64_t{1} << 32) != key.block(0));
}

TEST_CASE("each part of a key matters") {
  std::set<uint64_t> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
      for (uint32_t stream : {0u, 1u, 2u})
        for (uint32_t rank : {0u, 1u, 2u}) seen.insert(RandomKey(seed, step, stream, rank).word64(0));
  CHECK(seen.size() == 81);
}

TEST_CASE("filling a range from anywhere equals drawing its elements") {
  const RandomKey key(1, 2, 3, 4);
  for (uint64_t first : {0, 1, 2, 3, 4, 1001})
    for (size_t count : {0, 1, 2, 3, 5, 8, 33, 1500}) {
      std::vector<uint32_t> words(count);
      std::vector<double> normals(count), coarse(count), fine(count);
      fill_words(key, first, words);
      fill_normal(key, first, normals);
      fill_uniform(key, first, 24, coarse);
      fill_uniform(key, first, 53, fine);
      for (size_t j = 0; j < count; ++j) {
        CHECK(words[j] == key.word(first + j));
        CHECK(normals[j] == normal(key, first + j));
        CHECK(coarse[j] == uniform(key, first + j, 24));
        CHECK(fine[j] == uniform(key, first + j, 53));
      }
    }
}

TEST_CASE("uniform numbers are below 1 in their own type and evenly spread") {
  const RandomKey key(42, 0, 1, 0);
  constexpr int kCount = 100000;
  for (int digits : {8, 11, 24, 32, 53}) {
    double sum = 0, sum2 = 0, largest = 0;
    std::vector<int> bins(16);
    for (int i = 0; i < kCount; ++i) {
      double u = uniform(key, static_cast<uint64_t>(i), digits);
      REQUIRE((u >= 0 && u < 1));
      CHECK(std::ldexp(u, digits) == std::floor(std::ldexp(u, digits)));
      sum += u, sum2 += u * u, largest = std::max(largest, u);
      ++bins[static_cast<size_t>(u * 16)];
    }
    CHECK(largest <= 1 - std::ldexp(1.0, -digits));
    CHECK(std::fabs(sum / kCount - 0.5 + std::ldexp(0.5, -digits)) < 0.004);
    CHECK(std::fabs(sum2 / kCount - 1.0 / 3) < 0.006);
    for (int n : bins) CHECK(std::abs(n - kCount / 16) < 400);  // 5 standard deviations
  }
}

TEST_CASE("normal numbers have the moments and tails of a normal distribution") {
  const RandomKey key(42, 0, 2, 0);
  constexpr int kCount = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, previous = 0;
  int beyond_1 = 0, beyond_3 = 0;
  for (int i = 0; i < kCount; ++i) {
    double z = normal(key, static_cast<uint64_t>(i));
    REQUIRE(std::isfinite(z));
    m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z, lag += z * previous;
    previous = z;
    beyond_1 += std::fabs(z) > 1, beyond_3 += std::fabs(z) > 3;
  }
  CHECK(std::fabs(m1 / kCount) < 0.01);
  CHECK(std::fabs(m2 / kCount - 1) < 0.015);
  CHECK(std::fabs(m3 / kCount) < 0.03);
  CHECK(std::fabs(m4 / kCount - 3) < 0.1);
  CHECK(std::fabs(lag / kCount) < 0.01);
  CHECK(std::fabs(beyond_1 / double{kCount} - 0.31731) < 0.005);
  CHECK(std::fabs(beyond_3 / double{kCount} - 0.0027) < 0.0006);
}

TEST_CASE("our log, sine and cosine are those of the library to a few units in the last place") {
  const RandomKey key(3, 1, 4, 1);
  for (uint64_t pair = 0; pair < 20000; ++pair) {
    work::Words b = key.block(pair);
    double u = static_cast<double>(((uint64_t{b[0]} << 32 | b[1]) >> 11) + 1) * 0x1p-53;
    double turns = static_cast<double>((uint64_t{b[2]} << 32 | b[3]) >> 11) * 0x1p-53;
    double radius = std::sqrt(-2 * std::log(u));
    CHECK(normal(key, 2 * pair) ==
          Approx(radius * std::cos(6.28318530717958647692 * turns)).epsilon(1e-12).margin(1e-14));
    CHECK(normal(key, 2 * pair + 1) ==
          Approx(radius * std::sin(6.28318530717958647692 * turns)).epsilon(1e-12).margin(1e-14));
  }
}

TEST_CASE("points of the unit circle lie on it, in all quarters") {
  const RandomKey key(5, 0, 8, 0);
  int quarters[4] = {};
  for (uint64_t i = 0; i < 4000; ++i) {
    const UnitPoint p = unit_point(key, i);
    CHECK(p.cos * p.cos + p.sin * p.sin == Approx(1).epsilon(1e-14));
    ++quarters[(p.cos < 0) + 2 * (p.sin < 0)];
  }
  for (int n : quarters) CHECK(std::abs(n - 1000) < 150);
}

TEST_CASE("integers below a count reach all of them and no other") {
  const RandomKey key(5, 0, 10, 0);
  std::vector<int> bins(7);
  for (uint64_t i = 0; i < 70000; ++i) ++bins[uniform_below(key, i, 7)];
  for (int n : bins) CHECK(std::abs(n - 10000) < 500);
  CHECK(uniform_below(key, 0, 1) == 0);
  CHECK(uniform_below(key, 3, uint64_t{1} << 63) == key.word64(3) >> 1);
}
