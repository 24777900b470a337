// Reductions of runs of rows with data-dependent lengths, and their gradients.
#pragma once

#include "librun/work/work.h"

namespace sg::work {

enum class Join : uint8_t { sum, mean, max, min, prod };

// Data as [outer, rows, inner]; unit o * count + s has the rows [bounds[s], bounds[s + 1]) of outer index o.
struct Segments {
  int64_t rows = 0, inner = 1, count = 0;
  const int64_t* bounds = nullptr;  // [outer, count + 1]

  // Clamped to the data for any bounds: wrong bounds are reported separately.
  SG_INLINE int64_t bound(int64_t unit, int64_t next) const {
    const int64_t at = bounds[unit / count * (count + 1) + unit % count + next];
    return at < 0 ? 0 : at < rows ? at : rows;
  }
  SG_INLINE int64_t begin(int64_t unit) const { return bound(unit, 0); }
  SG_INLINE int64_t length(int64_t unit) const {
    const int64_t n = bound(unit, 1) - bound(unit, 0);
    return n < 0 ? 0 : n;
  }
  SG_INLINE int64_t first_element(int64_t unit) const { return (unit / count * rows + begin(unit)) * inner; }
};

// Raises a fault if a segment is not within the rows, or, with `whole`, if the last one does not end with them.
struct CheckSegments {
  static constexpr const char* kName = "work_check_segments";
  int64_t rows, count;
  const int64_t* bounds;
  bool whole;
  Report report;
  SG_INLINE void operator()(int64_t unit) const {
    const int64_t s = unit % count, begin = bounds[unit / count * (count + 1) + s],
                  end = bounds[unit / count * (count + 1) + s + 1];
    const bool leaves = whole && s + 1 == count && end != rows;
    if (begin < 0 || end < begin || end > rows || leaves) report.raise(Fault::Kind::index, end, rows);
  }
};

SG_INLINE double joined(Join how, double a, double x) {
  switch (how) {
    case Join::max: return x != x || a < x ? x : a;
    case Join::min: return x != x || x < a ? x : a;
    case Join::prod: return a * x;
    default: return a + x;
  }
}

struct JoinSegment {
  static constexpr const char* kName = "work_join_segment";
  Segments segments;
  Join how;
  double start;
  bool has_start;  // a start value was given
  const double* data;
  double* to;

  SG_INLINE void operator()(int64_t i) const { columns(i / segments.inner, i % segments.inner, 1); }

  // Reduces columns [first, first + n) of one segment.
  SG_INLINE void columns(int64_t unit, int64_t first, int64_t n) const {
    double* sums = to + unit * segments.inner + first;
    for (int64_t i = 0; i < n; ++i) sums[i] = start;
    const double* x = data + segments.first_element(unit) + first;
    const int64_t length = segments.length(unit);
    for (int64_t row = 0; row < length; ++row, x += segments.inner)
      for (int64_t i = 0; i < n; ++i) sums[i] = joined(how, sums[i], x[i]);
    if (how != Join::mean || (length == 0 && has_start)) return;
    for (int64_t i = 0; i < n; ++i) sums[i] /= static_cast<double>(length);
  }
};

// Computes the gradients of one column of one segment.
struct SegmentSlope {
  static constexpr const char* kName = "work_segment_slope";
  Segments segments;
  Join how;
  double start;
  const double *data, *output, *grad;
  double* to;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t unit = i / segments.inner, at = segments.first_element(unit) + i % segments.inner;
    const Column c{data + at, to + at, segments.length(unit), segments.inner};
    if (how == Join::max || how == Join::min) share(c, output[i], grad[i]);
    else if (how == Join::prod) of_product(c, output[i], grad[i]);
    else
      for (int64_t k = 0; k < c.rows; ++k)
        c.grad[k * c.step] = how == Join::mean ? grad[i] / static_cast<double>(c.rows) : grad[i];
  }

 private:
  struct Column {
    const double* x;  // in the first row
    double* grad;
    int64_t rows, step;
  };

  // Ties share the gradient of the largest or smallest.
  SG_INLINE static void share(const Column& c, double extreme, double slope) {
    auto has_it = [&](double x) { return x != x || x == extreme; };
    int64_t count = 0;
    for (int64_t k = 0; k < c.rows; ++k) count += has_it(c.x[k * c.step]);
    for (int64_t k = 0; k < c.rows; ++k)
      c.grad[k * c.step] = has_it(c.x[k * c.step]) ? slope / static_cast<double>(count) : 0;
  }

  // The product of the other elements: by division if possible.
  SG_INLINE void of_product(const Column& c, double product, double slope) const {
    for (int64_t k = 0; k < c.rows; ++k) {
      const double x = c.x[k * c.step];
      double others = start;
      if (x != 0 && x == x) others = product / x;
      else
        for (int64_t j = 0; j < c.rows; ++j) others *= j == k ? 1 : c.x[j * c.step];
      c.grad[k * c.step] = slope * others;
    }
  }
};

}  // namespace sg::work
