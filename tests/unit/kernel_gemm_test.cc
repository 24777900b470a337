// Every product of floats must match, bit by bit, the definitions in gemm_tile.h and gemm_units.h: on every instruction
// set of the machine and on its matrix units, for any strides, thread counts and numerics.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "librun/cpu/gemm.h"
#include "librun/cpu/gemm_tile.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;

namespace {

using test::Rng;

std::vector<cpu::Isa> machine_isas() {
  std::vector<cpu::Isa> out;
  for (cpu::Isa isa : {cpu::Isa::plain, cpu::Isa::avx2, cpu::Isa::avx512})
    if (cpu::isa_available(isa)) out.push_back(isa);
  return out;
}

std::vector<cpu::Units> machine_units() {
  std::vector<cpu::Units> out;
  for (cpu::Units units : {cpu::Units::bf16, cpu::Units::f16})
    if (cpu::has_units(units)) out.push_back(units);
  return out;
}

// A tensor of this shape with its axes in any order, gaps between elements, and an offset.
template <class T>
Buffer<T> random_buffer(Rng& rng, std::vector<int64_t> shape) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<int64_t> stride(shape.size());
  int64_t step = rng.below(3) == 0 ? 2 : 1;
  for (size_t axis : order) {
    stride[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
    if (rng.below(3) == 0) step += static_cast<int64_t>(rng.below(4));
  }
  Buffer<T> out(shape, {}, stride, static_cast<int64_t>(rng.below(5)));
  for (int64_t i = 0; i < out.tensor().elements(); ++i)
    out.at(i) = T(static_cast<Compute<T>>(static_cast<double>(rng.below(4001)) / 1000 - 2));
  return out;
}

// One element from the definition: row [k] of a, column [k] of b, n apart.
template <class C>
C chain_sum(const C* row, const C* column, int64_t k, int64_t n, bool strict) {
  C total = 0, sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    if (i % cpu::kSumBlock == 0 && !strict) {
      total = i <= cpu::kSumBlock ? sum : total + sum;
      sum = 0;
    }
    sum = std::fma(row[i], column[i * n], sum);
  }
  return strict || k <= cpu::kSumBlock ? sum : total + sum;
}

// --- what matrix units compute, from gemm_units.h ---

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// The numbers of a row or column split into parts: [part][k], zeros after the last k.
struct Line {
  std::vector<std::vector<float>> parts;
  int exponent = 0;  // the parts are of the numbers times 2^-exponent
  float doubt = 0;
};

Line bf16_line(const float* from, int64_t k, int64_t step) {
  Line line{std::vector(3, std::vector<float>(static_cast<size_t>((k + 31) / 32 * 32)))};
  bool exact = true;
  for (int64_t i = 0; i < k; ++i) {
    float rest = from[i * step];
    for (size_t p = 0; p < 3; ++p) {
      float part = p == 2 ? rest : std::bit_cast<float>((std::bit_cast<uint32_t>(rest) + 0x8000u) & 0xFFFF0000u);
      exact &= (std::bit_cast<uint32_t>(part) & 0xFFFFu) == 0;  // every part is a bf16
      line.parts[p][static_cast<size_t>(i)] = flushed(part);
      rest -= part;
    }
  }
  REQUIRE(exact);
  return line;
}

Line f16_line(const float* from, int64_t k, int64_t step) {
  Line line{std::vector(2, std::vector<float>(static_cast<size_t>((k + 31) / 32 * 32)))};
  float largest = 0;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(from[i * step]));
  if (largest > 0) line.exponent = std::ilogb(largest) - 14;
  else line.doubt = -2;
  for (int64_t i = 0; i < k; ++i) {
    float x = std::ldexp(from[i * step], -line.exponent), high = static_cast<float>(F16(x));
    if (x != 0 && std::fabs(x) < 0x1p-4f) line.doubt = 1;
    line.parts[0][static_cast<size_t>(i)] = high;
    line.parts[1][static_cast<size_t>(i)] = static_cast<float>(F16(x - high));
  }
  return line;
}

