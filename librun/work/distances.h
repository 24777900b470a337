// Distances between rows and their gradients; rows scaled to a norm (weight norm). In double.
#pragma once

#include <cmath>

#include "librun/work/work.h"

namespace sg::work {

// The p-norm of differences; p = 0 counts nonzero ones, infinity takes the largest.
struct Norm {
  double p;
  bool is_single = false;  // distances are stored in f32: for infinity, differences must be rounded so to find theirs

  SG_INLINE static double sign(double x) { return static_cast<double>(x > 0) - static_cast<double>(x < 0); }
  SG_INLINE bool is_largest() const { return p > 0 && p - p != 0; }

  SG_INLINE double distance(const double* a, const double* b, int64_t n) const {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double d = ::fabs(a[i] - b[i]);
      if (is_largest()) sum = d > sum || d != d ? d : sum;
      else sum += p == 0 ? static_cast<double>(d != 0) : p == 1 ? d : p == 2 ? d * d : ::pow(d, p);
    }
    return p == 0 || p == 1 || is_largest() ? sum : p == 2 ? ::sqrt(sum) : ::pow(sum, 1 / p);
  }

  // The derivative of a distance with respect to one column's difference.
  SG_INLINE double slope(double d, double whole) const {
    if (p == 0 || whole == 0 || d == 0) return p == 1 ? sign(d) : 0;
    if (p == 1) return sign(d);
    if (p == 2) return d / whole;
    if (is_largest()) return (is_single ? static_cast<float>(::fabs(d)) : ::fabs(d)) == whole ? sign(d) : 0;
    return sign(d) * ::pow(::fabs(d) / whole, p - 1);
  }
};

// a [batch, n, width] and b [batch, m, width]: computes element i of [batch, n, m].
struct CrossDistance {
  static constexpr const char* kName = "work_cross_distance";
  Norm norm;
  const double *a, *b;
  int64_t n, m, width;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t row = i / m;
    to[i] = norm.distance(a + row * width, b + (row / n * m + i % m) * width, width);
  }
};

// Computes element i of the gradient of a; `grad` and `whole` (the distances) are [batch, n, m].
struct CrossDistanceSlope {
  static constexpr const char* kName = "work_cross_distance_slope";
  Norm norm;
  const double *a, *b, *grad, *whole;
  int64_t n, m, width;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t row = i / width;
    const double* others = b + row / n * m * width + i % width;
    double sum = 0;
    for (int64_t k = 0; k < m; ++k) sum += grad[row * m + k] * norm.slope(a[i] - others[k * width], whole[row * m + k]);
    to[i] = sum;
  }
};

// Pairs of rows i < j, in order: the index of the first pair of row i.
SG_INLINE int64_t pair_start(int64_t i, int64_t n) { return i * n - i * (i + 1) / 2; }

// Distances of row i of x [n, width] to all later rows.
struct PairDistances {
  static constexpr const char* kName = "work_pair_distances";
  Norm norm;
  const double* x;
  int64_t n, width;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    for (int64_t j = i + 1; j < n; ++j)
      to[pair_start(i, n) + j - i - 1] = norm.distance(x + i * width, x + j * width, width);
  }
};

// Computes element i of the gradient of x.
struct PairDistanceSlope {
  static constexpr const char* kName = "work_pair_distance_slope";
  Norm norm;
  const double *x, *grad, *whole;
  int64_t n, width;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const int64_t row = i / width;
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (j == row) continue;
      const int64_t low = j < row ? j : row, pair = pair_start(low, n) + (j < row ? row - j : j - row) - 1;
      sum += grad[pair] * norm.slope(x[i] - x[j * width + i % width], whole[pair]);
    }
    to[i] = sum;
  }
};

// --- weight norm: w = g v / |v|, by rows ---

// For each row: its norm from the sum of its squares, and the factor for its elements.
struct RowNorm {
  static constexpr const char* kName = "work_row_norm";
  const double* scale;
  double *norms, *factors;  // norms: in place, from the sums
  SG_INLINE void operator()(int64_t row) const {
    norms[row] = ::sqrt(norms[row]);
    factors[row] = scale[row] / norms[row];
  }
};

struct ScaleRows {
  static constexpr const char* kName = "work_scale_rows";
  const double *x, *factors;
  int64_t length;
  double* to;
  SG_INLINE void at(int64_t row, int64_t i) const { to[row * length + i] = x[row * length + i] * factors[row]; }
  SG_INLINE void operator()(int64_t i) const { at(i / length, i % length); }
};

// For each row, from the dot product of its weights and their gradients: the gradient of its scale, and the
// coefficients of the weights' gradients.
struct RowSlope {
  static constexpr const char* kName = "work_row_slope";
  const double *dots, *scale, *norms;
  double *of_scale, *factors, *shares;
  SG_INLINE void operator()(int64_t row) const {
    const double norm = norms[row];
    of_scale[row] = dots[row] / norm;
    factors[row] = scale[row] / norm;
    shares[row] = dots[row] / (norm * norm);
  }
};

struct NormedSlope {
  static constexpr const char* kName = "work_normed_slope";
  const double *x, *grad, *factors, *shares;
  int64_t length;
  double* to;
  SG_INLINE void at(int64_t row, int64_t i) const {
    const int64_t k = row * length + i;
    to[k] = factors[row] * (grad[k] - x[k] * shares[row]);
  }
  SG_INLINE void operator()(int64_t i) const { at(i / length, i % length); }
};

}  // namespace sg::work
