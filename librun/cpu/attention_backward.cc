#include <algorithm>
#include <type_traits>
#include <vector>

#include "librun/cpu/attention_scores.h"
#include "librun/cpu/attention_side.h"
#include "librun/cpu/attention_units.h"
#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {
namespace {

// One task processes all query heads (and batches) that share a key head, and accumulates its gradients in order.
template <class Side>
class Backward {
 public:
  using T = typename Side::Number;

  Backward(KernelCall& call, const Attention& a, const AttentionGradients& g, const ScoreHooks<T>& hooks)
      : call_(call),
        a_(a),
        g_(g),
        hooks_(hooks),
        scores_(a, hooks),
        key_width_(padded_columns(a.key.dim(3))),
        value_width_(padded_columns(a.value.dim(3))),
        own_mask_(g.mask.is_none() || is_own(g.mask)) {
    const DType dtype = a.query.dtype;
    for (int i = 0; i < (own_mask_ ? call.team().size() : 1); ++i) {
      Scratch& s = call.scratch();
      spaces_.push_back(
          {Side(call, {a.key.dim(2), a.key.dim(3)}, {dtype, dtype}, {.scores = true, .to_rows = true, .to_side = true}),
           Side(call, {a.key.dim(2), a.value.dim(3)}, {dtype, g.grad_out.dtype}, {.scores = true, .to_side = true}),
           s.take<T>(kRows * value_width_), s.take<T>(kRows * value_width_), s.take<T>(kRows * kPackedRow),
           s.take<T>(kRows * kPackedRow), hooks.backward ? s.take<T>(kRows * kPackedRow) : nullptr,
           s.take<T>(kRows * key_width_)});
    }
  }

  Status run() {
    int64_t heads = a_.key.dim(1), tasks = a_.key.dim(0) * heads;
    FirstError error;
    call_.team().parallel_for_indexed(tasks, own_mask_ ? 1 : tasks, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        error.keep(task, key_head(own_mask_ ? thread : 0, task / heads, task % heads));
    });
    return error.take();
  }

 private:
  static constexpr int64_t kRows = Side::kRows;
  static_assert(kRows <= kQueryBlock);
  struct Space {
    Side keys, values;
    T *out_rows, *grad_rows;  // [rows, value width]
    T *p, *grad, *raw;        // blocks of scores
    T* grad_query;            // [rows, key width]
  };

  // Whether every batch and head has its own elements in the mask's gradient.
  bool is_own(const Tensor& t) const {
    return (t.step(0) != 0 || a_.batch() == 1) && (t.step(1) != 0 || a_.heads() == 1);
  }

  Status key_head(int thread, int64_t key_batch, int64_t head) {
    Space& space = spaces_[static_cast<size_t>(thread)];
    int64_t entry = key_batch * a_.key.dim(1) + head;
    space.keys.set(matrix_of(a_.key, entry));
    space.values.set(matrix_of(a_.value, entry));
    space.keys.clear_sums();
    space.values.clear_sums();
    bool all_batches = a_.key.dim(0) == 1;
    for (int64_t b = all_batches ? 0 : key_batch; b < (all_batches ? a_.batch() : key_batch + 1); ++b)
      for (int64_t h = head * a_.group(); h < (head + 1) * a_.group(); ++h)
        for (int64_t q = 0; q < a_.query.dim(2); q += kRows)
          SG_TRY(rows(thread, b, h, q, std::min(kRows, a_.query.dim(2) - q)));
    if (!g_.key.is_none()) space.keys.store_sums(matrix_of(g_.key, entry));
    if (!g_.value.is_none()) space.values.store_sums(matrix_of(g_.value, entry));
    return ok_status();
  }

  Status rows(int thread, int64_t batch, int64_t head, int64_t q, int64_t count) {
    Space& space = spaces_[static_cast<size_t>(thread)];
    StoredLog logs[kRows];
    T delta[kRows];
    load_rows(space, batch, head, q, count, logs, delta);
    std::fill_n(space.grad_query, count * key_width_, T(0));
    int64_t limit = scores_.key_limit(q, count);
    for (int64_t k = 0; k < limit; k += kKeyBlock) {
      ScoreBlock<T> block{thread, batch, head, q, count, k, std::min(kKeyBlock, limit - k), space.p};
      SG_TRY(score_gradients(space, block, logs, delta));
      add_products(space, block);
    }
    if (!g_.query.is_none())
      store_block(space.grad_query, key_width_, matrix_of(g_.query, batch * a_.heads() + head).at(q, 0), count,
                  a_.query.dim(3));
    return ok_status();
  }

