// Margin losses between the classes of a sample, whose scores are a row. In double.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

struct MarginRows {
  int64_t classes;
  const double* scores;   // [rows, classes]
  const int64_t* target;  // a row's labels up to the first -1, or its single class
  Report report;

  SG_INLINE const double* row(int64_t i) const { return scores + i * classes; }
  SG_INLINE const int64_t* labels(int64_t i) const { return target + i * classes; }
  SG_INLINE int64_t label_count(int64_t i) const {
    int64_t n = 0;
    while (n < classes && labels(i)[n] != -1) ++n;
    return n;
  }
  SG_INLINE bool is_class(int64_t c) const {
    if (c >= 0 && c < classes) return true;
    report.raise(Fault::Kind::index, c, classes);
    return false;
  }
};

// Several classes per sample: sets their marks, which are initially zeros.
struct MultilabelMargin {
  static constexpr const char* kName = "work_multilabel_margin";
  MarginRows rows;
  double *marks, *losses;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t n = rows.label_count(i), *labels = rows.labels(i);
    double *own = marks + i * rows.classes, sum = 0;
    losses[i] = 0;
    for (int64_t k = 0; k < n; ++k) {
      if (!rows.is_class(labels[k])) return;
      own[labels[k]] = 1;
    }
    for (int64_t k = 0; k < n; ++k)
      for (int64_t c = 0; c < rows.classes; ++c) {
        const double beyond = 1 - rows.row(i)[labels[k]] + rows.row(i)[c];
        if (own[c] == 0 && beyond > 0) sum += beyond;
      }
    losses[i] = sum / static_cast<double>(rows.classes);
  }
};

// The factor of a sample's gradient: `each`, times the sample's own incoming gradient if there is one per sample.
struct MarginFactor {
  const double* gradient;
  bool has_rows;
  double each;
  SG_INLINE double of(int64_t i) const { return each * gradient[has_rows ? i : 0]; }
};

// `to` is initially zeros.
struct MultilabelMarginSlope {
  static constexpr const char* kName = "work_multilabel_margin_slope";
  MarginRows rows;
  MarginFactor factor;
  const double* marks;
  double* to;

  SG_INLINE void operator()(int64_t i) const {
    const double* own = marks + i * rows.classes;
    double *out = to + i * rows.classes, by = factor.of(i);
    for (int64_t k = 0, n = rows.label_count(i); k < n; ++k) {
      const int64_t label = rows.labels(i)[k];
      if (!rows.is_class(label)) return;
      for (int64_t c = 0; c < rows.classes; ++c) {
        if (own[c] != 0 || !(1 - rows.row(i)[label] + rows.row(i)[c] > 0)) continue;
        out[label] -= by;
        out[c] += by;
      }
    }
  }
};

// One class per sample. `to` is initially zeros.
struct MultiMarginSlope {
  static constexpr const char* kName = "work_multi_margin_slope";
  MarginRows rows;
  MarginFactor factor;
  const double* weight;  // by class, null = 1
  double margin;
  bool squared;
  double* to;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t right = rows.target[i];
    if (!rows.is_class(right)) return;
    double* out = to + i * rows.classes;
    const double by = factor.of(i) * (weight ? weight[right] : 1);
    for (int64_t c = 0; c < rows.classes; ++c) {
      const double beyond = margin - rows.row(i)[right] + rows.row(i)[c];
      if (c == right || !(beyond > 0)) continue;
      const double slope = by * (squared ? 2 * beyond : 1);
      out[c] = slope;
      out[right] -= slope;
    }
  }
};

}  // namespace sg::work
