// Rules of elementary functions and complex numbers.
#include <limits>

#include "librun/cpu/pointwise_tables.h"

namespace sg::cpu {
namespace {

Value lower_logit(PointwiseCall& c) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  DType type = c.common("self", Common::floating);
  Value v = c.operand("self", type);
  double eps = c.has("eps") ? c.call().number("eps") : -infinity;
  return c.compute(BlockOp::logit, {v, c.number(eps, type), c.number(1 - eps, type)}, type);
}

Value lower_conj(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  Value v = c.operand("self", type);
  return is_complex(type) ? c.compute(BlockOp::conj, {v}, type) : v;
}

Value lower_angle(PointwiseCall& c) {
  DType type = c.common("self", Common::floating);
  return c.code().compute(BlockOp::angle, lane_of(type), {c.operand("self", type)}, real_part(type));
}

// Complex numbers from two real operands: (real, imag), (abs, angle).
Value lower_complex(PointwiseCall& c) {
  DType type = c.common();
  Value a, b;
  if (c.rule().block == BlockOp::complex) a = c.operand("real", type), b = c.operand("imag", type);
  else a = c.operand("abs", type), b = c.operand("angle", type);
  return c.code().compute(c.rule().block, lane_of(type), {a, b}, type == DType::f64 ? DType::c128 : DType::c64);
}

constexpr PointwiseRule kRules[] = {
    {"aten.exp.default", lower_plain, BlockOp::exp, "self", Common::floating},
    {"aten.exp2.default", lower_plain, BlockOp::exp2, "self", Common::floating},
    {"aten.expm1.default", lower_plain, BlockOp::expm1, "self", Common::floating},
    {"aten.log.default", lower_plain, BlockOp::log, "self", Common::floating},
    {"aten.log2.default", lower_plain, BlockOp::log2, "self", Common::floating},
    {"aten.log10.default", lower_plain, BlockOp::log10, "self", Common::floating},
    {"aten.log1p.default", lower_plain, BlockOp::log1p, "self", Common::floating},
    {"aten.sqrt.default", lower_plain, BlockOp::sqrt, "self", Common::floating},
    {"aten.rsqrt.default", lower_plain, BlockOp::rsqrt, "self", Common::floating},
    {"aten.sin.default", lower_plain, BlockOp::sin, "self", Common::floating},
    {"aten.cos.default", lower_plain, BlockOp::cos, "self", Common::floating},
    {"aten.tan.default", lower_plain, BlockOp::tan, "self", Common::floating},
    {"aten.asin.default", lower_plain, BlockOp::asin, "self", Common::floating},
    {"aten.acos.default", lower_plain, BlockOp::acos, "self", Common::floating},
    {"aten.atan.default", lower_plain, BlockOp::atan, "self", Common::floating},
    {"aten.sinh.default", lower_plain, BlockOp::sinh, "self", Common::floating},
    {"aten.cosh.default", lower_plain, BlockOp::cosh, "self", Common::floating},
    {"aten.tanh.default", lower_plain, BlockOp::tanh, "self", Common::floating},
    {"aten.asinh.default", lower_plain, BlockOp::asinh, "self", Common::floating},
    {"aten.acosh.default", lower_plain, BlockOp::acosh, "self", Common::floating},
    {"aten.atanh.default", lower_plain, BlockOp::atanh, "self", Common::floating},
    {"aten.sigmoid.default", lower_plain, BlockOp::sigmoid, "self", Common::floating},
    {"aten.erf.default", lower_plain, BlockOp::erf, "self", Common::floating},
    {"aten.erfc.default", lower_plain, BlockOp::erfc, "self", Common::floating},
    {"aten.erfinv.default", lower_plain, BlockOp::erfinv, "self", Common::floating},
    {"aten.lgamma.default", lower_plain, BlockOp::lgamma, "self", Common::floating},
    {"aten.digamma.default", lower_plain, BlockOp::digamma, "self", Common::floating},
    {"aten.logit.default", lower_logit},
    {"aten.atan2.default", lower_plain, BlockOp::atan2, "self other", Common::floating},
    {"aten.hypot.default", lower_plain, BlockOp::hypot, "self other"},
    {"aten.xlogy.Tensor", lower_plain, BlockOp::xlogy, "self other", Common::floating},
    {"aten.angle.default", lower_angle},
    {"aten._conj_physical.default", lower_conj},
    {"aten.conj_physical.default", lower_conj},
    {"aten.complex.default", lower_complex, BlockOp::complex, "real imag"},
    {"aten.polar.default", lower_complex, BlockOp::polar, "abs angle"},
};

}  // namespace

std::span<const PointwiseRule> function_rules() { return kRules; }

}  // namespace sg::cpu
