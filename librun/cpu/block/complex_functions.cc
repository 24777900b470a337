// Elementary functions of complex numbers.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Complex, math::widened, math::rounded;

template <class F>
void function(BlockTable& t, BlockOp op, F) {
  complex<1>(t, op, []<class T>(Cx<T> a) { return rounded<T>(F{}(widened(a))); });
}

// With the logarithm of the lane's type; the one for float vectorizes.
template <class F>
void logarithm(BlockTable& t, BlockOp op, F) {
  complex<1>(t, op, []<class T>(Cx<T> a) { return rounded<T>(F{}(math::logarithm<T>(widened(a)))); });
}

void add_circular(BlockTable& t) {
  function(t, BlockOp::sin, [](Complex a) { return math::sin(a); });
  function(t, BlockOp::cos, [](Complex a) { return math::cos(a); });
  function(t, BlockOp::sinc, [](Complex a) { return math::sinc(a); });
  function(t, BlockOp::tan, [](Complex a) { return math::tan(a); });
  function(t, BlockOp::asin, [](Complex a) { return math::asin(a); });
  function(t, BlockOp::acos, [](Complex a) { return math::acos(a); });
  function(t, BlockOp::atan, [](Complex a) { return math::atan(a); });
  function(t, BlockOp::sinh, [](Complex a) { return math::sinh(a); });
  function(t, BlockOp::cosh, [](Complex a) { return math::cosh(a); });
  function(t, BlockOp::tanh, [](Complex a) { return math::tanh(a); });
  function(t, BlockOp::asinh, [](Complex a) { return math::asinh(a); });
  function(t, BlockOp::acosh, [](Complex a) { return math::acosh(a); });
  function(t, BlockOp::atanh, [](Complex a) { return math::atanh(a); });
}

void add_exponentials(BlockTable& t) {
  function(t, BlockOp::exp, [](Complex a) { return math::exponential(a); });
  function(t, BlockOp::exp2, [](Complex a) { return math::exponential(math::scaled(a, math::kLn2)); });
  function(t, BlockOp::expm1, [](Complex a) { return math::exp_minus_one(a); });
  function(t, BlockOp::log1p, [](Complex a) { return math::log_one_plus(a); });
  function(t, BlockOp::sqrt, [](Complex a) { return math::square_root(a); });
  function(t, BlockOp::rsqrt, [](Complex a) { return math::over(Complex{1, 0}, math::square_root(a)); });
  function(t, BlockOp::sigmoid, [](Complex a) { return math::logistic(a); });
  function(t, BlockOp::silu, [](Complex a) { return math::times(a, math::logistic(a)); });
  logarithm(t, BlockOp::log, [](Complex log) { return log; });
  logarithm(t, BlockOp::log2, [](Complex log) { return math::scaled(log, math::kInvLn2); });
  logarithm(t, BlockOp::log10, [](Complex log) { return math::scaled(log, math::kInvLn10); });
}

template <class T>
void add_real_parts(BlockTable& t) {  // ops on real operands, or with a real result
  one<Cx<T>, 1, T>(t, BlockOp::abs, [](Cx<T> a) { return math::length(a.re, a.im); });
  one<Cx<T>, 1, T>(t, BlockOp::angle, [](Cx<T> a) { return math::angle(a); });
  one<T, 2, Cx<T>>(t, BlockOp::complex, [](T re, T im) { return Cx<T>{re, im}; });
  one<T, 2, Cx<T>>(t, BlockOp::polar, [](T size, T angle) { return rounded<T>(math::turned(size, angle)); });
}

}  // namespace

void add_complex_functions(BlockTable& t) {
  add_circular(t);
  add_exponentials(t);
  add_real_parts<float>(t);
  add_real_parts<double>(t);
  complex<1>(t, BlockOp::sgn, []<class T>(Cx<T> a) { return math::direction(a); });
  complex<2>(t, BlockOp::pow,
             []<class T>(Cx<T> a, Cx<T> b) { return rounded<T>(math::power(widened(a), widened(b))); });
}

}  // namespace sg::cpu::SG_ISA
