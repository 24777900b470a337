#include <catch2/catch.hpp>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;

namespace {

template <class T>
Buffer<T> counting(std::vector<int64_t> shape, std::vector<int64_t> stride = {}) {
  Buffer<T> out(shape, {}, stride);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) out.at(i) = T(static_cast<float>(i * 7 % 11 - 5));
  return out;
}

}  // namespace

TEST_CASE("_grouped_mm: groups of rows, empty ones too; rows behind the last are zero") {
  Buffer<BF16> a = counting<BF16>({7, 3}), b = counting<BF16>({4, 3, 2}, {6, 1, 3});
  Buffer<int32_t> offs({4}, {2, 2, 5, 6});
  Buffer<BF16> out({7, 2}, {}, {8, 1});
  REQUIRE(test::call("aten._grouped_mm.default", {{"self", a}, {"mat2", b}, {"offs", offs}}, {out.tensor()}, 2).ok());
  int64_t group_of[] = {0, 0, 2, 2, 2, 3, -1};
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < 3 && group_of[i] >= 0; ++k) sum += a.at(i * 3 + k) * b.at((group_of[i] * 3 + k) * 2 + j);
      CHECK(float(out.at(i * 2 + j)) == sum);
    }
}

TEST_CASE("_grouped_mm: few groups that several threads share, one of them without rows") {
  constexpr int64_t kRows = 96, kDepth = 160,
                    kColumns = 40;  // work for several threads, in fewer tasks than they prefer
  Buffer<BF16> a = counting<BF16>({kRows, kDepth}), b = counting<BF16>({3, kDepth, kColumns}), out({kRows, kColumns});
  Buffer<int32_t> offs({3}, {50, 50, kRows});
  REQUIRE(test::call("aten._grouped_mm.default", {{"self", a}, {"mat2", b}, {"offs", offs}}, {out.tensor()}, 4).ok());
  for (int64_t i : {0, 49, 50, 95})
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < kDepth; ++k)
        sum += a.at(i * kDepth + k) * b.at(((i < 50 ? 0 : 2) * kDepth + k) * kColumns + j);
      CHECK(float(out.at(i * kColumns + j)) == float(BF16(sum)));
    }
}

TEST_CASE("_grouped_mm: groups of depth and of columns") {
  Buffer<float> a = counting<float>({2, 5}, {1, 2}), b = counting<float>({5, 3});
  Buffer<int32_t> offs({3}, {1, 1, 5});
  Buffer<float> out({3, 2, 3}, std::vector<float>(18, 99));
  REQUIRE(test::call("aten._grouped_mm.default", {{"self", a}, {"mat2", b}, {"offs", offs}}, {out.tensor()}).ok());
  for (int64_t e = 0; e < 18; ++e) {
    int64_t group = e / 6, begin = group == 0 ? 0 : offs.at(group - 1);
    float sum = 0;
    for (int64_t k = begin; k < offs.at(group); ++k) sum += a.at(e / 3 % 2 * 5 + k) * b.at(k * 3 + e % 3);
    CHECK(out.at(e) == sum);  // the second group is empty: zeros
  }
  Buffer<float> c = counting<float>({3, 2, 4}), d = counting<float>({4, 6}), wide({2, 6}, {}, {8, 1});
  Buffer<int32_t> columns({3}, {0, 4, 5});
  REQUIRE(test::call("aten._grouped_mm.default", {{"self", c}, {"mat2", d}, {"offs", columns}}, {wide.tensor()}).ok());
  int64_t group_of[] = {1, 1, 1, 1, 2, -1};
  for (int64_t e = 0; e < 12; ++e) {
    float sum = 0;
    for (int64_t k = 0; k < 4 && group_of[e % 6] >= 0; ++k)
      sum += c.at((group_of[e % 6] * 2 + e / 6) * 4 + k) * d.at(k * 6 + e % 6);
    CHECK(wide.at(e) == sum);
  }
}

TEST_CASE("_grouped_mm: offsets come from data and are checked") {
  Buffer<float> a({4, 2}), b({2, 2, 2}), out({4, 2});
  for (std::vector<int32_t> ends : {std::vector<int32_t>{3, 5}, {3, 2}, {-1, 4}}) {
    Buffer<int32_t> offs({2}, ends);
    Status status = test::call("aten._grouped_mm.default", {{"self", a}, {"mat2", b}, {"offs", offs}}, {out.tensor()});
    REQUIRE(!status.ok());
    CHECK(status.error().message.find("offset") != std::string::npos);
  }
  Buffer<int32_t> three({3}, {1, 2, 3});
  CHECK(!test::call("aten._grouped_mm.default", {{"self", a}, {"mat2", b}, {"offs", three}}, {out.tensor()}).ok());
}
