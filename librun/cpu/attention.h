// Softmax attention by blocks: scores exist only for one block of queries and keys at a time.
//
//     scores = scale * query @ key^T, masked;  out = dropout(softmax(scores)) @ value
//     logsumexp = log(sum(exp(scores)))
//
// Tensors   query [B, H, L, E], key [Bk, Hk, S, E], value [Bk, Hk, S, Ev], any strides. H is a multiple of Hk: query
//           heads share a key head in runs of H / Hk. Bk is B or 1.
// Types     f32, bf16, f16: computed in f32, rounded once; f64 in f64. On matrix units (attention_units.h) products of
//           bf16 take scores rounded to bf16.
// Rows      that are fully masked give zeros, and -infinity as the logarithm.
// Bits      do not depend on threads: blocks are cut by size alone, and a single task accumulates each sum.
// Memory    a thread holds one block of scores; in the backward also the gradients of one head's keys and values; on
//           matrix units a packed copy of those keys and values.
#pragma once

#include <functional>

#include "librun/cpu/attention_dropout.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/kernel.h"

namespace sg::cpu {

inline constexpr int64_t kQueryBlock = 128;      // rows of scores in a block, at most
inline constexpr int64_t kKeyBlock = kSumBlock;  // columns

// A block of scores: row i, column j at scores[i * kPackedRow + j] belong to query q + i and key k + j.
template <class T>
struct ScoreBlock {
  int thread;
  int64_t batch, head;
  int64_t q, rows, k, columns;
  T* scores;
};

struct Attention {
  Tensor query, key, value;
  Tensor mask;          // none, or [B, H, L, S] (axes may have stride 0): bool (true = takes part), or floats to add
  bool causal = false;  // query i sees keys 0 to i
  double scale = 1;
  std::optional<AttentionDropout> dropout;
  int64_t batch() const { return query.dim(0); }
  int64_t heads() const { return query.dim(1); }
  int64_t group() const { return query.dim(1) / key.dim(1); }
};

// Operations on scores besides scale and mask; called from several threads, numbered by `thread`.
template <class T>
struct ScoreHooks {
  std::function<Status(const ScoreBlock<T>& block)> forward;
  // `raw`: scaled scores; `grads`: gradients of what `forward` made of them, to be turned into gradients of `raw`.
  std::function<Status(const ScoreBlock<T>& raw, T* grads)> backward;
};

// `logsumexp` and `maxima` may be none; [B, H, L] in their first three axes. Both are multiplied by log_scale.
struct AttentionResult {
  Tensor out, logsumexp, maxima;
  double log_scale = 1;
};

// Sizes that do not fit are errors of the run.
Status check_attention(const KernelCall& call, const Attention& a);

Status attention_forward(KernelCall& call, const Attention& a, const AttentionResult& result);

struct AttentionGradients {
  Tensor grad_out;        // none: zeros
  Tensor out, logsumexp;  // from the forward; logsumexp in units of 1 / log_scale
  double log_scale = 1;
  Tensor grad_logsumexp;     // none: zeros; in the units of logsumexp
  Tensor query, key, value;  // results; none: not wanted
  Tensor mask;               // gradient of a float mask; none: not wanted
};

Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g);

// The same with hooks, for T = float or double according to sum_type(query).
template <class T>
Status attention_forward(KernelCall& call, const Attention& a, const AttentionResult& result,
                         const ScoreHooks<T>& hooks);
template <class T>
Status attention_backward(KernelCall& call, const Attention& a, const AttentionGradients& g,
                          const ScoreHooks<T>& hooks);

}  // namespace sg::cpu
