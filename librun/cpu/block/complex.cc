// Complex numbers.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Wide;

template <class T>
SG_INLINE Cx<T> times(Cx<T> a, Cx<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// Scaled by the larger part of the divisor, so that squares neither overflow nor vanish.
template <class T>
SG_INLINE Cx<T> over(Cx<T> a, Cx<T> b) {
  T re = math::abs(b.re), im = math::abs(b.im), scale = re < im ? im : re;
  if (scale == math::infinity() && a.re - a.re == 0 && a.im - a.im == 0) return {T(0), T(0)};
  T p = b.re / scale, q = b.im / scale, size = b.re * p + b.im * q;
  if (scale == 0) return {a.re / re, a.im / re};
  return {(a.re * p + a.im * q) / size, (a.im * p - a.re * q) / size};
}

template <class T>
SG_INLINE T magnitude(Cx<T> a) {
  if constexpr (sizeof(T) == 8) return ::hypot(a.re, a.im);
  double x = a.re, y = a.im;
  bool infinite = math::abs(x) == math::infinity() || math::abs(y) == math::infinity();
  return static_cast<T>(infinite ? math::infinity() : __builtin_sqrt(x * x + y * y));
}

template <class T>
SG_INLINE Cx<T> turned(T size, T angle) {
  return {size * math::cos(angle), size * math::sin(angle)};
}

template <class T>
SG_INLINE Cx<T> square_root(Cx<T> a) {
  if (a.re == 0 && a.im == 0) return {T(0), a.im};
  double r = ::hypot(static_cast<double>(a.re), static_cast<double>(a.im)),
         half = __builtin_sqrt((math::abs(static_cast<double>(a.re)) + r) / 2);
  double other = math::abs(static_cast<double>(a.im)) / (2 * half);
  double re = a.re < 0 ? other : half, im = a.re < 0 ? half : other;
  return {static_cast<T>(re), static_cast<T>(math::with_sign_of(im, a.im))};
}

template <class T>
void add_real_parts(BlockTable& t) {  // ops from real operands, or to a real result
  one<Cx<T>, 1, T>(t, BlockOp::abs, [](Cx<T> a) { return magnitude(a); });
  one<Cx<T>, 1, T>(t, BlockOp::angle, [](Cx<T> a) { return static_cast<T>(Wide<T>::atan2(a.im, a.re)); });
  one<T, 2, Cx<T>>(t, BlockOp::complex, [](T re, T im) { return Cx<T>{re, im}; });
  one<T, 2, Cx<T>>(t, BlockOp::polar, [](T size, T angle) { return turned(size, angle); });
}

}  // namespace

void add_complex(BlockTable& t) {
  complex<2>(t, BlockOp::add, []<class T>(Cx<T> a, Cx<T> b) { return Cx<T>{a.re + b.re, a.im + b.im}; });
  complex<2>(t, BlockOp::sub, []<class T>(Cx<T> a, Cx<T> b) { return Cx<T>{a.re - b.re, a.im - b.im}; });
  complex<2>(t, BlockOp::mul, []<class T>(Cx<T> a, Cx<T> b) { return times(a, b); });
  complex<2>(t, BlockOp::div, []<class T>(Cx<T> a, Cx<T> b) { return over(a, b); });
  complex<3>(t, BlockOp::add_scaled, []<class T>(Cx<T> a, Cx<T> b, Cx<T> s) {
    Cx<T> more = times(s, b);
    return Cx<T>{a.re + more.re, a.im + more.im};
  });
  complex<3>(t, BlockOp::sub_scaled, []<class T>(Cx<T> a, Cx<T> b, Cx<T> s) {
    Cx<T> more = times(s, b);
    return Cx<T>{a.re - more.re, a.im - more.im};
  });
  complex<4>(t, BlockOp::addcmul, []<class T>(Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> s) {
    Cx<T> more = times(times(s, b), c);
    return Cx<T>{a.re + more.re, a.im + more.im};
  });
  complex<1>(t, BlockOp::neg, []<class T>(Cx<T> a) { return Cx<T>{-a.re, -a.im}; });
  complex<1>(t, BlockOp::conj, []<class T>(Cx<T> a) { return Cx<T>{a.re, -a.im}; });
  complex<1>(t, BlockOp::reciprocal, []<class T>(Cx<T> a) { return over(Cx<T>{1, 0}, a); });
  complex<1>(t, BlockOp::sqrt, []<class T>(Cx<T> a) { return square_root(a); });
  complex<1>(t, BlockOp::exp, []<class T>(Cx<T> a) {
    return a.im == 0 ? Cx<T>{math::exp(a.re), a.im} : turned(math::exp(a.re), a.im);
  });
  complex<1>(t, BlockOp::log, []<class T>(Cx<T> a) {
    return Cx<T>{math::log(magnitude(a)), static_cast<T>(Wide<T>::atan2(a.im, a.re))};
  });
  add_real_parts<float>(t);
  add_real_parts<double>(t);
}

}  // namespace sg::cpu::SG_ISA