void add_step(const float* a, const float* b, float* sum) {
  float chains[2] = {0, 0};
  for (int i = 0; i < 32; ++i) chains[i % 2] = flushed(std::fma(a[i], b[i], chains[i % 2]));
  *sum = flushed(*sum + flushed(chains[0] + chains[1]));
}

// Numbers that are bf16.
Line whole_line(const float* from, int64_t k, int64_t step) {
  Line line{std::vector(1, std::vector<float>(static_cast<size_t>((k + 31) / 32 * 32)))};
  for (int64_t i = 0; i < k; ++i) line.parts[0][static_cast<size_t>(i)] = flushed(from[i * step]);
  return line;
}

float units_sum(cpu::Units units, const float* row, const float* column, int64_t k, int64_t n) {
  using Terms = std::vector<std::pair<size_t, size_t>>;
  const Terms terms = units == cpu::Units::whole ? Terms{{0, 0}}
                      : units == cpu::Units::f16 ? Terms{{0, 1}, {0, 0}, {1, 0}}
                                                 : Terms{{0, 2}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {2, 0}};
  auto line_of = units == cpu::Units::whole ? whole_line : units == cpu::Units::f16 ? f16_line : bf16_line;
  if (k <= cpu::short_sum(units)) return chain_sum(row, column, k, n, false);
  float total = 0;
  for (int64_t begin = 0; begin < k; begin += 768) {
    int64_t depth = std::min<int64_t>(768, k - begin);
    Line a = line_of(row + begin, depth, 1), b = line_of(column + begin * n, depth, n);
    float sum = 0;
    for (int64_t i = 0; i < depth; i += 32)
      for (auto [pa, pb] : terms) add_step(a.parts[pa].data() + i, b.parts[pb].data() + i, &sum);
    if (std::fabs(sum) < (a.doubt + b.doubt) * 0x1p16f) return chain_sum(row, column, k, n, false);
    sum = std::ldexp(sum, a.exponent + b.exponent);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

template <class T>
std::vector<Compute<T>> widened(Buffer<T>& buffer) {
  std::vector<Compute<T>> out;
  for (T x : buffer.values()) out.push_back(static_cast<Compute<T>>(x));
  return out;
}

// An element as this machine computes it with fast numerics.
float fast_sum(const std::vector<float>& row, const std::vector<float>& column) {
  auto k = static_cast<int64_t>(row.size());
  if (cpu::best_units() != cpu::Units::none) return units_sum(cpu::best_units(), row.data(), column.data(), k, 1);
  return chain_sum(row.data(), column.data(), k, 1, false);
}

struct Product {
  int64_t batch, m, n, k;
  double alpha, beta;
};

template <class T>
void check_case(Rng& rng, const Product& c, int threads, Numerics numerics) {
  using C = Compute<T>;
  Buffer<T> a = random_buffer<T>(rng, {c.batch, c.m, c.k}), b = random_buffer<T>(rng, {c.batch, c.k, c.n});
  Buffer<T> self = random_buffer<T>(rng, {c.batch, c.m, c.n}), out = random_buffer<T>(rng, {c.batch, c.m, c.n});
  std::vector<C> all_a = widened(a), all_b = widened(b), all_self = widened(self);
  std::vector<T> expected;
  std::map<cpu::Units, std::vector<T>> by_units;
  for (int64_t e = 0; e < c.batch * c.m * c.n; ++e) {
    const C* row = all_a.data() + e / c.n * c.k;
    const C* column = all_b.data() + e / (c.m * c.n) * c.k * c.n + e % c.n;
    auto finished = [&](C sum) {
      if (c.alpha != 1) sum *= static_cast<C>(c.alpha);
      if (c.beta != 0) sum += static_cast<C>(c.beta) * all_self[static_cast<size_t>(e)];
      return T(sum);
    };
    expected.push_back(finished(chain_sum(row, column, c.k, c.n, numerics == Numerics::strict)));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BF16>)
      for (cpu::Units units : machine_units())
        by_units[units].push_back(
            finished(units_sum(std::is_same_v<T, BF16> ? cpu::Units::whole : units, row, column, c.k, c.n)));
  }
  auto check = [&](cpu::Isa isa, cpu::Units units, const std::vector<T>& wanted, bool pairs = false) {
    ThreadTeam team(threads);
    Scratch scratch;
    KernelContext context{&team, &scratch, numerics};
    KernelCall call(*find_op("aten.baddbmm.default"), &context);
    Scalar alpha = Scalar::floating(c.alpha), beta = Scalar::floating(c.beta);
    for (bool in_place : {false, true}) {
      if (in_place)
        for (int64_t e = 0; e < c.batch * c.m * c.n; ++e) out.at(e) = self.at(e);
      const Tensor added = in_place ? out.tensor() : self.tensor();
      cpu::gemm(call, {out.tensor(), a.tensor(), b.tensor(), added, alpha, beta, isa, units, pairs});
      std::vector<T> got = out.values();
      CAPTURE(c.batch, c.m, c.n, c.k, c.alpha, c.beta, threads, in_place, static_cast<int>(isa),
              static_cast<int>(units), pairs, static_cast<int>(numerics));
      REQUIRE(got.size() == wanted.size());
      REQUIRE((got.empty() || std::memcmp(got.data(), wanted.data(), got.size() * sizeof(T)) == 0));
    }
  };
  for (cpu::Isa isa : machine_isas()) check(isa, cpu::Units::none, expected);
  if (cpu::has_bf16_pairs()) check(cpu::best_isa(), cpu::Units::none, expected, true);
  bool uses_units = !by_units.empty() && numerics == Numerics::fast;
  for (cpu::Units units : machine_units()) check(cpu::best_isa(), units, uses_units ? by_units[units] : expected);
}

template <class T>
void check_cases(uint64_t seed, int count) {
  Rng rng(seed);
  for (int i = 0; i < count; ++i) {
    auto size = [&](uint64_t limit) {
      return static_cast<int64_t>(rng.below(4) == 0 ? rng.below(4) : rng.below(limit));
    };
    Product c{rng.between(1, 3), size(40), size(70), size(rng.below(4) == 0 ? 600 : 40), 1, 0};
    if (rng.below(2)) c.alpha = rng.below(2) ? 1 : 0.75, c.beta = rng.below(3) ? 1 : -1.5;
    check_case<T>(rng, c, 1 + static_cast<int>(rng.below(4)), rng.below(2) ? Numerics::fast : Numerics::strict);
  }
}

template <class T = float>
Buffer<T> fractions(Rng& rng, std::vector<int64_t> shape) {
  Buffer<T> out(shape);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) out.at(i) = T(static_cast<float>(rng.below(20001)) / 10000 - 1);
  return out;
}

}  // namespace

