#include "librun/cpu/linear/exponential.h"

#include <cmath>
#include <limits>

#include "librun/cpu/linear/factor.h"

namespace sg::cpu::linear {
namespace {

// e^x is approximately p(x) / p(-x) with p = sum of kPade[i] x^i: to the last bit of a double for norms up to
// kMostNorm.
constexpr double kPade[] = {64764752532480000.,
                            32382376266240000.,
                            7771770303897600.,
                            1187353796428800.,
                            129060195264000.,
                            10559470521600.,
                            670442572800.,
                            33522128640.,
                            1323241920.,
                            40840800.,
                            960960.,
                            16380.,
                            182.,
                            1.};
constexpr double kMostNorm = 5.37;

template <class T>
double largest_column_sum(const Block<T>& a) {
  double most = 0;
  for (int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += std::abs(a(i, j));
    if (!(sum <= most)) most = sum;
    if (std::isnan(sum)) return sum;
  }
  return most;
}

template <class T>
void multiply(const Block<T>& out, const Block<T>& a, const Block<T>& b, const Workspace<T>& space) {
  set_zero(out);
  add_product(out, Factor<T>(a), Factor<T>(b), Sign::plus, space);
}

// out = c6 a6 + c4 a4 + c2 a2 + c0 (the identity).
template <class T>
void combine(const Block<T>& out, const Block<T>* even, double c6, double c4, double c2, double c0) {
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.columns; ++j) out(i, j) = c6 * even[2](i, j) + c4 * even[1](i, j) + c2 * even[0](i, j);
    out(i, i) += c0;
  }
}

}  // namespace

int64_t exponential_room(int64_t n) { return 6 * n * n + n; }

template <class T>
void exponential(const Block<T>& a, const Block<T>& out, const Workspace<T>& space) {
  const int64_t n = a.rows;
  const double norm = largest_column_sum(a);
  if (!std::isfinite(norm)) {
    for (int64_t i = 0; i < n; ++i) std::fill_n(out.row(i), n, T(std::numeric_limits<double>::quiet_NaN()));
    return;
  }
  const int halvings = norm > kMostNorm ? std::max(0, std::ilogb(norm / kMostNorm) + 1) : 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) a(i, j) *= std::ldexp(1.0, -halvings);
  auto matrix = [&](int64_t i) { return Block<T>{space.own + i * n * n, n, n, n}; };
  const Block<T> even[] = {matrix(0), matrix(1), matrix(2)}, odd = matrix(3), sum = matrix(4), part = matrix(5);
  const Block<T>&a2 = even[0], &a4 = even[1], &a6 = even[2];
  multiply(a2, a, a, space);
  multiply(a4, a2, a2, space);
  multiply(a6, a4, a2, space);
  combine(part, even, kPade[13], kPade[11], kPade[9], 0);
  combine(sum, even, kPade[7], kPade[5], kPade[3], kPade[1]);
  add_product(sum, Factor<T>(a6), Factor<T>(part), Sign::plus, space);
  multiply(odd, a, sum, space);
  combine(part, even, kPade[12], kPade[10], kPade[8], 0);
  combine(sum, even, kPade[6], kPade[4], kPade[2], kPade[0]);
  add_product(sum, Factor<T>(a6), Factor<T>(part), Sign::plus, space);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out(i, j) = sum(i, j) + odd(i, j), part(i, j) = sum(i, j) - odd(i, j);
  auto* pivots = reinterpret_cast<int32_t*>(space.own + 6 * n * n);
  lu(part, pivots, Pivoting::rows, space);
  solve_factored(Factor<T>(part), pivots, Operator::plain, out, space);
  for (int i = 0; i < halvings; ++i) {
    multiply(part, out, out, space);
    assign(out, Factor<T>(part));
  }
}

template void exponential(const Block<double>&, const Block<double>&, const Workspace<double>&);
template void exponential(const Block<Complex>&, const Block<Complex>&, const Workspace<Complex>&);

}  // namespace sg::cpu::linear
