// The products of attention by themselves, of integers, which every sum of them holds exactly; and bf16 attention on
// matrix units as a whole.
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "librun/cpu/attention_side.h"
#include "librun/cpu/attention_units.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using cpu::AddedSide;
using cpu::MatrixView;
using cpu::UnitSide;
using test::Buffer;
using test::Rng;

namespace {

// A call without an op's arguments, for what needs its scratch.
struct BareCall {
  ThreadTeam team{1};
  Scratch scratch;
  KernelContext context{&team, &scratch, Numerics::fast};
  KernelCall call{*find_op("aten.bmm.default"), &context};
};

bool has_unit_sides() {
  BareCall bare;
  Buffer<BF16> t({1, 1, 1, 64});
  return cpu::multiplies_by_units(bare.call, {t.tensor(), t.tensor(), t.tensor(), {}}, DType::bf16);
}

// A matrix of small integers with any strides, and the same as numbers.
struct IntegerMatrix {
  int64_t rows, columns;
  bool turned;
  int64_t gap;  // between elements of a line
  std::vector<BF16> data;

  IntegerMatrix(Rng& rng, int64_t m, int64_t n)
      : rows(m),
        columns(n),
        turned(rng.below(3) == 0),
        gap(rng.below(4) == 0 ? 2 : 1),
        data(static_cast<size_t>((turned ? n : m) * line_step())) {
    for (BF16& x : data) x = BF16(static_cast<float>(rng.between(-3, 3)));
  }
  int64_t line_step() const { return (turned ? rows : columns) * gap + 5; }
  MatrixView view() const {
    const MatrixView lines{reinterpret_cast<const std::byte*>(data.data()), DType::bf16, line_step(), gap};
    return turned ? lines.transposed() : lines;
  }
  double at(int64_t i, int64_t j) const {
    const MatrixView v = view();
    return static_cast<double>(static_cast<float>(data[static_cast<size_t>(i * v.row_step + j * v.column_step)]));
  }
};

template <class T>
std::vector<T> block_of_scores(Rng& rng, int64_t count, int64_t columns) {
  std::vector<T> out(static_cast<size_t>(cpu::kQueryBlock * cpu::kPackedRow), std::numeric_limits<T>::quiet_NaN());
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[static_cast<size_t>(i * cpu::kPackedRow + j)] = static_cast<T>(rng.between(-3, 3));
  return out;
}

// Each product against its definition, block after block, with what lies beside a block being NaN.
template <class Side>
void check_products(Rng& rng, int64_t keys, int64_t width) {
  using T = typename Side::Number;
  BareCall bare;
  const IntegerMatrix side(rng, keys, width);
  Side products(bare.call, {keys, width}, {DType::bf16, DType::bf16},
                {.scores = true, .to_rows = true, .to_side = true});
  products.set(side.view());
  products.clear_sums();
  std::vector<double> sums(static_cast<size_t>(keys * width));
  for (int64_t count : {rng.between(1, Side::kRows), Side::kRows}) {
    const IntegerMatrix rows(rng, count, width);
    products.meet(rows.view(), count);
    const int64_t step = cpu::padded_columns(width);
    std::vector<T> to(static_cast<size_t>(cpu::kQueryBlock * step));
    std::vector<double> expected(static_cast<size_t>(count * width));
    for (int64_t k = 0; k < keys; k += cpu::kKeyBlock) {
      const int64_t columns = std::min(cpu::kKeyBlock, keys - k);
      CAPTURE(keys, width, count, k, columns, side.turned, side.gap, rows.turned, rows.gap);
      std::vector<T> scores = block_of_scores<T>(rng, 0, 0);
      products.scores(k, columns, scores.data());
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < width; ++e) sum += rows.at(i, e) * side.at(k + j, e);
          wrong += static_cast<double>(scores[static_cast<size_t>(i * cpu::kPackedRow + j)]) != sum;
        }
      CHECK(wrong == 0);
      scores = block_of_scores<T>(rng, count, columns);
      products.add_to_rows(scores.data(), count, k, columns, to.data(), step);
      products.add_to_side(scores.data(), k, columns);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t e = 0; e < width; ++e) {
            const auto score = static_cast<double>(scores[static_cast<size_t>(i * cpu::kPackedRow + j)]);
            expected[static_cast<size_t>(i * width + e)] += score * side.at(k + j, e);
            sums[static_cast<size_t>((k + j) * width + e)] += score * rows.at(i, e);
          }
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t e = 0; e < width; ++e)
        wrong +=
            static_cast<double>(to[static_cast<size_t>(i * step + e)]) != expected[static_cast<size_t>(i * width + e)];
    CHECK(wrong == 0);
  }
  std::vector<T> stored(sums.size());
  products.store_sums({reinterpret_cast<const std::byte*>(stored.data()), cpu::kTileType<T>, width, 1});
  CHECK(std::vector<double>(stored.begin(), stored.end()) == sums);
}

template <class Side>
void check_sizes(uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < 12; ++i) check_products<Side>(rng, rng.between(1, 70), rng.between(17, 80));
  for (int64_t width : {24, 64}) check_products<Side>(rng, rng.between(257, 600), width);
  check_products<Side>(rng, 33, 520);
}

struct Bf16Attention {
  int64_t batch, heads, key_heads, length, keys, width, value_width;
  bool causal = false;
  Buffer<BF16> q, k, v, grad, out, dq, dk, dv;
  Buffer<float> lse;

