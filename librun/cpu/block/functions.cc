// Elementary functions.
#include "librun/cpu/block/map.h"
#include "librun/work/exp_float.h"
#include "librun/work/special.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Wide;

template <class T>
SG_INLINE T logit(T x, T low, T high) {
  double p = x < low ? low : x > high ? high : x;
  return static_cast<T>(Wide<T>::log(p / (1.0 - p)));
}

// sin, cos and tan: vectorized, unless the block has an argument that needs the exact reduction.
template <class Small, class Any>
struct Trigonometric {
  [[gnu::flatten]] static void run(void* out, const void* const* in, int64_t n, bool*) {
    auto* o = static_cast<float*>(out);
    auto* x = static_cast<const float*>(in[0]);
    bool small = true;
    for (int64_t i = 0; i < n; ++i) small &= math::abs(x[i]) <= static_cast<float>(math::kTurnLimit);
    if (small) return apply<Small>(Writer<float>(out), n, Reader<float>(in[0]));
    for (int64_t i = 0; i < n; ++i) o[i] = Any{}(x[i]);
  }
};

template <class Small, class Any>
void trigonometric(BlockTable& t, BlockOp op, Small, Any any) {
  place(t, op, Lane::f32) = &Trigonometric<Small, Any>::run;
  one<double, 1>(t, op, any);
}

void add_trigonometry(BlockTable& t) {
  trigonometric(
      t, BlockOp::sin, [](float x) { return math::sin_small(x); }, [](auto x) { return math::sin(x); });
  trigonometric(
      t, BlockOp::cos, [](float x) { return math::cos_small(x); }, [](auto x) { return math::cos(x); });
  trigonometric(
      t, BlockOp::tan, [](float x) { return math::tan_small(x); }, [](auto x) { return math::tan(x); });
  real<1>(t, BlockOp::asin, []<class T>(T x) { return static_cast<T>(Wide<T>::asin(x)); });
  real<1>(t, BlockOp::acos, []<class T>(T x) { return static_cast<T>(Wide<T>::acos(x)); });
  real<1>(t, BlockOp::atan, []<class T>(T x) { return static_cast<T>(Wide<T>::atan(x)); });
  real<2>(t, BlockOp::atan2, []<class T>(T y, T x) { return static_cast<T>(Wide<T>::atan2(y, x)); });
  real<1>(t, BlockOp::angle, []<class T>(T x) { return x != x ? x : static_cast<T>(x < 0 ? math::kPi : 0); });
}

void add_hyperbolic(BlockTable& t) {
  real<1>(t, BlockOp::sinh, []<class T>(T x) { return static_cast<T>(Wide<T>::sinh(x)); });
  real<1>(t, BlockOp::cosh, []<class T>(T x) { return static_cast<T>(Wide<T>::cosh(x)); });
  real<1>(t, BlockOp::tanh, []<class T>(T x) { return math::tanh_float(x); });
  real<1>(t, BlockOp::asinh, []<class T>(T x) { return static_cast<T>(Wide<T>::asinh(x)); });
  real<1>(t, BlockOp::acosh, []<class T>(T x) { return static_cast<T>(Wide<T>::acosh(x)); });
  real<1>(t, BlockOp::atanh, []<class T>(T x) { return static_cast<T>(Wide<T>::atanh(x)); });
}

void add_exponentials(BlockTable& t) {
  real<1>(t, BlockOp::exp, []<class T>(T x) { return static_cast<T>(Wide<T>::exp(x)); });
  real<1>(t, BlockOp::exp2, []<class T>(T x) { return static_cast<T>(Wide<T>::exp2(x)); });
  real<1>(t, BlockOp::expm1, []<class T>(T x) { return static_cast<T>(Wide<T>::expm1(x)); });
  real<1>(t, BlockOp::log, []<class T>(T x) { return static_cast<T>(Wide<T>::log(x)); });
  real<1>(t, BlockOp::log2, []<class T>(T x) { return static_cast<T>(Wide<T>::log2(x)); });
  real<1>(t, BlockOp::log10, []<class T>(T x) { return static_cast<T>(Wide<T>::log10(x)); });
  real<1>(t, BlockOp::log1p, []<class T>(T x) { return static_cast<T>(Wide<T>::log1p(x)); });
  real<2>(t, BlockOp::xlogy, []<class T>(T x, T y) {
    return y != y ? y : x == 0 ? T(0) : static_cast<T>(x * Wide<T>::log(y));
  });
  real<3>(t, BlockOp::logit, []<class T>(T x, T low, T high) { return logit(x, low, high); });
}

}  // namespace

void add_math(BlockTable& t) {
  add_exponentials(t);
  add_trigonometry(t);
  add_hyperbolic(t);
  real<1>(t, BlockOp::sqrt, []<class T>(T x) { return math::sqrt(x); });
  real<1>(t, BlockOp::rsqrt, []<class T>(T x) { return math::rsqrt(x); });
  real<1>(t, BlockOp::erf, []<class T>(T x) { return static_cast<T>(Wide<T>::erf(x)); });
  real<1>(t, BlockOp::erfc, []<class T>(T x) { return static_cast<T>(Wide<T>::erfc(x)); });
  real<1>(t, BlockOp::erfinv, []<class T>(T x) { return math::erfinv(x); });
  real<1>(t, BlockOp::digamma, []<class T>(T x) { return static_cast<T>(math::digamma_core(x)); });
  real<1>(t, BlockOp::lgamma, []<class T>(T x) { return static_cast<T>(math::lgamma_core(x)); });
}

}  // namespace sg::cpu::SG_ISA
