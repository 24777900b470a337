// Updates of parameters from their gradients as in torch.optim, element by element.
//
// A rule computes the next value of an element and of its moments. T is the type of the computation: double for f64
// parameters, else float. The first update does not read the moments.
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
  static constexpr const char* kManyName = std::is_same_v<T, double> ? "work_sgd_many_f64" : "work_sgd_many";
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
  static constexpr const char* kManyName = std::is_same_v<T, double> ? "work_adamw_many_f64" : "work_adamw_many";
  T decay, beta1, beta2, rest1, rest2, eps, step_size, root_correction;  // rest: 1 - beta

  // The mean of squares is stored `count` elements after the mean of gradients.
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

// A rule, and its state for the elements of one parameter, by row-major index.
template <class Rule>
struct RuleState {
  using T = typename Rule::Number;
  Rule rule;
  T* moments;  // [moments of the rule][count]
  T* master;   // [count]: the exact values, if the parameter's type is narrower than T; else null
  int64_t count;
  bool is_first;

  // `narrow` rounds a T to the parameter's own type. If the rounded master value differs from the parameter, the
  // parameter was modified elsewhere since, and its value is used.
  template <class Narrow>
  SG_INLINE T next(int64_t i, T number, T gradient, const Narrow& narrow) const {
    if (master != nullptr && !is_first && narrow(master[i]) == number) number = master[i];
    number = rule(number, gradient, moments + i, count, is_first);
    if (master != nullptr) master[i] = number;
    return number;
  }
};

// Floating-point numbers of any type, by their place in memory.
struct FloatMemory {
  enum class Type : uint8_t { f64, f32, f16, bf16 };
  unsigned char* data;
  Type type;

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
  SG_INLINE T operator()(T x) const {  // rounded to the type, as a store and a load would
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

// Elements of a strided floating-point tensor of any type.
struct Floats : FloatMemory {
  int64_t axes, shape[12], stride[12];  // no axes: a single element

  // The offset of element `i` in row-major order.
  SG_INLINE int64_t place_of(int64_t i) const {
    int64_t place = 0;
    for (int64_t axis = axes - 1; axis > 0; --axis) {
      place += i % shape[axis] * stride[axis];
      i /= shape[axis];
    }
    return axes == 0 ? 0 : place + i * stride[0];
  }
};

// Updates one parameter whose types and strides are only known at run time: for devices.
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

// Updates several contiguous parameters in separate memory: small ones, which take less time than a launch each. Their
// elements are numbered one parameter after the other.
template <class Rule>
struct UpdateMany {
  using T = typename Rule::Number;
  static constexpr const char* kName = Rule::kManyName;
  static constexpr int32_t kMost = 64;  // 4 KiB of arguments are what every driver takes
  struct Part {
    FloatMemory parameter, gradient;
    T *moments, *master;
    int64_t end;  // the number of the element after its last
  };
  Rule rule;
  bool is_first;
  int32_t parts;
  Part part[kMost];

  SG_INLINE int64_t begin_of(int32_t k) const { return k == 0 ? 0 : part[k - 1].end; }
  SG_INLINE void operator()(int64_t i) const {
    int32_t low = 0, high = parts - 1;
    while (low < high) {
      const int32_t middle = (low + high) / 2;
      if (i < part[middle].end) high = middle;
      else low = middle + 1;
    }
    const Part& p = part[low];
    const int64_t place = i - begin_of(low);
    const RuleState<Rule> state{rule, p.moments, p.master, p.end - begin_of(low), is_first};
    const T slope = p.gradient.template load<T>(place);
    p.parameter.template store<T>(place, state.next(place, p.parameter.template load<T>(place), slope, p.parameter));
  }
};

}  // namespace sg::work
