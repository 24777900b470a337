// Scores in both directions of attention: scales, masks and drops a block; per-row numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>

#include "librun/backend.h"
#include "librun/cpu/attention.h"
#include "librun/cpu/attention_rows.h"
#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/element.h"

namespace sg::cpu {

template <class T>
inline constexpr T kScoreInfinity = std::numeric_limits<T>::infinity();

// Keeps the error of the first task in order, regardless of which thread reports first.
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

// What both directions do with the scores of a block besides products.
template <class T>
class Scores {
 public:
  Scores(const Attention& a, const ScoreHooks<T>& hooks)
      : a_(a),
        hooks_(hooks),
        mask_(a.mask),
        late_scale_(a.mask.is_none() && !hooks.forward && a.scale > 0 ? a.scale : 1) {}

  MatrixView query(int64_t batch, int64_t head) const { return matrix_of(a_.query, batch * a_.heads() + head); }
  MatrixView of_key_head(const Tensor& t, int64_t batch, int64_t head) const {
    return matrix_of(t, (t.dim(0) == 1 ? 0 : batch) * t.dim(1) + head / a_.group());
  }

  // Number of keys that rows [q, q + rows) can see.
  int64_t key_limit(int64_t q, int64_t rows) const {
    return a_.causal ? std::min(a_.key.dim(2), q + rows) : a_.key.dim(2);
  }

  // The factor that scores still need: the scale, if nothing else needs scaled scores.
  double late_scale() const { return late_scale_; }

  // Turns products of queries and keys into scores: scaled (see late_scale), masked and passed through the hook. `raw`,
  // if given, keeps the hook's input.
  Status make(const ScoreBlock<T>& block, T* raw) const {
    for (int64_t i = 0; i < block.rows && late_scale_ != a_.scale; ++i)
      scale_row(block.scores + i * kPackedRow, block.columns, static_cast<T>(a_.scale));
    if (!mask_.is_none()) apply_mask(block);
    if (a_.causal)
      for (int64_t i = 0; i < block.rows; ++i) {
        int64_t seen = std::clamp<int64_t>(block.q + i + 1 - block.k, 0, block.columns);
        std::fill(block.scores + i * kPackedRow + seen, block.scores + i * kPackedRow + block.columns,
                  -kScoreInfinity<T>);
      }
    if (!hooks_.forward) return ok_status();
    if (raw) std::copy_n(block.scores, block.rows * kPackedRow, raw);
    return hooks_.forward(block);
  }

  // Applies dropout to the weights of a block, or to their gradients.
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
      return rows(mask_.as<const bool>(), [](T s, bool seen) { return seen ? s : -kScoreInfinity<T>; });
    visit_floating(mask_.dtype, [&]<class M>() {
      rows(mask_.as<const M>(), [](T s, M m) { return s + static_cast<T>(static_cast<Compute<M>>(m)); });
    });
  }

  const Attention& a_;
  const ScoreHooks<T>& hooks_;
  Tensor mask_;
  double late_scale_;
};

inline void store_number(const Tensor& t, int64_t batch, int64_t head, int64_t row, double value) {
  if (t.is_none()) return;
  int64_t at = batch * t.step(0) + head * t.step(1) + row * t.step(2);
  visit_floating(t.dtype, [&]<class Out>() { t.as<Out>()[at] = static_cast<Out>(static_cast<Compute<Out>>(value)); });
}

inline double load_number(const Tensor& t, int64_t batch, int64_t head, int64_t row) {
  int64_t at = batch * t.step(0) + head * t.step(1) + row * t.step(2);
  return visit_floating(t.dtype,
                        [&]<class In>() { return static_cast<double>(static_cast<Compute<In>>(t.as<In>()[at])); });
}

}  // namespace sg::cpu
