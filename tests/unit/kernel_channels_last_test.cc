// Kernels for tensors whose channels are innermost in memory (PyTorch's channels_last) give the bits that they give for
// the same values in row-major order; and softmax over short lines those of each line as a row.
#include <catch2/catch.hpp>

#include <cstring>
#include <functional>
#include <limits>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;
using test::Rng;

namespace {

using Sizes = std::vector<int64_t>;

// [batch, channels, ..] with channels innermost.
Sizes channels_last(const Sizes& shape) {
  Sizes strides(shape.size());
  int64_t step = strides[1] = 1;
  step *= shape[1];
  for (size_t i = shape.size() - 1; i > 1; --i) strides[i] = step, step *= shape[i];
  strides[0] = step;
  return strides;
}

template <class T>
std::vector<T> random_values(Rng& rng, const Sizes& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<T> values;
  const bool wild = rng.percent(30);
  for (int64_t i = 0; i < count; ++i) {
    const auto kind = wild ? rng.below(100) : 99;
    const double value = kind == 0   ? std::numeric_limits<double>::quiet_NaN()
                         : kind == 1 ? -0.0
                         : kind == 2 ? -std::numeric_limits<double>::infinity()
                                     : static_cast<double>(rng.below(2000) - 1000) / 77;
    values.push_back(T(static_cast<Compute<T>>(value)));
  }
  return values;
}

template <class T>
bool same_bits(Buffer<T>& a, Buffer<T>& b) {
  const std::vector<T> x = a.values(), y = b.values();
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::memcmp(&x[i], &y[i], sizeof(T)) == 0) continue;
    if (x[i] == x[i] || y[i] == y[i]) return false;  // two NaNs may have different bits
  }
  return true;
}

template <class T>
struct Both {  // the same tensor in both layouts
  Buffer<T> plain, last;
  explicit Both(const Sizes& shape, const std::vector<T>& values = {})
      : plain(shape, values), last(shape, values, channels_last(shape)) {}
};

using Arguments = std::vector<test::Argument>;

// Tensor arguments by name, each in both layouts, and the others.
template <class T>
struct LayoutCall {
  std::string op;
  Arguments others;
  std::vector<std::pair<std::string_view, Both<T>*>> inputs;
  Both<T>* result;
  Both<int64_t>*places = nullptr, *indices = nullptr;

  void run(bool last, int threads) const {
    Arguments all = others;
    auto pick = [&](auto& both, bool inner) { return (inner ? both.last : both.plain).tensor(); };
    for (auto [name, both] : inputs) all.push_back({name, pick(*both, last)});
    if (indices) all.push_back({"indices", pick(*indices, last)});
    std::vector<Tensor> results{pick(*result, last)};
    if (places) results.push_back(pick(*places, last));
    REQUIRE(test::call(op, all, results, threads).ok());
  }
  void check(int threads) const {
    CAPTURE(op, threads, std::vector(result->plain.tensor().sizes().begin(), result->plain.tensor().sizes().end()));
    run(false, 1), run(true, threads);
    CHECK(same_bits(result->plain, result->last));
    if (places) CHECK(same_bits(places->plain, places->last));
  }
};

struct PoolSizes {
  Sizes in, out, kernel, stride, padding, dilation;
};

// Of pools over `axes` axes; windows may extend past the end (ceil_mode).
PoolSizes random_pool(Rng& rng, int axes, bool dilated) {
  constexpr int64_t kChannels[] = {8, 16, 19, 32, 33, 64, 70};
  PoolSizes g;
  g.in = g.out = {static_cast<int64_t>(rng.below(3)), kChannels[rng.below(std::size(kChannels))]};
  for (int k = 0; k < axes; ++k) {
    const int64_t kernel = 1 + rng.below(3), stride = 1 + rng.below(3), dilation = dilated ? 1 + rng.below(2) : 1;
    const int64_t padding = rng.below(kernel / 2 + 1), size = 4 + rng.below(9);
    const int64_t room = size + 2 * padding - (kernel - 1) * dilation - 1;
    int64_t out = room / stride + 1 + (room % stride != 0 && rng.below(2));
    if ((out - 1) * stride >= size + padding) --out;
    g.in.push_back(size), g.out.push_back(out);
    g.kernel.push_back(kernel), g.stride.push_back(stride);
    g.padding.push_back(padding), g.dilation.push_back(dilation);
  }
  return g;
}

