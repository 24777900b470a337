#include "librun/cpu/linear/factor.h"

#include <cmath>

namespace sg::cpu::linear {
namespace {

constexpr int64_t kSmall = 16;      // rows solved one by one
constexpr int64_t kFewColumns = 8;  // columns eliminated one by one

int64_t half_of(int64_t n) { return (n / 2 + kSmall - 1) / kSmall * kSmall; }

template <class T>
void finish_row(const Factor<T>& a, int64_t i, Diagonal diagonal, const Block<T>& x) {
  if (diagonal == Diagonal::ones) return;
  const T divisor = a(i, i);
  T* row = x.row(i);
  for (int64_t j = 0; j < x.columns; ++j) row[j] /= divisor;
}

template <class T>
int32_t small_cholesky(const Block<T>& a) {
  T column[2 * kSmall];
  for (int64_t j = 0; j < a.rows; ++j) {
    const double square = real_part(a(j, j));
    if (!(square > 0)) return static_cast<int32_t>(j + 1);
    const double root = std::sqrt(square);
    a(j, j) = root;
    for (int64_t i = j + 1; i < a.rows; ++i) a(i, j) /= root, column[i] = conjugate(a(i, j));
    for (int64_t i = j + 1; i < a.rows; ++i) subtract_row(a.row(i) + j + 1, column + j + 1, a(i, j), i - j);
  }
  return 0;
}

// c -= b b^H, for the lower half only.
template <class T>
void subtract_square(const Block<T>& c, const Block<T>& b, const Workspace<T>& space) {
  if (c.rows <= 3 * kSmall) return add_product(c, Factor<T>(b), Factor<T>(b).adjoint(), Sign::minus, space);
  const int64_t h = half_of(c.rows), rest = c.rows - h;
  subtract_square(c.part(0, 0, h, h), b.top(h), space);
  add_product(c.part(h, 0, rest, h), Factor<T>(b.below(h)), Factor<T>(b.top(h)).adjoint(), Sign::minus, space);
  subtract_square(c.part(h, h, rest, rest), b.below(h), space);
}

// The row, from j on, with the largest element in column j; NaN counts as the largest.
template <class T>
int64_t pivot_of(const Block<T>& a, int64_t j) {
  auto size = [&](int64_t i) {
    const T x = a(i, j);
    if constexpr (std::is_same_v<T, Complex>) return std::fabs(x.real()) + std::fabs(x.imag());
    else return std::fabs(x);
  };
  int64_t best = j;
  double most = size(j);
  for (int64_t i = j + 1; i < a.rows && !std::isnan(most); ++i)
    if (double s = size(i); !(s <= most)) best = i, most = s;
  return best;
}

template <class T>
int32_t eliminate_columns(const Block<T>& a, int32_t* pivots, Pivoting pivoting) {
  int32_t zero = 0;
  for (int64_t j = 0; j < std::min(a.rows, a.columns); ++j) {
    const int64_t p = pivoting == Pivoting::rows ? pivot_of(a, j) : j;
    pivots[j] = static_cast<int32_t>(p);
    if (p != j) std::swap_ranges(a.row(j), a.row(j) + a.columns, a.row(p));
    const T pivot = a(j, j);
    if (pivot == T(0)) {
      if (zero == 0) zero = static_cast<int32_t>(j + 1);
      continue;
    }
    const T* right = a.row(j) + j + 1;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      T* row = a.row(i) + j + 1;
      const T factor = row[-1] /= pivot;
      for (int64_t k = 0; k < a.columns - j - 1; ++k) row[k] -= times(factor, right[k]);
    }
  }
  return zero;
}

}  // namespace

template <class T>
void solve_lower(const Factor<T>& l, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space) {
  const int64_t n = x.rows;
  if (n <= kSmall) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < i; ++k) subtract_row(x.row(i), x.row(k), l(i, k), x.columns);
      finish_row(l, i, diagonal, x);
    }
    return;
  }
  const int64_t h = half_of(n);
  solve_lower(l.part(0, 0, h, h), x.top(h), diagonal, space);
  add_product(x.below(h), l.part(h, 0, n - h, h), Factor<T>(x.top(h)), Sign::minus, space);
  solve_lower(l.part(h, h, n - h, n - h), x.below(h), diagonal, space);
}

