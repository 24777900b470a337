// Rules of arithmetic, comparisons and logic.
#include <cmath>

#include "librun/cpu/pointwise_tables.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

bool is_one(Scalar s) { return s.is_integral() ? s.i == 1 : s.re == 1 && s.im == 0; }

// self + alpha * other and the like: operands "first second", `scaled` = the function with alpha.
Value lower_scaled(PointwiseCall& c, BlockOp plain, BlockOp scaled, std::string_view first, std::string_view second) {
  DType type = c.common("self other", Common::promoted);
  if (is_one(c.call().scalar("alpha")))
    return c.compute(plain, {c.operand(first, type), c.operand(second, type)}, type);
  Value a = c.operand(first, type), b = c.operand(second, type);
  return c.compute(scaled, {a, b, c.operand("alpha", type)}, type);
}

Value lower_add(PointwiseCall& c) { return lower_scaled(c, BlockOp::add, BlockOp::add_scaled, "self", "other"); }
Value lower_sub(PointwiseCall& c) { return lower_scaled(c, BlockOp::sub, BlockOp::sub_scaled, "self", "other"); }
Value lower_rsub(PointwiseCall& c) { return lower_scaled(c, BlockOp::sub, BlockOp::sub_scaled, "other", "self"); }

Value lower_div_mode(PointwiseCall& c) {
  std::string_view mode = c.has("rounding_mode") ? c.call().text("rounding_mode") : std::string_view();
  BlockOp op = mode == "floor" ? BlockOp::div_floor : mode == "trunc" ? BlockOp::div_trunc : BlockOp::div;
  DType type = c.common("self other", mode.empty() ? Common::floating : Common::promoted);
  const ParamValue& other = c.call().param("other");
  bool half = type == DType::bf16 || type == DType::f16;
  if (half && mode == "trunc" && other.kind == ParamValue::Kind::tensor && other.tensor.rank > 0) {
    Value quotient = c.compute(BlockOp::div, {c.operand("self", type), c.operand("other", type)}, type);
    return c.compute(BlockOp::trunc, {c.code().rounded(quotient)}, type);  // PyTorch rounds in between
  }
  return c.compute(op, {c.operand("self", type), c.operand("~other", type)}, type);
}

Value lower_square(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  if (type == DType::boolean) type = DType::i64;  // the exponent is a number
  Value v = c.operand("self", type);
  return c.compute(BlockOp::mul, {v, v}, type);
}

Value lower_clamp(PointwiseCall& c) {
  DType type = c.common("self min max", Common::promoted);
  Value v = c.operand("self", type);
  if (c.has("min")) v = c.compute(BlockOp::maximum, {v, c.operand("min", type, Number::as_given)}, type);
  if (c.has("max")) v = c.compute(BlockOp::minimum, {v, c.operand("max", type, Number::as_given)}, type);
  return v;
}

// Special-cases exponents that PyTorch computes in other ways, so that bits agree.
Value lower_pow_by_number(PointwiseCall& c) {
  DType type = c.common("self exponent", Common::promoted);
  Scalar exponent = c.call().param("exponent").scalar;
  double e = exponent.kind == Scalar::Kind::complex && exponent.im != 0 ? std::nan("") : exponent.to_double();
  Value v = c.operand("self", type);
  if (e == 1) return v;  // occurs in the backward of a square
  if (e == 0 && type == DType::boolean) return c.number(1, type);
  if (e == 2) return c.compute(BlockOp::mul, {v, v}, type);
  if (is_floating(type)) {
    if (e == 3) return c.compute(BlockOp::mul, {c.compute(BlockOp::mul, {v, v}, type), v}, type);
    if (e == -2) return c.compute(BlockOp::reciprocal, {c.compute(BlockOp::mul, {v, v}, type)}, type);
    if (e == -1) return c.compute(BlockOp::reciprocal, {v}, type);
    if (e == 0.5) return c.compute(BlockOp::sqrt, {v}, type);
    if (e == -0.5) return c.compute(BlockOp::rsqrt, {v}, type);
  }
  return c.compute(BlockOp::pow, {v, c.operand("exponent", type)}, type);
}

Value lower_isclose(PointwiseCall& c) {
  DType type = c.common("self other", Common::floating);
  Value a = c.operand("self", type), b = c.operand("other", type);
  Value rtol = c.operand("~rtol", type), atol = c.operand("~atol", type);
  return c.test(c.call().flag("equal_nan") ? BlockOp::isclose_nan : BlockOp::isclose, {a, b, rtol, atol}, type);
}

