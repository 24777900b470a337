// Rules of activations and their gradients.
#include "librun/cpu/pointwise_tables.h"

namespace sg::cpu {
namespace {

Value lower_gelu(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  return c.compute(c.call().text("approximate") == "tanh" ? BlockOp::gelu_tanh : BlockOp::gelu,
                   {c.operand("self", type)}, type);
}

Value lower_gelu_backward(PointwiseCall& c) {
  DType type = c.common("grad_output self", Common::promoted);
  BlockOp op = c.call().text("approximate") == "tanh" ? BlockOp::gelu_tanh_backward : BlockOp::gelu_backward;
  return c.compute(op, {c.operand("grad_output", type), c.operand("self", type)}, type);
}

Value lower_selu(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  Value alpha = c.number(1.6732632423543772848170429916717, type),
        scale = c.number(1.0507009873554804934193349852946, type);
  return c.compute(BlockOp::elu, {c.operand("self", type), alpha, scale, c.number(1, type)}, type);
}

// The bounds do not change the type: hardtanh of integers gives integers.
Value lower_hardtanh(PointwiseCall& c) {
  DType type = c.result().dtype;
  Value v = c.compute(BlockOp::maximum, {c.operand("self", type), c.operand("min_val", type, Number::as_given)}, type);
  return c.compute(BlockOp::minimum, {v, c.operand("max_val", type, Number::as_given)}, type);
}

Value lower_relu6(PointwiseCall& c) {
  DType type = c.result().dtype;
  Value v = c.compute(BlockOp::maximum, {c.operand("self", type), c.code().constant(Scalar::integer(0), type)}, type);
  return c.compute(BlockOp::minimum, {v, c.code().constant(Scalar::integer(6), type)}, type);
}

Value lower_elu_backward(PointwiseCall& c) {
  DType type = c.common("grad_output self_or_result", Common::promoted);
  BlockOp op = c.call().flag("is_result") ? BlockOp::elu_backward_of_result : BlockOp::elu_backward;
  Value g = c.operand("grad_output", type), x = c.operand("self_or_result", type), alpha = c.operand("~alpha", type);
  return c.compute(op, {g, x, alpha, c.operand("~scale", type), c.operand("~input_scale", type)}, type);
}

Value lower_threshold_backward(PointwiseCall& c) {
  DType type = c.common("grad_output self", Common::promoted);
  Value g = c.operand("grad_output", type), x = c.operand("self", type);
  return c.compute(BlockOp::threshold_backward, {g, x, c.operand("~threshold", type)}, type);
}

// mask is a bool: the gradient where it is set, times scale.
Value lower_dropout_backward(PointwiseCall& c) {
  DType type = c.common("grad_output", Common::floating);
  Value g = c.compute(BlockOp::mul, {c.operand("grad_output", type), c.operand("mask", type)}, type);
  return c.compute(BlockOp::mul, {g, c.operand("~scale", type)}, type);
}

constexpr PointwiseRule kRules[] = {
    {"aten.relu.default", lower_plain, BlockOp::relu, "self"},
    {"aten.relu6.default", lower_relu6},
    {"aten.silu.default", lower_plain, BlockOp::silu, "self"},
    {"aten.mish.default", lower_plain, BlockOp::mish, "self"},
    {"aten.gelu.default", lower_gelu},
    {"aten.hardswish.default", lower_plain, BlockOp::hardswish, "self"},
    {"aten.hardsigmoid.default", lower_plain, BlockOp::hardsigmoid, "self"},
    {"aten.log_sigmoid.default", lower_plain, BlockOp::log_sigmoid, "self"},
    {"aten.selu.default", lower_selu},
    {"aten.elu.default", lower_plain, BlockOp::elu, "self ~alpha ~scale ~input_scale"},
    {"aten.leaky_relu.default", lower_plain, BlockOp::leaky_relu, "self ~negative_slope"},
    {"aten.softplus.default", lower_plain, BlockOp::softplus, "self ~beta ~threshold"},
    {"aten.hardtanh.default", lower_hardtanh},
    {"aten.silu_backward.default", lower_plain, BlockOp::silu_backward, "grad_output self"},
    {"aten.gelu_backward.default", lower_gelu_backward},
    {"aten.tanh_backward.default", lower_plain, BlockOp::tanh_backward, "grad_output output"},
    {"aten.sigmoid_backward.default", lower_plain, BlockOp::sigmoid_backward, "grad_output output"},
    {"aten.threshold_backward.default", lower_threshold_backward},
    {"aten.leaky_relu_backward.default", lower_plain, BlockOp::leaky_relu_backward, "grad_output self ~negative_slope"},
    {"aten.elu_backward.default", lower_elu_backward},
    {"aten.hardtanh_backward.default", lower_plain, BlockOp::hardtanh_backward, "grad_output self ~min_val ~max_val"},
    {"aten.hardswish_backward.default", lower_plain, BlockOp::hardswish_backward, "grad_output self"},
    {"aten.hardsigmoid_backward.default", lower_plain, BlockOp::hardsigmoid_backward, "grad_output self"},
    {"aten.softplus_backward.default", lower_plain, BlockOp::softplus_backward, "grad_output self ~beta ~threshold"},
    {"aten.native_dropout_backward.default", lower_dropout_backward},
};

}  // namespace

std::span<const PointwiseRule> activation_rules() { return kRules; }

}  // namespace sg::cpu