template <class T>
void solve_upper(const Factor<T>& u, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space) {
  const int64_t n = x.rows;
  if (n <= kSmall) {
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < n; ++k) subtract_row(x.row(i), x.row(k), u(i, k), x.columns);
      finish_row(u, i, diagonal, x);
    }
    return;
  }
  const int64_t h = half_of(n);
  solve_upper(u.part(h, h, n - h, n - h), x.below(h), diagonal, space);
  add_product(x.top(h), u.part(0, h, h, n - h), Factor<T>(x.below(h)), Sign::minus, space);
  solve_upper(u.part(0, 0, h, h), x.top(h), diagonal, space);
}

template <class T>
int32_t cholesky(const Block<T>& a, T* turned, const Workspace<T>& space) {
  const int64_t n = a.rows;
  if (n <= 2 * kSmall) return small_cholesky(a);
  const int64_t h = half_of(n), rest = n - h;
  if (int32_t minor = cholesky(a.part(0, 0, h, h), turned, space)) return minor;
  const Block<T> below = a.part(h, 0, rest, h), across{turned, h, rest, rest};  // below L^-H is (L^-1 below^H)^H
  assign(across, Factor<T>(below).adjoint());
  solve_lower(Factor<T>(a.part(0, 0, h, h)), across, Diagonal::given, space);
  assign(below, Factor<T>(across).adjoint());
  subtract_square(a.part(h, h, rest, rest), below, space);
  const int32_t minor = cholesky(a.part(h, h, rest, rest), turned, space);
  return minor == 0 ? 0 : minor + static_cast<int32_t>(h);
}

template <class T>
int32_t lu(const Block<T>& a, int32_t* pivots, Pivoting pivoting, const Workspace<T>& space) {
  const int64_t least = std::min(a.rows, a.columns);
  if (a.columns <= kFewColumns || least <= 1) return eliminate_columns(a, pivots, pivoting);
  const int64_t h = a.columns > least ? (least + 1) / 2 : a.columns / 2, right = a.columns - h;
  const int32_t first = lu(a.part(0, 0, a.rows, h), pivots, pivoting, space);
  swap_rows(a.part(0, h, a.rows, right), pivots, h, Swaps::in_order);
  solve_lower(Factor<T>(a.part(0, 0, h, h)), a.part(0, h, h, right), Diagonal::ones, space);
  const Block<T> rest = a.part(h, h, a.rows - h, right);
  add_product(rest, Factor<T>(a.part(h, 0, a.rows - h, h)), Factor<T>(a.part(0, h, h, right)), Sign::minus, space);
  const int32_t second = lu(rest, pivots + h, pivoting, space);
  swap_rows(a.part(h, 0, a.rows - h, h), pivots + h, least - h, Swaps::in_order);
  for (int64_t i = h; i < least; ++i) pivots[i] += static_cast<int32_t>(h);
  return first != 0 ? first : second == 0 ? 0 : second + static_cast<int32_t>(h);
}

template <class T>
void swap_rows(const Block<T>& x, const int32_t* pivots, int64_t count, Swaps swaps) {
  for (int64_t step = 0; step < count; ++step) {
    const int64_t i = swaps == Swaps::back ? count - 1 - step : step;
    if (pivots[i] != i) std::swap_ranges(x.row(i), x.row(i) + x.columns, x.row(pivots[i]));
  }
}

template <class T>
void solve_factored(const Factor<T>& a, const int32_t* pivots, Operator op, const Block<T>& x,
                    const Workspace<T>& space) {
  if (op == Operator::adjoint) {  // U^H L^H P x = b
    solve_lower(a.adjoint(), x, Diagonal::given, space);
    solve_upper(a.adjoint(), x, Diagonal::ones, space);
    return swap_rows(x, pivots, x.rows, Swaps::back);
  }
  swap_rows(x, pivots, x.rows, Swaps::in_order);
  solve_lower(a, x, Diagonal::ones, space);
  solve_upper(a, x, Diagonal::given, space);
}

#define SG_FIELD(T)                                                                            \
  template void solve_lower(const Factor<T>&, const Block<T>&, Diagonal, const Workspace<T>&); \
  template void solve_upper(const Factor<T>&, const Block<T>&, Diagonal, const Workspace<T>&); \
  template int32_t cholesky(const Block<T>&, T*, const Workspace<T>&);                         \
  template int32_t lu(const Block<T>&, int32_t*, Pivoting, const Workspace<T>&);               \
  template void swap_rows(const Block<T>&, const int32_t*, int64_t, Swaps);                    \
  template void solve_factored(const Factor<T>&, const int32_t*, Operator, const Block<T>&, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
