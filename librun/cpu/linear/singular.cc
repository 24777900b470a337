#include "librun/cpu/linear/singular.h"

#include <cmath>

#include "librun/cpu/linear/reflect.h"
#include "librun/cpu/linear/rotate.h"

namespace sg::cpu::linear {
namespace {

constexpr double kEpsilon = 0x1p-53;
constexpr int64_t kMostSweeps = 40;  // per value on average; two or three suffice

// Without the vectors: both sides' reflections, a row, the other diagonal, both sides' rotations.
int64_t bidiagonal_numbers(int64_t n) { return 4 * n + 2 * RowRotations::space(n); }

// An upper bidiagonal matrix, and where its rotations are applied: rows of U^T and of V^H. Null data: nowhere.
template <class T>
struct Bidiagonal {
  double *d, *e;  // [n], [n - 1]
  int64_t n;
  Block<T> left, right;
  double *left_space, *right_space;  // [RowRotations::space(n)]
};

// a = Q B P^H: Q's vectors go below the diagonal, P's to the right of the superdiagonal, as rows. w: [columns]
template <class T>
void make_bidiagonal(const Block<T>& a, const Bidiagonal<T>& b, T* left_tau, T* right_tau, T* w) {
  const int64_t m = a.rows, n = a.columns;
  for (int64_t k = 0; k < n; ++k) {
    left_tau[k] = make_reflection(&a(k, k), a.data + (k + 1) * a.step + k, m - k - 1, a.step);
    b.d[k] = real_part(a(k, k));
    if (k + 1 == n) break;
    const int64_t right = n - k - 1;
    T* row = a.row(k) + k + 1;
    if (left_tau[k] != T(0)) {  // a = H^H a: w = v^H a, a -= tau' v w
      std::copy_n(row, right, w);
      for (int64_t i = k + 1; i < m; ++i) subtract_row(w, a.row(i) + k + 1, -conjugate(a(i, k)), right);
      const T tau = conjugate(left_tau[k]);
      subtract_row(row, w, tau, right);
      for (int64_t i = k + 1; i < m; ++i) subtract_row(a.row(i) + k + 1, w, times(tau, a(i, k)), right);
    }
    for (int64_t j = 0; j < right; ++j) row[j] = conjugate(row[j]);
    right_tau[k] = make_reflection(row, row + 1, right - 1, 1);
    b.e[k] = real_part(row[0]);
    if (right_tau[k] == T(0)) continue;
    row[0] = 1;
    for (int64_t j = 0; j < right; ++j) w[j] = conjugate(row[j]);
    for (int64_t i = k + 1; i < m; ++i) {
      T* other = a.row(i) + k + 1;
      subtract_row(other, w, times(right_tau[k], dot_rows(other, row, right)), right);
    }
  }
}

// The smaller singular value of [f g; 0 h], without overflow or underflow.
double smaller_of_two(double f, double g, double h) {
  const double small = std::min(std::fabs(f), std::fabs(h)), large = std::max(std::fabs(f), std::fabs(h));
  if (small == 0) return 0;
  const double across = std::fabs(g), sum = 1 + small / large, difference = (large - small) / large;
  if (across < large) {
    const double ratio = across / large * (across / large);
    return small * (2 / (std::sqrt(sum * sum + ratio) + std::sqrt(difference * difference + ratio)));
  }
  const double ratio = large / across;
  if (ratio == 0) return small * large / across;
  return 2 * (small * ratio / (std::hypot(1.0, sum * ratio) + std::hypot(1.0, difference * ratio)));
}

// One sweep from row `first` to `last`, shifted unless the diagonal contains a zero.
template <class T>
void sweep(const Bidiagonal<T>& b, int64_t first, int64_t last, RowRotations* left_rows, RowRotations* right_rows) {
  double *d = b.d, *e = b.e;
  Rotation *left_turns = left_rows->room(), *right_turns = right_rows->room();
  bool has_zero = false;
  for (int64_t i = first; i <= last; ++i) has_zero |= d[i] == 0;
  const double shift = has_zero ? 0 : smaller_of_two(d[last - 1], e[last - 1], d[last]);
  double f = d[first], g = e[first], r;
  if (shift != 0) f = (std::fabs(f) - shift) * (std::copysign(1, f) + shift / f);
  for (int64_t i = first; i < last; ++i) {
    const Rotation right = rotation_of(f, g, &r);
    if (i > first) e[i - 1] = r;
    f = right.c * d[i] + right.s * e[i];
    e[i] = right.c * e[i] - right.s * d[i];
    g = right.s * d[i + 1];
    d[i + 1] *= right.c;
    const Rotation left = rotation_of(f, g, &d[i]);
    f = left.c * e[i] + left.s * d[i + 1];
    d[i + 1] = left.c * d[i + 1] - left.s * e[i];
    if (i + 1 < last) {
      g = left.s * e[i + 1];
      e[i + 1] *= left.c;
    }
    left_turns[i - first] = left, right_turns[i - first] = right;
  }
  e[last - 1] = f;
  left_rows->add(first, 1, last - first);
  right_rows->add(first, 1, last - first);
}

template <class T>
bool diagonalize(const Bidiagonal<T>& b) {
  double largest = 0;
  for (int64_t i = 0; i < b.n; ++i)
    largest = std::max({largest, std::fabs(b.d[i]), i + 1 < b.n ? std::fabs(b.e[i]) : 0});
  auto is_nothing = [&](int64_t i) {
    const double e = std::fabs(b.e[i]);
    return e <= kEpsilon * (std::fabs(b.d[i]) + std::fabs(b.d[i + 1])) || e <= 0.125 * kEpsilon * largest;
  };
  RowRotations left(b.left, b.n, b.left_space), right(b.right, b.n, b.right_space);
  int64_t sweeps = kMostSweeps * b.n;
  for (int64_t last = b.n - 1; last > 0;) {
    for (int64_t i = 0; i < last; ++i)
      if (is_nothing(i)) b.e[i] = 0;
    if (b.e[last - 1] == 0) {
      --last;
      continue;
    }
    int64_t first = last - 1;
    while (first > 0 && b.e[first - 1] != 0) --first;
    if (sweeps-- == 0) return false;
    sweep(b, first, last, &left, &right);
  }
  left.apply();
  right.apply();
  return true;
}

template <class T>
void make_positive_and_sort(const Bidiagonal<T>& b) {
  const bool with_vectors = b.left.data != nullptr;
  for (int64_t i = 0; i < b.n; ++i) {
    if (!std::signbit(b.d[i])) continue;
    b.d[i] = -b.d[i];
    for (int64_t j = 0; with_vectors && j < b.right.columns; ++j) b.right(i, j) = -b.right(i, j);
  }
  for (int64_t i = 0; i < b.n; ++i) {
    const int64_t most = std::max_element(b.d + i, b.d + b.n) - b.d;
    if (most == i) continue;
    std::swap(b.d[i], b.d[most]);
    if (!with_vectors) continue;
    std::swap_ranges(b.left.row(i), b.left.row(i) + b.left.columns, b.left.row(most));
    std::swap_ranges(b.right.row(i), b.right.row(i) + b.right.columns, b.right.row(most));
  }
}

// The largest element of a, if squares would overflow or underflow: all elements are divided by it; else 1. NaN and
// infinity are returned unchanged.
template <class T>
double take_scale(const Block<T>& a) {
  double most = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) {
      const double size = std::abs(a(i, j));
      if (!(size <= most)) most = size;
      if (std::isnan(size)) return size;
    }
  if (most == 0 || !std::isfinite(most)) return most == 0 ? 1 : most;
  if (most > 1e-140 && most < 1e140) return 1;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) a(i, j) /= most;
  return most;
}