TEST_CASE("gemm: f32 of any strides is the chain of fused multiply-adds") { check_cases<float>(1, 60); }
TEST_CASE("gemm: f64 of any strides") { check_cases<double>(2, 40); }
TEST_CASE("gemm: bf16 is multiplied exactly, summed up in f32 and rounded once") { check_cases<BF16>(3, 40); }
TEST_CASE("gemm: f16 likewise") { check_cases<F16>(4, 40); }

TEST_CASE("gemm: sizes around the blocks") {
  Rng rng(5);
  for (Product c : {Product{1, 14, 32, 256, 1, 0}, Product{1, 15, 33, 257, 1, 0}, Product{1, 1, 300, 513, 1, 0},
                    Product{1, 300, 1, 513, 1, 0}, Product{1, 340, 40, 5, 1, 1}, Product{1, 90, 70, 256, 1, 1},
                    Product{1, 90, 70, 768, 1, 1}, Product{2, 3, 1100, 800, 1, 1}, Product{1, 3, 1100, 800, 2, 0},
                    Product{1, 3, 2, 2000, 1, 0}, Product{1, 40, 300, 300, 1, 0}})
    for (Numerics numerics : {Numerics::fast, Numerics::strict}) {
      check_case<float>(rng, c, 2, numerics);
      check_case<BF16>(rng, c, 4, numerics);
      check_case<double>(rng, c, 2, numerics);
    }
}

