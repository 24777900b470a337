#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "librun/cpu/fill.h"
#include "tests/support/kernel_call.h"

using namespace sg;
using test::Buffer;

TEST_CASE("factories fill strided results") {
  Buffer<float> out({2, 3}, {}, {1, 5}, 2);
  REQUIRE(test::call("aten.full.default", {{"fill_value", 2.5}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<float>(6, 2.5f));
  Buffer<bool> flags({3});
  REQUIRE(test::call("aten.ones.default", {}, {flags.tensor()}).ok());
  CHECK(flags.values() == std::vector<bool>(3, true));
}

TEST_CASE("arange counts exactly") {
  Buffer<int64_t> big({3});
  int64_t start = (int64_t{1} << 60) + 1;
  REQUIRE(
      test::call("aten.arange.start_step", {{"start", start}, {"end", start + 9}, {"step", 3}}, {big.tensor()}).ok());
  CHECK(big.values() == std::vector<int64_t>{start, start + 3, start + 6});
  Buffer<float> third({4});
  REQUIRE(test::call("aten.arange.start_step", {{"start", 0.1}, {"end", 0.5}, {"step", 0.1}}, {third.tensor()}).ok());
  CHECK(third.values() == std::vector<float>{0.1f, 0.2f, static_cast<float>(0.1 + 2 * 0.1), 0.4f});
}

TEST_CASE("halves round to nearest even, keep infinities and NaN") {
  CHECK(float(BF16(1.00390625f)) == 1.0f);       // a tie: down to even
  CHECK(float(BF16(1.01171875f)) == 1.015625f);  // a tie: up to even
  CHECK(std::isnan(float(BF16(std::nanf("")))));
  CHECK(float(BF16(3.4e38f)) == INFINITY);
  CHECK(float(F16(65504.0f)) == 65504.0f);
  CHECK(float(F16(65520.0f)) == INFINITY);  // halfway to 2^16
  CHECK(float(F16(65519.9f)) == 65504.0f);
  CHECK(float(F16(5.9604645e-08f)) == 5.9604645e-08f);  // the smallest subnormal
  CHECK(float(F16(2.9802322e-08f)) == 0.0f);            // half of it: to even
  CHECK(std::signbit(float(F16(-0.0f))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every value round-trips
    F16 h;
    h.bits = static_cast<uint16_t>(bits);
    if (!std::isnan(float(h))) REQUIRE(F16(float(h)).bits == h.bits);
    else REQUIRE(std::isnan(float(F16(float(h)))));
  }
}

TEST_CASE("copies convert as the op does, whatever the strides") {
  const DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16,    DType::i64, DType::i32,
                         DType::i16, DType::i8,  DType::u8,  DType::boolean, DType::c64, DType::c128};
  struct Order {
    std::vector<int64_t> shape;
    std::array<int64_t, kMaxRank> stride;
  };
  const auto order = GENERATE(Order{{3, 700}, {1, 3}}, Order{{35, 60}, {1, 35}}, Order{{12, 5, 35}, {1, 12, 60}});
  ThreadTeam team(2);
  Buffer<double> numbers(order.shape);
  for (int64_t i = 0; i < 2100; ++i) numbers.at(i) = static_cast<double>(i % 251) / 4 - (i % 3 == 0 ? 20 : 0);
  for (DType from : types) {
    std::vector<std::byte> source(2100 * 2 * 16), line(2100 * 16), turned(2100 * 16), expected(2100 * 16);
    Tensor in = make_tensor(source.data(), from, numbers.tensor().sizes());
    in.stride = order.stride;  // another order in memory: element by element
    cpu::copy(team, in, numbers.tensor());
    for (DType to : types) {
      Tensor out = make_tensor(line.data(), to, in.sizes()), want = make_tensor(expected.data(), to, in.sizes());
      REQUIRE(test::call("aten._to_copy.default", {{"self", in}, {"dtype", to}}, {want}).ok());
      cpu::copy(team, out, in);
      REQUIRE(line == expected);
      Tensor other = make_tensor(turned.data(), to, in.sizes());
      other.stride = order.stride;
      cpu::copy(team, other, in);  // the same order on both sides
      std::fill(line.begin(), line.end(), std::byte{});
      cpu::copy(team, out, other);
      REQUIRE(line == expected);
      std::fill(line.begin(), line.end(), std::byte{});
      std::fill(expected.begin(), expected.end(), std::byte{});
    }
  }
}
