// Segmented reductions along an axis; the segments' lengths or offsets are data.
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// The reduced shape, given lengths or offsets: their last axis is the segmented one.
Result<Exprs> segmented_shape(InferCall& c, const Type& data) {
  const bool by_length = c.given("lengths");
  if (!by_length && !c.given("offsets")) return c.fail("needs 'lengths' or 'offsets'");
  if (c.given("indices")) return c.fail("'indices' are not known");
  const std::string_view name = by_length ? "lengths" : "offsets";
  SG_ASSIGN(const Type* said, c.tensor(name));
  if (said->dtype != DType::i64 && said->dtype != DType::i32)
    return c.fail("'" + std::string(name) + "' has to be of i64 or i32");
  const size_t rank = said->shape.size();
  if (rank == 0 || rank > data.shape.size()) return c.fail("'" + std::string(name) + "' does not fit the data");
  SG_ASSIGN(size_t axis, c.dim("axis", data.shape.size()));
  if (axis + 1 != rank) return c.fail("'axis' has to be the last one of '" + std::string(name) + "'");
  for (size_t i = 0; i < axis; ++i)
    if (!c.may_equal(said->shape[i], data.shape[i])) return c.fail("'" + std::string(name) + "' does not fit the data");
  Exprs shape = data.shape;
  ExprPool& e = c.sizes.exprs();
  if (c.sizes.is(said->shape[axis], 0) && !by_length) return c.fail("'offsets' needs at least one number");
  shape[axis] = by_length ? said->shape[axis] : e.sub(said->shape[axis], c.sizes.number(1));
  return shape;
}

}  // namespace

Status segment_reduce(InferCall& c) {
  SG_ASSIGN(const Type* data, c.tensor("data"));
  SG_ASSIGN(Exprs shape, segmented_shape(c, *data));
  return c.give_contiguous(data->dtype, std::move(shape), *data);
}

Status segment_reduce_backward(InferCall& c) {
  SG_ASSIGN(const Type* data, c.tensor("data"));
  SG_ASSIGN(Exprs shape, segmented_shape(c, *data));
  SG_TRY(c.expect_shape("grad", shape));
  SG_TRY(c.expect_shape("output", shape));
  return c.give_contiguous(data->dtype, data->shape, *data);
}

}  // namespace sg::infer
