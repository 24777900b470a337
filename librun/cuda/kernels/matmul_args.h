// The arguments of the kernels in matmul.h.
#pragma once

#include "librun/cuda/kernels/view.h"
#include "librun/work/random.h"

namespace sg::cuda {

struct MatmulArgs {
  View to, a, b;  // [batch, m, n], [batch, m, k], [batch, k, n]
  View add;       // broadcast to `to`; no data = none
  double alpha = 1, beta = 1, alpha_im = 0, beta_im = 0;
  int64_t whole_alpha = 1, whole_beta = 1;
  // Groups: offsets [groups] are the ends of the groups along m (b is [groups, k, n]), along k (to is [groups, m, n]),
  // or along n.
  View ends;
  enum class Along : uint8_t { none, m, k, n } along = Along::none;
  Report report;
};

// The scores of queries against all keys.
struct ScoreArgs {
  View scores;   // [heads, queries, keys], f32 or f64
  View mask;     // added; broadcast to the scores of these heads; no data = none. bool: false = masked
  View weights;  // the softmax in the type of the values; may be the scores
  View sums;     // [heads, queries]: logarithms of the sums; no data = not wanted. Backward: their gradients, or none
  View maxima;   // likewise, the largest scores
  View delta;    // backward: [heads, queries, keys] = gradient of the weights; becomes that of the scores
  double scale = 1;
  double log_scale = 1;  // sums and maxima are multiplied by it
  bool causal = false;
};

// to = seen ? from * scale : 0, with equal shapes; `seen` without data = everywhere.
struct SeenArgs {
  View to, from, seen;
  double scale = 1;
};

// to = from * factor, or 0: the row-major index of an element determines its random number.
struct DropArgs {
  View to, from;
  const work::Key* key = nullptr;
  double kept = 1, factor = 1;
  int64_t first = 0;
};

// Both [heads, queries, keys]. Elements that `to` shares (strides of 0) get the sum.
struct MaskGradientArgs {
  View to, from;
};

}  // namespace sg::cuda
