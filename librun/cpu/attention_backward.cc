#include <algorithm>
#include <vector>

#include "librun/cpu/attention_scores.h"
#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {
namespace {

// One task processes all query heads (and batches) that share a key head, and accumulates its gradients in order.
template <class T>
class Backward {
 public:
  Backward(KernelCall& call, const Attention& a, const AttentionGradients& g, const ScoreHooks<T>& hooks)
      : call_(call),
        a_(a),
        g_(g),
        hooks_(hooks),
        scores_(call, a, hooks),
        keys_(a.key.dim(2)),
        key_width_(padded_columns(a.key.dim(3))),
        value_width_(padded_columns(a.value.dim(3))),
        own_mask_(g.mask.is_none() || is_own(g.mask)) {
    for (int i = 0; i < (own_mask_ ? call.team().size() : 1); ++i) {
      Scratch& s = call.scratch();
      spaces_.push_back({scores_.take_rows(s, kQueryBlock, a.query.dim(3), a.query.dtype),
                         scores_.take_rows(s, kQueryBlock, a.value.dim(3), g.grad_out.dtype),
                         s.take<T>(kQueryBlock * value_width_), s.take<T>(kQueryBlock * value_width_),
                         s.take<T>(kQueryBlock * kPackedRow), s.take<T>(kQueryBlock * kPackedRow),
                         hooks.backward ? s.take<T>(kQueryBlock * kPackedRow) : nullptr,
                         s.take<T>(packed_a_size(kKeyBlock, kQueryBlock)), s.take<T>(kQueryBlock * key_width_),
                         s.take<T>(keys_ * key_width_), s.take<T>(keys_ * value_width_), s.take<T>(kPanelSize)});
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
  struct Space {
    ScoreRows<T> query, grad_out;
    T *out_rows, *grad_rows;   // [rows, value width]
    T *p, *grad, *raw;         // blocks of scores
    T* turned;                 // p or grad transposed, packed
    T* grad_query;             // [rows, key width]
    T *grad_key, *grad_value;  // [keys, width]
    T* panel;
  };

  // Whether every batch and head has its own elements in the mask's gradient.
  bool is_own(const Tensor& t) const {
    return (t.step(0) != 0 || a_.batch() == 1) && (t.step(1) != 0 || a_.heads() == 1);
  }

  Status key_head(int thread, int64_t key_batch, int64_t head) {
    const Space& space = spaces_[static_cast<size_t>(thread)];
    std::fill_n(space.grad_key, keys_ * key_width_, T(0));
    std::fill_n(space.grad_value, keys_ * value_width_, T(0));
    bool all_batches = a_.key.dim(0) == 1;
    for (int64_t b = all_batches ? 0 : key_batch; b < (all_batches ? a_.batch() : key_batch + 1); ++b)
      for (int64_t h = head * a_.group(); h < (head + 1) * a_.group(); ++h)
        for (int64_t q = 0; q < a_.query.dim(2); q += kQueryBlock)
          SG_TRY(rows(thread, b, h, q, std::min(kQueryBlock, a_.query.dim(2) - q)));
    int64_t entry = key_batch * a_.key.dim(1) + head;
    if (!g_.key.is_none()) store_block(space.grad_key, key_width_, matrix_of(g_.key, entry), keys_, a_.key.dim(3));
    if (!g_.value.is_none())
      store_block(space.grad_value, value_width_, matrix_of(g_.value, entry), keys_, a_.value.dim(3));
    return ok_status();
  }

  Status rows(int thread, int64_t batch, int64_t head, int64_t q, int64_t count) {
    const Space& space = spaces_[static_cast<size_t>(thread)];
    StoredLog logs[kQueryBlock];
    T delta[kQueryBlock];
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

  // Loads what all blocks of these rows need: packed query and grad_out, and per row the logarithm and sum(out *
  // grad_out).
  void load_rows(const Space& space, int64_t batch, int64_t head, int64_t q, int64_t count, StoredLog* logs,
                 T* delta) const {
    int64_t width = a_.value.dim(3), entry = batch * a_.heads() + head;
    scores_.pack(scores_.query(batch, head).at(q, 0), count, a_.query.dim(3), space.query);
    pack_block(scores_.kernels(), matrix_of(g_.out, entry).at(q, 0), count, width, space.out_rows, value_width_);
    MatrixView grads{reinterpret_cast<const std::byte*>(space.grad_rows), kTileType<T>, value_width_, 1};
    if (g_.grad_out.is_none()) {
      std::fill_n(space.grad_rows, count * value_width_, T(0));
    } else {
      const MatrixView given = matrix_of(g_.grad_out, entry).at(q, 0);
      pack_block(scores_.kernels(), given, count, width, space.grad_rows, value_width_);
      if (space.grad_out.pairs) grads = given;
    }
    scores_.pack(grads, count, width, space.grad_out);
    for (int64_t i = 0; i < count; ++i) {
      const double log = load_number(g_.logsumexp, batch, head, q + i);
      logs[i] = {log == -kScoreInfinity<double> ? kScoreInfinity<double> : log, g_.log_scale};
      delta[i] = dot_row(space.out_rows + i * value_width_, space.grad_rows + i * value_width_, width);
      if (!g_.grad_logsumexp.is_none())
        delta[i] -= static_cast<T>(load_number(g_.grad_logsumexp, batch, head, q + i) * g_.log_scale);
    }
  }

  // space.p: softmax values of a block, as factors of gradients; space.grad: the gradient of its scaled scores.
  Status score_gradients(const Space& space, const ScoreBlock<T>& block, const StoredLog* logs, const T* delta) {
    SG_TRY(scores_.make(block, space.query, space.raw, space.panel));
    for (int64_t i = 0; i < block.rows; ++i)
      weights_row(space.p + i * kPackedRow, block.columns, scores_.late_scale(), logs[i]);
    const MatrixView value = scores_.of_key_head(a_.value, block.batch, block.head).at(block.k, 0);
    scores_.multiply(space.grad_out, block.rows, value, block.columns, a_.value.dim(3), space.grad, space.panel);
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

  void add_products(const Space& space, const ScoreBlock<T>& block) {
    const TileKernels<T>& kernels = scores_.kernels();
    DType dtype = kTileType<T>;
    auto turned = [&](const T* scores) {
      MatrixView v{reinterpret_cast<const std::byte*>(scores), dtype, kPackedRow, 1};
      pack_a(kernels, v.transposed(), block.columns, block.rows, space.turned);
    };
    turned(space.p);
    MatrixView grads{reinterpret_cast<const std::byte*>(space.grad_rows), dtype, value_width_, 1};
    multiply_packed(kernels, {space.turned, block.columns, grads, a_.value.dim(3), block.rows},
                    scores_.onto(space.grad_value + block.k * value_width_, value_width_), space.panel);
    for (int64_t i = 0; i < block.rows; ++i)
      scale_row(space.grad + i * kPackedRow, block.columns, static_cast<T>(a_.scale));
    turned(space.grad);
    MatrixView query = scores_.query(block.batch, block.head).at(block.q, 0);
    multiply_packed(kernels, {space.turned, block.columns, query, a_.query.dim(3), block.rows},
                    scores_.onto(space.grad_key + block.k * key_width_, key_width_), space.panel);
    MatrixView key = scores_.of_key_head(a_.key, block.batch, block.head).at(block.k, 0);
    multiply_packed(kernels, {space.grad, block.rows, key, a_.key.dim(3), block.columns},
                    scores_.onto(space.grad_query, key_width_), space.panel);
  }

  KernelCall& call_;
  const Attention& a_;
  const AttentionGradients& g_;
  const ScoreHooks<T>& hooks_;
  Scores<T> scores_;
  int64_t keys_, key_width_, value_width_;
  bool own_mask_;  // tasks write to disjoint parts of the mask's gradient
  std::vector<Space> spaces_;
};

}  // namespace

template <class T>
Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g,
                          const ScoreHooks<T>& hooks) {
  return Backward<T>(call, a, g, hooks).run();
}

Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g) {
  if (Backend* backend = backend_of(call.context())) return backend->attend_backward(call, a, g);
  if (a.query.dtype == DType::f64) return attention_backward<double>(call, a, g, {});
  return attention_backward<float>(call, a, g, {});
}

template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<float>&);
template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<double>&);

}  // namespace sg::cpu
