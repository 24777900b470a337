#include "librun/cpu/attention.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "librun/backend.h"
#include "librun/cpu/attention_rows.h"
#include "librun/work/math.h"

namespace sg::cpu {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// The first error by task, whichever thread meets its own first.
class FirstError {
 public:
  void keep(int64_t task, Status status) {
    if (status.ok()) return;
    std::lock_guard lock(mutex_);
    if (task < task_) task_ = task, status_ = std::move(status);
  }
  Status take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  int64_t task_ = INT64_MAX;
  Status status_ = ok_status();
};

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

// What both directions do with one head: scores of a block.
template <class T>
class Scores {
 public:
  Scores(const KernelCall& call, const Attention& a, const ScoreHooks<T>& hooks)
      : a_(a),
        hooks_(hooks),
        kernels_(tile_kernels<T>(best_isa())),
        starts_{TileStart::zero, call.numerics() == Numerics::strict ? TileStart::chain : TileStart::add},
        mask_(a.mask),
        late_scale_(a.mask.is_none() && !hooks.forward && a.scale > 0 ? a.scale : 1) {}

  const TileKernels<T>& kernels() const { return kernels_; }
  Starts fresh() const { return starts_; }
  Starts onto() const { return {starts_.later, starts_.later}; }

  MatrixView query(int64_t batch, int64_t head) const { return matrix_of(a_.query, batch * a_.heads() + head); }
  MatrixView of_key_head(const Tensor& t, int64_t batch, int64_t head) const {
    return matrix_of(t, (t.dim(0) == 1 ? 0 : batch) * t.dim(1) + head / a_.group());
  }

  // How many keys rows [q, q + rows) see.
  int64_t key_limit(int64_t q, int64_t rows) const {
    return a_.causal ? std::min(a_.key.dim(2), q + rows) : a_.key.dim(2);
  }

  // What scores are still to be multiplied with: the scale, when nothing else needs them scaled.
  double late_scale() const { return late_scale_; }

  // The scores of a block as scaled (see late_scale), then with mask and hook. `raw`, when given, keeps what the hook
  // got.
  Status make(const ScoreBlock<T>& block, const T* packed_query, T* raw, T* panel) const {
    MatrixView key = of_key_head(a_.key, block.batch, block.head).at(block.k, 0);
    multiply_packed(kernels_, packed_query, block.rows, key.transposed(), block.columns, a_.query.dim(3), starts_,
                    block.scores, kPackedRow, true, panel);
    for (int64_t i = 0; i < block.rows && late_scale_ != a_.scale; ++i)
      scale_row(block.scores + i * kPackedRow, block.columns, static_cast<T>(a_.scale));
    if (!mask_.is_none()) apply_mask(block);
    if (a_.causal)
      for (int64_t i = 0; i < block.rows; ++i) {
        int64_t seen = std::clamp<int64_t>(block.q + i + 1 - block.k, 0, block.columns);
        std::fill(block.scores + i * kPackedRow + seen, block.scores + i * kPackedRow + block.columns, -kInfinity<T>);
      }
    if (!hooks_.forward) return ok_status();
    if (raw) std::copy_n(block.scores, block.rows * kPackedRow, raw);
    return hooks_.forward(block);
  }

  // Weights of a block, or their gradients, after dropout.
  void drop(const ScoreBlock<T>& block, T* weights) const {
    if (!a_.dropout) return;
    const int64_t length = a_.query.dim(2), keys = a_.key.dim(2);
    const int64_t row = (block.batch * a_.heads() + block.head) * length + block.q;
    for (int64_t i = 0; i < block.rows; ++i)
      a_.dropout->apply((row + i) * keys + block.k, block.columns, weights + i * kPackedRow);
  }

 private:
  void apply_mask(const ScoreBlock<T>& block) const {
    int64_t first =
        block.batch * mask_.step(0) + block.head * mask_.step(1) + block.q * mask_.step(2) + block.k * mask_.step(3);
    auto rows = [&](auto* mask, const auto& apply) {
      for (int64_t i = 0; i < block.rows; ++i) {
        T* s = block.scores + i * kPackedRow;
        auto* m = mask + first + i * mask_.step(2);
        for (int64_t j = 0; j < block.columns; ++j) s[j] = apply(s[j], m[j * mask_.step(3)]);
      }
    };
    if (mask_.dtype == DType::boolean)
      return rows(mask_.as<const bool>(), [](T s, bool seen) { return seen ? s : -kInfinity<T>; });
    visit_floating(mask_.dtype, [&]<class M>() {
      rows(mask_.as<const M>(), [](T s, M m) { return s + static_cast<T>(static_cast<Compute<M>>(m)); });
    });
  }

