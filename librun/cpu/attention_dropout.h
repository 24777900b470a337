// Dropout of attention weights: after the softmax each is multiplied by 1 / (1 - p) or 0, determined by its position in
// [batch, heads, queries, keys] and the node's stream.
//
// State  The random key (librun/random.h) has 128 bits. A forward op returns it in whatever tensors it has for random
//        state, and a backward op drops the same weights from those tensors alone. Without dropout the state is 0.
#pragma once

#include <cstdint>
#include <optional>

#include "librun/kernel.h"
#include "librun/random.h"

namespace sg::cpu {

struct AttentionDropout {
  const work::Key* key = nullptr;  // in memory of the backend that runs the call
  double p = 0;
  int64_t first = 0;  // position of the first weight; others follow in row-major order

  double kept() const { return 1 - p; }
  double factor() const { return p == 1 ? 0 : 1 / kept(); }
  // On the CPU: multiplies `count` consecutive weights, starting at position first + `at`.
  template <class T>
  void apply(int64_t at, int64_t count, T* weights) const;
};

// For a forward op, by its stream; none if p is 0.
std::optional<AttentionDropout> drawn_dropout(KernelCall& call);
// Writes the state into a and b, the tensors that the op returns for it (none: not wanted).
void keep_state(KernelCall& call, const std::optional<AttentionDropout>& dropout, const Tensor& a, const Tensor& b);
// For a backward op, by the state it receives.
Result<std::optional<AttentionDropout>> kept_dropout(KernelCall& call);

}  // namespace sg::cpu
