#include "librun/cpu/attention.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "librun/cpu/attention_scores.h"
#include "librun/cpu/attention_side.h"
#include "librun/cpu/attention_units.h"
#include "librun/cpu/blocks.h"
#include "librun/work/math.h"

namespace sg::cpu {
namespace {

template <class Side>
class Forward {
 public:
  using T = typename Side::Number;

  Forward(KernelCall& call, const Attention& a, const AttentionResult& result, const ScoreHooks<T>& hooks)
      : call_(call), a_(a), result_(result), scores_(a, hooks), width_(padded_columns(a.value.dim(3))) {
    const DType dtype = a.query.dtype;
    for (int i = 0; i < call.team().size(); ++i) {
      Scratch& s = call.scratch();
      spaces_.push_back({Side(call, {a.key.dim(2), a.key.dim(3)}, {dtype, dtype}, {.scores = true}),
                         Side(call, {a.key.dim(2), a.value.dim(3)}, {dtype, dtype}, {.to_rows = true}),
                         s.take<T>(kRows * kPackedRow), s.take<T>(kRows * width_)});
    }
  }

  Status run() {
    int64_t blocks = blocks_of(a_.query.dim(2), kRows), heads = a_.heads();
    FirstError error;
    call_.team().parallel_for_indexed(a_.batch() * heads * blocks, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        int64_t head = task / blocks, q = task % blocks * kRows;
        error.keep(task, rows(thread, head / heads, head % heads, q, std::min(kRows, a_.query.dim(2) - q)));
      }
    });
    return error.take();
  }

 private:
  static constexpr int64_t kRows = Side::kRows;
  static_assert(kRows <= kQueryBlock);
  struct Space {
    Side keys, values;
    T *scores, *out;
  };
  struct Row {
    T max = -kScoreInfinity<T>, sum = 0;
  };

  Status rows(int thread, int64_t batch, int64_t head, int64_t q, int64_t count) {
    Space& space = spaces_[static_cast<size_t>(thread)];
    Row rows[kRows];
    int64_t out_width = a_.value.dim(3), limit = scores_.key_limit(q, count);
    space.keys.set(scores_.of_key_head(a_.key, batch, head));
    space.values.set(scores_.of_key_head(a_.value, batch, head));
    space.keys.meet(scores_.query(batch, head).at(q, 0), count);
    std::fill_n(space.out, count * width_, T(0));
    for (int64_t k = 0; k < limit; k += kKeyBlock) {
      ScoreBlock<T> block{thread, batch, head, q, count, k, std::min(kKeyBlock, limit - k), space.scores};
      space.keys.scores(k, block.columns, space.scores);
      SG_TRY(scores_.make(block, nullptr));
      for (int64_t i = 0; i < count; ++i)
        add_scores(space.scores + i * kPackedRow, block.columns, &rows[i], space.out + i * width_);
      scores_.drop(block, space.scores);
      space.values.add_to_rows(space.scores, count, k, block.columns, space.out, width_);
    }
    for (int64_t i = 0; i < count; ++i) finish_row(rows[i], batch, head, q + i, space.out + i * width_);
    store_block(space.out, width_, matrix_of(result_.out, batch * a_.heads() + head).at(q, 0), count, out_width);
    return ok_status();
  }

  // Turns a row's scores into exp(score - max), and rescales earlier sums to the new maximum.
  void add_scores(T* scores, int64_t columns, Row* row, T* out) const {
    T max = std::max(row->max, max_of_scores(scores, columns));
    double scale = scores_.late_scale(), shift = max == -kScoreInfinity<T> ? 0.0 : static_cast<double>(max) * scale;
    if (row->max != max && row->max != -kScoreInfinity<T>) {
      T factor = static_cast<T>(math::Wide<T>::exp(static_cast<double>(row->max) * scale - shift));
      row->sum *= factor;
      scale_row(out, width_, factor);
    }
    row->max = max;
    row->sum += exp_row(scores, columns, scale, shift);
  }

  void finish_row(const Row& row, int64_t batch, int64_t head, int64_t i, T* out) const {
    if (row.sum != 0) scale_row(out, width_, T(1) / row.sum);
    double max = static_cast<double>(row.max) * scores_.late_scale();
    double log =
        row.max == -kScoreInfinity<T> && row.sum == 0 ? max : max + math::Wide<T>::log(static_cast<double>(row.sum));
    store_number(result_.logsumexp, batch, head, i, log * result_.log_scale);
    store_number(result_.maxima, batch, head, i, max * result_.log_scale);
  }

  KernelCall& call_;
  const Attention& a_;
  const AttentionResult& result_;
  Scores<T> scores_;
  int64_t width_;
  std::vector<Space> spaces_;
};

}  // namespace

Status check_attention(const KernelCall& call, const Attention& a) {
  for (const Tensor* t : {&a.query, &a.key, &a.value})
    if (t->rank != 4 || t->dtype != a.query.dtype || !is_floating(t->dtype))
      return call.fail("query, key and value need 4 axes and one float dtype");
  const Tensor &q = a.query, &k = a.key, &v = a.value;
  bool fits = q.dim(3) == k.dim(3) && k.dim(2) == v.dim(2) && k.dim(1) == v.dim(1) && k.dim(0) == v.dim(0) &&
              (k.dim(0) == q.dim(0) || k.dim(0) == 1);
  if (!fits) return call.fail("the sizes of query, key and value do not fit");
  if (k.dim(1) == 0 ? q.dim(1) != 0 : q.dim(1) % k.dim(1) != 0)
    return call.fail(std::to_string(q.dim(1)) + " query heads cannot share " + std::to_string(k.dim(1)) + " key heads");
  return ok_status();
}

template <class T>
Status attention_forward(KernelCall& call, const Attention& a, const AttentionResult& result,
                         const ScoreHooks<T>& hooks) {
  if constexpr (std::is_same_v<T, float>)
    if (multiplies_by_units(call, a, a.query.dtype)) return Forward<UnitSide>(call, a, result, hooks).run();
  return Forward<AddedSide<T>>(call, a, result, hooks).run();
}

Status attention_forward(KernelCall& call, const Attention& a, const AttentionResult& result) {
  if (Backend* backend = backend_of(call.context())) return backend->attend(call, a, result);
  if (a.query.dtype == DType::f64) return attention_forward<double>(call, a, result, {});
  return attention_forward<float>(call, a, result, {});
}

template Status attention_forward(KernelCall&, const Attention&, const AttentionResult&, const ScoreHooks<float>&);
template Status attention_forward(KernelCall&, const Attention&, const AttentionResult&, const ScoreHooks<double>&);

}  // namespace sg::cpu
