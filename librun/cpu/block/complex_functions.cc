// Elementary functions of complex numbers, in double by the library's and rounded once.
#include <complex>

#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using C = std::complex<double>;

template <class T>
SG_INLINE C wide(Cx<T> a) {
  return {static_cast<double>(a.re), static_cast<double>(a.im)};
}

template <class T>
SG_INLINE Cx<T> narrow(C a) {
  return {static_cast<T>(a.real()), static_cast<T>(a.imag())};
}

template <class F>
void function(BlockTable& t, BlockOp op, F) {
  complex<1>(t, op, []<class T>(Cx<T> a) { return narrow<T>(F{}(wide(a))); });
}

// Near 0 as exact as elsewhere: exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2.
SG_INLINE C exp_minus_one(C a) {
  double half = std::sin(a.imag() / 2);
  return {std::expm1(a.real()) * std::cos(a.imag()) - 2 * half * half, std::exp(a.real()) * std::sin(a.imag())};
}

// |1 + a|^2 - 1 = x (2 + x) + y^2, which is exact where the sum is near 1.
SG_INLINE C log_one_plus(C a) {
  double x = a.real(), y = a.imag(), most = std::max(std::abs(x), std::abs(y));
  double size = most < 0.5 ? std::log1p(x * (2 + x) + y * y) / 2 : std::log(std::hypot(1 + x, y));
  return {size, std::atan2(y, 1 + x)};
}

SG_INLINE C logistic(C a) { return 1.0 / (1.0 + std::exp(-a)); }

void add_circular(BlockTable& t) {
  function(t, BlockOp::sin, [](C a) { return std::sin(a); });
  function(t, BlockOp::cos, [](C a) { return std::cos(a); });
  function(t, BlockOp::sinc, [](C a) { return a == 0.0 ? C(1) : std::sin(math::kPi * a) / (math::kPi * a); });
  function(t, BlockOp::tan, [](C a) { return std::tan(a); });
  function(t, BlockOp::asin, [](C a) { return std::asin(a); });
  function(t, BlockOp::acos, [](C a) { return std::acos(a); });
  function(t, BlockOp::atan, [](C a) { return std::atan(a); });
  function(t, BlockOp::sinh, [](C a) { return std::sinh(a); });
  function(t, BlockOp::cosh, [](C a) { return std::cosh(a); });
  function(t, BlockOp::tanh, [](C a) { return std::tanh(a); });
  function(t, BlockOp::asinh, [](C a) { return std::asinh(a); });
  function(t, BlockOp::acosh, [](C a) { return std::acosh(a); });
  function(t, BlockOp::atanh, [](C a) { return std::atanh(a); });
}

void add_exponentials(BlockTable& t) {
  function(t, BlockOp::exp2, [](C a) { return std::exp(a * math::kLn2); });
  function(t, BlockOp::expm1, [](C a) { return exp_minus_one(a); });
  function(t, BlockOp::log2, [](C a) { return std::log(a) / math::kLn2; });
  function(t, BlockOp::log10, [](C a) { return std::log10(a); });
  function(t, BlockOp::log1p, [](C a) { return log_one_plus(a); });
  function(t, BlockOp::rsqrt, [](C a) { return 1.0 / std::sqrt(a); });
  function(t, BlockOp::sigmoid, [](C a) { return logistic(a); });
  function(t, BlockOp::silu, [](C a) { return a * logistic(a); });
}

}  // namespace

void add_complex_functions(BlockTable& t) {
  add_circular(t);
  add_exponentials(t);
  complex<2>(t, BlockOp::pow, []<class T>(Cx<T> a, Cx<T> b) {
    if (b.re == 0 && b.im == 0) return Cx<T>{1, 0};
    return narrow<T>(std::pow(wide(a), wide(b)));
  });
  complex<2>(t, BlockOp::tanh_backward,
             []<class T>(Cx<T> g, Cx<T> y) { return narrow<T>(wide(g) * std::conj(1.0 - wide(y) * wide(y))); });
  complex<2>(t, BlockOp::sigmoid_backward,
             []<class T>(Cx<T> g, Cx<T> y) { return narrow<T>(wide(g) * std::conj((1.0 - wide(y)) * wide(y))); });
  complex<4>(t, BlockOp::addcdiv, []<class T>(Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> value) {
    return narrow<T>(wide(a) + wide(value) * wide(b) / wide(c));
  });
  complex<3>(t, BlockOp::lerp, []<class T>(Cx<T> a, Cx<T> b, Cx<T> weight) {  // exact at both ends
    C from = wide(a), to = wide(b), w = wide(weight);
    return narrow<T>(std::abs(w) < 0.5 ? from + w * (to - from) : to - (to - from) * (1.0 - w));
  });
  complex<4>(t, BlockOp::nan_to_num, []<class T>(Cx<T> a, Cx<T> nan, Cx<T> above, Cx<T> below) {
    auto part = [&](T v) { return v != v ? nan.re : v - v == 0 ? v : v > 0 ? above.re : below.re; };
    return Cx<T>{part(a.re), part(a.im)};
  });
}

}  // namespace sg::cpu::SG_ISA