  // Loads what all blocks of these rows need: query and grad_out, and per row the logarithm and sum(out * grad_out).
  void load_rows(Space& space, int64_t batch, int64_t head, int64_t q, int64_t count, StoredLog* logs, T* delta) const {
    const int64_t width = a_.value.dim(3), entry = batch * a_.heads() + head;
    const TileKernels<T>& kernels = tile_kernels<T>(best_isa());
    pack_block(kernels, matrix_of(g_.out, entry).at(q, 0), count, width, space.out_rows, value_width_);
    MatrixView grads{reinterpret_cast<const std::byte*>(space.grad_rows), kTileType<T>, value_width_, 1};
    if (g_.grad_out.is_none()) {
      std::fill_n(space.grad_rows, count * value_width_, T(0));
    } else {
      const MatrixView given = matrix_of(g_.grad_out, entry).at(q, 0);
      pack_block(kernels, given, count, width, space.grad_rows, value_width_);
      if (given.dtype == DType::bf16) grads = given;
    }
    space.keys.meet(scores_.query(batch, head).at(q, 0), count);
    space.values.meet(grads, count);
    for (int64_t i = 0; i < count; ++i) {
      const double log = load_number(g_.logsumexp, batch, head, q + i);
      logs[i] = {log == -kScoreInfinity<double> ? kScoreInfinity<double> : log, g_.log_scale};
      delta[i] = dot_row(space.out_rows + i * value_width_, space.grad_rows + i * value_width_, width);
      if (!g_.grad_logsumexp.is_none())
        delta[i] -= static_cast<T>(load_number(g_.grad_logsumexp, batch, head, q + i) * g_.log_scale);
    }
  }

  // space.p: softmax values of a block, as factors of gradients; space.grad: the gradient of its scaled scores.
  Status score_gradients(Space& space, const ScoreBlock<T>& block, const StoredLog* logs, const T* delta) {
    space.keys.scores(block.k, block.columns, space.p);
    SG_TRY(scores_.make(block, space.raw));
    for (int64_t i = 0; i < block.rows; ++i)
      weights_row(space.p + i * kPackedRow, block.columns, scores_.late_scale(), logs[i]);
    space.values.scores(block.k, block.columns, space.grad);
    scores_.drop(block, space.grad);
    for (int64_t i = 0; i < block.rows; ++i)
      softmax_grad_row(space.grad + i * kPackedRow, space.p + i * kPackedRow, block.columns, delta[i]);
    scores_.drop(block, space.p);
    if (!g_.mask.is_none()) add_mask_gradient(space, block);
    if (!hooks_.backward) return ok_status();
    ScoreBlock<T> raw = block;
    raw.scores = space.raw;
    return hooks_.backward(raw, space.grad);
  }

  void add_mask_gradient(const Space& space, const ScoreBlock<T>& block) const {
    const Tensor& t = g_.mask;
    int64_t first = block.batch * t.step(0) + block.head * t.step(1) + block.q * t.step(2) + block.k * t.step(3);
    visit_floating(t.dtype, [&]<class M>() {
      for (int64_t i = 0; i < block.rows; ++i)
        for (int64_t j = 0; j < block.columns; ++j) {
          M& to = t.as<M>()[first + i * t.step(2) + j * t.step(3)];
          to = static_cast<M>(
              static_cast<Compute<M>>(static_cast<T>(static_cast<Compute<M>>(to)) + space.grad[i * kPackedRow + j]));
        }
    });
  }

  void add_products(Space& space, const ScoreBlock<T>& block) {
    space.values.add_to_side(space.p, block.k, block.columns);
    for (int64_t i = 0; i < block.rows; ++i)
      scale_row(space.grad + i * kPackedRow, block.columns, static_cast<T>(a_.scale));
    space.keys.add_to_side(space.grad, block.k, block.columns);
    space.keys.add_to_rows(space.grad, block.rows, block.k, block.columns, space.grad_query, key_width_);
  }

  KernelCall& call_;
  const Attention& a_;
  const AttentionGradients& g_;
  const ScoreHooks<T>& hooks_;
  Scores<T> scores_;
  int64_t key_width_, value_width_;
  bool own_mask_;  // tasks write to disjoint parts of the mask's gradient
  std::vector<Space> spaces_;
};

}  // namespace

template <class T>
Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g,
                          const ScoreHooks<T>& hooks) {
  if constexpr (std::is_same_v<T, float>)
    if (multiplies_by_units(call, a, g.grad_out.dtype)) return Backward<UnitSide>(call, a, g, hooks).run();
  return Backward<AddedSide<T>>(call, a, g, hooks).run();
}

Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g) {
  if (Backend* backend = backend_of(call.context())) return backend->attend_backward(call, a, g);
  if (a.query.dtype == DType::f64) return attention_backward<double>(call, a, g, {});
  return attention_backward<float>(call, a, g, {});
}

template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<float>&);
template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<double>&);

}  // namespace sg::cpu
