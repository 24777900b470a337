#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "librun/cpu/gemm_units.h"
#include "tests/support/convolutions.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;
using test::Convolution;
using test::Rng;
using test::with_spatial;

namespace {

using Image16 = Buffer<BF16>;

std::vector<int64_t> weight_shape(const Convolution& s) {
  const int64_t in = s.groups * s.in_channels, out = s.groups * s.out_channels;
  return s.transposed ? with_spatial(in, s.out_channels, s.window) : with_spatial(out, s.in_channels, s.window);
}

struct Operands {
  Image16 x, w, dy;
  std::vector<double> all_x, all_w, all_dy;
};

Operands operands_of(Rng& rng, const Convolution& s) {
  std::vector<double> x, w, dy;
  Image16 input = test::image<BF16>(rng, with_spatial(s.batch, s.groups * s.in_channels, s.in), rng.below(3) == 0, &x);
  Image16 weight = test::image<BF16>(rng, weight_shape(s), false, &w);
  Image16 grad =
      test::image<BF16>(rng, with_spatial(s.batch, s.groups * s.out_channels, s.out()), rng.below(3) == 0, &dy);
  return {std::move(input), std::move(weight), std::move(grad), std::move(x), std::move(w), std::move(dy)};
}

struct Convolved {
  Image16 y, dx, dw;
};

enum class Sums { fast, in_order };

Convolved convolved(const Convolution& s, const Operands& o, int threads, Sums sums = Sums::fast) {
  Convolved out{Image16(with_spatial(s.batch, s.groups * s.out_channels, s.out())),
                Image16(with_spatial(s.batch, s.groups * s.in_channels, s.in)), Image16(weight_shape(s))};
  auto run = [&](std::string_view op, const std::vector<test::Argument>& args, const std::vector<Tensor>& results) {
    REQUIRE(
        (sums == Sums::fast ? test::call(op, args, results, threads) : test::call_in_order(op, args, results, threads))
            .ok());
  };
  std::vector<test::Argument> args = test::arguments_of(s, o.x, o.w);
  run("aten.convolution.default", args, {out.y.tensor()});
  args.insert(args.end(), {{"grad_output", o.dy}, {"output_mask", test::ints({1, 1, 0})}});
  run("aten.convolution_backward.default", args, {out.dx.tensor(), out.dw.tensor(), Tensor()});
  return out;
}

// A sum by its definition, and that of its terms' sizes.
struct ExactSum {
  double sum = 0, size = 0;
  void add(double term) { sum += term, size += std::fabs(term); }
};

// Rounded to bf16 once, after sums in f32.
void check_rounded(const char* what, Image16& got, const std::vector<ExactSum>& exact) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(float(got.at(static_cast<int64_t>(i)))) - exact[i].sum);
    if (distance <= 0x1p-8 * std::fabs(exact[i].sum) + 0x1p-19 * exact[i].size) continue;
    CAPTURE(what, i, exact[i].sum, float(got.at(static_cast<int64_t>(i))));
    REQUIRE(false);
  }
}

void check_against_definition(Rng& rng, const Convolution& s, int threads) {
  CAPTURE(s.spatial, s.batch, s.groups, s.in_channels, s.out_channels, s.in, s.window, s.stride, s.padding, s.dilation,
          s.output_padding, s.transposed);
  const Operands o = operands_of(rng, s);
  std::vector<ExactSum> y(o.all_dy.size()), dx(o.all_x.size()), dw(o.all_w.size());
  test::for_products(s, [&](size_t i, size_t j, size_t k) {
    y[k].add(o.all_x[i] * o.all_w[j]);
    dx[i].add(o.all_dy[k] * o.all_w[j]);
    dw[j].add(o.all_dy[k] * o.all_x[i]);
  });
  Convolved got = convolved(s, o, threads);
  check_rounded("y", got.y, y);
  check_rounded("dx", got.dx, dx);
  check_rounded("dw", got.dw, dw);
}

