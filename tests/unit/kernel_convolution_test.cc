#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include "librun/cpu/gemm_tile.h"
#include "tests/support/convolutions.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using namespace sg::cpu;
using test::Buffer;
using test::Rng;
using test::with_spatial;
using Shape = test::Convolution;

namespace {

template <class T>
void check(Rng& rng, const Shape& s, int threads, double tolerance) {
  CAPTURE(s.spatial, s.batch, s.groups, s.in_channels, s.out_channels, s.in, s.window, s.stride, s.padding, s.dilation,
          s.output_padding, s.transposed);
  int64_t in = s.groups * s.in_channels, out = s.groups * s.out_channels;
  std::vector<double> x, w, b, dy;
  Buffer<T> input = test::image<T>(rng, with_spatial(s.batch, in, s.in), rng.below(2), &x);
  Buffer<T> weight = test::image<T>(
      rng, s.transposed ? with_spatial(in, s.out_channels, s.window) : with_spatial(out, s.in_channels, s.window),
      rng.below(2), &w);
  Buffer<T> bias = test::image<T>(rng, {out, 1}, false, &b),
            grad = test::image<T>(rng, with_spatial(s.batch, out, s.out()), rng.below(2), &dy);
  Tensor flat_bias = drop_axis(bias.tensor(), 1);
  std::vector<double> y(dy.size()), dx(x.size()), dw(w.size()), db(b.size());
  for (size_t i = 0; i < y.size(); ++i) {
    size_t channel = i / static_cast<size_t>(test::product(s.out())) % static_cast<size_t>(out);
    y[i] = b[channel];
    db[channel] += dy[i];
  }
  test::for_products(s, [&](size_t i, size_t j, size_t k) {
    y[k] += x[i] * w[j];
    dx[i] += dy[k] * w[j];
    dw[j] += dy[k] * x[i];
  });
  std::vector<test::Argument> args = test::arguments_of(s, input, weight);
  Buffer<T> result(with_spatial(s.batch, out, s.out()));
  std::vector<test::Argument> forward = args;
  forward.emplace_back("bias", flat_bias);
  REQUIRE(test::call("aten.convolution.default", forward, {result.tensor()}, threads).ok());
  CHECK(relative_error(result, y, 1) < tolerance);
  std::vector<double> unused;
  Buffer<T> grad_in = test::image<T>(rng, with_spatial(s.batch, in, s.in), rng.below(2), &unused);
  std::vector<int64_t> weight_shape(weight.tensor().sizes().begin(), weight.tensor().sizes().end());
  Buffer<T> grad_weight = test::image<T>(rng, weight_shape, rng.below(2), &unused);
  Buffer<T> grad_bias({out});
  args.insert(args.end(),
              {{"grad_output", grad}, {"bias_sizes", test::ints({out})}, {"output_mask", test::ints({1, 1, 1})}});
  REQUIRE(test::call("aten.convolution_backward.default", args,
                     {grad_in.tensor(), grad_weight.tensor(), grad_bias.tensor()}, threads)
              .ok());
  CHECK(relative_error(grad_in, dx, 1) < tolerance);
  CHECK(relative_error(grad_weight, dw, 1) < tolerance);
  CHECK(relative_error(grad_bias, db, 1) < tolerance);
}

}  // namespace

TEST_CASE("convolution: any geometry, forward and backward, transposed too") {
  Rng rng(1);
  for (int i = 0; i < 40; ++i) {
    Shape s = test::random_shape(rng);
    check<float>(rng, s, 1 + i % 4, 3e-6);
    check<double>(rng, s, 1 + i % 3, 1e-14);
    check<BF16>(rng, s, 2, 8e-3);
  }
}

TEST_CASE("convolution: channels by themselves") {
  Rng rng(4);
  for (int i = 0; i < 40; ++i) {
    Shape s = test::random_shape(rng);
    (s.transposed ? s.out_channels : s.in_channels) = 1;
    if (i % 4 == 0) s.groups = rng.between(15, 40);  // 16 are computed together
    check<float>(rng, s, 1 + i % 4, 3e-6);
    check<double>(rng, s, 1 + i % 3, 1e-14);
    check<BF16>(rng, s, 2, 8e-3);
  }
  check<float>(rng, {2, 2, 3, 1, 1, {1, 9}, {3, 3}, {9, 2}, {1, 1}, {1, 1}, {0, 0}, false}, 2,
               3e-6);  // one place of a stride
}