template <class T>
void check_pools(Rng& rng) {
  const int axes = 2 + static_cast<int>(rng.below(2)), threads = 1 + static_cast<int>(rng.below(2));
  const std::string d = std::to_string(axes) + "d";
  const PoolSizes m = random_pool(rng, axes, true), a = random_pool(rng, axes, false);
  auto windows = [&](const PoolSizes& g) {
    return Arguments{
        {"kernel_size", test::ints(g.kernel)}, {"stride", test::ints(g.stride)}, {"padding", test::ints(g.padding)}};
  };
  Both<T> x(m.in, random_values<T>(rng, m.in)), y(m.out), grad(m.out, random_values<T>(rng, m.out)), to(m.in);
  Both<int64_t> places(m.out);
  Arguments args = windows(m);
  args.push_back({"dilation", test::ints(m.dilation)});
  LayoutCall<T>{"aten.max_pool" + d + "_with_indices.default", args, {{"self", &x}}, &y, &places}.check(threads);
  LayoutCall<T>{"aten.max_pool" + d + "_with_indices_backward.default",
                args,
                {{"self", &x}, {"grad_output", &grad}},
                &to,
                nullptr,
                &places}
      .check(threads);

  Both<T> ax(a.in, random_values<T>(rng, a.in)), ay(a.out), ag(a.out, random_values<T>(rng, a.out)), ato(a.in);
  args = windows(a);
  args.push_back({"count_include_pad", rng.below(2) == 0});
  if (rng.below(3) == 0) args.push_back({"divisor_override", 5});
  LayoutCall<T>{"aten.avg_pool" + d + ".default", args, {{"self", &ax}}, &ay}.check(threads);
  LayoutCall<T>{"aten.avg_pool" + d + "_backward.default", args, {{"self", &ax}, {"grad_output", &ag}}, &ato}.check(
      threads);
}

template <class T>
void check_resampling(Rng& rng) {
  const PoolSizes g = random_pool(rng, 2, false);
  const int threads = 1 + static_cast<int>(rng.below(2));
  Sizes large = g.in, padded = g.in;
  for (size_t k : {2, 3}) large[k] = 1 + rng.below(3 * g.in[k]), padded[k] += 1 + 3;
  Both<T> x(g.in, random_values<T>(rng, g.in)), y(large), p(padded), to(g.in);
  Both<T> grad(large, random_values<T>(rng, large)), of_padded(padded, random_values<T>(rng, padded));
  const test::Argument size{"output_size", test::ints({large[2], large[3]})}, in{"input_size", test::ints(g.in)},
      padding{"padding", test::ints({1, 3, 3, 1})}, aligned{"align_corners", rng.below(2) == 0};
  LayoutCall<T>{"aten.upsample_nearest2d.default", {size}, {{"self", &x}}, &y}.check(threads);
  LayoutCall<T>{"aten.upsample_bilinear2d.default", {size, aligned}, {{"self", &x}}, &y}.check(threads);
  LayoutCall<T>{"aten.upsample_bicubic2d.default", {size, aligned}, {{"self", &x}}, &y}.check(threads);
  LayoutCall<T>{"aten.upsample_nearest2d_backward.default", {size, in}, {{"grad_output", &grad}}, &to}.check(threads);
  LayoutCall<T>{"aten.upsample_bilinear2d_backward.default", {size, in, aligned}, {{"grad_output", &grad}}, &to}.check(
      threads);
  for (const std::string name : {"reflection", "replication"}) {
    LayoutCall<T>{"aten." + name + "_pad2d.default", {padding}, {{"self", &x}}, &p}.check(threads);
    LayoutCall<T>{
        "aten." + name + "_pad2d_backward.default", {padding}, {{"self", &x}, {"grad_output", &of_padded}}, &to}
        .check(threads);
  }
  LayoutCall<T>{"aten.constant_pad_nd.default", {{"pad", test::ints({1, 3, 3, 1})}, {"value", 1.5}}, {{"self", &x}}, &p}
      .check(threads);
}

template <class T>
void check_softmax(Rng& rng) {
  const PoolSizes g = random_pool(rng, 2, false);
  const int threads = 1 + static_cast<int>(rng.below(2));
  Both<T> x(g.in, random_values<T>(rng, g.in)), grad(g.in, random_values<T>(rng, g.in)), y(g.in), to(g.in);
  for (const std::string name : {"aten._softmax", "aten._log_softmax"}) {
    const test::Argument dim{"dim", 1}, half{"half_to_float", false};
    LayoutCall<T>{name + ".default", {dim, half}, {{"self", &x}}, &y}.check(threads);
    LayoutCall<T>{name + "_backward_data.default", {dim}, {{"grad_output", &grad}, {"output", &y}}, &to}.check(threads);
  }
}

