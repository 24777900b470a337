#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "tests/support/kernel_call.h"

using namespace sg;
using test::Buffer;
using test::draw;

namespace {

RandomStream stream_of(uint64_t id) {
  RandomStream s;
  s.seed = 5, s.step = 2, s.stream = id;
  return s;
}

template <class T>
double mean(Buffer<T>& b) {
  double sum = 0;
  for (T v : b.values()) sum += static_cast<double>(static_cast<Compute<T>>(v));
  return sum / static_cast<double>(b.tensor().elements());
}

}  // namespace

TEST_CASE("draws hang on the stream and the place, not on threads or strides") {
  for (const char* op : {"aten.rand.default", "aten.randn.default"}) {
    Buffer<float> one({50, 100}), four({50, 100}), turned({50, 100}, {}, {1, 53}), other({50, 100});
    REQUIRE(draw(op, {}, {one.tensor()}, stream_of(1)).ok());
    REQUIRE(draw(op, {}, {four.tensor()}, stream_of(1), 4).ok());
    REQUIRE(draw(op, {}, {turned.tensor()}, stream_of(1), 2).ok());
    REQUIRE(draw(op, {}, {other.tensor()}, stream_of(2)).ok());
    CHECK(one.values() == four.values());
    CHECK(one.values() == turned.values());
    CHECK(one.values() != other.values());
  }
}

TEST_CASE("a chunk draws what its part of the original would") {
  Buffer<float> whole({6, 8}), part({2, 8}), columns({6, 3});
  Buffer<bool> mask({6, 8}), mask_part({2, 8});
  REQUIRE(draw("aten.rand.default", {}, {whole.tensor()}, stream_of(1)).ok());
  REQUIRE(draw("aten.bernoulli_.float", {{"p", 0.4}}, {mask.tensor()}, stream_of(1)).ok());
  RandomStream rows = stream_of(1), middle = stream_of(1);
  rows.origin_shape = middle.origin_shape = {6, 8};
  rows.origin_offset = {3, 0}, middle.origin_offset = {0, 4};
  REQUIRE(draw("aten.rand.default", {}, {part.tensor()}, rows).ok());
  REQUIRE(draw("aten.rand.default", {}, {columns.tensor()}, middle).ok());
  REQUIRE(draw("aten.bernoulli_.float", {{"p", 0.4}}, {mask_part.tensor()}, rows).ok());
  for (int64_t i = 0; i < 16; ++i) {
    CHECK(part.at(i) == whole.at(24 + i));
    CHECK(mask_part.at(i) == mask.at(24 + i));
  }
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 3; ++j) CHECK(columns.at(3 * i + j) == whole.at(8 * i + 4 + j));
}

TEST_CASE("dropout keeps, scales and says what it kept") {
  Buffer<BF16> in({4000}), out({4000});
  Buffer<bool> mask({4000});
  for (int64_t i = 0; i < 4000; ++i) in.at(i) = BF16(2.0f);
  REQUIRE(draw("aten.native_dropout.default", {{"input", in}, {"p", 0.25}, {"train", true}},
               {out.tensor(), mask.tensor()}, stream_of(3))
              .ok());
  int64_t kept = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    kept += mask.at(i);
    REQUIRE(float(out.at(i)) == (mask.at(i) ? float(BF16(2.0f / 0.75f)) : 0.0f));
  }
  CHECK(std::abs(kept - 3000) < 150);
  REQUIRE(draw("aten.native_dropout.default", {{"input", in}, {"p", 1.0}, {"train", true}},
               {out.tensor(), mask.tensor()}, stream_of(3))
              .ok());
  CHECK(float(out.at(7)) == 0.0f);
  REQUIRE(draw("aten.native_dropout.default", {{"input", in}, {"p", 0.5}, {"train", false}},
               {out.tensor(), mask.tensor()}, stream_of(3))
              .ok());
  CHECK(float(out.at(7)) == 2.0f);
  CHECK(mask.at(7));
  CHECK_FALSE(draw("aten.native_dropout.default", {{"input", in}, {"p", 1.5}, {"train", true}},
                   {out.tensor(), mask.tensor()}, stream_of(3))
                  .ok());
}

