// Computes the key of a node's random numbers, for kernels to read.
#pragma once

#include "librun/work/random.h"
#include "librun/work/work.h"

namespace sg::work {

// A single element: the key in this step.
struct DrawKey {
  static constexpr const char* kName = "work_draw_key";
  Stream stream;
  Key* to;
  SG_INLINE void operator()(int64_t i) const { to[i] = Key::of(stream); }
};

}  // namespace sg::work
