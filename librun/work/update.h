// Parameters updated from their gradients as torch.optim does it, element by element.
//
// A rule gives the next value of one number, and of its moments. T is what it computes in: double for numbers of f64,
// else float. Nothing is read of the moments at the first update.
#pragma once

#include <type_traits>

#include "librun/work/halves.h"
#include "librun/work/work.h"

namespace sg::work {

SG_INLINE float root(float x) { return __builtin_sqrtf(x); }
SG_INLINE double root(double x) { return __builtin_sqrt(x); }

template <class T>
struct Sgd {
  using Number = T;
  static constexpr const char* kName = std::is_same_v<T, double> ? "work_sgd_f64" : "work_sgd";
  T lr, weight_decay, momentum, damped;  // damped: 1 - dampening
  bool has_momentum, nesterov;

  SG_INLINE T operator()(T number, T gradient, T* moment, int64_t, bool is_first) const {
    if (weight_decay != 0) gradient = gradient + weight_decay * number;
    if (has_momentum) {
      const T speed = is_first ? gradient : momentum * *moment + damped * gradient;
      *moment = speed;
      gradient = nesterov ? gradient + momentum * speed : speed;
    }
    return number - lr * gradient;
  }
};

template <class T>
struct AdamW {
  using Number = T;
  static constexpr const char* kName = std::is_same_v<T, double> ? "work_adamw_f64" : "work_adamw";
  T decay, beta1, beta2, rest1, rest2, eps, step_size, root_correction;  // rest: 1 - beta

  // The mean of the squares lies `count` behind that of the gradients.
  SG_INLINE T operator()(T number, T gradient, T* moments, int64_t count, bool is_first) const {
    T mean = is_first ? T(0) : moments[0], square = is_first ? T(0) : moments[count];
    number = number * decay;
    mean = mean + rest1 * (gradient - mean);
    square = square * beta2 + rest2 * gradient * gradient;
    moments[0] = mean;
    moments[count] = square;
    return number - step_size * (mean / (root(square) / root_correction + eps));
  }
};

// A rule, and what it keeps of the elements of one parameter, by their row-major number.
template <class Rule>
struct RuleState {
  using T = typename Rule::Number;
  Rule rule;
  T* moments;  // [moments of the rule][count]
  T* master;   // [count]: the numbers as they are, where their own type is narrower than T; null = it is not
  int64_t count;
  bool is_first;

  // `narrow`: what of a number of T the parameter's own type keeps. Where that is not what it holds, somebody has
  // written to it since, and that counts.
  template <class Narrow>
  SG_INLINE T next(int64_t i, T number, T gradient, const Narrow& narrow) const {
    if (master != nullptr && !is_first && narrow(master[i]) == number) number = master[i];
    number = rule(number, gradient, moments + i, count, is_first);
    if (master != nullptr) master[i] = number;
    return number;
  }
};

// Floating numbers of a strided tensor, of whatever type.
struct Floats {
  enum class Type : uint8_t { f64, f32, f16, bf16 };
  unsigned char* data;
  Type type;
  int64_t axes, shape[12], stride[12];  // no axis: a number alone

  // Of element `i` in row-major order.
  SG_INLINE int64_t place_of(int64_t i) const {
    int64_t place = 0;
    for (int64_t axis = axes - 1; axis > 0; --axis) {
      place += i % shape[axis] * stride[axis];
      i /= shape[axis];
    }
    return axes == 0 ? 0 : place + i * stride[0];
  }
  template <class T>
  SG_INLINE T load(int64_t place) const {
    switch (type) {
      case Type::f64: return static_cast<T>(reinterpret_cast<const double*>(data)[place]);
      case Type::f32: return reinterpret_cast<const float*>(data)[place];
      case Type::f16: return from_half(reinterpret_cast<const uint16_t*>(data)[place]);
      case Type::bf16: return from_brain(reinterpret_cast<const uint16_t*>(data)[place]);
    }
    return T(0);
  }
  template <class T>
  SG_INLINE T operator()(T x) const {  // as it comes back once it is stored
    switch (type) {
      case Type::f64: return x;
      case Type::f32: return static_cast<float>(x);
      case Type::f16: return from_half(to_half(static_cast<float>(x)));
      case Type::bf16: return from_brain(to_brain(static_cast<float>(x)));
    }
    return x;
  }
  template <class T>
  SG_INLINE void store(int64_t place, T x) const {
    switch (type) {
      case Type::f64: reinterpret_cast<double*>(data)[place] = x; break;
      case Type::f32: reinterpret_cast<float*>(data)[place] = static_cast<float>(x); break;
      case Type::f16: reinterpret_cast<uint16_t*>(data)[place] = to_half(static_cast<float>(x)); break;
      case Type::bf16: reinterpret_cast<uint16_t*>(data)[place] = to_brain(static_cast<float>(x)); break;
    }
  }
};

// One parameter, where types and strides are known when it runs: for devices.
template <class Rule>
struct Update {
  using T = typename Rule::Number;
  static constexpr const char* kName = Rule::kName;
  Floats parameter, gradient;
  RuleState<Rule> state;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t place = parameter.place_of(i);
    const T slope = gradient.template load<T>(gradient.place_of(i));
    parameter.template store<T>(place, state.next(i, parameter.template load<T>(place), slope, parameter));
  }
};

}  // namespace sg::work