  const Attention& a_;
  const ScoreHooks<T>& hooks_;
  const TileKernels<T>& kernels_;
  Starts starts_;
  Tensor mask_;
  double late_scale_;
};

void store_number(const Tensor& t, int64_t batch, int64_t head, int64_t row, double value) {
  if (t.is_none()) return;
  int64_t at = batch * t.step(0) + head * t.step(1) + row * t.step(2);
  visit_floating(t.dtype, [&]<class Out>() { t.as<Out>()[at] = static_cast<Out>(static_cast<Compute<Out>>(value)); });
}

double load_number(const Tensor& t, int64_t batch, int64_t head, int64_t row) {
  int64_t at = batch * t.step(0) + head * t.step(1) + row * t.step(2);
  return visit_floating(t.dtype,
                        [&]<class In>() { return static_cast<double>(static_cast<Compute<In>>(t.as<In>()[at])); });
}

// --- forward ---

template <class T>
class Forward {
 public:
  Forward(KernelCall& call, const Attention& a, const AttentionResult& result, const ScoreHooks<T>& hooks)
      : call_(call), a_(a), result_(result), scores_(call, a, hooks), width_(padded_columns(a.value.dim(3))) {
    for (int i = 0; i < call.team().size(); ++i) {
      Scratch& s = call.scratch();
      spaces_.push_back({s.take<T>(packed_a_size(kQueryBlock, a.query.dim(3))), s.take<T>(kQueryBlock * kPackedRow),
                         s.take<T>(kQueryBlock * width_), s.take<T>(kPanelSize)});
    }
  }

