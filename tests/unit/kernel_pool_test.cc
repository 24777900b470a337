#include <catch2/catch.hpp>

#include <bit>
#include <limits>

#include "librun/work/pool.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;
using test::Rng;

namespace {

// Windows that may extend past all edges, even so far that they are empty, over planes of two or three axes.
work::Window random_window(Rng& rng, int axes) {
  work::Window w;
  w.planes = 1 + rng.below(3);
  for (int k = 3 - axes; k < 3; ++k) {
    w.in[k] = rng.percent(10) ? 1 : 1 + rng.below(k == 2 ? 40 : 7);
    w.kernel[k] = 1 + rng.below(4), w.stride[k] = 1 + rng.below(4), w.dilation[k] = 1 + rng.below(3);
    w.padding[k] = rng.below(w.kernel[k] * w.dilation[k] / 2 + 1);
    const int64_t room = w.in[k] + 2 * w.padding[k] - (w.kernel[k] - 1) * w.dilation[k] - 1;
    w.out[k] = room < 0 ? 1 : room / w.stride[k] + 1 + (room % w.stride[k] != 0 && rng.below(2));
  }
  return w;
}

// Few distinct numbers, so that several are the largest; sometimes a NaN.
template <class T>
T random_value(Rng& rng) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(rng.below(9)) - 4;
  else if (rng.below(40) == 0) return T(std::numeric_limits<float>::quiet_NaN());
  else if (rng.below(4) == 0) return T(-std::numeric_limits<float>::infinity());
  else return T(static_cast<float>(rng.below(9)) - 4);
}

std::vector<int64_t> sizes_of(const work::Window& w, const int64_t* plane, int axes) {
  std::vector<int64_t> sizes{1, w.planes};
  sizes.insert(sizes.end(), plane + 3 - axes, plane + 3);
  return sizes;
}

test::Argument numbers(std::string_view name, const int64_t* of, int axes) {
  return {name, test::ints({of + 3 - axes, of + 3})};
}

std::string op_of(std::string_view end, int axes) {
  return "aten.max_pool" + std::to_string(axes) + "d_with_indices" + std::string(end);
}

template <class T>
void check_maxima(Rng& rng, int axes, int threads) {
  const work::Window w = random_window(rng, axes);
  CAPTURE(axes, threads, std::vector(w.in, w.in + 3), std::vector(w.out, w.out + 3),
          std::vector(w.kernel, w.kernel + 3), std::vector(w.stride, w.stride + 3),
          std::vector(w.padding, w.padding + 3), std::vector(w.dilation, w.dilation + 3));
  Buffer<T> x(sizes_of(w, w.in, axes)), y(sizes_of(w, w.out, axes));
  Buffer<int64_t> at(sizes_of(w, w.out, axes));
  std::vector<double> wide;
  for (int64_t i = 0; i < x.tensor().elements(); ++i) {
    x.at(i) = random_value<T>(rng);
    wide.push_back(static_cast<double>(static_cast<Compute<T>>(x.at(i))));
  }
  std::vector<test::Argument> args{{"self", x},
                                   numbers("kernel_size", w.kernel, axes),
                                   numbers("stride", w.stride, axes),
                                   numbers("padding", w.padding, axes),
                                   numbers("dilation", w.dilation, axes)};
  REQUIRE(test::call(op_of(".default", axes), args, {y.tensor(), at.tensor()}, threads).ok());
  const double lowest = std::is_integral_v<T> ? -9e18 : -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < y.tensor().elements(); ++i) {
    double value;
    int64_t place;
    const work::Spans spans = spans_at(w, i, false);
    largest_in(w, spans, wide.data() + i / w.plane_out() * w.plane_in(), lowest, &value, &place);
    if (is_empty(spans)) continue;  // an empty window has no place
    CHECK(at.at(i) == place);
    const auto got = static_cast<double>(static_cast<Compute<T>>(y.at(i)));
    CHECK((got == value || (got != got && value != value)));
  }
}

}  // namespace

TEST_CASE("the largest of windows and its place are what one element after the other finds") {
  Rng rng(11);
  for (int i = 0; i < 150; ++i)
    for (int axes : {2, 3}) {
      const int threads = 1 + static_cast<int>(rng.below(3));
      check_maxima<float>(rng, axes, threads);
      check_maxima<double>(rng, axes, threads);
      check_maxima<BF16>(rng, axes, threads);
      check_maxima<int64_t>(rng, axes, threads);
    }
}

TEST_CASE("gradients of maxima are added up at their places, in double") {
  const float large = 1 << 24;
  Buffer<float> x({1, 2, 2, 2}), grad({1, 2, 1, 3}, {large, 1, 1, 2, 3, 4}), out({1, 2, 2, 2});
  Buffer<int64_t> at({1, 2, 1, 3}, {3, 3, 3, 0, 2, 0});
  std::vector<test::Argument> args{
      {"grad_output", grad}, {"self", x}, {"kernel_size", test::ints({2, 2})}, {"indices", at}};
  REQUIRE(test::call(op_of("_backward.default", 2), args, {out.tensor()}, 2).ok());
  CHECK(out.values() == std::vector<float>{0, 0, 0, large + 2, 6, 0, 3, 0});
  at.at(4) = 4;
  CHECK_FALSE(test::call(op_of("_backward.default", 2), args, {out.tensor()}, 2).ok());
}
