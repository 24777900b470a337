#include "librun/cpu/linear/eigen.h"

#include <cmath>
#include <numeric>

#include "librun/cpu/linear/reflect.h"
#include "librun/cpu/linear/rotate.h"

namespace sg::cpu::linear {
namespace {

constexpr double kEpsilon = 0x1p-53;
constexpr int kMostSweeps = 60;  // per value; two or three suffice

// a = Q T Q^H: the vectors of Q go below a's subdiagonal, T into d [n] and e [n - 1]. Both halves of a are maintained.
// w: [n]
template <class T>
void make_tridiagonal(const Block<T>& a, double* d, double* e, T* tau, T* w) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k + 1 < n; ++k) {
    d[k] = real_part(a(k, k));
    const int64_t m = n - k - 1;
    const Block<T> rest = a.part(k + 1, k + 1, m, m);
    T *v = a.row(k) + k + 1, *column = &a(k + 1, k);  // v: in the row above, which is no longer needed
    tau[k] = make_reflection(column, column + a.step, m - 1, a.step);
    e[k] = real_part(*column);
    v[0] = 1;
    for (int64_t i = 1; i < m; ++i) v[i] = column[i * a.step];
    if (tau[k] == T(0)) continue;
    // w = tau (a v), by rows: a is its own adjoint
    std::fill_n(w, m, T(0));
    for (int64_t i = 0; i < m; ++i) subtract_row(w, rest.row(i), -conjugate(v[i]), m);
    T inner = 0;
    for (int64_t i = 0; i < m; ++i) w[i] = times(tau[k], conjugate(w[i])), inner += times(conjugate(w[i]), v[i]);
    subtract_row(w, v, times(tau[k], inner) * 0.5, m);
    for (int64_t i = 0; i < m; ++i) {  // a -= v w^H + w v^H; v and w are conjugated on the right-hand side
      if constexpr (std::is_same_v<T, Complex>) {
        for (int64_t j = 0; j < m; ++j) rest(i, j) -= times(v[i], conjugate(w[j])) + times(w[i], conjugate(v[j]));
      } else {
        subtract_rows(rest.row(i), w, v[i], v, w[i], m);
      }
    }
  }
  d[n - 1] = real_part(a(n - 1, n - 1));
}

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

// Stores the eigenvalues of the tridiagonal matrix in d; rows of `vectors` follow. REQUIRES: room for n numbers in e
template <class T>
bool diagonalize(double* d, double* e, int64_t n, const Block<T>& vectors, Rotation* rotations) {
  e[n - 1] = 0;
  for (int64_t first = 0; first < n; ++first)
    for (int sweeps = 0;; ++sweeps) {
      int64_t last = first;
      while (last + 1 < n && !(std::fabs(e[last]) <= kEpsilon * (std::fabs(d[last]) + std::fabs(d[last + 1])))) ++last;
      if (last == first) break;
      if (sweeps == kMostSweeps) return false;
      const int64_t count = sweep(d, e, first, last, rotations);
      if (vectors.data) rotate_rows(vectors, last, -1, rotations, count);
    }
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

// A scale by the largest element, to which the values are proportional; 0 if all are zero.
template <class T>
double scale_of(const Block<T>& a) {
  double most = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j <= i; ++j) most = std::max(most, std::sqrt(square_of(a(i, j))));
  return most > 1e-140 && most < 1e140 ? 1 : most;
}

}  // namespace

int64_t eigen_room(int64_t n) { return 6 * n + n * n + reflections_room(n, n); }

template <class T>
bool decompose_hermitian(const Block<T>& a, double* values, const Block<T>& vectors, const Workspace<T>& space) {
  const int64_t n = a.rows;
  if (n == 0) return true;
  const double scale = scale_of(a);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      if (scale != 1 && scale != 0) a(i, j) /= scale;
      a(j, i) = i == j ? T(real_part(a(i, i))) : conjugate(a(i, j));
    }
  T *tau = space.own, *w = tau + n;
  auto* e = reinterpret_cast<double*>(w + n);
  auto* rotations = reinterpret_cast<Rotation*>(e + n);
  Workspace<T> inner = space;
  inner.own = space.own + 6 * n + n * n;
  make_tridiagonal(a, values, e, tau, w);
  if (vectors.data) {  // the rows of Q^T
    const Block<T> q{space.own + 6 * n, n, n, n};
    set_identity(q);
    if (n > 1)
      apply_reflections(a.part(1, 0, n - 1, n - 1), tau, n - 1, Operator::plain, q.part(1, 1, n - 1, n - 1), inner);
    assign(vectors, Factor<T>(q).transposed());
  }
  if (!diagonalize(values, e, n, vectors, rotations)) return false;
  if (vectors.data) sort(values, vectors);
  else std::sort(values, values + n);
  if (scale != 1 && scale != 0)
    for (int64_t i = 0; i < n; ++i) values[i] *= scale;
  return true;
}

#define SG_FIELD(T) template bool decompose_hermitian(const Block<T>&, double*, const Block<T>&, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
