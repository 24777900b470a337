// Dropout of attention's weights: after the softmax each counts 1 / (1 - p) times or not at all, as its place in
// [batch, heads, queries, keys] and the node's stream say.
//
// State  What draws (librun/random.h) is 128 bits. A forward op gives them as its random state, in whatever tensors it
//        has for that, and a backward op finds the same weights dropped from those tensors alone. Without dropout the
//        state is 0.
#pragma once

#include <cstdint>
#include <optional>

#include "librun/kernel.h"
#include "librun/random.h"

namespace sg::cpu {

struct AttentionDropout {
  const work::Key* key = nullptr;  // in the memory of whoever runs the call
  double p = 0;
  int64_t first = 0;  // the place of the first weight; others follow row-major

  double kept() const { return 1 - p; }
  double factor() const { return p == 1 ? 0 : 1 / kept(); }
  // On the processor: multiplies `count` neighbouring weights, the first of which is at place first + `at`.
  template <class T>
  void apply(int64_t at, int64_t count, T* weights) const;
};

// Of a forward op, by its stream; none where p is 0.
std::optional<AttentionDropout> drawn_dropout(KernelCall& call);
// Writes the state, a and b being the tensors that the op returns for it (none: not wanted).
void keep_state(KernelCall& call, const std::optional<AttentionDropout>& dropout, const Tensor& a, const Tensor& b);
// Of a backward op, by the state that it is given.
Result<std::optional<AttentionDropout>> kept_dropout(KernelCall& call);

}  // namespace sg::cpu
