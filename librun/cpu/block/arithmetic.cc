// Arithmetic on floats.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

// Comparisons that a NaN fails keep the NaN: it wins over any number.
template <class T>
SG_INLINE T larger(T a, T b) {
  return a != a ? a : (a < b || b != b) ? b : a;
}
template <class T>
SG_INLINE T smaller(T a, T b) {
  return a != a ? a : (b < a || b != b) ? b : a;
}

SG_INLINE float modulo(float a, float b) { return __builtin_fmodf(a, b); }
SG_INLINE double modulo(double a, double b) { return __builtin_fmod(a, b); }

// Python's: the quotient rounded down, put right where the division rounded up to a whole number.
template <class T>
SG_INLINE T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  T rest = modulo(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return static_cast<T>(math::with_sign_of(0, a / b));
  T whole = static_cast<T>(__builtin_floor(quotient));
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}

template <class T>
SG_INLINE T floor_rest(T a, T b) {
  T rest = modulo(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

void add_rounding(BlockTable& t) {
  real<1>(t, BlockOp::trunc, []<class T>(T a) { return static_cast<T>(__builtin_trunc(a)); });
  real<1>(t, BlockOp::floor, []<class T>(T a) { return static_cast<T>(__builtin_floor(a)); });
  real<1>(t, BlockOp::ceil, []<class T>(T a) { return static_cast<T>(__builtin_ceil(a)); });
  real<1>(t, BlockOp::round, []<class T>(T a) { return static_cast<T>(math::round_even(a)); });
  real<2>(t, BlockOp::div_trunc, []<class T>(T a, T b) { return static_cast<T>(__builtin_trunc(a / b)); });
  real<2>(t, BlockOp::div_floor, []<class T>(T a, T b) { return floor_quotient(a, b); });
  real<2>(t, BlockOp::remainder, []<class T>(T a, T b) { return floor_rest(a, b); });
  real<2>(t, BlockOp::fmod, []<class T>(T a, T b) { return modulo(a, b); });
}

void add_selections(BlockTable& t) {
  real<2>(t, BlockOp::maximum, []<class T>(T a, T b) { return larger(a, b); });
  real<2>(t, BlockOp::minimum, []<class T>(T a, T b) { return smaller(a, b); });
  real<2>(t, BlockOp::fmax, []<class T>(T a, T b) { return a != a ? b : (a < b ? b : a); });
  real<2>(t, BlockOp::fmin, []<class T>(T a, T b) { return a != a ? b : (b < a ? b : a); });
  real<1>(t, BlockOp::abs, []<class T>(T a) { return math::abs(a); });
  real<1>(t, BlockOp::sign, []<class T>(T a) { return static_cast<T>(a > 0 ? 1 : a < 0 ? -1 : 0); });
  real<4>(t, BlockOp::nan_to_num, []<class T>(T a, T nan, T above, T below) {
    T finite = a > 0 ? above : below;
    return a != a ? nan : (a - a != 0 ? finite : a);
  });
}

}  // namespace

void add_arithmetic(BlockTable& t) {
  real<2>(t, BlockOp::add, []<class T>(T a, T b) { return a + b; });
  real<2>(t, BlockOp::sub, []<class T>(T a, T b) { return a - b; });
  real<2>(t, BlockOp::mul, []<class T>(T a, T b) { return a * b; });
  real<2>(t, BlockOp::div, []<class T>(T a, T b) { return a / b; });
  real<3>(t, BlockOp::add_scaled, []<class T>(T a, T b, T alpha) { return a + alpha * b; });
  real<3>(t, BlockOp::sub_scaled, []<class T>(T a, T b, T alpha) { return a - alpha * b; });
  real<1>(t, BlockOp::neg, []<class T>(T a) { return -a; });
  real<1>(t, BlockOp::reciprocal, []<class T>(T a) { return 1 / a; });
  real<4>(t, BlockOp::addcmul, []<class T>(T a, T b, T c, T value) { return a + value * b * c; });
  real<4>(t, BlockOp::addcdiv, []<class T>(T a, T b, T c, T value) { return a + value * b / c; });
  real<3>(t, BlockOp::lerp, []<class T>(T a, T b, T weight) {  // exact at both ends
    return math::abs(weight) < T(0.5) ? a + weight * (b - a) : b - (b - a) * (1 - weight);
  });
  real<2>(t, BlockOp::hypot, []<class T>(T a, T b) {
    if constexpr (sizeof(T) == 8) return ::hypot(a, b);
    double x = a, y = b, r = __builtin_sqrt(x * x + y * y);
    return static_cast<T>(math::abs(x) == math::infinity() || math::abs(y) == math::infinity() ? math::infinity() : r);
  });
  real<2>(t, BlockOp::pow, []<class T>(T a, T b) { return math::pow(a, b); });
  add_rounding(t);
  add_selections(t);
}

}  // namespace sg::cpu::SG_ISA
