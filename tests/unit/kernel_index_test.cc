// Gathering and scattering by indices: how the ops treat wrong indices in the data, and repeated ones.
#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "librun/cpu/stable_order.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;

namespace {

std::string message_of(const Status& s) { return s.ok() ? "ok" : s.error().message; }

}  // namespace

TEST_CASE("indices out of range are errors with value, place and size") {
  Buffer<float> table({3, 2}, {0, 1, 2, 3, 4, 5}), out({4, 2});
  Buffer<int64_t> ids({4}, {0, 2, 3, 9});
  CHECK(message_of(test::call("aten.embedding.default", {{"weight", table}, {"indices", ids}}, {out.tensor()})) ==
        "index 3 at position 2 is out of range for size 3");
  CHECK(message_of(test::call("aten.index_select.default", {{"self", table}, {"dim", 0}, {"index", ids}},
                              {out.tensor()})) == "index 3 at position 2 is out of range for size 3");
  CHECK(message_of(test::call("aten.index.Tensor", {{"self", table}, {"indices", test::tensors({ids.tensor()})}},
                              {out.tensor()})) == "index 3 at position 2 is out of range for size 3 of axis 0");
  Buffer<int64_t> low({1, 2}, {0, -1});
  Buffer<float> one({1, 2});
  CHECK(message_of(test::call("aten.gather.default", {{"self", table}, {"dim", 0}, {"index", low}}, {one.tensor()})) ==
        "index -1 at position 1 is out of range for size 3");
  CHECK(message_of(test::call("aten.scatter_add.default", {{"self", table}, {"dim", 0}, {"index", low}, {"src", one}},
                              {table.tensor()})) == "index -1 at position 1 is out of range for size 3");
  CHECK(message_of(test::call("torchtitan.deterministic_scatter_add.default",
                              {{"self", table}, {"index", low}, {"src", one}}, {table.tensor()})) ==
        "index -1 at position 1 is out of range for size 3");
}

TEST_CASE("the extremes of int64 as indices crash nothing") {
  Buffer<float> table({3, 2}), out({2, 2});
  Buffer<int64_t> ids({2}, {INT64_MIN, INT64_MAX});
  for (const char* op : {"aten.index.Tensor", "aten._unsafe_index.Tensor"})
    CHECK_FALSE(test::call(op, {{"self", table}, {"indices", test::tensors({ids.tensor()})}}, {out.tensor()}).ok());
  CHECK_FALSE(test::call("aten.take.default", {{"self", table}, {"index", ids}}, {Buffer<float>({2}).tensor()}).ok());
  CHECK_FALSE(test::call("aten.embedding_dense_backward.default",
                         {{"grad_output", out},
                          {"indices", ids},
                          {"num_weights", 3},
                          {"padding_idx", -1},
                          {"scale_grad_by_freq", false}},
                         {table.tensor()})
                  .ok());
}

TEST_CASE("no index at all is fine, even into nothing") {
  Buffer<float> table({0, 2}), out({0, 2});
  Buffer<int64_t> none({0});
  CHECK(test::call("aten.embedding.default", {{"weight", table}, {"indices", none}}, {out.tensor()}).ok());
  CHECK(test::call("aten.index.Tensor", {{"self", table}, {"indices", test::tensors({none.tensor()})}}, {out.tensor()})
            .ok());
}

TEST_CASE("of repeated places the last value wins, or all are added in order") {
  Buffer<float> self({3}, {10, 20, 30}), values({4}, {1, 2, 3, 4});
  Buffer<int64_t> at({4}, {2, 0, -1, 0});
  for (int threads : {1, 3}) {
    Buffer<float> put({3}), added({3});
    REQUIRE(test::call("aten.index_put.default",
                       {{"self", self}, {"indices", test::tensors({at.tensor()})}, {"values", values}}, {put.tensor()},
                       threads)
                .ok());
    CHECK(put.values() == std::vector<float>{4, 20, 3});
    REQUIRE(test::call(
                "aten.index_put.default",
                {{"self", self}, {"indices", test::tensors({at.tensor()})}, {"values", values}, {"accumulate", true}},
                {added.tensor()}, threads)
                .ok());
    CHECK(added.values() == std::vector<float>{16, 20, 34});
  }
}

TEST_CASE("bf16 is accumulated in float and rounded once") {
  Buffer<BF16> self({1}, {BF16(256)}), out({1});
  std::vector<BF16> ones(16, BF16(1));  // 256 + 1 is 256 in bf16
  Buffer<BF16> src({16}, ones);
  Buffer<int64_t> at({16}, std::vector<int64_t>(16, 0));
  REQUIRE(
      test::call("aten.scatter_add.default", {{"self", self}, {"dim", 0}, {"index", at}, {"src", src}}, {out.tensor()})
          .ok());
  CHECK(float(out.at(0)) == 272);
  REQUIRE(test::call("aten.index_put.default",
                     {{"self", self}, {"indices", test::tensors({at.tensor()})}, {"values", src}, {"accumulate", true}},
                     {out.tensor()})
              .ok());
  CHECK(float(out.at(0)) == 272);
}

