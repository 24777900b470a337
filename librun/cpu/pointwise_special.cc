// Rules of special functions and of the rarer arithmetic and activations.
#include <cmath>
#include <limits>

#include "librun/cpu/pointwise_tables.h"
#include "librun/work/orthogonal.h"

namespace sg::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value lower_frac(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  Value v = c.operand("self", type);
  return c.compute(BlockOp::sub, {v, c.compute(BlockOp::trunc, {v}, type)}, type);
}

Value lower_sgn(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  return c.compute(is_complex(type) ? BlockOp::sgn : BlockOp::sign, {c.operand("self", type)}, type);
}

template <int sign>
Value lower_is_infinite(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  Value v = c.operand("self", type);
  if (!is_floating(type)) return c.test(BlockOp::ne, {v, v}, type);
  return c.test(BlockOp::eq, {v, c.number(sign * kInfinity, type)}, type);
}

Value scaled_by(PointwiseCall& c, double factor) {
  DType type = c.common("self", Common::floating);
  return c.compute(BlockOp::mul, {c.operand("self", type), c.number(factor, type)}, type);
}

Value lower_deg2rad(PointwiseCall& c) { return scaled_by(c, 3.14159265358979323846 / 180); }
Value lower_rad2deg(PointwiseCall& c) { return scaled_by(c, 180 / 3.14159265358979323846); }

// Rounds to a number of decimal places; negative numbers count before the point.
Value lower_round_decimals(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  Value v = c.operand("self", type);
  int64_t decimals = c.call().integer("decimals");
  if (decimals == 0 || !is_floating(type)) return is_floating(type) ? c.compute(BlockOp::round, {v}, type) : v;
  Value power = c.number(std::pow(10.0, std::abs(static_cast<double>(decimals))), type);
  BlockOp there = decimals > 0 ? BlockOp::mul : BlockOp::div, back = decimals > 0 ? BlockOp::div : BlockOp::mul;
  return c.compute(back, {c.compute(BlockOp::round, {c.compute(there, {v, power}, type)}, type), power}, type);
}

// The numbers do not change the type: threshold of integers gives integers.
Value lower_threshold(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  return c.compute(c.rule().block, {c.operand("self", type), c.operand("threshold", type), c.operand("value", type)},
                   type);
}

Value lower_polygamma(PointwiseCall& c) {
  DType type = c.common("self", Common::floating);
  return c.compute(BlockOp::polygamma, {c.number(c.call().number("n"), type), c.operand("self", type)}, type);
}

// The order is the block function's first operand.
template <int order>
Value lower_bessel(PointwiseCall& c) {
  DType type = c.common(c.rule().operands, Common::floating);
  return c.compute(c.rule().block, {c.number(order, type), c.operand(c.rule().operands, type)}, type);
}

Value lower_polynomial(PointwiseCall& c, math::Polynomial kind, bool shifted) {
  DType type = c.common("x n", Common::floating);
  Value which = c.number(static_cast<double>(kind), type), moved = c.number(shifted ? 1 : 0, type);
  return c.compute(c.rule().block, {which, c.operand("x", type), c.operand("n", type), moved}, type);
}

template <math::Polynomial kind>
Value lower_polynomial(PointwiseCall& c) {
  return lower_polynomial(c, kind, false);
}
template <math::Polynomial kind>
Value lower_shifted(PointwiseCall& c) {
  return lower_polynomial(c, kind, true);
}

Value lower_celu(PointwiseCall& c) {
  DType type = c.common("self", Common::promoted);
  double alpha = c.call().number("alpha");
  return c.compute(BlockOp::elu,
                   {c.operand("self", type), c.number(alpha, type), c.number(1, type), c.number(1 / alpha, type)},
                   type);
}

Value lower_nextafter(PointwiseCall& c) {
  DType type = c.common("self other", Common::promoted);
  BlockOp op = type == DType::bf16 ? BlockOp::nextafter_bf16 : BlockOp::nextafter;
  return c.compute(op, {c.operand("self", type), c.operand("other", type)}, type);
}

// Outside [eps, 1 - eps] the gradient is 0; without eps it is NaN outside [0, 1].
Value lower_logit_backward(PointwiseCall& c) {
  DType type = c.common("grad_output self", Common::promoted);
  bool bounded = c.has("eps") && c.call().number("eps") >= 0;
  double low = bounded ? c.call().number("eps") : 0, outside = bounded ? 0 : std::numeric_limits<double>::quiet_NaN();
  Value g = c.operand("grad_output", type), x = c.operand("self", type);
  return c.compute(BlockOp::logit_backward, {g, x, c.number(low, type), c.number(outside, type)}, type);
}

using math::Polynomial;

