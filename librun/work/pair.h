// Losses of two tensors element by element and their gradients; gates and the gradients of prelu. In double.
#pragma once

#include <cmath>

#include "librun/work/activations.h"
#include "librun/work/work.h"

namespace sg::work {

// A loss consists of the loss of an element, and its derivative by the input. `number` is beta or delta.
struct SmoothL1 {
  static constexpr const char *kNumber = "beta", *kName = "work_smooth_l1", *kSlope = "work_smooth_l1_slope";
  SG_INLINE static double loss(double x, double y, double beta) {
    const double d = ::fabs(x - y);
    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
  }
  SG_INLINE static double slope(double x, double y, double beta) {
    const double d = x - y;
    return d <= -beta ? -1 : d >= beta ? 1 : d / beta;
  }
};

struct Huber {
  static constexpr const char *kNumber = "delta", *kName = "work_huber", *kSlope = "work_huber_slope";
  SG_INLINE static double loss(double x, double y, double delta) {
    const double d = ::fabs(x - y);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
  }
  SG_INLINE static double slope(double x, double y, double delta) {
    const double d = x - y;
    return d <= -delta ? -delta : d >= delta ? delta : d;
  }
};

struct SoftMargin {
  static constexpr const char *kNumber = "", *kName = "work_soft_margin", *kSlope = "work_soft_margin_slope";
  SG_INLINE static double loss(double x, double y, double) { return ::log1p(::exp(-y * x)); }
  SG_INLINE static double slope(double x, double y, double) { return -y / (1 + ::exp(y * x)); }
};

// Logarithms are clamped at -100, as in PyTorch.
struct BinaryCrossEntropy {
  static constexpr const char *kNumber = "", *kName = "work_binary_cross_entropy",
                              *kSlope = "work_binary_cross_entropy_slope";
  SG_INLINE static double above(double x) { return x < -100.0 ? -100.0 : x; }
  SG_INLINE static double loss(double x, double y, double) {
    return (y - 1) * above(::log1p(-x)) - y * above(::log(x));
  }
  SG_INLINE static double slope(double x, double y, double) {
    const double spread = (1 - x) * x, least = static_cast<double>(1e-12f);
    return (x - y) / (spread < least ? least : spread);
  }
};

struct SquaredError {
  static constexpr const char *kNumber = "", *kName = "work_squared_error", *kSlope = "work_squared_error_slope";
  SG_INLINE static double loss(double x, double y, double) { return (x - y) * (x - y); }
  SG_INLINE static double slope(double x, double y, double) { return 2 * (x - y); }
};

template <class Loss>
struct PairLoss {
  static constexpr const char* kName = Loss::kName;
  const double *x, *y, *weight;  // weight: null = 1
  double number;
  double* to;
  SG_INLINE void operator()(int64_t i) const { to[i] = Loss::loss(x[i], y[i], number) * (weight ? weight[i] : 1); }
};

template <class Loss>
struct PairSlope {
  static constexpr const char* kName = Loss::kSlope;
  const double *grad, *x, *y, *weight;
  double number, share;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    to[i] = grad[i] * share * Loss::slope(x[i], y[i], number) * (weight ? weight[i] : 1);
  }
};

// (1 - y) x + w (log(1 + exp(-|x|)) + max(-x, 0)) with w = 1 + (pos_weight - 1) y
// T: the precision that the operands' type needs from elementary functions.
template <class T>
struct CrossEntropyOfLogits {
  static constexpr const char* kName = sizeof(T) == 8 ? "work_bce_with_logits_f64" : "work_bce_with_logits";
  using Wide = math::Wide<T>;
  const double *x, *y, *weight, *positive;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const double w = positive ? 1 + (positive[i] - 1) * y[i] : 1, below = -x[i] < 0 ? 0.0 : -x[i];
    const double loss = (1 - y[i]) * x[i] + w * (Wide::log1p(Wide::exp(-math::abs(x[i]))) + below);
    to[i] = weight ? loss * weight[i] : loss;
  }
};

// Raises a fault for numbers that are not probabilities.
struct CheckProbability {
  static constexpr const char* kName = "work_check_probability";
  const double* x;
  Report report;
  SG_INLINE void operator()(int64_t i) const {
    if (!(x[i] >= 0 && x[i] <= 1)) report.raise(Fault::Kind::value, 0, 0, x[i]);
  }
};

// Divides x[0], after everything has been added up.
struct Divide {
  static constexpr const char* kName = "work_divide";
  double* x;
  double by;
  SG_INLINE void operator()(int64_t i) const { x[i] /= by; }
};

struct DivideEach {
  static constexpr const char* kName = "work_divide_each";
  const double *from, *by;
  double* to;
  SG_INLINE void operator()(int64_t i) const { to[i] = from[i] / by[i]; }
};

// --- activations with two results or two halves ---

// The products are computed on both sides of zero, so that loops vectorize.
struct PreluSlope {
  const double *grad, *x, *weight;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const double g = grad[i], scaled = weight[i] * g;
    to[i] = x[i] > 0 ? g : scaled;
  }
};

struct PreluWeightSlope {
  const double *grad, *x;
  double* to;
  SG_INLINE void operator()(int64_t i) const {
    const double product = x[i] * grad[i];
    to[i] = x[i] > 0 ? 0.0 : product;
  }
};

struct PreluBackward {
  static constexpr const char* kName = "work_prelu_backward";
  PreluSlope slope;
  PreluWeightSlope of_weight;
  SG_INLINE void operator()(int64_t i) const { slope(i), of_weight(i); }
};

// Rows of two halves with `length` elements each: the gated values and the gate.
template <class T>
struct Glu {
  static constexpr const char* kName = sizeof(T) == 8 ? "work_glu_f64" : "work_glu";
  const T* x;
  int64_t length;
  T* to;
  SG_INLINE void at(int64_t row, int64_t i) const {
    const T* half = x + 2 * row * length;
    to[row * length + i] = half[i] * math::sigmoid(half[length + i]);
  }
  SG_INLINE void operator()(int64_t i) const { at(i / length, i % length); }
};

template <class T>
struct GluBackward {
  static constexpr const char* kName = sizeof(T) == 8 ? "work_glu_backward_f64" : "work_glu_backward";
  const T *x, *grad;
  int64_t length;
  T* to;
  SG_INLINE void at(int64_t row, int64_t i) const {
    const int64_t first = 2 * row * length + i, second = first + length;
    const math::Logistic<T> gate = math::logistic(x[second]);
    const T g = grad[row * length + i];
    to[first] = g * gate.value;
    to[second] = g * x[first] * gate.value * gate.rest;
  }
  SG_INLINE void operator()(int64_t i) const { at(i / length, i % length); }
};

// Uses the slopes drawn in the forward, or a single slope.
struct RreluBackward {
  static constexpr const char* kName = "work_rrelu_backward";
  const double *grad, *x, *noise;  // noise null: no slopes were drawn
  double slope;
  double* to;
  SG_INLINE void operator()(int64_t i) const { to[i] = grad[i] * (noise ? noise[i] : x[i] > 0 ? 1 : slope); }
};

}  // namespace sg::work
