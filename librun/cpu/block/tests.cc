// Comparisons and other tests; logic on bools.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

template <int N, class F>
void ordered_test(BlockTable& t, BlockOp op, F f) {
  real_test<N>(t, op, f);
  one<int64_t, N, uint8_t>(t, op, f);
  one<uint8_t, N, uint8_t>(t, op, f);
}

template <int N, class F>
void complex_test(BlockTable& t, BlockOp op, F f) {
  one<Cx<float>, N, uint8_t>(t, op, f), one<Cx<double>, N, uint8_t>(t, op, f);
}

template <class T>
SG_INLINE bool complex_close(Cx<T> a, Cx<T> b, T rtol, T atol) {
  T error = static_cast<T>(::hypot(a.re - b.re, a.im - b.im)), size = static_cast<T>(::hypot(b.re, b.im));
  return (a.re == b.re && a.im == b.im) || (error - error == 0 && error <= atol + math::abs(rtol) * size);
}

template <class T>
SG_INLINE bool finite(T a) {
  return a - a == 0;
}
template <class T>
SG_INLINE bool infinite(T a) {
  return a == a && !finite(a);
}

// |a - b| <= atol + rtol |b| and finite; equal infinities are close.
template <class T>
SG_INLINE bool close(T a, T b, T rtol, T atol) {
  T error = math::abs(a - b);
  return a == b || (finite(error) && error <= atol + math::abs(rtol * b));
}

void add_comparisons(BlockTable& t) {
  ordered_test<2>(t, BlockOp::eq, []<class T>(T a, T b) { return a == b; });
  ordered_test<2>(t, BlockOp::ne, []<class T>(T a, T b) { return a != b; });
  ordered_test<2>(t, BlockOp::lt, []<class T>(T a, T b) { return a < b; });
  ordered_test<2>(t, BlockOp::le, []<class T>(T a, T b) { return a <= b; });
  ordered_test<2>(t, BlockOp::gt, []<class T>(T a, T b) { return a > b; });
  ordered_test<2>(t, BlockOp::ge, []<class T>(T a, T b) { return a >= b; });
  complex_test<2>(t, BlockOp::eq, []<class T>(T a, T b) { return a.re == b.re && a.im == b.im; });
  complex_test<2>(t, BlockOp::ne, []<class T>(T a, T b) { return a.re != b.re || a.im != b.im; });
}

void add_logic(BlockTable& t) {
  one<uint8_t, 1>(t, BlockOp::logical_not, [](uint8_t a) { return a ^ 1; });
  one<uint8_t, 2>(t, BlockOp::logical_and, [](uint8_t a, uint8_t b) { return a & b; });
  one<uint8_t, 2>(t, BlockOp::logical_or, [](uint8_t a, uint8_t b) { return a | b; });
  one<uint8_t, 2>(t, BlockOp::logical_xor, [](uint8_t a, uint8_t b) { return a ^ b; });
}

template <class T>
void add_whole_kinds(BlockTable& t) {  // for integers and bools
  one<T, 1, uint8_t>(t, BlockOp::isnan, [](T) { return false; });
  one<T, 1, uint8_t>(t, BlockOp::isinf, [](T) { return false; });
  one<T, 1, uint8_t>(t, BlockOp::isfinite, [](T) { return true; });
  one<T, 1, uint8_t>(t, BlockOp::signbit, [](T a) { return a < T{}; });
}

}  // namespace

void add_tests(BlockTable& t) {
  add_comparisons(t);
  add_logic(t);
  add_whole_kinds<int64_t>(t);
  add_whole_kinds<uint8_t>(t);
  real_test<1>(t, BlockOp::isnan, []<class T>(T a) { return a != a; });
  real_test<1>(t, BlockOp::isinf, []<class T>(T a) { return infinite(a); });
  real_test<1>(t, BlockOp::isfinite, []<class T>(T a) { return finite(a); });
  real_test<1>(t, BlockOp::signbit, []<class T>(T a) { return math::bits_of(a) >> 63; });
  complex_test<4>(t, BlockOp::isclose,
                  []<class T>(T a, T b, T rtol, T atol) { return complex_close(a, b, rtol.re, atol.re); });
  complex_test<4>(t, BlockOp::isclose_nan, []<class T>(T a, T b, T rtol, T atol) {
    return complex_close(a, b, rtol.re, atol.re) || ((a.re != a.re || a.im != a.im) && (b.re != b.re || b.im != b.im));
  });
  complex_test<1>(t, BlockOp::isnan, []<class T>(T a) { return a.re != a.re || a.im != a.im; });
  complex_test<1>(t, BlockOp::isinf, []<class T>(T a) { return infinite(a.re) || infinite(a.im); });
  complex_test<1>(t, BlockOp::isfinite, []<class T>(T a) { return finite(a.re) && finite(a.im); });
  real_test<4>(t, BlockOp::isclose, []<class T>(T a, T b, T rtol, T atol) { return close(a, b, rtol, atol); });
  real_test<4>(t, BlockOp::isclose_nan,
               []<class T>(T a, T b, T rtol, T atol) { return close(a, b, rtol, atol) || (a != a && b != b); });
}

}  // namespace sg::cpu::SG_ISA