// Short lines are computed all at once, with the gaps between them: an infinity there must not reach other elements.
TEST_CASE("convolution: channels by themselves, an infinity reaches what PyTorch says it does") {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(2 * 4 * 4), w(9, 1), dy(2 * 4 * 4, 1);
  x[3] = inf;  // the end of entry 0's first line; only the window's last column reaches it from the left
  w[2] = inf;  // above and to the right
  auto tensor = [](std::vector<float>& v, std::initializer_list<int64_t> shape) {
    return make_tensor(reinterpret_cast<std::byte*>(v.data()), DType::f32, std::vector<int64_t>(shape));
  };
  std::vector<float> dx(32), dw(9);
  Tensor grad_bias;
  std::vector<test::Argument> args{{"input", tensor(x, {2, 1, 4, 4})},
                                   {"weight", tensor(w, {1, 1, 3, 3})},
                                   {"grad_output", tensor(dy, {2, 1, 4, 4})},
                                   {"bias_sizes", test::ints({1})},
                                   {"stride", test::ints({1, 1})},
                                   {"padding", test::ints({1, 1})},
                                   {"dilation", test::ints({1, 1})},
                                   {"transposed", false},
                                   {"output_padding", test::ints({0, 0})},
                                   {"groups", 1},
                                   {"output_mask", test::ints({1, 1, 0})}};
  REQUIRE(test::call("aten.convolution_backward.default", args,
                     {tensor(dx, {2, 1, 4, 4}), tensor(dw, {1, 1, 3, 3}), grad_bias}, 1)
              .ok());
  // dw: the first column sees x one place to the left, and no place is right of the infinity; the last row never sees
  // line 0.
  for (size_t k = 0; k < 9; ++k) CHECK(std::isinf(dw[k]) == (k % 3 != 0 && k / 3 != 2));
  // dx: the weight's last column reaches all but the first place of a line, its first row all but the last line.
  for (size_t i = 0; i < 32; ++i) CHECK(std::isinf(dx[i]) == (i % 4 != 0 && i / 4 % 4 != 3));
}

TEST_CASE("convolution: many channels and places") {
  Rng rng(2);
  check<float>(rng, {2, 1, 1, 60, 120, {20, 21}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false}, 2, 3e-6);
  check<float>(rng, {1, 1, 1, 40, 260, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true}, 2, 3e-6);
}

