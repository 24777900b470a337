// Products of float8 for which PyTorch's CPU gives no vectors: groups, and block scales. Small whole numbers, so that
// sums are exact and any order gives the same bits.
#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/kernel_call.h"

using namespace sg;
using test::Buffer;

namespace {

using E4M3 = F8<work::Eighth::e4m3fn>;
using E5M2 = F8<work::Eighth::e5m2>;

template <class T>
Buffer<T> small_numbers(std::vector<int64_t> shape, std::vector<int64_t> stride = {}) {
  Buffer<T> out(shape, {}, stride);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) out.at(i) = T(static_cast<float>(i * 5 % 7 - 3));
  return out;
}

Buffer<float> powers(std::vector<int64_t> shape) {
  Buffer<float> out(shape);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) out.at(i) = static_cast<float>(1 << (i * 3 % 5)) / 4;
  return out;
}

float sum_over(int64_t begin, int64_t end, const std::function<float(int64_t)>& product) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum += product(k);
  return sum;
}

constexpr const char* kGrouped = "aten._scaled_grouped_mm.default";

}  // namespace

TEST_CASE("_scaled_mm: a scale a block of 128 of the left, and one per block of 128 x 128 of the right operand") {
  constexpr int64_t kRows = 3, kDepth = 200, kColumns = 150;
  Buffer<E4M3> a = small_numbers<E4M3>({kRows, kDepth});
  Buffer<E5M2> b = small_numbers<E5M2>({kDepth, kColumns}, {1, kDepth});
  Buffer<float> scale_a = powers({kRows, 2}), scale_b = powers({2, 2}), out({kRows, kColumns});
  REQUIRE(test::call("aten._scaled_mm.default",
                     {{"self", a}, {"mat2", b}, {"scale_a", scale_a}, {"scale_b", scale_b}, {"out_dtype", DType::f32}},
                     {out.tensor()}, 2)
              .ok());
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j)
      CHECK(out.at(i * kColumns + j) == sum_over(0, kDepth, [&](int64_t k) {
              return float(a.at(i * kDepth + k)) * scale_a.at(i * 2 + k / 128) * float(b.at(k * kColumns + j)) *
                     scale_b.at(k / 128 * 2 + j / 128);
            }));
  Buffer<float> odd = powers({kRows, 3});
  const Status status = test::call("aten._scaled_mm.default",
                                   {{"self", a}, {"mat2", b}, {"scale_a", odd}, {"scale_b", scale_b}}, {out.tensor()});
  REQUIRE(!status.ok());
  CHECK(status.error().message.find("one per block of 128") != std::string::npos);
}

TEST_CASE("_scaled_grouped_mm: groups of rows, a scale a row and a column of each group") {
  Buffer<E4M3> a = small_numbers<E4M3>({7, 16}), b = small_numbers<E4M3>({3, 16, 4}, {64, 1, 16});
  Buffer<int32_t> offs({3}, {2, 2, 6});
  Buffer<float> scale_a = powers({7}), scale_b = powers({3, 4});
  Buffer<BF16> out({7, 4}, {}, {8, 1});
  REQUIRE(test::call(kGrouped, {{"self", a}, {"mat2", b}, {"scale_a", scale_a}, {"scale_b", scale_b}, {"offs", offs}},
                     {out.tensor()}, 2)
              .ok());
  const int64_t group_of[] = {0, 0, 2, 2, 2, 2, -1};
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t g = group_of[i];
      const float sum = g < 0 ? 0 : sum_over(0, 16, [&](int64_t k) {
        return float(a.at(i * 16 + k)) * float(b.at((g * 16 + k) * 4 + j));
      });
      CHECK(float(out.at(i * 4 + j)) == (g < 0 ? 0 : float(BF16(sum * scale_a.at(i) * scale_b.at(g * 4 + j)))));
    }
}

TEST_CASE("_scaled_grouped_mm: groups of depth, whose rows and columns have scales in each group") {
  Buffer<E4M3> a = small_numbers<E4M3>({2, 5}), b = small_numbers<E4M3>({5, 3});
  Buffer<int32_t> offs({2}, {1, 5});
  Buffer<float> scale_a = powers({4}), scale_b = powers({6}), out({2, 2, 3}, std::vector<float>(12, 99));
  REQUIRE(test::call(kGrouped,
                     {{"self", a},
                      {"mat2", b},
                      {"scale_a", scale_a},
                      {"scale_b", scale_b},
                      {"offs", offs},
                      {"out_dtype", DType::f32}},
                     {out.tensor()})
              .ok());
  for (int64_t e = 0; e < 12; ++e) {
    const int64_t g = e / 6, i = e / 3 % 2, j = e % 3;
    const float sum = sum_over(g == 0 ? 0 : 1, g == 0 ? 1 : 5,
                               [&](int64_t k) { return float(a.at(i * 5 + k)) * float(b.at(k * 3 + j)); });
    CHECK(out.at(e) == sum * scale_a.at(g * 2 + i) * scale_b.at(g * 3 + j));
  }
}

TEST_CASE("_scaled_grouped_mm: groups of columns, and matrices that are groups of their own") {
  Buffer<E4M3> a = small_numbers<E4M3>({2, 3, 4}), b = small_numbers<E4M3>({4, 5});
  Buffer<int32_t> offs({2}, {3, 5});
  Buffer<float> scale_a = powers({2, 3}), scale_b = powers({5}), out({3, 5});
  REQUIRE(test::call(kGrouped, {{"self", a}, {"mat2", b}, {"scale_a", scale_a}, {"scale_b", scale_b}, {"offs", offs}},
                     {out.tensor()})
              .ok());
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      const int64_t g = j < 3 ? 0 : 1;
      const float sum =
          sum_over(0, 4, [&](int64_t k) { return float(a.at((g * 3 + i) * 4 + k)) * float(b.at(k * 5 + j)); });
      CHECK(out.at(i * 5 + j) == sum * scale_a.at(g * 3 + i) * scale_b.at(j));
    }
  Buffer<E4M3> c = small_numbers<E4M3>({2, 4, 5});
  Buffer<float> scale_c = powers({2, 5}), all({2, 3, 5});
  REQUIRE(test::call(kGrouped, {{"self", a}, {"mat2", c}, {"scale_a", scale_a}, {"scale_b", scale_c}}, {all.tensor()})
              .ok());
  for (int64_t e = 0; e < 30; ++e) {
    const int64_t g = e / 15, i = e / 5 % 3, j = e % 5;
    const float sum =
        sum_over(0, 4, [&](int64_t k) { return float(a.at((g * 3 + i) * 4 + k)) * float(c.at((g * 4 + k) * 5 + j)); });
    CHECK(all.at(e) == sum * scale_a.at(g * 3 + i) * scale_c.at(g * 5 + j));
  }
}

TEST_CASE("_scaled_grouped_mm: scales are counted") {
  Buffer<E4M3> a({4, 2}), b({2, 2, 2});
  Buffer<int32_t> offs({2}, {1, 4});
  Buffer<float> scale_a = powers({4}), scale_b = powers({3}), out({4, 2});
  const Status status = test::call(
      kGrouped, {{"self", a}, {"mat2", b}, {"scale_a", scale_a}, {"scale_b", scale_b}, {"offs", offs}}, {out.tensor()});
  REQUIRE(!status.ok());
  CHECK(status.error().message.find("'scale_b' has 3 numbers for 4 rows or columns") != std::string::npos);
}
