// Evenly spaced numbers.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// Computed from both ends towards the middle, so that the last is exactly `end`. `parts`: 2 for complex numbers.
struct Spread {
  static constexpr const char* kName = "work_spread";
  int64_t count, parts;
  double start[2], end[2], step[2];
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t at = i / parts, k = i % parts;
    to[i] = at < count / 2 || count == 1 ? start[k] + step[k] * static_cast<double>(at)
                                         : end[k] - step[k] * static_cast<double>(count - 1 - at);
  }
};

}  // namespace sg::work
