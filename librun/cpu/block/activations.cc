// Activations and their gradients, as PyTorch defines them.
#include "librun/work/activations.h"
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

using math::Wide;

void add_smooth(BlockTable& t) {
  real<1>(t, BlockOp::sigmoid, []<class T>(T x) { return math::sigmoid(x); });
  real<1>(t, BlockOp::silu, []<class T>(T x) { return math::silu(x); });
  real<1>(t, BlockOp::mish, []<class T>(T x) { return math::mish(x); });
  real<1>(t, BlockOp::gelu, []<class T>(T x) { return math::gelu(x); });
  real<1>(t, BlockOp::gelu_tanh, []<class T>(T x) { return math::gelu_tanh(x); });
  real<1>(t, BlockOp::log_sigmoid, []<class T>(T x) { return math::log_sigmoid(x); });
  real<3>(t, BlockOp::softplus, []<class T>(T x, T beta, T threshold) { return math::softplus(x, beta, threshold); });
  real<4>(t, BlockOp::elu, []<class T>(T x, T alpha, T scale, T input_scale) {
    double low = Wide<T>::expm1(static_cast<double>(x) * input_scale) * (static_cast<double>(alpha) * scale);
    return x < 0 ? static_cast<T>(low) : x * scale;
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
  real<2>(t, BlockOp::silu_backward, []<class T>(T g, T x) { return math::silu_gradient(g, x); });
  real<2>(t, BlockOp::mish_backward, []<class T>(T g, T x) { return math::mish_gradient(g, x); });
  real<2>(t, BlockOp::gelu_backward, []<class T>(T g, T x) { return math::gelu_gradient(g, x); });
  real<2>(t, BlockOp::gelu_tanh_backward, []<class T>(T g, T x) { return math::gelu_tanh_gradient(g, x); });
  real<2>(t, BlockOp::log_sigmoid_backward, []<class T>(T g, T x) { return math::log_sigmoid_gradient(g, x); });
  real<4>(t, BlockOp::softplus_backward,
          []<class T>(T g, T x, T beta, T threshold) { return math::softplus_gradient(g, x, beta, threshold); });
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
