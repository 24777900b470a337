// Activations and their gradients, as PyTorch defines them; in double for float, rounded once.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Wide;

constexpr double kTanhScale = 0.79788456080286535588;  // sqrt(2/pi)
constexpr double kTanhCubic = 0.044715;

template <class T>
SG_INLINE double logistic(double x) {
  return 1.0 / (1.0 + Wide<T>::exp(-x));
}

template <class T>
SG_INLINE math::Normal normal_at(double x) {
  if constexpr (sizeof(T) == 4) return math::normal_at(x);
  double square = x * x, density = square > 1400.0 ? 0.0 : math::kDensityScale * ::exp(-0.5 * square);
  return {0.5 * ::erfc(-x * math::kInvSqrt2), density};
}

template <class T>
SG_INLINE double softplus(double x) {
  return Wide<T>::log1p(Wide<T>::exp(x));
}

template <class T>
SG_INLINE double silu(double x) {
  double y = x / (1.0 + Wide<T>::exp(-x));
  return x < -700.0 ? x * 0.0 : y;  // where exp has no room left: -0, and NaN for -infinity
}

template <class T>
SG_INLINE double gelu_tanh_gradient(double x) {
  double inner = kTanhScale * (x + kTanhCubic * x * x * x), t = Wide<T>::tanh(inner);
  double slope = (1.0 - t * t) * kTanhScale * (1.0 + 3.0 * kTanhCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * slope;
}

void add_smooth(BlockTable& t) {
  real<1>(t, BlockOp::sigmoid, []<class T>(T x) { return static_cast<T>(logistic<T>(x)); });
  real<1>(t, BlockOp::silu, []<class T>(T x) { return static_cast<T>(silu<T>(x)); });
  real<1>(t, BlockOp::mish,
          []<class T>(T x) { return static_cast<T>(x < T(-700) ? x * 0.0 : x * Wide<T>::tanh(softplus<T>(x))); });
  real<1>(t, BlockOp::gelu, []<class T>(T x) {
    return static_cast<T>(x * (x < T(-40) ? 0.0 : normal_at<T>(x).below));  // NaN for -infinity, as PyTorch has it
  });
  real<1>(t, BlockOp::gelu_tanh, []<class T>(T a) {
    double x = a, inner = kTanhScale * (x + kTanhCubic * x * x * x);
    return static_cast<T>(0.5 * x * (1.0 + Wide<T>::tanh(inner)));
  });
  real<1>(t, BlockOp::log_sigmoid, []<class T>(T x) {
    double low = x < 0 ? x : x != x ? x : T(0);
    return static_cast<T>(low - softplus<T>(-math::abs(static_cast<double>(x))));
  });
  real<4>(t, BlockOp::elu, []<class T>(T x, T alpha, T scale, T input_scale) {
    double low = Wide<T>::expm1(static_cast<double>(x) * input_scale) * (static_cast<double>(alpha) * scale);
    return x < 0 ? static_cast<T>(low) : x * scale;
  });
  real<3>(t, BlockOp::softplus, []<class T>(T x, T beta, T threshold) {
    double scaled = static_cast<double>(x) * beta;
    return scaled > threshold ? x : static_cast<T>(softplus<T>(scaled) / beta);
  });
}

void add_piecewise(BlockTable& t) {
  real<1>(t, BlockOp::relu, []<class T>(T x) { return x < 0 ? T(0) : x; });
  real<2>(t, BlockOp::leaky_relu, []<class T>(T x, T slope) { return x > 0 ? x : x * slope; });
  real<1>(t, BlockOp::hardsigmoid, []<class T>(T x) {
    T y = x + 3;
    y = y < 0 ? T(0) : y;
    return (y > 6 ? T(6) : y) / 6;
  });
  real<1>(t, BlockOp::hardswish, []<class T>(T x) {
    T y = x + 3;
    y = y < 0 ? T(0) : y;
    return x * (y > 6 ? T(6) : y) / 6;
  });
}

void add_smooth_gradients(BlockTable& t) {
  real<2>(t, BlockOp::silu_backward, []<class T>(T g, T x) {
    double s = logistic<T>(x);
    return static_cast<T>(g * s * (1.0 + x * (1.0 - s)));
  });
  real<2>(t, BlockOp::gelu_backward, []<class T>(T g, T a) {
    math::Normal normal = normal_at<T>(a);
    return static_cast<T>(g * (normal.below + a * normal.density));  // NaN at the infinities, as PyTorch has it
  });
  real<2>(t, BlockOp::gelu_tanh_backward,
          []<class T>(T g, T x) { return static_cast<T>(g * gelu_tanh_gradient<T>(x)); });
  real<2>(t, BlockOp::tanh_backward, []<class T>(T g, T y) { return g * (1 - y * y); });
  real<2>(t, BlockOp::sigmoid_backward, []<class T>(T g, T y) { return g * (1 - y) * y; });
  real<5>(t, BlockOp::elu_backward, []<class T>(T g, T x, T alpha, T scale, T input_scale) {
    double low =
        static_cast<double>(g) * input_scale * alpha * scale * Wide<T>::exp(static_cast<double>(x) * input_scale);
    return x <= 0 ? static_cast<T>(low) : g * scale;
  });
  real<5>(t, BlockOp::elu_backward_of_result, []<class T>(T g, T y, T alpha, T scale, T input_scale) {
    return y <= 0 ? g * input_scale * (y + alpha * scale) : g * scale;
  });
  real<4>(t, BlockOp::softplus_backward, []<class T>(T g, T x, T beta, T threshold) {
    double scaled = static_cast<double>(x) * beta;
    return scaled > threshold ? g : static_cast<T>(g * logistic<T>(scaled));
  });
}

void add_piecewise_gradients(BlockTable& t) {
  real<3>(t, BlockOp::threshold_backward, []<class T>(T g, T x, T threshold) { return x <= threshold ? T(0) : g; });
  real<3>(t, BlockOp::leaky_relu_backward, []<class T>(T g, T x, T slope) { return x > 0 ? g : g * slope; });
  real<4>(t, BlockOp::hardtanh_backward,
          []<class T>(T g, T x, T low, T high) { return x <= low || x >= high ? T(0) : g; });
  real<2>(t, BlockOp::hardsigmoid_backward, []<class T>(T g, T x) { return x > -3 && x < 3 ? g * (T(1) / 6) : T(0); });
  real<2>(t, BlockOp::hardswish_backward, []<class T>(T g, T x) {
    return x <= -3 ? T(0) : x < 3 ? g * (x / 3 + T(0.5)) : g;
  });
}

}  // namespace

void add_activations(BlockTable& t) {
  add_smooth(t);
  add_piecewise(t);
  add_smooth_gradients(t);
  add_piecewise_gradients(t);
}

}  // namespace sg::cpu::SG_ISA
