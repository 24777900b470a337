#include "librun/cpu/linear/eigen.h"

#include <algorithm>
#include <cmath>

#include "librun/cpu/linear/reflect.h"
#include "librun/cpu/linear/rotate.h"
#include "librun/cpu/linear/tridiagonal.h"

namespace sg::cpu::linear {
namespace {

constexpr double kEpsilon = 0x1p-53;
constexpr int kMostSweeps = 60;  // per value; two or three suffice

// Of the reflections, the other diagonal, and rotations.
int64_t eigen_numbers(int64_t n) { return 2 * n + RowRotations::space(n); }

// One shifted QR sweep over rows first to last of a tridiagonal matrix, from below; rotations in that order. Returns
// their number.
int64_t sweep(double* d, double* e, int64_t first, int64_t last, Rotation* rotations) {
  double g = (d[first + 1] - d[first]) / (2 * e[first]);
  g = d[last] - d[first] + e[first] / (g + std::copysign(std::hypot(g, 1.0), g));
  double c = 1, s = 1, p = 0;
  int64_t count = 0;
  for (int64_t i = last - 1; i >= first; --i) {
    const double f = s * e[i], b = c * e[i], r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {  // the matrix splits here
      d[i + 1] -= p;
      e[last] = 0;
      return count;
    }
    s = f / r, c = g / r;
    const double shifted = d[i + 1] - p, both = (d[i] - shifted) * s + 2 * c * b;
    p = s * both;
    d[i + 1] = shifted + p;
    g = c * both - b;
    rotations[count++] = {c, s};
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0;
  return count;
}

// Stores the eigenvalues of the tridiagonal matrix in d; rows of vectors follow. REQUIRES: room for n numbers in e
//
// An element beside the diagonal is nothing next to its neighbours or next to the largest element: a sweep leaves as
// much of rounding, and in a matrix of low rank, most of whose elements are that, no neighbour is larger.
bool diagonalize(double* d, double* e, int64_t n, RowRotations vectors) {
  e[n - 1] = 0;
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max({largest, std::fabs(d[i]), std::fabs(e[i])});
  auto is_nothing = [&](int64_t i) {
    return std::fabs(e[i]) <= kEpsilon * std::max(std::fabs(d[i]) + std::fabs(d[i + 1]), largest);
  };
  for (int64_t first = 0; first < n; ++first)
    for (int sweeps = 0;; ++sweeps) {
      int64_t last = first;
      while (last + 1 < n && !is_nothing(last)) ++last;
      if (last == first) break;
      if (sweeps == kMostSweeps) return false;
      vectors.add(last, -1, sweep(d, e, first, last, vectors.room()));
    }
  vectors.apply();
  return true;
}

template <class T>
void sort(double* d, const Block<T>& vectors) {
  for (int64_t i = 0; i < vectors.rows; ++i) {
    const int64_t least = std::min_element(d + i, d + vectors.rows) - d;
    if (least == i) continue;
    std::swap(d[i], d[least]);
    std::swap_ranges(vectors.row(i), vectors.row(i) + vectors.columns, vectors.row(least));
  }
}

// The largest element, to which the values are proportional, if squares would overflow or underflow; else 1.
template <class T>
double scale_of(const Block<T>& a) {
  double most = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j <= i; ++j) most = std::max(most, std::abs(a(i, j)));
  return most == 0 || (most > 1e-140 && most < 1e140) ? 1 : most;
}

}  // namespace

int64_t eigen_room(int64_t n) {
  return eigen_numbers(n) + std::max(tridiagonal_room(n), n * n + reflections_room(n, n));
}

template <class T>
bool decompose_hermitian(const Block<T>& a, double* values, const Block<T>& vectors, const Workspace<T>& space) {
  const int64_t n = a.rows;
  if (n == 0) return true;
  const double scale = scale_of(a);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; scale != 1 && j <= i; ++j) a(i, j) /= scale;
    a(i, i) = real_part(a(i, i));
  }
  T* tau = space.own;
  auto* e = reinterpret_cast<double*>(tau + n);
  Workspace<T> inner = space;
  inner.own = space.own + eigen_numbers(n);
  make_tridiagonal(a, values, e, tau, inner);
  if (vectors.data) {  // the rows of Q^T
    const Block<T> q{inner.own, n, n, n};
    inner.own += n * n;
    set_identity(q);
    if (n > 1)
      apply_reflections(a.part(1, 0, n - 1, n - 1), tau, n - 1, Operator::plain, q.part(1, 1, n - 1, n - 1), inner);
    assign(vectors, Factor<T>(q).transposed());
  }
  if (!diagonalize(values, e, n, {vectors, n, e + n})) return false;
  if (vectors.data) sort(values, vectors);
  else std::sort(values, values + n);
  if (scale != 1)
    for (int64_t i = 0; i < n; ++i) values[i] *= scale;
  return true;
}

#define SG_FIELD(T) template bool decompose_hermitian(const Block<T>&, double*, const Block<T>&, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