TEST_CASE("gemm: infinities, NaN and numbers out of range on matrix units are those of multiply-adds") {
  Rng rng(8);
  const float kOdd[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, -NAN};
  auto multiply = [](Buffer<float>& a, Buffer<float>& b, Buffer<float>& out, int64_t first, cpu::Units units,
                     int64_t times_there = 0) {
    ThreadTeam team(2);
    Scratch scratch;
    KernelContext context{&team, &scratch, Numerics::fast};
    KernelCall call(*find_op("aten.mm.default"), &context);
    Tensor rows = a.tensor();
    rows.data += first * 90 * 4;
    rows.shape[0] = out.tensor().dim(0);
    cpu::gemm(call, {out.tensor(), rows, b.tensor(), out.tensor(), Scalar::integer(1), Scalar::integer(times_there),
                     cpu::best_isa(), units});
  };
  for (cpu::Units on : machine_units())
    for (int round = 0; round < 12; ++round) {
      Buffer<float> a = fractions(rng, {70, 90}), b = fractions(rng, {90, 50}), plain({70, 50}), units({70, 50}),
                    slice({5, 50}), there = fractions(rng, {70, 50});
      there.at(0) = NAN;
      const std::vector<float> before = there.values();
      for (int i = 0; i < round; ++i) {
        Buffer<float>& into = rng.below(2) ? a : b;
        into.at(static_cast<int64_t>(rng.below(4500))) = kOdd[rng.below(6)];
      }
      multiply(a, b, plain, 0, cpu::Units::none), multiply(a, b, units, 0, on), multiply(a, b, slice, 31, on);
      multiply(a, b, there, 0, on, 1);
      for (int64_t e = 0; e < 70 * 50; ++e) {
        const float want = plain.at(e), got = units.at(e);
        CAPTURE(round, e, static_cast<int>(on), want, got);
        REQUIRE(std::isnan(got) == std::isnan(want));
        if (!std::isnan(want))
          REQUIRE((got == want || std::fabs(got - want) < 1e-4f * std::max(1.0f, std::fabs(want))));
        const float sum = before[static_cast<size_t>(e)] + got;
        REQUIRE((there.at(e) == sum || (std::isnan(there.at(e)) && std::isnan(sum))));
      }
      REQUIRE(std::memcmp(slice.tensor().data, units.tensor().data + 31 * 50 * 4, 5 * 50 * 4) == 0);
    }
}

// Lines of any scale, and numbers of any scale in a line: what counts is the error relative to the sum of |a b|.
TEST_CASE("gemm: matrix units are as exact as multiply-adds, whatever the scale of rows, columns and numbers") {
  Rng rng(9);
  for (cpu::Units on : machine_units())
    for (int spread : {0, 4, 12, 30}) {  // exponents within a line
      const int64_t m = 33, n = 40, k = 1000;
      Buffer<float> a = fractions(rng, {m, k}), b = fractions(rng, {k, n}), plain({m, n}), units({m, n});
      std::vector<int> of_row(m), of_column(n);
      for (int& e : of_row) e = static_cast<int>(rng.below(60)) - 30;
      for (int& e : of_column) e = static_cast<int>(rng.below(60)) - 30;
      auto within = [&] { return spread == 0 ? 0 : -static_cast<int>(rng.below(static_cast<uint64_t>(spread))); };
      for (int64_t e = 0; e < m * k; ++e) a.at(e) = std::ldexp(a.at(e), of_row[static_cast<size_t>(e / k)] + within());
      for (int64_t e = 0; e < k * n; ++e)
        b.at(e) = std::ldexp(b.at(e), of_column[static_cast<size_t>(e % n)] + within());
      auto multiply = [&](Buffer<float>& out, cpu::Units with) {
        ThreadTeam team(1);
        Scratch scratch;
        KernelContext context{&team, &scratch, Numerics::fast};
        KernelCall call(*find_op("aten.mm.default"), &context);
        cpu::gemm(
            call,
            {out.tensor(), a.tensor(), b.tensor(), {}, Scalar::integer(1), Scalar::integer(0), cpu::best_isa(), with});
      };
      multiply(plain, cpu::Units::none), multiply(units, on);
      double ours = 0, theirs = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0, size = 0;
          for (int64_t x = 0; x < k; ++x) {
            double product = static_cast<double>(a.at(i * k + x)) * b.at(x * n + j);
            exact += product, size += std::fabs(product);
          }
          ours += std::pow((units.at(i * n + j) - exact) / size, 2),
              theirs += std::pow((plain.at(i * n + j) - exact) / size, 2);
        }
      CAPTURE(spread, static_cast<int>(on), std::sqrt(ours / (m * n)), std::sqrt(theirs / (m * n)));
      REQUIRE(ours <= 2 * theirs);  // squares: 1.4 times the error
    }
}

