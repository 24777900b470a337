// Ops whose result size depends on what they find. PyTorch makes a symbol for that size when it traces, and only the
// recorded type names it: the rules take it from there, and give an unknown type if nothing is recorded.
#include <optional>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// The recorded size of one dimension of a result; none if no type is recorded. Fails if the recorded rank differs.
Result<std::optional<Expr>> recorded_size(const InferCall& c, uint32_t result, size_t dim, size_t rank) {
  if (result >= c.node.result_count) return c.fail("a result is missing");
  const Type& type = c.graph.type(c.node.result(result));
  if (type.kind == TypeKind::unknown) return std::optional<Expr>();
  if (type.kind != TypeKind::tensor || type.shape.size() != rank)
    return c.fail("the result is a tensor of " + std::to_string(rank) + (rank == 1 ? " dimension" : " dimensions"));
  return std::optional<Expr>(type.shape[dim]);
}

Status give_unknown(InferCall& c) {
  for (uint32_t i = 0; i < c.node.result_count; ++i) SG_TRY(c.give(Type()));
  return ok_status();
}

// A vector with one element per match.
Status give_found(InferCall& c, DType dtype, const Type& like) {
  SG_ASSIGN(std::optional<Expr> found, recorded_size(c, 0, 0, 1));
  return found ? c.give_contiguous(dtype, {*found}, like) : give_unknown(c);
}

}  // namespace

// One row per nonzero element, stored by columns.
Status nonzero(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::optional<Expr> found, recorded_size(c, 0, 0, 2));
  if (!found) return give_unknown(c);
  return c.give(DType::i64, {*found, c.sizes.number(static_cast<int64_t>(self->shape.size()))},
                {c.sizes.number(1), *found}, *self);
}

Status masked_select(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* mask, c.tensor("mask"));
  if (mask->dtype != DType::boolean && mask->dtype != DType::u8) return c.fail("the mask is not boolean");
  if (!c.sizes.broadcast(self->shape, mask->shape)) return c.fail("the mask does not broadcast with the tensor");
  return give_found(c, self->dtype, *self);
}

// The indices of the boxes that are kept; each box has a score.
Status nms(InferCall& c) {
  SG_ASSIGN(const Type* boxes, c.tensor("dets"));
  if (boxes->shape.size() != 2 || !c.may_equal(boxes->shape[1], c.sizes.number(4)))
    return c.fail("'dets' has to be rows of 4 numbers");
  SG_TRY(c.expect_shape("scores", {boxes->shape[0]}));
  return give_found(c, DType::i64, *boxes);
}

// The result's length is the sum of the repeats: given, or known only at run time.
Status repeat_interleave(InferCall& c) {
  SG_ASSIGN(const Type* repeats, c.tensor("repeats"));
  if (!c.given("output_size")) return give_found(c, repeats->dtype, *repeats);
  SG_ASSIGN(Expr size, c.size("output_size"));
  return c.give_contiguous(repeats->dtype, {size}, *repeats);
}

// Source elements fill the masked positions in order; whether there are enough is known only at run time.
Status masked_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* mask, c.tensor("mask"));
  SG_TRY(c.tensor("source"));
  auto shape = c.sizes.broadcast(self->shape, mask->shape);
  if (!shape) return c.fail("the mask does not broadcast with the tensor");
  return c.give_contiguous(self->dtype, *shape, *self);
}

// The gradient of the source: the gradients at masked positions in order, then zeros for unused source elements.
Status masked_scatter_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* mask, c.tensor("mask"));
  SG_ASSIGN(Exprs sizes, c.size_list("sizes"));
  if (!c.sizes.broadcast(grad->shape, mask->shape)) return c.fail("the mask does not broadcast with the tensor");
  return c.give_contiguous(grad->dtype, sizes, *grad);
}

// The values, the index of each element's value, and the counts. What is not requested is empty.
Status unique2(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  bool inverse = false, counts = false;
  if (c.given("return_inverse")) {
    SG_ASSIGN(inverse, c.boolean("return_inverse"));
  }
  if (c.given("return_counts")) {
    SG_ASSIGN(counts, c.boolean("return_counts"));
  }
  SG_ASSIGN(std::optional<Expr> found, recorded_size(c, 0, 0, 1));
  if (!found) return give_unknown(c);
  Exprs none = {c.sizes.number(0)};
  SG_TRY(c.give_contiguous(self->dtype, {*found}, *self));
  SG_TRY(c.give_contiguous(DType::i64, inverse ? self->shape : none, *self));
  return c.give_contiguous(DType::i64, counts ? Exprs{*found} : none, *self);
}

