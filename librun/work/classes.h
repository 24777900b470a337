// Cross entropy of rows of log-probabilities, in double.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

struct ClassRows {
  const double *scores, *weight;  // [rows, classes]; by class, null = 1
  int64_t classes;
  double smoothing;
  SG_INLINE double weight_of(int64_t k) const { return weight ? weight[k] : 1.0; }
};

// Targets are probabilities [rows, classes].
struct SoftCrossEntropy {
  static constexpr const char* kName = "work_soft_cross_entropy";
  ClassRows rows;
  const double* target;
  double* losses;
  SG_INLINE void operator()(int64_t row) const {
    double sum = 0;
    for (int64_t k = row * rows.classes; k < (row + 1) * rows.classes; ++k) {
      const double p = target[k] * (1 - rows.smoothing) + rows.smoothing / static_cast<double>(rows.classes);
      sum -= p * rows.scores[k] * rows.weight_of(k - row * rows.classes);
    }
    losses[row] = sum;
  }
};

// Targets are classes [rows]; `weights` receives the weights of the targets.
struct HardCrossEntropy {
  static constexpr const char* kName = "work_hard_cross_entropy";
  ClassRows rows;
  const int64_t* target;
  int64_t ignored;
  double *losses, *weights;
  Report report;
  SG_INLINE void operator()(int64_t row) const {
    losses[row] = weights[row] = 0;
    const int64_t at = target[row];
    if (at == ignored) return;
    if (at < 0 || at >= rows.classes) return report.raise(Fault::Kind::index, at, rows.classes);
    const double* p = rows.scores + row * rows.classes;
    double spread = 0;
    for (int64_t k = 0; rows.smoothing != 0 && k < rows.classes; ++k) spread -= p[k] * rows.weight_of(k);
    weights[row] = rows.weight_of(at);
    losses[row] =
        -(1 - rows.smoothing) * weights[row] * p[at] + rows.smoothing * spread / static_cast<double>(rows.classes);
  }
};

}  // namespace sg::work