namespace {

// bf16 numbers of 30 exponents from `lowest` on, with one that is odd in each of the first rows of a.
struct Halves {
  Buffer<BF16> a, b;
};

Halves odd_halves(Rng& rng, int64_t m, int64_t n, int64_t k, int lowest) {
  const float kOdd[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, -0.0f};
  Halves out{Buffer<BF16>({m, k}), Buffer<BF16>({k, n})};
  for (Buffer<BF16>* to : {&out.a, &out.b})
    for (int64_t e = 0; e < to->tensor().elements(); ++e) {
      const float digits = static_cast<float>(rng.below(20001)) / 10000 - 1;
      to->at(e) = BF16(std::ldexp(digits, lowest + static_cast<int>(rng.below(30))));
    }
  for (int i = 0; i < 6; ++i) out.a.at(i * k + static_cast<int64_t>(rng.below(k))) = BF16(kOdd[i]);
  return out;
}

bool is_same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

}  // namespace

TEST_CASE("gemm: bf16 on matrix units is what gemm_units.h says, of infinities, NaN and tiny numbers too") {
  if (!cpu::has_units(cpu::Units::whole)) {
    WARN("skipped: this processor has no matrix units");
    return;
  }
  Rng rng(37);
  const int64_t m = 40, n = 50;
  for (int64_t k : {33, 301, 1000})
    for (int lowest : {-15, -80, -140}) {  // exponents
      auto [a, b] = odd_halves(rng, m, n, k, lowest);
      Buffer<float> wide({m, n});
      Buffer<BF16> rounded({m, n});
      REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {wide.tensor()}, 2).ok());
      REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {rounded.tensor()}, 2).ok());
      const std::vector<float> rows = widened(a), columns = widened(b);
      for (int64_t e = 0; e < m * n; ++e) {
        const float want = units_sum(cpu::Units::whole, rows.data() + e / n * k, columns.data() + e % n, k, n);
        CAPTURE(k, lowest, e, want, wide.at(e), float(rounded.at(e)));
        REQUIRE(is_same(wide.at(e), want));
        REQUIRE(is_same(rounded.at(e), float(BF16(want))));
      }
    }
}

TEST_CASE("gemm: pairs of bf16 are multiply-adds to which what is below 2^-126 is zero") {
  if (!cpu::has_bf16_pairs()) {
    WARN("skipped: this processor has no pairs of bf16");
    return;
  }
  Rng rng(31);
  const int64_t m = 40, n = 50, k = 301;
  for (int lowest : {-30, -80, -140}) {  // exponents
    auto [a, b] = odd_halves(rng, m, n, k, lowest);
    Buffer<float> out({m, n});
    ThreadTeam team(2);
    Scratch scratch;
    KernelContext context{&team, &scratch, Numerics::fast};
    KernelCall call(*find_op("aten.mm.default"), &context);
    cpu::gemm(call, {out.tensor(),
                     a.tensor(),
                     b.tensor(),
                     {},
                     Scalar::integer(1),
                     Scalar::integer(0),
                     cpu::best_isa(),
                     cpu::Units::none,
                     true});
    int64_t lost = 0;  // sums whose bits differ without flushing
    for (int64_t e = 0; e < m * n; ++e) {
      float sums[2] = {}, plain[2] = {};
      for (int64_t i = 0; i < k; ++i) {
        const float x = a.at(e / n * k + i), y = b.at(i * n + e % n);
        float &sum = sums[i >= cpu::kSumBlock], &other = plain[i >= cpu::kSumBlock];
        sum = flushed(std::fma(flushed(x), flushed(y), sum)), other = std::fma(x, y, other);
      }
      const float want = sums[0] + sums[1], got = out.at(e);
      CAPTURE(lowest, e, want, got);
      REQUIRE(is_same(got, want));
      lost += want != plain[0] + plain[1] && !std::isnan(want);
    }
    CHECK((lost > 0) == (lowest < -30));  // at -30 nothing is small enough
  }
}