// The vectors of P are stored as rows; this makes them columns, for apply_reflections.
template <class T>
void make_vectors(const Block<T>& a, const Bidiagonal<T>& b, const T* left_tau, const T* right_tau, T* memory,
                  const Workspace<T>& space) {
  const int64_t m = a.rows, n = a.columns, k = b.left.rows;
  const Block<T> u{memory, m, k, k};
  set_identity(u);
  apply_reflections(a, left_tau, n, Operator::plain, u, space);
  assign(b.left, Factor<T>(u).transposed());
  set_identity(b.right);
  if (n < 2) return;
  const Block<T> p{memory, n, n, n}, turned{memory + n * n, n - 1, n - 1, n - 1};
  set_identity(p);
  assign(turned, Factor<T>(a.part(0, 1, n - 1, n - 1)).transposed());
  apply_reflections(turned, right_tau, n - 1, Operator::plain, p.part(1, 1, n - 1, n - 1), space);
  assign(b.right, Factor<T>(p).adjoint());
}

}  // namespace

int64_t singular_room(int64_t rows, int64_t columns) {
  return bidiagonal_numbers(columns) + rows * std::max(rows, 2 * columns) + reflections_room(rows, rows);
}

template <class T>
bool decompose_singular(const Block<T>& a, double* values, const Block<T>& left, const Block<T>& right,
                        const Workspace<T>& space) {
  const int64_t m = a.rows, n = a.columns;
  const double scale = take_scale(a);
  if (!std::isfinite(scale)) return false;
  T *left_tau = space.own, *right_tau = left_tau + n, *w = right_tau + n;
  auto* e = reinterpret_cast<double*>(w + n);
  double *left_space = e + n, *right_space = left_space + RowRotations::space(n);
  T* memory = space.own + bidiagonal_numbers(n);
  Workspace<T> inner = space;
  inner.own = memory + m * std::max(m, 2 * n);
  const Bidiagonal<T> b{values, e, n, left, right, left_space, right_space};
  make_bidiagonal(a, b, left_tau, right_tau, w);
  if (left.data) make_vectors(a, b, left_tau, right_tau, memory, inner);
  if (!diagonalize(b)) return false;
  make_positive_and_sort(b);
  if (scale != 1)
    for (int64_t i = 0; i < n; ++i) values[i] *= scale;
  return true;
}

#define SG_FIELD(T) \
  template bool decompose_singular(const Block<T>&, double*, const Block<T>&, const Block<T>&, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