  Bf16Attention(Rng& rng, std::vector<int64_t> s, bool is_causal)
      : batch(s[0]),
        heads(s[1]),
        key_heads(s[2]),
        length(s[3]),
        keys(s[4]),
        width(s[5]),
        value_width(s[6]),
        causal(is_causal),
        q({batch, heads, length, width}),
        k({batch, key_heads, keys, width}),
        v({batch, key_heads, keys, value_width}),
        grad({batch, heads, length, value_width}),
        out({batch, heads, length, value_width}),
        dq({batch, heads, length, width}),
        dk({batch, key_heads, keys, width}),
        dv({batch, key_heads, keys, value_width}),
        lse({batch, heads, length}) {
    for (Buffer<BF16>* t : {&q, &k, &v, &grad})
      for (int64_t i = 0; i < t->tensor().elements(); ++i)
        t->at(i) = BF16(static_cast<float>(rng.between(-2000, 2000)) / 1000);
  }
  std::vector<test::Argument> arguments() { return {{"query", q}, {"key", k}, {"value", v}, {"is_causal", causal}}; }
  void run(int threads, bool in_order = false) {
    auto call = in_order ? [](std::string_view op, std::vector<test::Argument> a, std::vector<Tensor> r,
                              int t) { return test::call_in_order(op, std::move(a), std::move(r), t); }
                         : [](std::string_view op, std::vector<test::Argument> a, std::vector<Tensor> r, int t) {
                             return test::call(op, std::move(a), std::move(r), t);
                           };
    const std::string op = "aten._scaled_dot_product_flash_attention_for_cpu";
    std::vector<test::Argument> args = arguments();
    REQUIRE(call(op + ".default", args, {out.tensor(), lse.tensor()}, threads).ok());
    args.insert(args.end(), {{"grad_out", grad}, {"out", out}, {"logsumexp", lse}, {"dropout_p", 0.0}});
    REQUIRE(call(op + "_backward.default", args, {dq.tensor(), dk.tensor(), dv.tensor()}, threads).ok());
  }
  std::vector<float> results() {
    std::vector<float> all = lse.values();
    for (Buffer<BF16>* t : {&out, &dq, &dk, &dv})
      for (BF16 x : t->values()) all.push_back(x);
    return all;
  }
};

}  // namespace

TEST_CASE("attention's products: by multiply-adds, of any sizes and strides") {
  check_sizes<AddedSide<float>>(1);
  check_sizes<AddedSide<double>>(2);
}

TEST_CASE("attention's products: on matrix units, of any sizes and strides") {
  if (has_unit_sides()) check_sizes<UnitSide>(3);
  else WARN("this processor has no matrix units");
}

TEST_CASE("attention: bf16 has the same bits on any number of threads") {
  Rng rng(4);
  for (bool causal : {false, true}) {
    Bf16Attention a(rng, {2, 4, 2, 300, 530, 40, 64}, causal);
    a.run(1);
    const std::vector<float> first = a.results();
    for (int threads : {2, 3, 5}) {
      a.run(threads);
      CHECK(a.results() == first);
    }
  }
}

TEST_CASE("attention: rows of bf16 in slices are the rows of the whole") {
  Rng rng(5);
  Bf16Attention a(rng, {1, 2, 2, 301, 400, 64, 48}, false);
  a.run(2);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 77}, {77, 301}, {140, 141}}) {
    Tensor query = a.q.tensor();
    query.data += begin * query.step(2) * static_cast<int64_t>(sizeof(BF16)), query.shape[2] = end - begin;
    Buffer<BF16> out({1, 2, end - begin, 48});
    Buffer<float> lse({1, 2, end - begin});
    std::vector<test::Argument> args = a.arguments();
    args[0] = {"query", query};
    REQUIRE(test::call("aten._scaled_dot_product_flash_attention_for_cpu.default", args, {out.tensor(), lse.tensor()})
                .ok());
    int64_t different = 0;
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = begin; i < end; ++i) {
        different += lse.at(h * (end - begin) + i - begin) != a.lse.at(h * 301 + i);
        for (int64_t e = 0; e < 48; ++e)
          different += out.at((h * (end - begin) + i - begin) * 48 + e).bits != a.out.at((h * 301 + i) * 48 + e).bits;
      }
    CHECK(different == 0);
  }
}

TEST_CASE("attention: bf16 that keeps the order of sums differs from the units' by roundings alone") {
  Rng rng(6);
  Bf16Attention a(rng, {2, 3, 1, 130, 290, 64, 32}, true);
  a.run(2);
  const std::vector<float> fast = a.results();
  a.run(2, true);
  const std::vector<float> in_order = a.results();
  double largest = 0, distance = 0;
  for (size_t i = 0; i < fast.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(in_order[i])));
    distance = std::max(distance, std::fabs(static_cast<double>(fast[i]) - static_cast<double>(in_order[i])));
  }
  CHECK(distance < 0x1p-7 * largest);
  CHECK((distance > 0) == has_unit_sides());
}

TEST_CASE("attention: an infinity among bf16 values reaches the rows that see it, as infinity") {
  Rng rng(7);
  Bf16Attention a(rng, {1, 1, 1, 40, 64, 32, 32}, false);
  a.v.at(20 * 32 + 3) = BF16(std::numeric_limits<float>::infinity());
  a.run(1);
  for (int64_t i = 0; i < 40; ++i) {
    CHECK(std::isinf(static_cast<float>(a.out.at(i * 32 + 3))));
    CHECK(std::isfinite(static_cast<float>(a.out.at(i * 32 + 4))));
  }
}