TEST_CASE("convolution: strides beyond the window, taps far apart, entries of few places") {
  Rng rng(5);
  for (bool transposed : {false, true}) {
    check<float>(rng, {2, 2, 1, 3, 20, {9, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 0}, transposed}, 2, 3e-6);
    check<float>(rng, {2, 2, 2, 3, 5, {9, 11}, {1, 2}, {3, 4}, {0, 1}, {1, 1}, {0, 0}, transposed}, 2, 3e-6);
    check<float>(rng, {2, 1, 1, 3, 4, {40, 30}, {2, 3}, {1, 1}, {20, 19}, {37, 18}, {0, 0}, transposed}, 3, 3e-6);
    check<float>(rng, {2, 1, 1, 2, 3, {4, 3}, {2, 2}, {1, 2}, {30, 21}, {60, 40}, {0, 0}, false}, 1, 3e-6);
    check<float>(rng, {2, 9, 1, 20, 40, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, transposed}, 3, 3e-6);
    check<float>(rng, {1, 33, 1, 12, 9, {1}, {1}, {1}, {0}, {1}, {0}, transposed}, 2, 3e-6);
    check<float>(rng, {3, 1, 1, 5, 7, {7, 9, 40}, {3, 1, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, {0, 0, 0}, transposed}, 2,
                 3e-6);
  }
}

// The input's gradient adds up what each place gives: also in several rounds of entries, and over elements unseen.
TEST_CASE("convolution: windows about as large as the input") {
  Rng rng(8);
  for (bool transposed : {false, true}) {
    check<float>(rng, {2, 3, 1, 2, 30, {11, 40}, {3, 40}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, transposed}, 3, 3e-6);
    check<float>(rng, {2, 4, 2, 5, 21, {9, 8}, {7, 5}, {2, 1}, {1, 3}, {1, 2}, {0, 0}, transposed}, 2, 3e-6);
    check<double>(rng, {1, 5, 1, 3, 20, {70}, {61}, {1}, {5}, {1}, {0}, transposed}, 2, 1e-14);
    check<BF16>(rng, {2, 6, 1, 7, 33, {6, 6}, {6, 6}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, transposed}, 2, 8e-3);
    check<float>(rng, {3, 2, 1, 4, 25, {4, 5, 6}, {3, 4, 5}, {1, 2, 1}, {0, 1, 0}, {1, 1, 1}, {0, 0, 0}, transposed}, 2,
                 3e-6);
  }
  check<float>(rng, {2, 3, 1, 1, 20, {400, 260}, {40, 260}, {3, 1}, {0, 0}, {1, 1}, {0, 0}, false}, 2, 3e-6);
}

// Many channels and short lines: computed as rows of a product.
TEST_CASE("convolution: small planes of many channels") {
  Rng rng(7);
  for (bool transposed : {false, true}) {
    check<float>(rng, {2, 9, 1, 48, 64, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, transposed}, 3, 3e-6);
    check<float>(rng, {2, 5, 1, 40, 70, {6, 5}, {3, 2}, {2, 3}, {1, 0}, {1, 2}, {0, 0}, transposed}, 2, 3e-6);
    check<double>(rng, {2, 3, 2, 64, 33, {4, 4}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 0}, transposed}, 3, 1e-14);
    check<float>(rng, {2, 37, 1, 90, 97, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, transposed}, 2, 3e-6);
    check<BF16>(rng, {1, 20, 1, 33, 65, {7}, {3}, {1}, {1}, {1}, {0}, transposed}, 2, 8e-3);
    check<float>(rng, {3, 2, 1, 34, 80, {2, 3, 4}, {2, 1, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, {0, 0, 0}, transposed},
                 2, 3e-6);
  }
  check<float>(rng, {2, 150, 1, 70, 66, {3, 2}, {2, 2}, {1, 1}, {1, 0}, {1, 1}, {0, 0}, false}, 2,
               3e-6);  // blocks of places
}

// The elements of b whose index along the axis is below `count`.
template <class T>
std::vector<T> first_of(Buffer<T>& b, int axis, int64_t count) {
  int64_t step = 1;
  for (int d = axis + 1; d < b.tensor().rank; ++d) step *= b.tensor().dim(d);
  std::vector<T> out;
  for (int64_t i = 0; i < b.tensor().elements(); ++i)
    if (i / step % b.tensor().dim(axis) < count) out.push_back(b.at(i));
  return out;
}

Tensor first_of(Tensor t, size_t axis, int64_t count) {
  t.shape[axis] = count;
  return t;
}

template <class T>
struct Results {
  Buffer<T> y, dx, dw;
};

// A 3 x 3 convolution from the first channels of the input to the first channels of the output.
template <class T>
Results<T> convolve(Buffer<T>& x, Buffer<T>& w, Buffer<T>& dy, int64_t stride, int64_t in, int64_t out, int threads) {
  auto sizes = [](const Tensor& t) { return std::vector<int64_t>(t.sizes().begin(), t.sizes().end()); };
  const Tensor input = first_of(x.tensor(), 1, in), grad = first_of(dy.tensor(), 1, out),
               weight = first_of(first_of(w.tensor(), 0, out), 1, in);
  Results<T> r{Buffer<T>(sizes(grad)), Buffer<T>(sizes(input)), Buffer<T>(sizes(weight))};
  std::vector<test::Argument> args{{"input", input},
                                   {"weight", weight},
                                   {"stride", test::ints({stride, stride})},
                                   {"padding", test::ints({1, 1})},
                                   {"dilation", test::ints({1, 1})},
                                   {"transposed", false},
                                   {"output_padding", test::ints({0, 0})},
                                   {"groups", 1}};
  REQUIRE(test::call("aten.convolution.default", args, {r.y.tensor()}, threads).ok());
  args.insert(args.end(), {{"grad_output", grad}, {"output_mask", test::ints({1, 1, 0})}});
  REQUIRE(
      test::call("aten.convolution_backward.default", args, {r.dx.tensor(), r.dw.tensor(), Tensor()}, threads).ok());
  return r;
}

// Few channels take another path than many.
template <class T>
void check_slices(int64_t in, int64_t out, int64_t stride) {
  CAPTURE(in, out, stride);
  Rng rng(8);
  std::vector<double> unused;
  Buffer<T> x = test::image<T>(rng, {9, 70, in, in}, false, &unused),
            w = test::image<T>(rng, {96, 70, 3, 3}, false, &unused),
            dy = test::image<T>(rng, {9, 96, out, out}, false, &unused);
  Results<T> all = convolve(x, w, dy, stride, 70, 96, 1), to_few = convolve(x, w, dy, stride, 70, 3, 2),
             of_few = convolve(x, w, dy, stride, 3, 96, 2), on_threads = convolve(x, w, dy, stride, 70, 96, 3);
  CHECK(first_of(all.y, 1, 3) == to_few.y.values());
  CHECK(first_of(all.dw, 0, 3) == to_few.dw.values());
  CHECK(first_of(all.dx, 1, 3) == of_few.dx.values());
  CHECK(all.y.values() == on_threads.y.values());
  CHECK(all.dx.values() == on_threads.dx.values());
  CHECK(all.dw.values() == on_threads.dw.values());
}

TEST_CASE("convolution: a slice of the channels has the bits of the whole") {
  for (const auto& [in, out, stride] : {std::array<int64_t, 3>{3, 3, 1}, {6, 6, 1}, {6, 3, 2}, {5, 3, 2}}) {
    check_slices<float>(in, out, stride);
    check_slices<double>(in, out, stride);
  }
}

template <class T>
std::vector<T> gathered(Isa isa, const std::vector<T>& a, const std::vector<T>& b, const std::vector<int64_t>& at,
                        TileStart later) {
  const TileKernels<T>& kernels = tile_kernels<T>(isa);
  const int64_t rows = kernels.rows, columns = kMaxTileColumns, k = static_cast<int64_t>(at.size());
  std::vector<T> c(static_cast<size_t>(kMaxTileRows * columns), T(1));
  for (int64_t i = 0; i < kMaxTileRows; i += rows)
    for (int64_t j = 0; j < columns; j += kernels.columns)
      kernels.gather[std::min<int64_t>(rows, kMaxTileRows - i) - 1]({a.data() + i * kPackedRow, b.data() + j, at.data(),
                                                                     k, 32, c.data() + i * columns + j, columns, later,
                                                                     later});
  return c;
}

TEST_CASE("convolution: the same bits on every instruction set") {
  Rng rng(6);
  auto number = [&] { return static_cast<float>(rng.below(2000001)) / 1e6f - 1; };
  std::vector<float> a(kMaxTileRows * kPackedRow), b(4096);
  std::vector<int64_t> at;
  for (float& x : a) x = number();
  for (float& x : b) x = number();
  for (int i = 0; i < 150; ++i) at.push_back(static_cast<int64_t>(rng.below(4000)));
  for (TileStart later : {TileStart::add, TileStart::chain})
    for (Isa isa : {Isa::avx2, Isa::avx512})
      if (isa_available(isa)) {
        CHECK(gathered(isa, a, b, at, later) == gathered(Isa::plain, a, b, at, later));
        const std::vector<double> wide_a(a.begin(), a.end()), wide_b(b.begin(), b.end());
        CHECK(gathered(isa, wide_a, wide_b, at, later) == gathered(Isa::plain, wide_a, wide_b, at, later));
      }
}

// Output and both gradients, concatenated. x, w and dy hold the same numbers for every T.
template <class T>
std::vector<BF16> all_of(uint64_t seed, const Shape& s, int threads) {
  Rng rng(seed);
  const int64_t in = s.groups * s.in_channels, out = s.groups * s.out_channels;
  auto numbers = [&](const std::vector<int64_t>& shape) {
    Buffer<T> b(shape);
    for (int64_t i = 0; i < b.tensor().elements(); ++i)
      b.at(i) = T(static_cast<float>(BF16(static_cast<float>(rng.below(20001)) / 10000 - 1)));
    return b;
  };
  Buffer<T> x = numbers(with_spatial(s.batch, in, s.in)), dy = numbers(with_spatial(s.batch, out, s.out())),
            w = numbers(s.transposed ? with_spatial(in, s.out_channels, s.window)
                                     : with_spatial(out, s.in_channels, s.window)),
            y(with_spatial(s.batch, out, s.out())), dx(with_spatial(s.batch, in, s.in)),
            dw(std::vector<int64_t>(w.tensor().sizes().begin(), w.tensor().sizes().end()));
  std::vector<test::Argument> args = test::arguments_of(s, x, w);
  REQUIRE(test::call_in_order("aten.convolution.default", args, {y.tensor()}, threads).ok());
  args.insert(args.end(), {{"grad_output", dy}, {"output_mask", test::ints({1, 1, 0})}});
  REQUIRE(test::call_in_order("aten.convolution_backward.default", args, {dx.tensor(), dw.tensor(), Tensor()}, threads)
              .ok());
  std::vector<BF16> all;
  for (Buffer<T>* b : {&y, &dx, &dw})
    for (T value : b->values()) all.emplace_back(static_cast<float>(value));
  return all;
}

// Where sums keep their order, on processors that multiply pairs of bf16; on others numbers are widened, which gives
// the same.
TEST_CASE("convolution: bf16 has the bits of f32, rounded") {
  Rng rng(12);
  std::vector<Shape> shapes{{2, 2, 1, 35, 130, {9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false},
                            {2, 9, 1, 33, 150, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false},
                            {2, 3, 1, 64, 34, {12, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 0}, true},
                            {2, 3, 2, 30, 40, {13, 11}, {5, 2}, {2, 3}, {2, 0}, {1, 2}, {0, 0}, false},
                            {2, 5, 1, 300, 33, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, false},
                            {1, 2, 1, 3, 5, {4001}, {7}, {2}, {3}, {1}, {0}, false}};
  for (int i = 0; i < 40; ++i) shapes.push_back(test::random_shape(rng));
  for (const Shape& s : shapes) {
    CAPTURE(s.spatial, s.batch, s.groups, s.in_channels, s.out_channels, s.in, s.window, s.stride, s.padding,
            s.dilation, s.output_padding, s.transposed);
    const uint64_t seed = rng.below(1000000);
    const std::vector<BF16> narrow = all_of<BF16>(seed, s, 2), wide = all_of<float>(seed, s, 2);
    REQUIRE(narrow.size() == wide.size());
    REQUIRE(std::memcmp(narrow.data(), wide.data(), narrow.size() * sizeof(BF16)) == 0);
  }
}

TEST_CASE("convolution: threads do not change a bit") {
  Rng rng(3);
  std::vector<double> unused;
  Buffer<float> x = test::image<float>(rng, {2, 30, 25, 25}, false, &unused),
                w = test::image<float>(rng, {40, 30, 3, 3}, false, &unused);
  std::vector<float> first;
  for (int threads : {1, 2, 4}) {
    Buffer<float> y({2, 40, 25, 25}), dx({2, 30, 25, 25}), dw({40, 30, 3, 3});
    std::vector<test::Argument> args{{"input", x},
                                     {"weight", w},
                                     {"stride", test::ints({1, 1})},
                                     {"padding", test::ints({1, 1})},
                                     {"dilation", test::ints({1, 1})},
                                     {"transposed", false},
                                     {"output_padding", test::ints({0, 0})},
                                     {"groups", 1}};
    REQUIRE(test::call("aten.convolution.default", args, {y.tensor()}, threads).ok());
    args.insert(args.end(), {{"grad_output", y}, {"output_mask", test::ints({1, 1, 0})}});
    REQUIRE(test::call("aten.convolution_backward.default", args, {dx.tensor(), dw.tensor(), Tensor()}, threads).ok());
    std::vector<float> all = y.values();
    for (Buffer<float>* b : {&dx, &dw}) {
      std::vector<float> values = b->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    if (first.empty()) first = all;
    REQUIRE(all == first);
  }
}

TEST_CASE("convolution: what does not fit is an error of the run") {
  Buffer<float> x({1, 4, 5, 5}), w({6, 4, 3, 3}), y({1, 6, 5, 5});
  auto run = [&](std::vector<int64_t> stride, int64_t groups, const Tensor& out) {
    return test::call("aten.convolution.default",
                      {{"input", x},
                       {"weight", w},
                       {"stride", test::ints(stride)},
                       {"padding", test::ints({1, 1})},
                       {"dilation", test::ints({1, 1})},
                       {"transposed", false},
                       {"output_padding", test::ints({0, 0})},
                       {"groups", groups}},
                      {out})
        .ok();
  };
  CHECK(run({1, 1}, 1, y.tensor()));
  CHECK(!run({0, 1}, 1, y.tensor()));
  CHECK(!run({1, 1}, 2, y.tensor()));
  CHECK(!run({2, 2}, 1, y.tensor()));  // the result would have windows beyond the input
}