Value lower_shift(PointwiseCall& c) {
  DType type = c.common("self other", Common::promoted);
  int bits = 8 * dtype_bytes(type);
  if (c.rule().block == BlockOp::shift_right && type != DType::u8) --bits;
  Value a = c.operand("self", type), b = c.operand("other", type);
  return c.compute(c.rule().block, {a, b, c.code().constant(Scalar::integer(bits), DType::i64)}, type);
}

Value lower_nan_to_num(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  double most = 0;
  if (is_floating(type) || is_complex(type)) {
    visit_floating(real_part(type), [&]<class T>() {
      if constexpr (std::is_same_v<T, BF16>) most = 0x1.FEp127;
      else if constexpr (std::is_same_v<T, F16>) most = 65504;
      else most = static_cast<double>(std::numeric_limits<T>::max());
    });
  }
  auto number = [&](std::string_view name, double otherwise) {
    return c.has(name) ? c.operand(name, type) : c.number(otherwise, type);
  };
  Value v = c.operand("self", type), nan = number("nan", 0);
  Value above = number("posinf", most), below = number("neginf", -most);
  return c.compute(BlockOp::nan_to_num, {v, nan, above, below}, type);
}

constexpr PointwiseRule kRules[] = {
    {"aten.add.Tensor", lower_add},
    {"aten.add.Scalar", lower_add},
    {"aten.sub.Tensor", lower_sub},
    {"aten.sub.Scalar", lower_sub},
    {"aten.rsub.Tensor", lower_rsub},
    {"aten.rsub.Scalar", lower_rsub},
    {"aten.mul.Tensor", lower_plain, BlockOp::mul, "self ~other"},
    {"aten.mul.Scalar", lower_plain, BlockOp::mul, "self ~other"},
    {"aten.div.Tensor", lower_plain, BlockOp::div, "self ~other", Common::floating},
    {"aten.div.Scalar", lower_plain, BlockOp::div, "self ~other", Common::floating},
    {"aten.true_divide.Tensor", lower_plain, BlockOp::div, "self ~other", Common::floating},
    {"aten.div.Tensor_mode", lower_div_mode},
    {"aten.div.Scalar_mode", lower_div_mode},
    {"aten.floor_divide.default", lower_plain, BlockOp::div_floor, "self ~other"},
    {"aten.floor_divide.Scalar", lower_plain, BlockOp::div_floor, "self ~other"},
    {"aten.floor_divide.Tensor", lower_plain, BlockOp::div_floor, "self ~other"},
    {"aten.remainder.Tensor", lower_plain, BlockOp::remainder, "self other"},
    {"aten.remainder.Scalar", lower_plain, BlockOp::remainder, "self other"},
    {"aten.fmod.Tensor", lower_plain, BlockOp::fmod, "self other"},
    {"aten.fmod.Scalar", lower_plain, BlockOp::fmod, "self other"},
    {"aten.neg.default", lower_plain, BlockOp::neg, "self"},
    {"aten.sign.default", lower_plain, BlockOp::sign, "self"},
    {"aten.abs.default", lower_real, BlockOp::abs, "self"},
    {"aten.trunc.default", lower_plain, BlockOp::trunc, "self"},
    {"aten.round.default", lower_plain, BlockOp::round, "self"},
    {"aten.floor.default", lower_plain, BlockOp::floor, "self"},
    {"aten.ceil.default", lower_plain, BlockOp::ceil, "self"},
    {"aten.square.default", lower_square},
    {"aten.reciprocal.default", lower_plain, BlockOp::reciprocal, "self", Common::floating},
    {"aten.nan_to_num.default", lower_nan_to_num},
    {"aten.maximum.default", lower_plain, BlockOp::maximum, "self other"},
    {"aten.minimum.default", lower_plain, BlockOp::minimum, "self other"},
    {"aten.max.other", lower_plain, BlockOp::maximum, "self other"},
    {"aten.min.other", lower_plain, BlockOp::minimum, "self other"},
    {"aten.fmax.default", lower_plain, BlockOp::fmax, "self other"},
    {"aten.fmin.default", lower_plain, BlockOp::fmin, "self other"},
    {"aten.clamp.default", lower_clamp},
    {"aten.clamp.Tensor", lower_clamp},
    {"aten.clamp_min.default", lower_clamp},
    {"aten.clamp_min.Tensor", lower_clamp},
    {"aten.clamp_max.default", lower_clamp},
    {"aten.clamp_max.Tensor", lower_clamp},
    {"aten.addcmul.default", lower_plain, BlockOp::addcmul, "self tensor1 tensor2 ~value"},
    {"aten.addcdiv.default", lower_plain, BlockOp::addcdiv, "self tensor1 tensor2 ~value", Common::floating},
    {"aten.lerp.Scalar", lower_plain, BlockOp::lerp, "self end ~weight"},
    {"aten.lerp.Tensor", lower_plain, BlockOp::lerp, "self end weight"},
    {"aten.pow.Tensor_Scalar", lower_pow_by_number},
    {"aten.pow_.Scalar", lower_pow_by_number},
    {"aten.pow.Tensor_Tensor", lower_plain, BlockOp::pow, "self exponent"},
    {"aten.pow.Scalar", lower_plain, BlockOp::pow, "self exponent"},

    {"aten.bitwise_not.default", lower_plain, BlockOp::bit_not, "self"},
    {"aten.bitwise_and.Tensor", lower_plain, BlockOp::bit_and, "self other"},
    {"aten.bitwise_and.Scalar", lower_plain, BlockOp::bit_and, "self other"},
    {"aten.bitwise_or.Tensor", lower_plain, BlockOp::bit_or, "self other"},
    {"aten.bitwise_or.Scalar", lower_plain, BlockOp::bit_or, "self other"},
    {"aten.bitwise_xor.Tensor", lower_plain, BlockOp::bit_xor, "self other"},
    {"aten.bitwise_xor.Scalar", lower_plain, BlockOp::bit_xor, "self other"},
    {"aten.__and__.Tensor", lower_plain, BlockOp::bit_and, "self other"},
    {"aten.__and__.Scalar", lower_plain, BlockOp::bit_and, "self other"},
    {"aten.__or__.Tensor", lower_plain, BlockOp::bit_or, "self other"},
    {"aten.__or__.Scalar", lower_plain, BlockOp::bit_or, "self other"},
    {"aten.__xor__.Tensor", lower_plain, BlockOp::bit_xor, "self other"},
    {"aten.__xor__.Scalar", lower_plain, BlockOp::bit_xor, "self other"},
    {"aten.bitwise_left_shift.Tensor", lower_shift, BlockOp::shift_left},
    {"aten.bitwise_left_shift.Tensor_Scalar", lower_shift, BlockOp::shift_left},
    {"aten.bitwise_left_shift.Scalar_Tensor", lower_shift, BlockOp::shift_left},
    {"aten.bitwise_right_shift.Tensor", lower_shift, BlockOp::shift_right},
    {"aten.bitwise_right_shift.Tensor_Scalar", lower_shift, BlockOp::shift_right},
    {"aten.bitwise_right_shift.Scalar_Tensor", lower_shift, BlockOp::shift_right},

    {"aten.eq.Tensor", lower_test, BlockOp::eq, "self other"},
    {"aten.eq.Scalar", lower_test, BlockOp::eq, "self other"},
    {"aten.ne.Tensor", lower_test, BlockOp::ne, "self other"},
    {"aten.ne.Scalar", lower_test, BlockOp::ne, "self other"},
    {"aten.lt.Tensor", lower_test, BlockOp::lt, "self other"},
    {"aten.lt.Scalar", lower_test, BlockOp::lt, "self other"},
    {"aten.le.Tensor", lower_test, BlockOp::le, "self other"},
    {"aten.le.Scalar", lower_test, BlockOp::le, "self other"},
    {"aten.gt.Tensor", lower_test, BlockOp::gt, "self other"},
    {"aten.gt.Scalar", lower_test, BlockOp::gt, "self other"},
    {"aten.ge.Tensor", lower_test, BlockOp::ge, "self other"},
    {"aten.ge.Scalar", lower_test, BlockOp::ge, "self other"},
    {"aten.isclose.default", lower_isclose},
    {"aten.isnan.default", lower_test, BlockOp::isnan, "self"},
    {"aten.isinf.default", lower_test, BlockOp::isinf, "self"},
    {"aten.isfinite.default", lower_test, BlockOp::isfinite, "self"},
    {"aten.signbit.default", lower_test, BlockOp::signbit, "self"},
    {"aten.logical_not.default", lower_test, BlockOp::logical_not, "self", Common::flag},
    {"aten.logical_and.default", lower_test, BlockOp::logical_and, "self other", Common::flag},
    {"aten.logical_or.default", lower_test, BlockOp::logical_or, "self other", Common::flag},
    {"aten.logical_xor.default", lower_test, BlockOp::logical_xor, "self other", Common::flag},
};

}  // namespace

std::span<const PointwiseRule> arithmetic_rules() { return kRules; }

}  // namespace sg::cpu