Convolution random_case(Rng& rng) {
  constexpr int64_t kChannels[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100};
  auto channels = [&] { return kChannels[rng.below(std::size(kChannels))]; };
  Convolution s{static_cast<int>(rng.between(1, 3)),
                rng.between(1, 5),
                rng.between(1, 2),
                channels(),
                channels(),
                {},
                {},
                {},
                {},
                {},
                {},
                rng.below(2) == 0};
  for (int d = 0; d < s.spatial; ++d) {
    s.window.push_back(rng.between(1, s.spatial == 1 ? 20 : 4));
    s.stride.push_back(rng.between(1, 3));
    s.padding.push_back(rng.between(0, 2));
    s.dilation.push_back(rng.between(1, 2));
    s.output_padding.push_back(s.transposed ? rng.between(0, s.stride.back() - 1) : 0);
    const int64_t least = std::max<int64_t>(1, s.dilation.back() * (s.window.back() - 1) + 1 - 2 * s.padding.back());
    s.in.push_back(std::max<int64_t>(s.transposed ? 4 : least, rng.between(1, s.spatial == 1   ? 300
                                                                              : s.spatial == 2 ? 12
                                                                                               : 6)));
  }
  return s;
}

double products_of(const Convolution& s) {
  return static_cast<double>(s.batch * s.groups * s.in_channels * s.out_channels * test::product(s.window)) *
         static_cast<double>(s.transposed ? test::product(s.in) : test::product(s.out()));
}

std::vector<float> wide(Image16& b) {
  std::vector<float> out;
  for (BF16 x : b.values()) out.push_back(x);
  return out;
}

// By bits, as NaN and zeros are told apart.
bool same_bits(Image16& a, Image16& b) {
  const std::vector<BF16> first = a.values(), second = b.values();
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](BF16 x, BF16 y) { return x.bits == y.bits; });
}

}  // namespace

// On processors with matrix units these are their sums, on others those of multiply-adds.
TEST_CASE("convolution: bf16 of any geometry and number of channels") {
  Rng rng(21);
  for (int i = 0; i < 120;) {
    const Convolution s = random_case(rng);
    if (products_of(s) > 2e6) continue;
    check_against_definition(rng, s, 1 + i++ % 3);
  }
}

TEST_CASE("convolution: bf16 of many channels, of small planes, and of one place") {
  Rng rng(22);
  for (bool transposed : {false, true}) {
    check_against_definition(rng, {2, 3, 1, 64, 96, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, transposed}, 2);
    check_against_definition(rng, {2, 20, 1, 70, 40, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, transposed}, 2);
    check_against_definition(rng, {2, 70, 1, 130, 33, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, transposed}, 3);
    check_against_definition(rng, {2, 2, 1, 3, 17, {40, 37}, {7, 7}, {2, 2}, {3, 3}, {1, 1}, {0, 0}, transposed}, 2);
    check_against_definition(rng, {1, 2, 1, 33, 20, {1100}, {5}, {1}, {2}, {1}, {0}, transposed}, 2);
    check_against_definition(
        rng, {3, 3, 2, 20, 9, {6, 3, 7}, {3, 2, 3}, {1, 2, 2}, {1, 0, 1}, {1, 1, 1}, {0, 0, 0}, transposed}, 2);
  }
}

