#include "librun/cpu/cascade_sum.h"

#include <algorithm>
#include <bit>

#include "librun/cpu/reduce.h"

namespace sg::cpu {
namespace {

using Axis = ReducePlan::Axis;

constexpr int kLanes = 8, kTurns = 4, kBlock = kLanes * kTurns;  // of columns, or of a row's numbers, at a time
constexpr int64_t kRowsTogether = 128;

// Adds up what add(i, lanes) adds to `W` lanes, for i in [0, size).
template <int W, class Add>
SG_INLINE void cascade(int64_t size, const Add& add, float* out) {
  constexpr int kLevels = 4;
  const int digits = size <= 2 ? 1 : static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  const int power = std::max(4, digits / kLevels);
  const int64_t step = int64_t{1} << power;
  std::fill_n(out, W, 0.0f);
  int64_t i = 0;
  if (size >= step) {
    float level[kLevels][W] = {};
    while (i + step <= size) {
      for (const int64_t end = i + step; i < end; ++i) add(i, level[0]);
      for (int j = 1; j < kLevels; ++j) {
        for (int w = 0; w < W; ++w) level[j][w] += level[j - 1][w], level[j - 1][w] = 0;
        if ((i & ((step - 1) << (j * power))) != 0) break;
      }
    }
    for (; i < size; ++i) add(i, level[0]);
    for (int j = 0; j < kLevels; ++j)
      for (int w = 0; w < W; ++w) out[w] += level[j][w];
  }
  for (; i < size; ++i) add(i, out);
}

// Four cascades that take turns, of `W` lanes each. add(i, lanes) adds number i of each lane.
template <int W, class Add>
SG_INLINE void in_turns(int64_t size, const Add& add, float* out) {
  int64_t i = size / kTurns * kTurns;
  if (i == 0) {
    std::fill_n(out, W, 0.0f);
    for (; i < size; ++i) add(i, out);
    return;
  }
  float sums[kTurns * W];
  cascade<kTurns * W>(
      size / kTurns,
      [&](int64_t round, float* lanes) {
        for (int turn = 0; turn < kTurns; ++turn) add(round * kTurns + turn, lanes + turn * W);
      },
      sums);
  for (; i < size; ++i) add(i, sums);
  for (int turn = 1; turn < kTurns; ++turn)
    for (int w = 0; w < W; ++w) sums[w] += sums[turn * W + w];
  std::copy_n(sums, W, out);
}

template <class T>
SG_INLINE float number(T x) {
  return static_cast<float>(static_cast<Compute<T>>(x));
}

// How the numbers of a row are added: one by one, in lanes, or in lanes that take two at a time, which are 8 apart and
// added to each other first.
enum class Row : uint8_t { steps, lanes, pairs };

template <Row kRow, class T>
SG_INLINE float sum_of_row(const T* x, int64_t n, int64_t step) {
  constexpr int64_t kWide = kRow == Row::pairs ? 2 * kLanes : kLanes;
  float lanes[kLanes], sum = 0;
  if constexpr (kRow == Row::steps) {
    in_turns<1>(
        n, [=](int64_t i, float* to) { *to += number(x[i * step]); }, &sum);
    return sum;
  }
  in_turns<kLanes>(
      n / kWide,
      [=](int64_t i, float* to) {
        const T* at = x + i * kWide;
        for (int l = 0; l < kLanes; ++l)
          to[l] += kRow == Row::pairs ? number(at[l]) + number(at[kLanes + l]) : number(at[l]);
      },
      lanes);
  for (int64_t i = n / kWide * kWide; i < n; ++i) sum += number(x[i]);
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Adds to each of `count` sums a row of its own.
template <Row kRow, class T>
SG_CLONES void add_rows(const T* x, int64_t count, int64_t apart, int64_t n, int64_t step, float* sums) {
  for (int64_t r = 0; r < count; ++r) sums[r] += sum_of_row<kRow>(x + r * apart, n, step);
}

template <class T, int W>
SG_CLONES void sum_columns(const T* x, int64_t rows, int64_t row_step, int64_t step, float* out) {
  cascade<W>(
      rows,
      [=](int64_t i, float* to) {
        const T* row = x + i * row_step;
        for (int w = 0; w < W; ++w) to[w] += number(row[w * step]);
      },
      out);
}

// Fewer than a block of them: as rows are.
template <class T, int W>
SG_CLONES void sum_some_columns(const T* x, int64_t rows, int64_t row_step, float* out) {
  in_turns<W>(
      rows,
      [=](int64_t i, float* to) {
        for (int w = 0; w < W; ++w) to[w] += number(x[i * row_step + w]);
      },
      out);
}

enum class Order : uint8_t { unknown, rows, rows_by_steps, columns, strided_columns };

// Few enough to be left to one thread, there and here. A single output's are shared out from 2^15 on.
bool is_short(const ReducePlan& plan) {
  constexpr int64_t kShort = 1 << 15, kMost = 1 << 20, kManyOutputs = 64;
  return plan.count < kShort || (plan.outputs >= kManyOutputs && plan.count <= kMost);
}

bool has_steps(const std::vector<Axis>& axes) {
  return std::ranges::all_of(axes, [](const Axis& a) { return a.size == 1 || a.in > 0; });
}

Order order_of(const ReducePlan& plan, int64_t wide) {
  const Axis &reduced = plan.reduced.back(), &kept = plan.kept.back();
  if (plan.outputs == 0 || plan.count == 0 || !is_short(plan) || !has_steps(plan.reduced) || !has_steps(plan.kept))
    return Order::unknown;
  if (reduced.in == 1 && reduced.size >= wide) return Order::rows;
  if (plan.reduced.size() > 1 || plan.outputs == 1) return Order::rows_by_steps;
  if (kept.in == 1 && kept.size >= wide) return Order::columns;
  return reduced.in < kept.in ? Order::rows_by_steps : Order::strided_columns;
}

// The sums of one plan, written where they belong.
template <class T>
class Cascades {
 public:
  Cascades(const Tensor& self, const Tensor& out, const ReducePlan& plan, CascadeOf what, bool by_pairs)
      : x_(self.as<T>()), out_(out), plan_(plan), what_(what), by_pairs_(by_pairs) {}

  void run(KernelCall& call, Order order) const {
    const Axis& kept = plan_.kept.back();
    const bool is_by_row = order == Order::rows || order == Order::rows_by_steps;
    const int64_t together = is_by_row ? std::clamp<int64_t>(kPieceElements / plan_.count, 1, kRowsTogether)
                             : order == Order::columns ? kBlock
                                                       : kTurns;
    const int64_t units = (kept.size + together - 1) / together, lines = plan_.outputs / kept.size;
    const int64_t grain = std::max<int64_t>(1, kPieceElements / (together * plan_.count));
    call.team().parallel_for(lines * units, grain, [&](int64_t begin, int64_t end) {
      float sums[kRowsTogether];
      for (int64_t unit = begin; unit < end; ++unit) {
        const OuterOffset line = outer_offset(plan_.kept, unit / units);
        const int64_t first = unit % units * together, width = std::min(together, kept.size - first);
        const T* x = x_ + line.in + first * kept.in;
        is_by_row ? sum_rows(x, width, order, sums) : sum_block(x, width, order, sums);
        give(sums, width, line.out + first * kept.out);
      }
    });
  }

 private:
  void give(const float* sums, int64_t count, int64_t offset) const {
    const float divisor = what_ == CascadeOf::mean ? static_cast<float>(plan_.count) : 1.0f;
    const int64_t step = plan_.kept.back().out;
    visit_floating(out_.dtype, [&]<class Out>() {
      Out* to = out_.as<Out>() + offset;
      for (int64_t j = 0; j < count; ++j) to[j * step] = static_cast<Out>(static_cast<Compute<Out>>(sums[j] / divisor));
    });
  }

  void sum_rows(const T* x, int64_t count, Order order, float* sums) const {
    const Axis& row = plan_.reduced.back();
    const auto add = order == Order::rows_by_steps ? add_rows<Row::steps, T>
                     : by_pairs_                   ? add_rows<Row::pairs, T>
                                                   : add_rows<Row::lanes, T>;
    std::fill_n(sums, count, 0.0f);
    for (int64_t i = 0; i < plan_.count / row.size; ++i)
      add(x + outer_offset(plan_.reduced, i).in, count, plan_.kept.back().in, row.size, row.in, sums);
  }

  void sum_block(const T* x, int64_t width, Order order, float* sums) const {
    const Axis &rows = plan_.reduced.back(), &kept = plan_.kept.back();
    if (order == Order::strided_columns && width == kTurns)
      return sum_columns<T, kTurns>(x, rows.size, rows.in, kept.in, sums);
    if (width == kBlock) return sum_columns<T, kBlock>(x, rows.size, rows.in, 1, sums);
    const int64_t done = order == Order::columns ? width / kLanes * kLanes : 0;
    switch (done / kLanes) {
      case 3: sum_some_columns<T, 3 * kLanes>(x, rows.size, rows.in, sums); break;
      case 2: sum_some_columns<T, 2 * kLanes>(x, rows.size, rows.in, sums); break;
      case 1: sum_some_columns<T, kLanes>(x, rows.size, rows.in, sums); break;
      default: break;
    }
    std::fill(sums + done, sums + width, 0.0f);
    add_rows<Row::steps>(x + done * kept.in, width - done, kept.in, rows.size, rows.in, sums + done);
  }

  const T* x_;
  const Tensor& out_;
  const ReducePlan& plan_;
  CascadeOf what_;
  bool by_pairs_;
};

}  // namespace

bool cascade_sum(KernelCall& call, const Tensor& self, CascadeOf what) {
  const Tensor& out = call.result();
  const auto is_narrow = [](DType t) { return t == DType::bf16 || t == DType::f16; };
  if ((self.dtype != DType::f32 && !is_narrow(self.dtype)) || (out.dtype != self.dtype && out.dtype != DType::f32))
    return false;
  // A mean, and a sum that is asked for in f32, is one of numbers in f32.
  const bool by_pairs = is_narrow(self.dtype) && what == CascadeOf::sum && out.dtype == self.dtype;
  ReducePlan plan = plan_reduction(self, out, reduced_axes(call, self));
  std::ranges::sort(plan.kept, std::ranges::greater(), &Axis::out);  // columns are those of the result's innermost axis
  if (by_pairs && plan.reduced.size() > 1) return false;             // rounded after each row there
  const Order order = order_of(plan, by_pairs ? 2 * kLanes : kLanes);
  if (order == Order::unknown) return false;
  visit_floating(self.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) Cascades<T>(self, out, plan, what, by_pairs).run(call, order);
  });
  return true;
}

}  // namespace sg::cpu