// By sums at their places, grouped by place (many threads, or few picks of many places): the same bits.
TEST_CASE("repeated places of bf16 are added in order, whichever way") {
  test::Rng rng(9);
  auto number = [&] { return BF16(static_cast<float>(rng.below(2001)) / 64 - 16); };
  for (const auto& [places, picks] : {std::pair<int64_t, int64_t>{50, 400}, {7, 3}, {5000, 90}, {1, 300}}) {
    std::vector<int64_t> picked;
    for (int64_t i = 0; i < picks; ++i)
      picked.push_back(static_cast<int64_t>(rng.below(static_cast<uint64_t>(places))));
    Buffer<BF16> self({places}), src({picks});
    for (int64_t i = 0; i < places; ++i) self.at(i) = number();
    for (int64_t i = 0; i < picks; ++i) src.at(i) = number();
    std::vector<float> sums;
    for (int64_t i = 0; i < places; ++i) sums.push_back(float(self.at(i)));
    for (int64_t i = 0; i < picks; ++i) sums[static_cast<size_t>(picked[static_cast<size_t>(i)])] += float(src.at(i));
    Buffer<int64_t> at({picks}, picked);
    for (int threads : {1, 2, 9}) {
      Buffer<BF16> out({places});
      REQUIRE(test::call("aten.index_add.default", {{"self", self}, {"dim", 0}, {"index", at}, {"source", src}},
                         {out.tensor()}, threads)
                  .ok());
      for (int64_t i = 0; i < places; ++i) REQUIRE(float(out.at(i)) == float(BF16(sums[static_cast<size_t>(i)])));
    }
  }
}

TEST_CASE("targets of a loss are held against the classes") {
  Buffer<float> scores({2, 3}, {-1, -2, -3, -4, -5, -6}), loss(std::vector<int64_t>{}), weight(std::vector<int64_t>{});
  auto run = [&](std::vector<int64_t> targets) {
    Buffer<int64_t> target({2}, targets);
    return test::call("aten.nll_loss_forward.default",
                      {{"self", scores}, {"target", target}, {"reduction", 1}, {"ignore_index", -100}},
                      {loss.tensor(), weight.tensor()});
  };
  CHECK(message_of(run({0, 3})) == "target 3 at position 1 is out of range for 3 classes");
  CHECK(message_of(run({-1, 0})) == "target -1 at position 0 is out of range for 3 classes");
  REQUIRE(run({-100, 1}).ok());
  CHECK(loss.at(0) == 5);
  CHECK(weight.at(0) == 1);
}

TEST_CASE("assertions fail with their message") {
  Buffer<bool> flag(std::vector<int64_t>{});
  flag.at(0) = false;
  CHECK(message_of(test::call("aten._assert_async.msg", {{"self", flag}, {"assert_msg", "tokens are left over"}},
                              {})) == "assertion failed: tokens are left over");
  flag.at(0) = true;
  CHECK(test::call("aten._assert_async.msg", {{"self", flag}, {"assert_msg", "tokens are left over"}}, {}).ok());
  CHECK(message_of(test::call("aten._assert_scalar.default", {{"self", false}, {"assert_msg", "u0 < 4"}}, {})) ==
        "assertion failed: u0 < 4");
}

TEST_CASE("whole numbers are ordered stably, by however many digits") {
  test::Rng rng(9);
  for (int64_t n : {0, 1, 100, 255, 256, 3000})
    for (int bits : {1, 8, 11, 12, 33, 63, 64}) {
      std::vector<int64_t> keys, wanted, order(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        keys.push_back(static_cast<int64_t>(rng.next() >> (64 - bits)) - (bits < 64 ? 1000 : 0));
        wanted.push_back(i);
      }
      std::stable_sort(wanted.begin(), wanted.end(), [&](int64_t a, int64_t b) {
        return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
      });
      cpu::stable_order(keys.data(), n, order.data());
      REQUIRE(order == wanted);
    }
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> ascending{-inf, -1e300, -2, -1e-320, 0, 1e-320, 2, 1e300, inf, nan};
  for (size_t i = 1; i < ascending.size(); ++i) CHECK(cpu::order_key(ascending[i - 1]) < cpu::order_key(ascending[i]));
  CHECK(cpu::order_key(-0.0) == cpu::order_key(0.0));
  CHECK(cpu::order_key(-nan) == cpu::order_key(nan));
}

TEST_CASE("data that give another number of elements than the graph has are told with both, and what to do") {
  Buffer<int64_t> x({3}, {1, 0, 2}), places({1, 1});
  const Status picked = test::call("aten.nonzero.default", {{"self", x}}, {places.tensor()});
  REQUIRE(!picked.ok());
  CHECK(picked.error().message == "the data gives [2, 1] where the graph has [1, 1]");
  CHECK(picked.error().hint.find("capture again") != std::string::npos);
}