constexpr PointwiseRule kRules[] = {
    {"aten.frac.default", lower_frac},
    {"aten.sgn.default", lower_sgn},
    {"aten.isposinf.default", lower_is_infinite<1>},
    {"aten.isneginf.default", lower_is_infinite<-1>},
    {"aten.deg2rad.default", lower_deg2rad},
    {"aten.rad2deg.default", lower_rad2deg},
    {"aten.round.decimals", lower_round_decimals},
    {"aten.sinc.default", lower_plain, BlockOp::sinc, "self", Common::floating},
    {"aten.i0.default", lower_plain, BlockOp::i0, "self", Common::floating},
    {"aten.special_i0e.default", lower_plain, BlockOp::i0e, "self", Common::floating},
    {"aten.special_i1.default", lower_plain, BlockOp::i1, "self", Common::floating},
    {"aten.special_i1e.default", lower_plain, BlockOp::i1e, "self", Common::floating},
    {"aten.special_entr.default", lower_plain, BlockOp::entr, "self", Common::floating},
    {"aten.special_erfcx.default", lower_plain, BlockOp::erfcx, "self", Common::floating},
    {"aten.special_ndtri.default", lower_plain, BlockOp::ndtri, "self", Common::floating},
    {"aten.special_log_ndtr.default", lower_plain, BlockOp::log_ndtr, "self", Common::floating},
    {"aten.polygamma.default", lower_polygamma},
    {"aten.special_zeta.default", lower_plain, BlockOp::zeta, "self other", Common::floating},
    {"aten.special_zeta.other_scalar", lower_plain, BlockOp::zeta, "self ~other", Common::floating},
    {"aten.special_zeta.self_scalar", lower_plain, BlockOp::zeta, "~self other", Common::floating},
    {"aten.special_bessel_j0.default", lower_bessel<0>, BlockOp::bessel_j, "self"},
    {"aten.special_bessel_j1.default", lower_bessel<1>, BlockOp::bessel_j, "self"},
    {"aten.special_bessel_y0.default", lower_bessel<0>, BlockOp::bessel_y, "self"},
    {"aten.special_bessel_y1.default", lower_bessel<1>, BlockOp::bessel_y, "self"},
    {"aten.special_modified_bessel_k0.default", lower_bessel<0>, BlockOp::bessel_k, "self"},
    {"aten.special_modified_bessel_k1.default", lower_bessel<1>, BlockOp::bessel_k, "self"},
    {"aten.special_scaled_modified_bessel_k0.default", lower_bessel<0>, BlockOp::bessel_k_scaled, "x"},
    {"aten.special_scaled_modified_bessel_k1.default", lower_bessel<1>, BlockOp::bessel_k_scaled, "x"},
    {"aten.special_spherical_bessel_j0.default", lower_plain, BlockOp::spherical_j0, "x", Common::floating},
    {"aten.special_airy_ai.default", lower_plain, BlockOp::airy, "x", Common::floating},
    {"aten.special_chebyshev_polynomial_t.default", lower_polynomial<Polynomial::chebyshev_t>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_t.x_scalar", lower_polynomial<Polynomial::chebyshev_t>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_t.n_scalar", lower_polynomial<Polynomial::chebyshev_t>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_u.default", lower_polynomial<Polynomial::chebyshev_u>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_u.x_scalar", lower_polynomial<Polynomial::chebyshev_u>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_u.n_scalar", lower_polynomial<Polynomial::chebyshev_u>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_v.default", lower_polynomial<Polynomial::chebyshev_v>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_v.x_scalar", lower_polynomial<Polynomial::chebyshev_v>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_v.n_scalar", lower_polynomial<Polynomial::chebyshev_v>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_w.default", lower_polynomial<Polynomial::chebyshev_w>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_w.x_scalar", lower_polynomial<Polynomial::chebyshev_w>, BlockOp::polynomial},
    {"aten.special_chebyshev_polynomial_w.n_scalar", lower_polynomial<Polynomial::chebyshev_w>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_h.default", lower_polynomial<Polynomial::hermite_h>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_h.x_scalar", lower_polynomial<Polynomial::hermite_h>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_h.n_scalar", lower_polynomial<Polynomial::hermite_h>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_he.default", lower_polynomial<Polynomial::hermite_he>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_he.x_scalar", lower_polynomial<Polynomial::hermite_he>, BlockOp::polynomial},
    {"aten.special_hermite_polynomial_he.n_scalar", lower_polynomial<Polynomial::hermite_he>, BlockOp::polynomial},
    {"aten.special_laguerre_polynomial_l.default", lower_polynomial<Polynomial::laguerre>, BlockOp::polynomial},
    {"aten.special_laguerre_polynomial_l.x_scalar", lower_polynomial<Polynomial::laguerre>, BlockOp::polynomial},
    {"aten.special_laguerre_polynomial_l.n_scalar", lower_polynomial<Polynomial::laguerre>, BlockOp::polynomial},
    {"aten.special_legendre_polynomial_p.default", lower_polynomial<Polynomial::legendre>, BlockOp::polynomial},
    {"aten.special_legendre_polynomial_p.x_scalar", lower_polynomial<Polynomial::legendre>, BlockOp::polynomial},
    {"aten.special_legendre_polynomial_p.n_scalar", lower_polynomial<Polynomial::legendre>, BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_t.default", lower_shifted<Polynomial::chebyshev_t>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_t.x_scalar", lower_shifted<Polynomial::chebyshev_t>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_t.n_scalar", lower_shifted<Polynomial::chebyshev_t>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_u.default", lower_shifted<Polynomial::chebyshev_u>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_u.x_scalar", lower_shifted<Polynomial::chebyshev_u>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_u.n_scalar", lower_shifted<Polynomial::chebyshev_u>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_v.default", lower_shifted<Polynomial::chebyshev_v>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_v.x_scalar", lower_shifted<Polynomial::chebyshev_v>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_v.n_scalar", lower_shifted<Polynomial::chebyshev_v>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_w.default", lower_shifted<Polynomial::chebyshev_w>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_w.x_scalar", lower_shifted<Polynomial::chebyshev_w>,
     BlockOp::polynomial},
    {"aten.special_shifted_chebyshev_polynomial_w.n_scalar", lower_shifted<Polynomial::chebyshev_w>,
     BlockOp::polynomial},
    {"aten.igamma.default", lower_plain, BlockOp::igamma, "self other"},
    {"aten.igammac.default", lower_plain, BlockOp::igammac, "self other"},
    {"aten.special_xlog1py.default", lower_plain, BlockOp::xlog1py, "self other", Common::floating},
    {"aten.special_xlog1py.other_scalar", lower_plain, BlockOp::xlog1py, "self other", Common::floating},
    {"aten.special_xlog1py.self_scalar", lower_plain, BlockOp::xlog1py, "self other", Common::floating},
    {"aten.xlogy.Scalar_Other", lower_plain, BlockOp::xlogy, "self other", Common::floating},
    {"aten.xlogy.Scalar_Self", lower_plain, BlockOp::xlogy, "self other", Common::floating},
    {"aten.logaddexp.default", lower_plain, BlockOp::logaddexp, "self other"},
    {"aten.logaddexp2.default", lower_plain, BlockOp::logaddexp2, "self other"},
    {"aten.heaviside.default", lower_plain, BlockOp::heaviside, "self values"},
    {"aten.copysign.Tensor", lower_plain, BlockOp::copysign, "self other", Common::floating},
    {"aten.copysign.Scalar", lower_plain, BlockOp::copysign, "self other", Common::floating},
    {"aten.nextafter.default", lower_nextafter},
    {"aten.gcd.default", lower_plain, BlockOp::gcd, "self other"},
    {"aten.lcm.default", lower_plain, BlockOp::lcm, "self other"},
    {"aten.atan2.out", lower_plain, BlockOp::atan2, "self other", Common::floating},
    {"aten.bitwise_and.Scalar_Tensor", lower_plain, BlockOp::bit_and, "self other"},
    {"aten.bitwise_or.Scalar_Tensor", lower_plain, BlockOp::bit_or, "self other"},
    {"aten.bitwise_xor.Scalar_Tensor", lower_plain, BlockOp::bit_xor, "self other"},
    {"aten.remainder.Scalar_Tensor", lower_plain, BlockOp::remainder, "self other"},
    {"aten.hardshrink.default", lower_plain, BlockOp::hardshrink, "self ~lambd"},
    {"aten.softshrink.default", lower_plain, BlockOp::softshrink, "self ~lambd"},
    {"aten.hardshrink_backward.default", lower_plain, BlockOp::shrink_backward, "grad_out self ~lambd"},
    {"aten.softshrink_backward.default", lower_plain, BlockOp::shrink_backward, "grad_output self ~lambd"},
    {"aten.threshold.default", lower_threshold, BlockOp::threshold},
    {"aten.celu.default", lower_celu},
    {"aten._prelu_kernel.default", lower_plain, BlockOp::leaky_relu, "self weight"},
    {"aten.log_sigmoid_backward.default", lower_plain, BlockOp::log_sigmoid_backward, "grad_output self"},
    {"aten.logit_backward.default", lower_logit_backward},
    {"aten.mish_backward.default", lower_plain, BlockOp::mish_backward, "grad_output self"},
};

}  // namespace

std::span<const PointwiseRule> special_rules() { return kRules; }

}  // namespace sg::cpu