// Norms: tensors of the input's shape in both layouts, numbers by channel or by group in one.
template <class T>
struct NormCall {
  std::string op;
  Arguments others;
  std::vector<std::pair<std::string_view, Both<T>*>> inputs;
  Both<T>* result;
  Sizes numbers;  // shape of the other two results

  void check(int threads) const {
    CAPTURE(op, threads, std::vector(result->plain.tensor().sizes().begin(), result->plain.tensor().sizes().end()));
    std::vector<Buffer<T>> all;
    for (bool last : {false, true}) {
      Arguments args = others;
      for (auto [name, both] : inputs) args.push_back({name, (last ? both->last : both->plain).tensor()});
      for (int i = 0; i < 2; ++i) all.emplace_back(numbers);
      std::vector<Tensor> results{(last ? result->last : result->plain).tensor(), all[all.size() - 2].tensor(),
                                  all.back().tensor()};
      REQUIRE(test::call(op, args, results, last ? threads : 1).ok());
    }
    CHECK(same_bits(result->plain, result->last));
    CHECK(same_bits(all[0], all[2]));
    CHECK(same_bits(all[1], all[3]));
  }
};

template <class T>
void check_norms(Rng& rng) {
  const int64_t groups = 1 + static_cast<int64_t>(rng.below(6)), channels = 8 / groups + 1 + rng.below(9),
                all = groups * channels, side = rng.percent(30) ? 24 : 2 + rng.below(9);
  const int threads = 1 + static_cast<int>(rng.below(2));
  const Sizes shape{1 + static_cast<int64_t>(rng.below(3)), all, side, side + 1}, of_groups{shape[0], groups};
  Both<T> x(shape, random_values<T>(rng, shape)), grad(shape, random_values<T>(rng, shape)), y(shape), to(shape);
  auto numbers = [&](const Sizes& sizes) {
    Buffer<T> buffer(sizes);
    for (int64_t i = 0; i < buffer.tensor().elements(); ++i)
      buffer.at(i) = T(static_cast<float>(1 + rng.below(99)) / 9);
    return buffer;
  };
  Buffer<T> weight = numbers({all}), bias = numbers({all}), mean = numbers({all}), rstd = numbers({all}),
            group_mean = numbers(of_groups), group_rstd = numbers(of_groups);
  Arguments scales;
  if (rng.percent(70)) scales = {{"weight", weight}, {"bias", bias}};
  auto with = [&](Arguments args) {
    args.insert(args.end(), scales.begin(), scales.end());
    return args;
  };
  const Arguments sizes{{"N", shape[0]}, {"C", all}, {"HxW", side * (side + 1)}, {"group", groups}};
  Arguments forward = with(sizes);
  forward.push_back({"eps", 1e-5});
  NormCall<T>{"aten.native_group_norm.default", forward, {{"input", &x}}, &y, of_groups}.check(threads);
  if (!scales.empty()) scales.pop_back();  // gradients do not take the bias
  Arguments backward = with(sizes);
  backward.insert(backward.end(), {{"mean", group_mean}, {"rstd", group_rstd}});
  NormCall<T>{"aten.native_group_norm_backward.default", backward, {{"input", &x}, {"grad_out", &grad}}, &to, {all}}
      .check(threads);
  for (bool training : {false, true}) {
    const Arguments statistics{{"running_mean", mean}, {"running_var", rstd}, {"eps", 1e-5}};
    Arguments args = statistics;
    if (!scales.empty()) args.insert(args.end(), {{"weight", weight}, {"bias", bias}});
    if (training) args.erase(args.begin(), args.begin() + 2);
    args.insert(args.end(), {{"training", training}, {"momentum", 0.1}});
    NormCall<T>{"aten.native_batch_norm.default", args, {{"input", &x}}, &y, {training ? all : 0}}.check(threads);
    args = with(statistics);
    args.insert(args.end(), {{"save_mean", mean}, {"save_invstd", rstd}, {"train", training}});
    NormCall<T>{"aten.native_batch_norm_backward.default", args, {{"input", &x}, {"grad_out", &grad}}, &to, {all}}
        .check(threads);
  }
}

template <class Fn>
void for_all_floats(int times, const Fn& fn) {
  Rng rng(5);
  for (int i = 0; i < times; ++i) {
    fn.template operator()<float>(rng);
    fn.template operator()<double>(rng);
    fn.template operator()<BF16>(rng);
    fn.template operator()<F16>(rng);
  }
}