TEST_CASE("convolution: bf16 has the same bits on any number of threads, and entry by entry") {
  Rng rng(23);
  for (const Convolution& s : {Convolution{2, 6, 1, 40, 70, {13, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false},
                               Convolution{2, 6, 2, 33, 20, {3, 3}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, false},
                               Convolution{2, 6, 1, 3, 70, {30, 30}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, false},
                               Convolution{1, 6, 1, 24, 5, {100}, {4}, {2}, {1}, {1}, {1}, true}}) {
    const Operands o = operands_of(rng, s);
    Convolved one = convolved(s, o, 1);
    for (int threads : {2, 4}) {
      Convolved more = convolved(s, o, threads);
      CHECK(same_bits(more.y, one.y));
      CHECK(same_bits(more.dx, one.dx));
      CHECK(same_bits(more.dw, one.dw));
    }
    for (int64_t entry = 0; entry < s.batch; ++entry) {
      Convolution alone = s;
      alone.batch = 1;
      auto part = [&](const Image16& b) {
        Tensor t = b.tensor();
        t.data += entry * t.step(0) * static_cast<int64_t>(sizeof(BF16)), t.shape[0] = 1;
        return t;
      };
      Image16 y(with_spatial(1, s.groups * s.out_channels, s.out())),
          dx(with_spatial(1, s.groups * s.in_channels, s.in));
      std::vector<test::Argument> args = test::arguments_of(alone, o.x, o.w);
      args[0] = {"input", part(o.x)};
      REQUIRE(test::call("aten.convolution.default", args, {y.tensor()}).ok());
      args.insert(args.end(), {{"grad_output", part(o.dy)}, {"output_mask", test::ints({1, 0, 0})}});
      REQUIRE(test::call("aten.convolution_backward.default", args, {dx.tensor(), Tensor(), Tensor()}).ok());
      Image16 of_all_y(with_spatial(1, s.groups * s.out_channels, s.out())),
          of_all_dx(with_spatial(1, s.groups * s.in_channels, s.in));
      for (int64_t i = 0; i < y.tensor().elements(); ++i) of_all_y.at(i) = one.y.at(entry * y.tensor().elements() + i);
      for (int64_t i = 0; i < dx.tensor().elements(); ++i)
        of_all_dx.at(i) = one.dx.at(entry * dx.tensor().elements() + i);
      CHECK(same_bits(y, of_all_y));
      CHECK(same_bits(dx, of_all_dx));
    }
  }
}

// Tiles reach beyond lines, planes and entries: what is there must not come into sums.
TEST_CASE("convolution: in bf16 infinities and NaN reach what they reach in order") {
  Rng rng(24);
  auto kinds = [](Image16& b) {
    std::vector<int> out;
    for (float x : wide(b)) out.push_back(std::isnan(x) ? 2 : std::isinf(x) ? (x > 0 ? 1 : -1) : 0);
    return out;
  };
  for (const Convolution& s :
       {Convolution{2, 3, 1, 20, 18, {5, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false},
        Convolution{2, 3, 1, 4, 18, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, false},
        Convolution{1, 3, 1, 17, 9, {50}, {3}, {1}, {0}, {2}, {0}, false},
        Convolution{2, 5, 1, 20, 18, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, true},
        Convolution{3, 2, 1, 16, 17, {3, 4, 5}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}})
    for (float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Operands o = operands_of(rng, s);
      for (Image16* b : {&o.x, &o.dy, &o.w})
        b->at(static_cast<int64_t>(rng.below(static_cast<uint64_t>(b->tensor().elements())))) = BF16(odd);
      o.x.at(o.x.tensor().elements() - 1) = BF16(odd), o.dy.at(0) = BF16(odd);
      Convolved fast = convolved(s, o, 2), in_order = convolved(s, o, 2, Sums::in_order);
      CAPTURE(s.in, s.window, odd);
      CHECK(kinds(fast.y) == kinds(in_order.y));
      CHECK(kinds(fast.dx) == kinds(in_order.dx));
      CHECK(kinds(fast.dw) == kinds(in_order.dw));
    }
}

TEST_CASE("convolution: bf16 of no entries leaves a weight no gradient") {
  const Convolution s{2, 0, 1, 20, 18, {5, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false};
  Rng rng(25);
  Convolved none = convolved(s, operands_of(rng, s), 2);
  for (float x : wide(none.dw)) REQUIRE(x == 0);
}
