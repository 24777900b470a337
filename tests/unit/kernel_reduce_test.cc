// Reductions and scans against naive definitions, over random shapes and strides.
#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;

namespace {

// A random shape, with strides from a random order of the axes, gaps included.
struct Layout {
  std::vector<int64_t> shape, stride;
};

Layout random_layout(test::Rng& rng) {
  Layout l;
  auto rank = rng.below(4) + 1;
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < rank; ++i) l.shape.push_back(static_cast<int64_t>(rng.below(8) == 0 ? 0 : rng.below(30) + 1));
  for (size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  l.stride.resize(rank);
  int64_t step = static_cast<int64_t>(rng.below(2)) + 1;
  for (size_t axis : order) {
    l.stride[axis] = step;
    step *= std::max<int64_t>(l.shape[axis], 1) + static_cast<int64_t>(rng.below(2));
  }
  return l;
}

int64_t count_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The index of the output that element `i` of `shape` is reduced into along `axis`.
int64_t output_of(const std::vector<int64_t>& shape, size_t axis, int64_t i) {
  int64_t inner = count_of({shape.begin() + static_cast<ptrdiff_t>(axis) + 1, shape.end()});
  return i / (inner * shape[axis]) * inner + i % inner;
}

template <class T>
void fill_random(test::Rng& rng, Buffer<T>& b) {
  for (int64_t i = 0; i < b.tensor().elements(); ++i)
    b.at(i) = static_cast<T>(static_cast<float>(rng.below(2001)) / 100.0f - 10.0f);
}

}  // namespace

TEST_CASE("sums over any axis of any layout are those of a plain loop") {
  test::Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    Layout l = random_layout(rng);
    Buffer<float> in(l.shape, {}, l.stride, 3);
    fill_random(rng, in);
    size_t axis = rng.below(l.shape.size());
    std::vector<int64_t> kept = l.shape;
    kept.erase(kept.begin() + static_cast<ptrdiff_t>(axis));
    std::vector<double> naive(static_cast<size_t>(count_of(kept)), 0.0);
    for (int64_t i = 0; i < in.tensor().elements(); ++i)
      naive[static_cast<size_t>(output_of(l.shape, axis, i))] += static_cast<double>(in.at(i));
    std::vector<float> expected(naive.begin(), naive.end());
    for (int threads : {1, 3}) {
      Buffer<float> out(kept);
      REQUIRE(test::call("aten.sum.dim_IntList", {{"self", in}, {"dim", test::ints({static_cast<int64_t>(axis)})}},
                         {out.tensor()}, threads)
                  .ok());
      REQUIRE(out.values() == expected);
    }
  }
}

TEST_CASE("a long sum has the same bits whatever the threads, and hardly any error") {
  int64_t n = 300'001;
  Buffer<float> in({n}), out(std::vector<int64_t>{});
  for (int64_t i = 0; i < n; ++i) in.at(i) = 0.1f;
  for (int threads : {1, 2, 4}) {
    REQUIRE(test::call("aten.sum.default", {{"self", in}}, {out.tensor()}, threads).ok());
    CHECK(out.at(0) == static_cast<float>(static_cast<double>(0.1f) * static_cast<double>(n)));
  }
}

TEST_CASE("reductions of nothing") {
  Buffer<float> in({0, 2}), out({2});
  auto along = [&](const char* op) { return test::call(op, {{"self", in}, {"dim", test::ints({0})}}, {out.tensor()}); };
  REQUIRE(along("aten.sum.dim_IntList").ok());
  CHECK(out.values() == std::vector<float>{0, 0});
  REQUIRE(along("aten.mean.dim").ok());
  CHECK(std::isnan(out.at(0)));
  CHECK_FALSE(along("aten.amax.default").ok());
  REQUIRE(along("aten.logsumexp.default").ok());
  CHECK(out.at(1) == -INFINITY);
}

TEST_CASE("the first of equals is the largest, a NaN before all") {
  Buffer<float> in({2, 4}, {1, 3, 3, 2, 5, NAN, 7, NAN}), values({2});
  Buffer<int64_t> at({2});
  REQUIRE(test::call("aten.max.dim", {{"self", in}, {"dim", 1}}, {values.tensor(), at.tensor()}).ok());
  CHECK(at.values() == std::vector<int64_t>{1, 1});
  CHECK(values.at(0) == 3);
  CHECK(std::isnan(values.at(1)));
}

TEST_CASE("integers wrap, bools count") {
  Buffer<int64_t> in({2}, {INT64_MAX, 1}), out(std::vector<int64_t>{});
  REQUIRE(test::call("aten.sum.default", {{"self", in}}, {out.tensor()}).ok());
  CHECK(out.at(0) == INT64_MIN);
  Buffer<bool> flags({5}, {true, false, true, true, false});
  REQUIRE(test::call("aten.sum.default", {{"self", flags}}, {out.tensor()}).ok());
  CHECK(out.at(0) == 3);
}

TEST_CASE("running sums of long rows do not depend on how they are cut") {
  int64_t n = 40'000;
  Buffer<float> in({2, n}), one({2, n}), four({2, n});
  test::Rng rng(3);
  fill_random(rng, in);
  REQUIRE(test::call("aten.cumsum.default", {{"self", in}, {"dim", 1}}, {one.tensor()}, 1).ok());
  REQUIRE(test::call("aten.cumsum.default", {{"self", in}, {"dim", 1}}, {four.tensor()}, 4).ok());
  CHECK(one.values() == four.values());
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(in.at(i));
    REQUIRE(one.at(i) == Approx(sum).epsilon(1e-6).margin(1e-4));
  }
}

