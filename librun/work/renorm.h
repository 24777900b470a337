// Scales rows down to a maximum norm.
#pragma once

#include "librun/work/math.h"

namespace sg::work {

struct Renorm {
  double most, p;

  SG_INLINE double add(double sum, double x) const {
    const double size = math::abs(x);
    if (p == math::infinity()) return sum < size ? size : sum;
    return sum + (p == 0 ? (x != 0 ? 1.0 : 0.0) : p == 2 ? x * x : ::pow(size, p));
  }
  // The factor for a row's elements, where `sum` was accumulated by `add`.
  SG_INLINE double factor(double sum) const {
    const double norm = p == 0 || p == math::infinity() ? sum : ::pow(sum, 1 / p);
    return norm > most ? most / (norm + 1e-7) : 1;
  }
};

}  // namespace sg::work