  Status run() {
    int64_t blocks = blocks_of(a_.query.dim(2), kQueryBlock), heads = a_.heads();
    FirstError error;
    call_.team().parallel_for_indexed(a_.batch() * heads * blocks, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        int64_t head = task / blocks, q = task % blocks * kQueryBlock;
        error.keep(task, rows(thread, head / heads, head % heads, q, std::min(kQueryBlock, a_.query.dim(2) - q)));
      }
    });
    return error.take();
  }

 private:
  struct Space {
    T *query, *scores, *out, *panel;
  };
  struct Row {
    T max = -kInfinity<T>, sum = 0;
  };

  Status rows(int thread, int64_t batch, int64_t head, int64_t q, int64_t count) {
    const Space& space = spaces_[static_cast<size_t>(thread)];
    Row rows[kQueryBlock];
    int64_t out_width = a_.value.dim(3), limit = scores_.key_limit(q, count);
    pack_a(scores_.kernels(), scores_.query(batch, head).at(q, 0), count, a_.query.dim(3), space.query);
    std::fill_n(space.out, count * width_, T(0));
    for (int64_t k = 0; k < limit; k += kKeyBlock) {
      ScoreBlock<T> block{thread, batch, head, q, count, k, std::min(kKeyBlock, limit - k), space.scores};
      SG_TRY(scores_.make(block, space.query, nullptr, space.panel));
      for (int64_t i = 0; i < count; ++i)
        add_scores(space.scores + i * kPackedRow, block.columns, &rows[i], space.out + i * width_);
      scores_.drop(block, space.scores);
      MatrixView value = scores_.of_key_head(a_.value, batch, head).at(k, 0);
      multiply_packed(scores_.kernels(), space.scores, count, value, out_width, block.columns, scores_.onto(),
                      space.out, width_, true, space.panel);
    }
    for (int64_t i = 0; i < count; ++i) finish_row(rows[i], batch, head, q + i, space.out + i * width_);
    store_block(space.out, width_, matrix_of(result_.out, batch * a_.heads() + head).at(q, 0), count, out_width);
    return ok_status();
  }

  // Scores of a row become exp(score - max); what was summed up before is put on the new maximum.
  void add_scores(T* scores, int64_t columns, Row* row, T* out) const {
    T max = std::max(row->max, max_of_scores(scores, columns));
    double scale = scores_.late_scale(), shift = max == -kInfinity<T> ? 0.0 : static_cast<double>(max) * scale;
    if (row->max != max && row->max != -kInfinity<T>) {
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
        row.max == -kInfinity<T> && row.sum == 0 ? max : max + math::Wide<T>::log(static_cast<double>(row.sum));
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

// --- backward ---

// One task goes through all query heads (and batches) that share a key head, and adds up its gradients in order.
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
      spaces_.push_back({s.take<T>(packed_a_size(kQueryBlock, a.query.dim(3))),
                         s.take<T>(packed_a_size(kQueryBlock, a.value.dim(3))), s.take<T>(kQueryBlock * value_width_),
                         s.take<T>(kQueryBlock * value_width_), s.take<T>(kQueryBlock * kPackedRow),
                         s.take<T>(kQueryBlock * kPackedRow),
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
    T *query, *grad_out;       // packed
    T *out_rows, *grad_rows;   // [rows, value width]
    T *p, *grad, *raw;         // blocks of scores
    T* turned;                 // p or grad transposed, packed
    T* grad_query;             // [rows, key width]
    T *grad_key, *grad_value;  // [keys, width]
    T* panel;
  };

  // Whether every batch and head has elements of its own in the mask's gradient.
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
    double shift[kQueryBlock];
    T delta[kQueryBlock];
    load_rows(space, batch, head, q, count, shift, delta);
    std::fill_n(space.grad_query, count * key_width_, T(0));
    int64_t limit = scores_.key_limit(q, count);
    for (int64_t k = 0; k < limit; k += kKeyBlock) {
      ScoreBlock<T> block{thread, batch, head, q, count, k, std::min(kKeyBlock, limit - k), space.p};
      SG_TRY(score_gradients(space, block, shift, delta));
      add_products(space, block);
    }
    if (!g_.query.is_none())
      store_block(space.grad_query, key_width_, matrix_of(g_.query, batch * a_.heads() + head).at(q, 0), count,
                  a_.query.dim(3));
    return ok_status();
  }

  // What all blocks of these rows need: query and grad_out packed, and by row the logarithm and sum(out * grad_out).
  void load_rows(const Space& space, int64_t batch, int64_t head, int64_t q, int64_t count, double* shift,
                 T* delta) const {
    int64_t width = a_.value.dim(3), entry = batch * a_.heads() + head;
    pack_a(scores_.kernels(), scores_.query(batch, head).at(q, 0), count, a_.query.dim(3), space.query);
    pack_block(scores_.kernels(), matrix_of(g_.out, entry).at(q, 0), count, width, space.out_rows, value_width_);
    if (g_.grad_out.is_none()) std::fill_n(space.grad_rows, count * value_width_, T(0));
    else
      pack_block(scores_.kernels(), matrix_of(g_.grad_out, entry).at(q, 0), count, width, space.grad_rows,
                 value_width_);
    MatrixView grads{reinterpret_cast<const std::byte*>(space.grad_rows), kTileType<T>, value_width_, 1};
    pack_a(scores_.kernels(), grads, count, width, space.grad_out);
    for (int64_t i = 0; i < count; ++i) {
      double log = load_number(g_.logsumexp, batch, head, q + i) / g_.log_scale;
      shift[i] = log == -kInfinity<double> ? kInfinity<double> : log;
      delta[i] = dot_row(space.out_rows + i * value_width_, space.grad_rows + i * value_width_, width);
      if (!g_.grad_logsumexp.is_none())
        delta[i] -= static_cast<T>(load_number(g_.grad_logsumexp, batch, head, q + i) * g_.log_scale);
    }
  }

  // space.p: what of a block's softmax values are multiplied with; space.grad: the gradient of its scores as scaled.
  Status score_gradients(const Space& space, const ScoreBlock<T>& block, const double* shift, const T* delta) {
    SG_TRY(scores_.make(block, space.query, space.raw, space.panel));
    for (int64_t i = 0; i < block.rows; ++i)
      exp_row(space.p + i * kPackedRow, block.columns, scores_.late_scale(), shift[i]);
    MatrixView value = scores_.of_key_head(a_.value, block.batch, block.head).at(block.k, 0);
    multiply_packed(scores_.kernels(), space.grad_out, block.rows, value.transposed(), block.columns, a_.value.dim(3),
                    scores_.fresh(), space.grad, kPackedRow, true, space.panel);
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
    multiply_packed(kernels, space.turned, block.columns, grads, a_.value.dim(3), block.rows, scores_.onto(),
                    space.grad_value + block.k * value_width_, value_width_, true, space.panel);
    for (int64_t i = 0; i < block.rows; ++i)
      scale_row(space.grad + i * kPackedRow, block.columns, static_cast<T>(a_.scale));
    turned(space.grad);
    MatrixView query = scores_.query(block.batch, block.head).at(block.q, 0);
    multiply_packed(kernels, space.turned, block.columns, query, a_.query.dim(3), block.rows, scores_.onto(),
                    space.grad_key + block.k * key_width_, key_width_, true, space.panel);
    MatrixView key = scores_.of_key_head(a_.key, block.batch, block.head).at(block.k, 0);
    multiply_packed(kernels, space.grad, block.rows, key, a_.key.dim(3), block.columns, scores_.onto(),
                    space.grad_query, key_width_, true, space.panel);
  }

  KernelCall& call_;
  const Attention& a_;
  const AttentionGradients& g_;
  const ScoreHooks<T>& hooks_;
  Scores<T> scores_;
  int64_t keys_, key_width_, value_width_;
  bool own_mask_;  // tasks write apart from each other in the mask's gradient
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
  return Forward<T>(call, a, result, hooks).run();
}

template <class T>
Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g,
                          const ScoreHooks<T>& hooks) {
  return Backward<T>(call, a, g, hooks).run();
}

Status attention_forward(KernelCall& call, const Attention& a, const AttentionResult& result) {
  if (Backend* backend = backend_of(call.context())) return backend->attend(call, a, result);
  if (a.query.dtype == DType::f64) return attention_forward<double>(call, a, result, {});
  return attention_forward<float>(call, a, result, {});
}

Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g) {
  if (Backend* backend = backend_of(call.context())) return backend->attend_backward(call, a, g);
  if (a.query.dtype == DType::f64) return attention_backward<double>(call, a, g, {});
  return attention_backward<float>(call, a, g, {});
}

template Status attention_forward(KernelCall&, const Attention&, const AttentionResult&, const ScoreHooks<float>&);
template Status attention_forward(KernelCall&, const Attention&, const AttentionResult&, const ScoreHooks<double>&);
template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<float>&);
template Status attention_backward(KernelCall&, const Attention&, const AttentionGradients&, const ScoreHooks<double>&);

}  // namespace sg::cpu
