// Arithmetic on floats.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

// A NaN wins over any number: comparisons that NaN fails keep it.
template <class T>
SG_INLINE T larger(T a, T b) {
  return a != a ? a : (a < b || b != b) ? b : a;
}
template <class T>
SG_INLINE T smaller(T a, T b) {
  return a != a ? a : (b < a || b != b) ? b : a;
}

struct AnyModulo {
  SG_INLINE float operator()(float a, float b) const { return __builtin_fmodf(a, b); }
  SG_INLINE double operator()(double a, double b) const { return __builtin_fmod(a, b); }
};

// The same bits, vectorized: if the integer quotient has at most 29 bits, its product with b and the remainder are
// exact in double. REQUIRES: is_near(a, b)
struct NearModulo {
  SG_INLINE float operator()(float a, float b) const {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    double rest = x - __builtin_trunc(x / y) * y;
    rest += (x < 0) != (rest < 0) && rest != 0 ? math::with_sign_of(y, x) : 0.0;  // the division rounded up
    return static_cast<float>(math::with_sign_of(rest, x));
  }
};

SG_INLINE bool is_near(float a, float b) {
  constexpr float kNear = 0x1p28f;
  return (math::abs(a) < kNear * math::abs(b)) & (math::abs(b) < static_cast<float>(math::infinity()) / kNear);
}

// As in Python: the quotient rounded down, corrected where the division rounded up to an integer.
template <class Modulo>
struct FloorQuotient {
  template <class T>
  SG_INLINE T operator()(T a, T b) const {
    T rest = Modulo{}(a, b), quotient = (a - rest) / b;
    quotient -= rest != 0 && (b < 0) != (rest < 0) ? T(1) : T(0);
    T whole = static_cast<T>(__builtin_floor(quotient));
    whole = quotient - whole > T(0.5) ? whole + 1 : whole;
    whole = quotient == 0 ? static_cast<T>(math::with_sign_of(0, a / b)) : whole;
    return b == 0 ? a / b : whole;
  }
};

template <class Modulo>
struct FloorRest {
  template <class T>
  SG_INLINE T operator()(T a, T b) const {
    T rest = Modulo{}(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
  }
};

// Vectorized, unless the block has a quotient that is too large for that.
template <class Near, class Any>
struct Rest {
  [[gnu::flatten]] static void run(void* out, const void* const* in, int64_t n, bool*) {
    auto* o = static_cast<float*>(out);
    const auto *a = static_cast<const float*>(in[0]), *b = static_cast<const float*>(in[1]);
    bool near = true;
    for (int64_t i = 0; i < n; ++i) near &= is_near(a[i], b[i]);
    if (near) return apply<Near>(Writer<float>(out), n, Reader<float>(a), Reader<float>(b));
    for (int64_t i = 0; i < n; ++i) o[i] = Any{}(a[i], b[i]);
  }
};

template <class Near, class Any>
void add_rest(BlockTable& t, BlockOp op) {
  place(t, op, Lane::f32) = &Rest<Near, Any>::run;
  one<double, 2>(t, op, Any{});
}

void add_rounding(BlockTable& t) {
  real<1>(t, BlockOp::trunc, []<class T>(T a) { return static_cast<T>(__builtin_trunc(a)); });
  real<1>(t, BlockOp::floor, []<class T>(T a) { return static_cast<T>(__builtin_floor(a)); });
  real<1>(t, BlockOp::ceil, []<class T>(T a) { return static_cast<T>(__builtin_ceil(a)); });
  real<1>(t, BlockOp::round, []<class T>(T a) { return static_cast<T>(math::round_even(a)); });
  real<2>(t, BlockOp::div_trunc, []<class T>(T a, T b) { return static_cast<T>(__builtin_trunc(a / b)); });
  add_rest<FloorQuotient<NearModulo>, FloorQuotient<AnyModulo>>(t, BlockOp::div_floor);
  add_rest<FloorRest<NearModulo>, FloorRest<AnyModulo>>(t, BlockOp::remainder);
  add_rest<NearModulo, AnyModulo>(t, BlockOp::fmod);
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