// Rows of B that are a multiple of 2 KiB apart are copied first; others are not.
TEST_CASE("gemm: how far rows lie apart does not show") {
  Rng rng(21);
  const int64_t k = 900, n = 1000;
  Buffer<float> a = fractions(rng, {70, k}), near = fractions(rng, {k, n}), apart({k, n}, {}, {1024, 1}, 0);
  for (int64_t e = 0; e < k * n; ++e) apart.at(e) = near.at(e);
  auto multiply = [&](Buffer<float>& b) {
    Buffer<float> out({70, n});
    REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {out.tensor()}).ok());
    return out.values();
  };
  CHECK(multiply(near) == multiply(apart));
}

// Whichever code adds it, and where sums are recomputed.
TEST_CASE("addmm: a row of biases is added last, once") {
  Rng rng(23);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (auto [m, n, k] : {std::array<int64_t, 3>{70, 100, 200}, {40, 66, 1700}, {1100, 1000, 90}}) {
    Buffer<float> a = fractions(rng, {m, k}), b = fractions(rng, {k, n}), bias = fractions(rng, {n}), sums({m, n}),
                  out({m, n});
    a.at(3) = inf, a.at(5 * k) = nan, b.at(1) = -inf, a.at(33 * k + 7) = 1e30f;
    bias.at(0) = nan, bias.at(n - 1) = inf;
    REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {sums.tensor()}, 2).ok());
    REQUIRE(test::call("aten.addmm.default", {{"self", bias}, {"mat1", a}, {"mat2", b}}, {out.tensor()}, 2).ok());
    std::vector<int64_t> wrong;
    for (int64_t e = 0; e < m * n; ++e) {
      const float expected = sums.at(e) + bias.at(e % n);
      if (out.at(e) != expected && !(std::isnan(expected) && std::isnan(out.at(e)))) wrong.push_back(e);
    }
    CAPTURE(m, n, k);
    CHECK(wrong == std::vector<int64_t>());
  }
}

TEMPLATE_TEST_CASE("mm: threads and row slices give the same bits", "", float, BF16) {
  Rng rng(6);
  for (auto [m, n, k] : {std::array<int64_t, 3>{700, 530, 60},
                         {90, 700, 900},
                         {2000, 20, 300},
                         {37, 64, 3000},
                         {1500, 1472, 60}}) {  // the last: stored past the caches
    Buffer<TestType> a = fractions<TestType>(rng, {m, k}), b = fractions<TestType>(rng, {k, n}), whole({m, n});
    REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {whole.tensor()}).ok());
    for (int threads : {2, 4}) {
      Buffer<TestType> out({m, n});
      REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {out.tensor()}, threads).ok());
      REQUIRE(out.values() == whole.values());
    }
    for (auto [begin, count] : {std::array<int64_t, 2>{0, 1}, {5, 2}, {m / 2, m - m / 2}, {m - 7, 7}, {11, 19}}) {
      Tensor rows = a.tensor();
      rows.data += begin * k * static_cast<int64_t>(sizeof(TestType));
      rows.shape[0] = count;
      Buffer<TestType> out({count, n});
      REQUIRE(test::call("aten.mm.default", {{"self", rows}, {"mat2", b}}, {out.tensor()}, 2).ok());
      std::vector<TestType> all = whole.values();
      REQUIRE(out.values() == std::vector<TestType>(all.begin() + begin * n, all.begin() + (begin + count) * n));
    }
  }
}

