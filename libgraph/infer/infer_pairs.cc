// Elementwise losses of two tensors, gates, weight norm, and distances between rows.
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

bool differ(const InferCall& c, Expr a, Expr b) {
  auto x = c.sizes.constant(a), y = c.sizes.constant(b);
  return x && y && *x != *y;
}

Status expect_floating(const InferCall& c, const Type& t) {
  return is_floating(t.dtype) ? ok_status() : c.fail("needs a floating element type");
}

}  // namespace

// --- losses ---

Status pair_loss_backward(InferCall& c) {
  SG_TRY(mse_loss_backward(c));
  if (c.op.name.starts_with("aten.soft_margin")) {  // traced as -target * ...
    SG_ASSIGN(const Type* self, c.tensor("self"));
    SG_ASSIGN(const Type* target, c.tensor("target"));
    c.results[0].stride = c.sizes.elementwise(c.results[0].shape, {target, self});
  }
  if (c.op.param_index("weight") < 0) return ok_status();
  SG_ASSIGN(const Type* self, c.tensor("self"));  // binary cross entropy: grad * ...
  SG_ASSIGN(const Type* target, c.tensor("target"));
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  c.results[0].stride = c.sizes.elementwise(c.results[0].shape, {grad, self, target});
  return c.expect_broadcast("weight", c.results[0].shape);
}

// Classes are along axis 1 of [batch, classes, height, width]; one target per pixel.
static Result<Exprs> places_of(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() != 4) return c.fail("needs 4 dimensions");
  SG_TRY(expect_floating(c, *self));
  Exprs places{self->shape[0], self->shape[2], self->shape[3]};
  SG_TRY(c.expect_shape("target", places));
  SG_TRY(c.expect_shape("weight", {self->shape[1]}));
  return places;
}

Status nll_loss2d(InferCall& c) {
  SG_ASSIGN(Exprs places, places_of(c));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  if (reduction == 0) SG_TRY(c.give(self->dtype, places, c.sizes.elementwise(places, {target}), *self));
  else SG_TRY(c.give_contiguous(self->dtype, {}, *self));
  return c.give_contiguous(self->dtype, {}, *self);
}

Status nll_loss2d_backward(InferCall& c) {
  SG_ASSIGN(Exprs places, places_of(c));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  SG_TRY(c.expect_shape("grad_output", reduction == 0 ? places : Exprs()));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

// --- activations ---

// The second result is kept for the gradient: exp(-|x|) on CPUs, empty elsewhere.
Status log_sigmoid_forward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  Exprs stride = c.sizes.elementwise(self->shape, {self});
  SG_TRY(c.give(self->dtype, self->shape, stride, *self));
  bool host = c.pool.strings[self->device].starts_with("cpu");
  if (!host) return c.give_contiguous(self->dtype, {c.sizes.number(0)}, *self);
  return c.give(self->dtype, self->shape, stride, *self);
}

Status log_sigmoid_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  auto shape = c.sizes.broadcast(grad->shape, self->shape);
  if (!shape) return c.fail("the shapes of its arguments do not broadcast");
  Exprs stride = c.sizes.elementwise(*shape, {grad, self});
  return c.give(promote(grad->dtype, self->dtype), *shape, std::move(stride), *self);
}

Status prelu_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  auto shape = c.sizes.broadcast(self->shape, weight->shape);
  if (!shape) return c.fail("the shapes of its arguments do not broadcast");
  SG_TRY(c.expect_broadcast("grad_output", *shape));
  Exprs stride = c.sizes.elementwise(*shape, {self, weight, grad});
  SG_TRY(c.give(self->dtype, *shape, stride, *self));
  return c.give(self->dtype, *shape, stride, *self);
}

Status glu(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.empty()) return c.fail("needs a dimension to halve");
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  auto size = c.sizes.constant(self->shape[dim]);
  if (size && *size % 2 != 0) return c.fail("the dimension has to be even");
  Exprs shape = self->shape;
  shape[dim] = c.sizes.exprs().floordiv(shape[dim], c.sizes.number(2));
  Type half = *self;
  half.shape = shape;
  Exprs stride = c.sizes.elementwise(shape, {&half, &half});
  return c.give(self->dtype, std::move(shape), std::move(stride), *self);
}

