#include "librun/cpu/linear/reflect.h"

#include <cmath>

namespace sg::cpu::linear {
namespace {

constexpr int64_t kGroup = 32;  // reflections applied together: I - V S V^H

// A shorter column has too few digits for a reflection: what is left of a matrix of rank 1 loses 53 bits a column.
constexpr double kLeastLength = 1e-290, kLonger = 0x1p600;

// Scales by the largest element if squares would overflow or underflow.
template <class T>
double norm_of(T* x, int64_t n, int64_t step) {
  double most = 0, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i * step];
    sum += square_of(value);
    most = std::max(most, std::fabs(real_part(value)));
    if constexpr (std::is_same_v<T, Complex>) most = std::max(most, std::fabs(value.imag()));
  }
  if (sum > 1e-280 && sum < 1e280) return std::sqrt(sum);
  if (most == 0 || !std::isfinite(most)) return std::sqrt(sum);
  sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += square_of(x[i * step] / most);
  return most * std::sqrt(sum);
}

// a = (I - tau v v^H) a, using w: v^H a.
template <class T>
void reflect_columns(const Block<T>& a, const T* v, int64_t v_step, T tau, T* w) {
  if (tau == T(0) || a.columns == 0) return;
  std::fill_n(w, a.columns, T(0));
  for (int64_t i = 0; i < a.rows; ++i) subtract_row(w, a.row(i), -conjugate(v[i * v_step]), a.columns);
  for (int64_t i = 0; i < a.rows; ++i) subtract_row(a.row(i), w, times(tau, v[i * v_step]), a.columns);
}

// V with its ones and zeros, and S, for the reflections of `count` columns of a, starting at the diagonal.
template <class T>
void gather(const Block<T>& a, const T* tau, int64_t count, const Block<T>& v, const Block<T>& s,
            const Block<T>& products, const Workspace<T>& space) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < count; ++j) v(i, j) = i == j ? T(1) : i > j ? a(i, j) : T(0);
  set_zero(products);
  add_product(products, Factor<T>(v).adjoint(), Factor<T>(v), Sign::plus, space);
  set_zero(s);
  for (int64_t j = 0; j < count; ++j) {  // S[:j, j] = -tau S[:j, :j] (V^H V)[:j, j]
    for (int64_t i = 0; i < j; ++i) {
      T sum = 0;
      for (int64_t k = i; k < j; ++k) sum += times(s(i, k), products(k, j));
      s(i, j) = -times(tau[j], sum);
    }
    s(j, j) = tau[j];
  }
}

template <class T>
void apply_group(const Block<T>& a, const T* tau, int64_t count, Operator op, const Block<T>& c,
                 const Workspace<T>& space) {
  T* own = space.own;
  auto take = [&](int64_t rows, int64_t columns) {
    Block<T> b{own, rows, columns, columns};
    own += rows * columns;
    return b;
  };
  const Block<T> v = take(a.rows, count), s = take(count, count), products = take(count, count),
                 w = take(count, c.columns), sw = take(count, c.columns);
  gather(a, tau, count, v, s, products, space);
  set_zero(w);
  add_product(w, Factor<T>(v).adjoint(), Factor<T>(c), Sign::plus, space);
  set_zero(sw);
  add_product(sw, op == Operator::adjoint ? Factor<T>(s).adjoint() : Factor<T>(s), Factor<T>(w), Sign::plus, space);
  add_product(c, Factor<T>(v), Factor<T>(sw), Sign::minus, space);
}

}  // namespace

int64_t reflections_room(int64_t rows, int64_t columns) {
  return rows * kGroup + 2 * kGroup * kGroup + 2 * kGroup * std::max(columns, kGroup);
}

template <class T>
T make_reflection(T* alpha, T* x, int64_t n, int64_t step) {
  const double rest = norm_of(x, n, step), real = real_part(*alpha);
  double imaginary = 0;
  if constexpr (std::is_same_v<T, Complex>) imaginary = alpha->imag();
  if (rest == 0 && imaginary == 0) return 0;
  const double beta = -std::copysign(std::hypot(real, imaginary, rest), real);
  if (std::fabs(beta) < kLeastLength) {
    for (int64_t i = 0; i < n; ++i) x[i * step] *= kLonger;
    *alpha *= kLonger;
    const T tau = make_reflection(alpha, x, n, step);
    *alpha /= kLonger;
    return tau;
  }
  const T tau = (T(beta) - *alpha) / beta, scale = *alpha - T(beta);
  for (int64_t i = 0; i < n; ++i) x[i * step] /= scale;
  *alpha = beta;
  return tau;
}

template <class T>
void factor_qr(const Block<T>& a, T* tau, const Workspace<T>& space) {
  const int64_t least = std::min(a.rows, a.columns);
  for (int64_t k = 0; k < least; k += kGroup) {
    const int64_t count = std::min(kGroup, least - k);
    for (int64_t j = k; j < k + count; ++j) {
      const int64_t below = a.rows - j - 1;
      tau[j] = make_reflection(&a(j, j), a.data + (j + 1) * a.step + j, below, a.step);
      const T beta = a(j, j);
      a(j, j) = 1;
      reflect_columns(a.part(j, j + 1, below + 1, k + count - j - 1), &a(j, j), a.step, conjugate(tau[j]), space.own);
      a(j, j) = beta;
    }
    const Block<T> right = a.part(k, k + count, a.rows - k, a.columns - k - count);
    if (right.columns > 0)
      apply_group(a.part(k, k, a.rows - k, count), tau + k, count, Operator::adjoint, right, space);
  }
}

template <class T>
void apply_reflections(const Block<T>& a, const T* tau, int64_t count, Operator op, const Block<T>& c,
                       const Workspace<T>& space) {
  const int64_t groups = (count + kGroup - 1) / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t k = (op == Operator::adjoint ? g : groups - 1 - g) * kGroup, n = std::min(kGroup, count - k);
    apply_group(a.part(k, k, a.rows - k, n), tau + k, n, op, c.below(k), space);
  }
}

#define SG_FIELD(T)                                                  \
  template T make_reflection(T*, T*, int64_t, int64_t);              \
  template void factor_qr(const Block<T>&, T*, const Workspace<T>&); \
  template void apply_reflections(const Block<T>&, const T*, int64_t, Operator, const Block<T>&, const Workspace<T>&);
SG_FIELD(double)
SG_FIELD(Complex)
#undef SG_FIELD

}  // namespace sg::cpu::linear