// The same for runs of equal elements or, along an axis, of equal slices. Of slices on the CPU, PyTorch gives places
// and counts unasked.
Status unique_slices(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  bool inverse = false, counts = false, flat = !c.given("dim");
  size_t axis = 0;
  if (c.given("return_inverse")) {
    SG_ASSIGN(inverse, c.boolean("return_inverse"));
  }
  if (c.given("return_counts")) {
    SG_ASSIGN(counts, c.boolean("return_counts"));
  }
  if (!flat) {
    SG_ASSIGN(axis, c.dim("dim", self->shape.size()));
  }
  if (!flat && self->shape.empty()) return c.fail("a number has no slices");
  if (!flat && c.pool.strings[self->device] == "cpu") inverse = counts = true;
  SG_ASSIGN(std::optional<Expr> found, recorded_size(c, 0, axis, flat ? 1 : self->shape.size()));
  if (!found) return give_unknown(c);
  Exprs none = {c.sizes.number(0)}, values = flat ? Exprs{*found} : self->shape;
  Exprs places = flat ? self->shape : Exprs{self->shape[axis]};
  values[axis] = *found;
  SG_TRY(c.give_contiguous(self->dtype, values, *self));
  SG_TRY(c.give_contiguous(DType::i64, inverse ? places : none, *self));
  return c.give_contiguous(DType::i64, counts ? Exprs{*found} : none, *self);
}

Status bincount(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* weights, c.optional_tensor("weights"));
  if (self->shape.size() != 1) return c.fail("counts a vector");
  SG_TRY(c.expect_shape("weights", self->shape));
  DType dtype = weights == nullptr ? DType::i64 : weights->dtype == DType::f32 ? DType::f32 : DType::f64;
  return give_found(c, dtype, *self);
}

namespace {

// Sum of min(j, columns) for j = 1 ... rows; 0 if rows <= 0.
int64_t triangle(int64_t rows, int64_t columns) {
  if (rows <= 0) return 0;
  if (rows <= columns) return rows * (rows + 1) / 2;
  return columns * (columns + 1) / 2 + (rows - columns) * columns;
}

// Row r of the lower triangle has r + offset + 1 columns, clamped to the matrix; the upper one has those that the lower
// one of the diagonal before leaves.
Status triangle_indices(InferCall& c, bool upper) {
  SG_ASSIGN(int64_t rows, c.integer("row"));
  SG_ASSIGN(int64_t columns, c.integer("col"));
  int64_t offset = 0;
  if (c.given("offset")) {
    SG_ASSIGN(offset, c.integer("offset"));
  }
  constexpr int64_t kMost = int64_t{1} << 30;  // bounds rows * columns, the number of elements, to what memory can hold
  if (rows < 0 || columns < 0) return c.fail("a negative size");
  if (rows > kMost || columns > kMost || offset > kMost || offset < -kMost) return c.fail("the matrix is too large");
  if (upper) --offset;
  int64_t count = triangle(rows + offset, columns) - triangle(offset, columns);
  if (upper) count = rows * columns - count;
  Exprs shape = {c.sizes.number(2), c.sizes.number(count)};
  Exprs stride = c.sizes.contiguous(shape);
  StrId device = c.device("device").value_or(c.pool.strings.intern("cpu"));
  return c.give(c.make(c.dtype("dtype").value_or(DType::i64), std::move(shape), std::move(stride), device));
}

}  // namespace

Status tril_indices(InferCall& c) { return triangle_indices(c, false); }
Status triu_indices(InferCall& c) { return triangle_indices(c, true); }

// Gathers along one dimension and keeps this rank's part of another. The number of ranks is known to the job, not to
// the node: the recorded size of the gathered dimension implies it.
Status shard_dim_alltoall(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(size_t gathered, c.dim("gather_dim", input->shape.size()));
  SG_ASSIGN(size_t sharded, c.dim("shard_dim", input->shape.size()));
  if (input->shape.empty()) return c.fail("needs at least one dimension");
  Exprs shape = input->shape;
  if (gathered == sharded) return c.give_contiguous(input->dtype, std::move(shape), *input);
  SG_ASSIGN(std::optional<Expr> size, recorded_size(c, 0, gathered, shape.size()));
  if (!size) return give_unknown(c);
  auto whole = c.sizes.constant(*size), part = c.sizes.constant(shape[gathered]);
  if (!whole || !part || *part <= 0) return give_unknown(c);
  if (*whole < *part || *whole % *part != 0) return c.fail("the gathered size is not a multiple of the part's");
  shape[gathered] = *size;
  shape[sharded] = c.sizes.exprs().floordiv(shape[sharded], c.sizes.number(*whole / *part));
  return c.give_contiguous(input->dtype, std::move(shape), *input);
}

}  // namespace sg::infer