TEST_CASE("softmax: rows that are masked out, and rows with infinities") {
  Buffer<float> in({3, 2}, {-INFINITY, -INFINITY, 0, -INFINITY, 1000, 1000}), out({3, 2});
  REQUIRE(test::call("aten._safe_softmax.default", {{"self", in}, {"dim", 1}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<float>{0, 0, 1, 0, 0.5f, 0.5f});
  REQUIRE(
      test::call("aten._softmax.default", {{"self", in}, {"dim", 1}, {"half_to_float", false}}, {out.tensor()}).ok());
  CHECK(std::isnan(out.at(0)));
  CHECK(out.at(4) == 0.5f);
}

TEST_CASE("a row's softmax does not depend on the rows beside it") {
  test::Rng rng(5);
  Buffer<float> in({64, 301}), all({64, 301}), one({1, 301});
  fill_random(rng, in);
  REQUIRE(
      test::call("aten._log_softmax.default", {{"self", in}, {"dim", -1}, {"half_to_float", false}}, {all.tensor()}, 2)
          .ok());
  Tensor row = in.tensor();
  row.data += 17 * 301 * 4;
  row.shape[0] = 1;
  REQUIRE(
      test::call("aten._log_softmax.default", {{"self", row}, {"dim", -1}, {"half_to_float", false}}, {one.tensor()})
          .ok());
  for (int64_t i = 0; i < 301; ++i) REQUIRE(one.at(i) == all.at(17 * 301 + i));
}

// The op along axis 1 of [outer, length, inner], and along the last axis of the same values transposed: the same bits.
template <class T>
void check_lines(std::string_view op, bool gradient, int64_t length, int64_t inner, int threads) {
  CAPTURE(op, length, inner, threads);
  const int64_t outer = 2;
  test::Rng rng(5);
  Buffer<T> x({outer, length, inner}), y({outer, length, inner}), out({outer, length, inner});
  Buffer<T> rows_x({outer, inner, length}), rows_y({outer, inner, length}), rows_out({outer, inner, length});
  for (int64_t i = 0; i < outer * length * inner; ++i) {
    const int64_t turned = (i / (length * inner) * inner + i % inner) * length + i / inner % length;
    x.at(i) = rows_x.at(turned) = T(static_cast<float>(rng.below(2000)) / 100 - 10);
    y.at(i) = rows_y.at(turned) = T(static_cast<float>(rng.below(1000)) / 1000);
  }
  auto run = [&](const Tensor& a, const Tensor& b, int axis, const Tensor& to) {
    std::vector<test::Argument> args{{gradient ? "grad_output" : "self", a}, {"dim", axis}};
    if (gradient) args.emplace_back("output", b);
    else args.emplace_back("half_to_float", false);
    REQUIRE(test::call(op, args, {to}, threads).ok());
  };
  run(x.tensor(), y.tensor(), 1, out.tensor());
  run(rows_x.tensor(), rows_y.tensor(), 2, rows_out.tensor());
  for (int64_t i = 0; i < outer * length * inner; ++i) {
    const int64_t turned = (i / (length * inner) * inner + i % inner) * length + i / inner % length;
    REQUIRE(static_cast<float>(out.at(i)) == static_cast<float>(rows_out.at(turned)));
  }
}

// Short rows that are adjacent are computed side by side, others one by one: the same bits.
TEST_CASE("softmax of short rows has the bits of a row by itself") {
  test::Rng rng(7);
  for (int64_t length : {1, 10, 16, 33, 63})
    for (std::string_view op : {"aten._softmax.default", "aten._log_softmax.default"}) {
      CAPTURE(op, length);
      const int64_t rows = 70, step = 64;
      Buffer<float> dense({rows, length}), wide({rows, step}), together({rows, length}), alone({rows, length});
      for (int64_t i = 0; i < rows * length; ++i)
        dense.at(i) = wide.at(i / length * step + i % length) = static_cast<float>(rng.below(2000)) / 100 - 10;
      Tensor apart = wide.tensor();
      apart.shape[1] = length;
      auto run = [&](const Tensor& in, const Tensor& to) {
        REQUIRE(test::call(op, {{"self", in}, {"dim", 1}, {"half_to_float", false}}, {to}).ok());
      };
      run(dense.tensor(), together.tensor());
      run(apart, alone.tensor());
      REQUIRE(together.values() == alone.values());
    }
}

TEST_CASE("softmax along an axis in the middle has the bits of softmax along rows") {
  for (auto [length, inner] : {std::pair<int64_t, int64_t>{37, 50}, {16, 32}, {1, 9}, {5000, 17}})
    for (std::string_view op : {"aten._softmax.default", "aten._log_softmax.default"}) {
      check_lines<float>(op, false, length, inner, 2);
      check_lines<BF16>(op, false, length, inner, 1);
      check_lines<double>(op, false, length, inner, 1);
    }
  for (std::string_view op : {"aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"}) {
    check_lines<float>(op, true, 37, 50, 2);
    check_lines<BF16>(op, true, 70, 33, 1);
  }
}

TEST_CASE("a histogram with bounds from the data fails wherever a NaN stands, and passes over it with bounds given") {
  const float nan = std::nanf("");
  for (int64_t at = 0; at < 4; ++at) {
    CAPTURE(at);
    Buffer<float> x({4}, {1, 2, 3, 3}), counts({2});
    x.at(at) = nan;
    auto count = [&](double low, double high) {
      return test::call("aten.histc.default", {{"self", x}, {"bins", 2}, {"min", low}, {"max", high}},
                        {counts.tensor()});
    };
    const Status of_data = count(0, 0);
    REQUIRE(!of_data.ok());
    CHECK(of_data.error().message.find("needs finite bounds") != std::string::npos);
    REQUIRE(count(0.5, 3.5).ok());
    CHECK(counts.at(0) + counts.at(1) == 3);
  }
}
