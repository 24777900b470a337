// Rules of copies, conversions, fills and selections.
#include "librun/cpu/pointwise_tables.h"

namespace sg::cpu {
namespace {

// Converts the argument to the type of the result.
Value lower_copy(PointwiseCall& c) { return c.operand(c.rule().operands, c.result().dtype); }

Value lower_zero(PointwiseCall& c) { return c.code().constant(Scalar::integer(0), c.result().dtype); }

Value pick(PointwiseCall& c, std::string_view condition, std::string_view yes, std::string_view no) {
  DType type = c.result().dtype;
  Value flag = c.operand(condition, DType::boolean), a = c.operand(yes, type), b = c.operand(no, type);
  return c.compute(BlockOp::where, {flag, a, b}, type);
}

Value lower_where(PointwiseCall& c) { return pick(c, "condition", "self", "other"); }
Value lower_masked_fill(PointwiseCall& c) { return pick(c, "mask", "value", "self"); }

constexpr PointwiseRule kRules[] = {
    {"aten._to_copy.default", lower_copy, BlockOp::copy, "self"},
    {"aten.clone.default", lower_copy, BlockOp::copy, "self"},
    {"aten.contiguous.default", lower_copy, BlockOp::copy, "self"},
    {"aten.to.dtype", lower_copy, BlockOp::copy, "self"},
    {"aten.to.dtype_layout", lower_copy, BlockOp::copy, "self"},
    {"aten.to.device", lower_copy, BlockOp::copy, "self"},
    {"aten.positive.default", lower_copy, BlockOp::copy, "self"},
    {"aten.resolve_conj.default", lower_copy, BlockOp::copy, "self"},
    {"aten.resolve_neg.default", lower_copy, BlockOp::copy, "self"},
    {"aten.lift_fresh_copy.default", lower_copy, BlockOp::copy, "self"},
    {"sg.offload", lower_copy, BlockOp::copy, "self"},
    {"sg.reload", lower_copy, BlockOp::copy, "self"},
    {"ao.offload.default", lower_copy, BlockOp::copy, "tensor"},
    {"ao.reload.default", lower_copy, BlockOp::copy, "tensor"},
    {"aten.copy.default", lower_copy, BlockOp::copy, "src"},
    {"aten.fill.Scalar", lower_copy, BlockOp::copy, "value"},
    {"aten.fill.Tensor", lower_copy, BlockOp::copy, "value"},
    {"aten.fill_.Tensor", lower_copy, BlockOp::copy, "value"},
    {"aten.full_like.Tensor", lower_copy, BlockOp::copy, "fill_value"},
    {"aten.zero.default", lower_zero},
    {"aten.zero_.default", lower_zero},
    {"aten.where.self", lower_where},
    {"aten.where.ScalarOther", lower_where},
    {"aten.where.ScalarSelf", lower_where},
    {"aten.where.Scalar", lower_where},
    {"aten.masked_fill.Scalar", lower_masked_fill},
    {"aten.masked_fill.Tensor", lower_masked_fill},
};

}  // namespace

std::span<const PointwiseRule> copy_rules() { return kRules; }

}  // namespace sg::cpu
