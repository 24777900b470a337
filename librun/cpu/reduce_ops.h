// The ops for reduce.h.
#pragma once

#include <cmath>
#include <limits>

#include "librun/element.h"
#include "librun/work/exp_float.h"

namespace sg::cpu {

// The accumulator for sums and products of T: integers wrap around.
template <class T>
using SumType =
    std::conditional_t<is_complex_type<T>, C128, std::conditional_t<std::is_integral_v<T>, uint64_t, double>>;

template <class A>
struct Sum {
  using Acc = A;
  Acc start() const { return Acc{}; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double) const {
    return acc + static_cast<Acc>(value);
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a + b; }
};

struct NanSum {
  using Acc = double;
  Acc start() const { return 0; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double) const {
    return acc + (value == value ? static_cast<double>(value) : 0.0);
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a + b; }
};

template <class A>
struct Product {
  using Acc = A;
  Acc start() const { return Acc{1}; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double) const {
    return acc * static_cast<Acc>(value);
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a * b; }
};

struct NonZeros {
  using Acc = int64_t;
  Acc start() const { return 0; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double) const {
    return acc + (value != V{});
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a + b; }
};

// The largest, or the smallest; NaN wins.
template <class A, bool largest>
struct Extreme {
  using Acc = A;
  Acc start() const {
    using Limits = std::numeric_limits<A>;
    if constexpr (std::is_floating_point_v<A>) return largest ? -Limits::infinity() : Limits::infinity();
    else return largest ? Limits::min() : Limits::max();
  }
  SG_INLINE Acc merge(Acc acc, Acc value) const {
    bool better = largest ? value > acc : value < acc;
    return better | (value != value) ? value : acc;  // branch-free, so that it vectorizes
  }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double) const {
    return merge(acc, static_cast<Acc>(value));
  }
};

struct SquareDistance {
  using Acc = double;
  Acc start() const { return 0; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double center) const {
    double d = static_cast<double>(value) - center;
    return acc + d * d;
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a + b; }
};

struct ExpDistance {
  using Acc = double;
  Acc start() const { return 0; }
  template <class V>
  SG_INLINE Acc add(Acc acc, V value, double center) const {
    return acc + static_cast<double>(math::exp_float(static_cast<V>(static_cast<double>(value) - center)));
  }
  SG_INLINE Acc merge(Acc a, Acc b) const { return a + b; }
};

// Sum of |x|^p.
struct Power {
  double p;
  using Acc = double;
  Acc start() const { return 0; }
  template <class V>
  Acc add(Acc acc, V value, double) const {
    double size = static_cast<double>(std::abs(value));
    return acc + (p == 2 ? size * size : p == 1 ? size : std::pow(size, p));
  }
  Acc merge(Acc a, Acc b) const { return a + b; }
};

template <bool largest>
struct ExtremeSize : Extreme<double, largest> {
  template <class V>
  double add(double acc, V value, double) const {
    return this->merge(acc, static_cast<double>(std::abs(value)));
  }
};

}  // namespace sg::cpu
