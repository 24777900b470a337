// Special functions, and the rarer activations.
#include "librun/work/special.h"
#include "librun/cpu/block/map.h"
#include "librun/work/bessel.h"
#include "librun/work/orthogonal.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Wide;

void add_functions(BlockTable& t) {
  real<1>(t, BlockOp::entr, []<class T>(T x) { return static_cast<T>(math::entropy<T>(x)); });
  real<1>(t, BlockOp::sinc, []<class T>(T x) { return static_cast<T>(math::sinc(x)); });
  real<1>(t, BlockOp::i0, []<class T>(T x) { return static_cast<T>(math::bessel_i0(x, false)); });
  real<1>(t, BlockOp::i0e, []<class T>(T x) { return static_cast<T>(math::bessel_i0(x, true)); });
  real<1>(t, BlockOp::i1, []<class T>(T x) { return static_cast<T>(math::bessel_i1(x, false)); });
  real<1>(t, BlockOp::i1e, []<class T>(T x) { return static_cast<T>(math::bessel_i1(x, true)); });
  real<1>(t, BlockOp::erfcx, []<class T>(T x) { return static_cast<T>(math::erfcx(x)); });
  real<1>(t, BlockOp::ndtri, []<class T>(T x) { return math::ndtri(x); });
  real<1>(t, BlockOp::log_ndtr, []<class T>(T x) { return static_cast<T>(math::log_ndtr(x)); });
  real<2>(t, BlockOp::polygamma, []<class T>(T n, T x) { return static_cast<T>(math::polygamma(n, x)); });
  real<2>(t, BlockOp::zeta, []<class T>(T s, T q) { return static_cast<T>(math::zeta(s, q)); });
  real<2>(t, BlockOp::igamma, []<class T>(T a, T x) { return static_cast<T>(math::igamma(a, x, false)); });
  real<2>(t, BlockOp::igammac, []<class T>(T a, T x) { return static_cast<T>(math::igamma(a, x, true)); });
  real<2>(t, BlockOp::xlog1py, []<class T>(T x, T y) {
    return y != y ? y : x == 0 ? T(0) : static_cast<T>(x * Wide<T>::log1p(y));
  });
}

// The order, 0 or 1, is the first operand; of polynomials the kind, and whether it is shifted, are the outer ones.
void add_families(BlockTable& t) {
  real<2>(t, BlockOp::bessel_j,
          []<class T>(T n, T x) { return static_cast<T>(math::bessel_j(static_cast<int>(n), x)); });
  real<2>(t, BlockOp::bessel_y,
          []<class T>(T n, T x) { return static_cast<T>(math::bessel_y(static_cast<int>(n), x)); });
  real<2>(t, BlockOp::bessel_k,
          []<class T>(T n, T x) { return static_cast<T>(math::bessel_k(static_cast<int>(n), x, false)); });
  real<2>(t, BlockOp::bessel_k_scaled,
          []<class T>(T n, T x) { return static_cast<T>(math::bessel_k(static_cast<int>(n), x, true)); });
  real<1>(t, BlockOp::spherical_j0, []<class T>(T x) { return static_cast<T>(math::spherical_j0(x)); });
  real<1>(t, BlockOp::airy, []<class T>(T x) { return static_cast<T>(math::airy(x)); });
  real<4>(t, BlockOp::polynomial,
          []<class T>(T kind, T x, T n, T shifted) { return math::polynomial_of_degree(kind, x, n, shifted); });
}

void add_pairs(BlockTable& t) {
  real<2>(t, BlockOp::logaddexp, []<class T>(T a, T b) { return static_cast<T>(math::log_add<T>(a, b)); });
  real<2>(t, BlockOp::logaddexp2, []<class T>(T a, T b) {
    return static_cast<T>(math::log_add<T>(a * math::kLn2, b * math::kLn2) * math::kInvLn2);
  });
  real<2>(t, BlockOp::heaviside, []<class T>(T x, T v) { return x == 0 ? v : static_cast<T>(x > 0); });
  real<2>(t, BlockOp::copysign, []<class T>(T x, T s) { return static_cast<T>(math::with_sign_of(x, s)); });
  real<2>(t, BlockOp::nextafter, []<class T>(T x, T y) { return math::next(x, y); });
  one<float, 2>(t, BlockOp::nextafter_bf16, [](float x, float y) { return math::next_bf16(x, y); });
  one<int64_t, 2>(t, BlockOp::heaviside, [](int64_t x, int64_t v) { return x == 0 ? v : static_cast<int64_t>(x > 0); });
  one<uint8_t, 2>(t, BlockOp::heaviside, [](uint8_t x, uint8_t v) { return x == 0 ? v : uint8_t{1}; });
  one<int64_t, 2>(t, BlockOp::gcd, [](int64_t a, int64_t b) { return math::gcd(a, b); });
  one<int64_t, 2>(t, BlockOp::lcm, [](int64_t a, int64_t b) { return math::lcm(a, b); });
}

void add_shrinking(BlockTable& t) {
  real<2>(t, BlockOp::hardshrink, []<class T>(T x, T limit) { return x >= -limit && x <= limit ? T(0) : x; });
  real<2>(t, BlockOp::softshrink, []<class T>(T x, T limit) {
    return x > limit ? x - limit : x < -limit ? x + limit : x * 0;
  });
  real<3>(t, BlockOp::shrink_backward, []<class T>(T g, T x, T limit) { return x >= -limit && x <= limit ? T(0) : g; });
  real<3>(t, BlockOp::threshold, []<class T>(T x, T limit, T value) { return x <= limit ? value : x; });
  one<int64_t, 3>(t, BlockOp::threshold,
                  [](int64_t x, int64_t limit, int64_t value) { return x <= limit ? value : x; });
}

void add_gradients(BlockTable& t) {
  real<4>(t, BlockOp::logit_backward,
          []<class T>(T g, T x, T low, T outside) { return math::logit_gradient(g, x, low, outside); });
}

}  // namespace

void add_special(BlockTable& t) {
  add_functions(t);
  add_families(t);
  add_pairs(t);
  add_shrinking(t);
  add_gradients(t);
}

}  // namespace sg::cpu::SG_ISA