TEST_CASE("mm: every f16 number is read and written as it is") {
  constexpr int64_t kCount = 1 << 16, kColumns = 33;  // a whole panel, and one column
  Buffer<F16> numbers({kCount, 1}), ones({1, kColumns}), out({kCount, kColumns});
  for (int64_t i = 0; i < kCount; ++i) numbers.at(i).bits = static_cast<uint16_t>(i);
  for (int64_t j = 0; j < kColumns; ++j) ones.at(j) = F16(1);
  REQUIRE(test::call("aten.mm.default", {{"self", numbers}, {"mat2", ones}}, {out.tensor()}).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < kCount * kColumns; ++i) {
    const float is = out.at(i), was = numbers.at(i / kColumns);
    wrong += is != was && !(std::isnan(is) && std::isnan(was));
  }
  CHECK(wrong == 0);
}

TEST_CASE("mm: integers wrap around, complex numbers by their definition") {
  Buffer<int8_t> a({1, 3}, {100, 100, 7}), b({3, 1}, {100, 1, 1}), out({1, 1});
  REQUIRE(test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {out.tensor()}).ok());
  CHECK(out.at(0) == static_cast<int8_t>(10107));
  Buffer<int64_t> big({1, 1}, {INT64_MAX}), two({1, 1}, {2}), wrapped({1, 1});
  REQUIRE(test::call("aten.mm.default", {{"self", big}, {"mat2", two}}, {wrapped.tensor()}).ok());
  CHECK(wrapped.at(0) == -2);
  Buffer<int32_t> bias({2}, {10, 20}), x({2, 2}, {1, 2, 3, 4}), y({2, 2}, {5, 6, 7, 8}), sum({2, 2});
  REQUIRE(test::call("aten.addmm.default", {{"self", bias}, {"mat1", x}, {"mat2", y}, {"alpha", 2}, {"beta", 3}},
                     {sum.tensor()})
              .ok());
  CHECK(sum.values() == std::vector<int32_t>{68, 104, 116, 160});
  Buffer<C64> p({1, 2}, {{1, 2}, {3, -1}}), q({2, 1}, {{0, 1}, {2, 2}}), r({1, 1});
  REQUIRE(test::call("aten.mm.default", {{"self", p}, {"mat2", q}}, {r.tensor()}).ok());
  CHECK(r.at(0) == C64(6, 5));
  Tensor conjugate = p.tensor();
  conjugate.conjugate = true;
  REQUIRE(test::call("aten.mm.default", {{"self", conjugate}, {"mat2", q}}, {r.tensor()}).ok());
  CHECK(r.at(0) == C64(6, 9));
}

