// Arithmetic of complex numbers.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::plus, math::minus, math::times, math::over;

void add_products(BlockTable& t) {
  complex<3>(t, BlockOp::add_scaled, []<class T>(Cx<T> a, Cx<T> b, Cx<T> s) { return plus(a, times(s, b)); });
  complex<3>(t, BlockOp::sub_scaled, []<class T>(Cx<T> a, Cx<T> b, Cx<T> s) { return minus(a, times(s, b)); });
  complex<4>(t, BlockOp::addcmul,
             []<class T>(Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> s) { return plus(a, times(times(s, b), c)); });
  complex<4>(t, BlockOp::addcdiv,
             []<class T>(Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> s) { return math::add_quotient(a, b, c, s); });
  complex<3>(t, BlockOp::lerp, []<class T>(Cx<T> a, Cx<T> b, Cx<T> weight) { return math::between(a, b, weight); });
  complex<2>(t, BlockOp::tanh_backward, []<class T>(Cx<T> g, Cx<T> y) { return math::tanh_gradient(g, y); });
  complex<2>(t, BlockOp::sigmoid_backward, []<class T>(Cx<T> g, Cx<T> y) { return math::logistic_gradient(g, y); });
}

}  // namespace

void add_complex(BlockTable& t) {
  complex<2>(t, BlockOp::add, []<class T>(Cx<T> a, Cx<T> b) { return plus(a, b); });
  complex<2>(t, BlockOp::sub, []<class T>(Cx<T> a, Cx<T> b) { return minus(a, b); });
  complex<2>(t, BlockOp::mul, []<class T>(Cx<T> a, Cx<T> b) { return times(a, b); });
  complex<2>(t, BlockOp::div, []<class T>(Cx<T> a, Cx<T> b) { return over(a, b); });
  complex<1>(t, BlockOp::neg, []<class T>(Cx<T> a) { return Cx<T>{-a.re, -a.im}; });
  complex<1>(t, BlockOp::conj, []<class T>(Cx<T> a) { return math::conjugate(a); });
  complex<1>(t, BlockOp::reciprocal, []<class T>(Cx<T> a) { return over(Cx<T>{1, 0}, a); });
  complex<4>(t, BlockOp::nan_to_num, []<class T>(Cx<T> a, Cx<T> nan, Cx<T> above, Cx<T> below) {
    return math::with_numbers(a, nan.re, above.re, below.re);
  });
  add_products(t);
}

}  // namespace sg::cpu::SG_ISA