// [outer, length, inner] along the middle axis, and the same lines as rows with gaps, which are taken one by one.
template <class T>
void check_short_lines(Rng& rng) {
  const int64_t outer = rng.between(1, 70), length = rng.between(1, 40), inner = rng.between(1, 20), gap = length + 3;
  const Sizes lines{outer, length, inner}, rows{outer, inner, length}, strides{inner * gap, gap, 1};
  Buffer<T> x(lines, random_values<T>(rng, lines)), grad(lines, random_values<T>(rng, lines)), y(lines), to(lines);
  Buffer<T> row_y(rows, {}, strides), row_grad(rows, {}, strides), row_to(rows, {}, strides), row_x(rows, {}, strides);
  auto each = [&](const auto& copy) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < length; ++i)
        for (int64_t j = 0; j < inner; ++j) copy((o * length + i) * inner + j, (o * inner + j) * length + i);
  };
  each([&](int64_t at, int64_t row) { row_x.at(row) = x.at(at), row_grad.at(row) = grad.at(at); });
  const int threads = static_cast<int>(rng.between(1, 2));
  for (const std::string op : {"aten._softmax", "aten._log_softmax"}) {
    const std::string backward = op + "_backward_data.default";
    REQUIRE(
        test::call(op + ".default", {{"self", x}, {"dim", 1}, {"half_to_float", false}}, {y.tensor()}, threads).ok());
    REQUIRE(
        test::call(op + ".default", {{"self", row_x}, {"dim", 2}, {"half_to_float", false}}, {row_y.tensor()}).ok());
    REQUIRE(test::call(backward, {{"grad_output", grad}, {"output", y}, {"dim", 1}}, {to.tensor()}, threads).ok());
    REQUIRE(test::call(backward, {{"grad_output", row_grad}, {"output", row_y}, {"dim", 2}}, {row_to.tensor()}).ok());
    Buffer<T> expected_y(lines), expected_to(lines);
    each([&](int64_t at, int64_t row) { expected_y.at(at) = row_y.at(row), expected_to.at(at) = row_to.at(row); });
    CAPTURE(op, outer, length, inner, threads);
    REQUIRE(same_bits(y, expected_y));
    REQUIRE(same_bits(to, expected_to));
  }
}

}  // namespace

TEST_CASE("softmax over short lines of few side by side is that of rows") {
  for_all_floats(40, []<class T>(Rng& rng) { check_short_lines<T>(rng); });
}

TEST_CASE("pools by channels are those of planes") {
  for_all_floats(25, []<class T>(Rng& rng) { check_pools<T>(rng); });
}

TEST_CASE("resampling by channels is that of planes") {
  for_all_floats(25, []<class T>(Rng& rng) { check_resampling<T>(rng); });
}

TEST_CASE("softmax over innermost channels is that over an outer axis") {
  for_all_floats(25, []<class T>(Rng& rng) { check_softmax<T>(rng); });
}

TEST_CASE("norms by channels are those of planes") {
  for_all_floats(25, []<class T>(Rng& rng) { check_norms<T>(rng); });
}

TEST_CASE("a pool by channels refuses indices beyond the plane") {
  Both<float> x({1, 8, 2, 2}), grad({1, 8, 1, 1}), to({1, 8, 2, 2});
  Both<int64_t> at({1, 8, 1, 1});
  at.last.at(3) = 4;
  Arguments args{{"grad_output", grad.last.tensor()},
                 {"self", x.last.tensor()},
                 {"kernel_size", test::ints({2, 2})},
                 {"indices", at.last.tensor()}};
  CHECK_FALSE(test::call("aten.max_pool2d_with_indices_backward.default", args, {to.last.tensor()}, 2).ok());
}

TEST_CASE("tensors with innermost channels are filled and concatenated") {
  Rng rng(6);
  const Sizes shape{2, 9, 3, 5}, whole{2, 18, 3, 5};
  Both<float> x(shape, random_values<float>(rng, shape)), y(shape, random_values<float>(rng, shape)), out(whole);
  for (bool last : {false, true}) {
    auto pick = [&](auto& both) { return (last ? both.last : both.plain).tensor(); };
    Arguments args{{"tensors", test::tensors({pick(x), pick(y)})}, {"dim", 1}};
    REQUIRE(test::call("aten.cat.default", args, {pick(out)}, 2).ok());
  }
  CHECK(same_bits(out.plain, out.last));
}