Status glu_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(glu(c));
  SG_TRY(c.expect_shape("grad_output", c.results[0].shape));
  c.results.clear();
  return c.give_contiguous(self->dtype, self->shape, *self);
}

// --- weight norm ---

// One norm per position of the first or last axis.
static Status expect_norms(InferCall& c, const Type& v, std::initializer_list<std::string_view> names) {
  size_t rank = v.shape.size();
  SG_TRY(expect_floating(c, v));
  SG_ASSIGN(size_t dim, c.dim("dim", rank));
  if (rank == 0 || (dim != 0 && dim + 1 != rank))
    return c.fail("the norm is over all but the first or the last dimension");
  Exprs shape(rank, c.sizes.number(1));
  shape[dim] = v.shape[dim];
  for (std::string_view name : names) SG_TRY(c.expect_shape(name, shape));
  return ok_status();
}

Status weight_norm(InferCall& c) {
  SG_ASSIGN(const Type* v, c.tensor("v"));
  SG_ASSIGN(const Type* g, c.tensor("g"));
  SG_TRY(expect_norms(c, *v, {"g"}));
  SG_TRY(c.give(v->dtype, v->shape, c.sizes.elementwise(v->shape, {v, g}), *v));
  bool low = v->dtype == DType::bf16 || v->dtype == DType::f16;
  return c.give_contiguous(low ? DType::f32 : v->dtype, g->shape, *v);  // the norms
}

Status weight_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* v, c.tensor("saved_v"));
  SG_ASSIGN(const Type* g, c.tensor("saved_g"));
  SG_ASSIGN(const Type* grad, c.tensor("grad_w"));
  SG_TRY(c.expect_shape("grad_w", v->shape));
  SG_TRY(expect_norms(c, *v, {"saved_g", "saved_norms"}));
  SG_TRY(c.give(v->dtype, v->shape, c.sizes.elementwise(v->shape, {grad, v}), *v));
  return c.give_contiguous(g->dtype, g->shape, *g);
}

// --- distances ---

// For rows [.., n, width] and [.., m, width]: [.., n, m] with the batches broadcast.
static Result<Exprs> distance_shape(InferCall& c, bool of_rows) {
  SG_ASSIGN(const Type* a, c.tensor("x1"));
  SG_ASSIGN(const Type* b, c.tensor("x2"));
  if (a->shape.size() < 2 || b->shape.size() < 2) return c.fail("needs at least 2 dimensions on both sides");
  if (a->dtype != b->dtype) return c.fail("the element types differ");
  SG_TRY(expect_floating(c, *a));
  if (differ(c, a->shape.back(), b->shape.back())) return c.fail("the rows are of different width");
  auto shape =
      c.sizes.broadcast(Exprs(a->shape.begin(), a->shape.end() - 2), Exprs(b->shape.begin(), b->shape.end() - 2));
  if (!shape) return c.fail("the batch sizes do not broadcast");
  shape->push_back(a->shape[a->shape.size() - 2]);
  shape->push_back(of_rows ? a->shape.back() : b->shape[b->shape.size() - 2]);
  return *shape;
}

Status cdist(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("x1"));
  SG_ASSIGN(Exprs shape, distance_shape(c, false));
  return c.give_contiguous(a->dtype, shape, *a);
}

Status cdist_backward(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("x1"));
  SG_ASSIGN(Exprs distances, distance_shape(c, false));
  SG_ASSIGN(Exprs shape, distance_shape(c, true));
  SG_TRY(c.expect_shape("grad_output", distances));
  SG_TRY(c.expect_shape("cdist", distances));
  return c.give_contiguous(a->dtype, shape, *a);
}

static Result<Exprs> pair_count(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() != 2) return c.fail("needs 2 dimensions");
  SG_TRY(expect_floating(c, *self));
  ExprPool& e = c.sizes.exprs();
  Expr n = self->shape[0];
  return Exprs{e.floordiv(e.mul(n, e.sub(n, c.sizes.number(1))), c.sizes.number(2))};
}

Status pdist(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, pair_count(c));
  return c.give_contiguous(self->dtype, shape, *self);
}

Status pdist_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs pairs, pair_count(c));
  SG_TRY(c.expect_shape("grad_output", pairs));
  SG_TRY(c.expect_shape("pdist", pairs));
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

}  // namespace sg::infer