TEST_CASE("matrix products by their names") {
  Buffer<float> m({2, 3}, {1, 2, 3, 4, 5, 6}), v({3}, {1, 0, -1}), w({2}, {10, 20}), out({2}), scalar({});
  REQUIRE(test::call("aten.mv.default", {{"self", m}, {"vec", v}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<float>{-2, -2});
  REQUIRE(test::call("aten.addmv.default", {{"self", w}, {"mat", m}, {"vec", v}, {"alpha", 3}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<float>{4, 14});
  REQUIRE(test::call("aten.dot.default", {{"self", v}, {"tensor", v}}, {scalar.tensor()}).ok());
  CHECK(scalar.at(0) == 2);
  REQUIRE(test::call("aten.matmul.default", {{"self", v}, {"other", v}}, {scalar.tensor()}).ok());
  CHECK(scalar.at(0) == 2);
  Buffer<float> weight({2, 3}, {1, 1, 1, 1, 0, 0}), result({2, 2});
  REQUIRE(test::call("aten.linear.default", {{"input", m}, {"weight", weight}, {"bias", w}}, {result.tensor()}).ok());
  CHECK(result.values() == std::vector<float>{16, 21, 25, 24});
  REQUIRE(test::call("aten.linear.default", {{"input", v}, {"weight", weight}, {"bias", w}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<float>{10, 21});
  REQUIRE(test::call("aten.addmm_.default",
                     {{"self", result}, {"mat1", m}, {"mat2", swap_axes(weight.tensor(), 0, 1)}, {"beta", 2}},
                     {result.tensor()})
              .ok());
  CHECK(result.values() == std::vector<float>{38, 43, 65, 52});
  Buffer<float> nan({2, 2}, {NAN, NAN, NAN, NAN});
  REQUIRE(test::call("aten.addmm.default",
                     {{"self", nan}, {"mat1", m}, {"mat2", swap_axes(weight.tensor(), 0, 1)}, {"beta", 0}},
                     {result.tensor()})
              .ok());
  CHECK(result.values() == std::vector<float>{6, 1, 15, 4});  // beta 0: self is not read
}

TEST_CASE("matmul broadcasts batches") {
  Rng rng(7);
  for (auto [left, right] : {std::pair<std::vector<int64_t>, std::vector<int64_t>>{{4, 1, 3, 5}, {2, 5, 6}},
                             {{4, 2, 3, 5}, {5, 6}},
                             {{5}, {4, 2, 5, 6}},
                             {{4, 2, 3, 5}, {5}},
                             {{0, 3, 5}, {5, 6}},
                             {{3, 0}, {0, 2}}}) {
    Buffer<float> a = random_buffer<float>(rng, left), b = random_buffer<float>(rng, right);
    size_t rank = std::max({left.size(), right.size(), size_t{2}});
    std::vector<int64_t> l(rank, 1), r(rank, 1);  // both padded to the same rank
    std::ranges::copy_backward(left, l.end());
    std::copy(right.begin(), right.end(), r.end() - static_cast<ptrdiff_t>(right.size()) - (right.size() == 1 ? 1 : 0));
    std::vector<int64_t> shape(rank);
    for (size_t i = 0; i + 2 < rank; ++i) shape[i] = l[i] == 1 ? r[i] : l[i];
    shape[rank - 2] = l[rank - 2], shape[rank - 1] = r[rank - 1];
    auto reshaped = [](const Tensor& t, bool row, bool column) {
      Tensor out = t;
      if (row || column)
        out.rank = 2, out.shape = {row ? 1 : t.shape[0], row ? t.shape[0] : 1},
        out.stride = {row ? 0 : t.stride[0], row ? t.stride[0] : 0};
      return out;
    };
    Tensor wide_a = broadcast_to(reshaped(a.tensor(), left.size() == 1, false), [&] {
      auto s = shape;
      s[rank - 1] = l[rank - 1];
      return s;
    }());
    Tensor wide_b = broadcast_to(reshaped(b.tensor(), false, right.size() == 1), [&] {
      auto s = shape;
      s[rank - 2] = r[rank - 2];
      return s;
    }());
    std::vector<float> expected;
    Buffer<float> counter(shape);
    for (int64_t e = 0; e < counter.tensor().elements(); ++e) {
      int64_t n = shape[rank - 1], rest = e / (n * shape[rank - 2]), at_a = e / n % shape[rank - 2] * wide_a.step(-2),
              at_b = e % n * wide_b.step(-1);
      for (int axis = static_cast<int>(rank) - 3; axis >= 0; --axis) {
        at_a += rest % shape[static_cast<size_t>(axis)] * wide_a.step(axis);
        at_b += rest % shape[static_cast<size_t>(axis)] * wide_b.step(axis);
        rest /= shape[static_cast<size_t>(axis)];
      }
      std::vector<float> row, column;
      for (int64_t k = 0; k < l[rank - 1]; ++k) {
        row.push_back(wide_a.as<float>()[at_a + k * wide_a.step(-1)]);
        column.push_back(wide_b.as<float>()[at_b + k * wide_b.step(-2)]);
      }
      expected.push_back(fast_sum(row, column));
    }
    std::vector<int64_t> out_shape(shape);
    if (right.size() == 1) out_shape.pop_back();
    if (left.size() == 1) out_shape.erase(out_shape.end() - (right.size() == 1 ? 1 : 2));
    Buffer<float> out(out_shape);
    REQUIRE(test::call("aten.matmul.default", {{"self", a}, {"other", b}}, {out.tensor()}, 2).ok());
    CHECK(out.values() == expected);
  }
}

TEST_CASE("sizes that do not fit are errors of the run") {
  Buffer<float> a({2, 3}), b({4, 2}), out({2, 2});
  CHECK(!test::call("aten.mm.default", {{"self", a}, {"mat2", b}}, {out.tensor()}).ok());
}