TEMPLATE_TEST_CASE("the double run draws the numbers of the graph", "", float, double, BF16, F16) {
  Buffer<TestType> ours({100});
  Buffer<double> oracle({100});
  RandomStream stream = stream_of(4);
  stream.recorded = ours.tensor().dtype;
  for (const char* op : {"aten.rand.default", "aten.random_.default"}) {
    CAPTURE(op);
    REQUIRE(draw(op, {}, {ours.tensor()}, stream).ok());
    REQUIRE(draw(op, {}, {oracle.tensor()}, stream, 1, Numerics::f64).ok());
    for (int64_t i = 0; i < 100; ++i)
      CHECK(oracle.at(i) == static_cast<double>(static_cast<Compute<TestType>>(ours.at(i))));
  }
}

TEST_CASE("distributions have their means and bounds") {
  constexpr int64_t n = 20000;
  Buffer<float> f({n});
  REQUIRE(draw("aten.uniform_.default", {{"self", f}, {"from", -1.0}, {"to", 3.0}}, {f.tensor()}, stream_of(1)).ok());
  CHECK(mean(f) == Approx(1).margin(0.05));
  REQUIRE(draw("aten.normal_.default", {{"self", f}, {"mean", 2.0}, {"std", 0.5}}, {f.tensor()}, stream_of(1)).ok());
  CHECK(mean(f) == Approx(2).margin(0.03));
  REQUIRE(draw("aten.exponential_.default", {{"self", f}, {"lambd", 2.0}}, {f.tensor()}, stream_of(1)).ok());
  CHECK(mean(f) == Approx(0.5).margin(0.03));
  REQUIRE(draw("aten.bernoulli_.float", {{"self", f}, {"p", 0.1}}, {f.tensor()}, stream_of(1)).ok());
  CHECK(mean(f) == Approx(0.1).margin(0.01));
  CHECK_FALSE(draw("aten.bernoulli_.float", {{"self", f}, {"p", std::nan("")}}, {f.tensor()}, stream_of(1)).ok());
  Buffer<int32_t> whole({n});
  REQUIRE(draw("aten.randint.low", {{"low", -3}, {"high", 4}}, {whole.tensor()}, stream_of(1)).ok());
  auto values = whole.values();
  CHECK(std::set<int32_t>(values.begin(), values.end()) == std::set<int32_t>{-3, -2, -1, 0, 1, 2, 3});
  CHECK_FALSE(draw("aten.randint.low", {{"low", 4}, {"high", 4}}, {whole.tensor()}, stream_of(1)).ok());
  Buffer<float> p({2, 1}, {0.0f, 1.0f}), each({2, 50});
  REQUIRE(draw("aten.bernoulli_.Tensor", {{"self", each}, {"p", p}}, {each.tensor()}, stream_of(1)).ok());
  CHECK(mean(each) == 0.5);
  CHECK(each.at(49) == 0.0f);
  CHECK(each.at(50) == 1.0f);
}

TEST_CASE("permutations and samples") {
  Buffer<int64_t> order({100});
  REQUIRE(draw("aten.randperm.default", {{"n", 100}}, {order.tensor()}, stream_of(1)).ok());
  auto values = order.values();
  CHECK(std::set<int64_t>(values.begin(), values.end()).size() == 100);
  CHECK(values[0] + values[1] + values[2] != 3);
  Buffer<float> weights({2, 4}, {0, 1, 0, 3, 1, 1, 1, 1});
  Buffer<int64_t> drawn({2, 2}), many({2, 4000});
  REQUIRE(
      draw("aten.multinomial.default", {{"self", weights}, {"num_samples", 2}}, {drawn.tensor()}, stream_of(1)).ok());
  CHECK(std::set<int64_t>{drawn.at(0), drawn.at(1)} == std::set<int64_t>{1, 3});
  CHECK(drawn.at(2) != drawn.at(3));
  REQUIRE(draw("aten.multinomial.default", {{"self", weights}, {"num_samples", 4000}, {"replacement", true}},
               {many.tensor()}, stream_of(1))
              .ok());
  int64_t threes = 0;
  for (int64_t i = 0; i < 4000; ++i) threes += many.at(i) == 3;
  CHECK(std::abs(threes - 3000) < 150);
  Buffer<int64_t> too_many({2, 3});
  CHECK_FALSE(
      draw("aten.multinomial.default", {{"self", weights}, {"num_samples", 3}}, {too_many.tensor()}, stream_of(1))
          .ok());
}
