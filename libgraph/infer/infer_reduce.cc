// Reductions, scans and sorts. Reduced results are row-major, whatever the strides of the input.
#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// The shape after reducing the dimensions in `dim` (all, if it is absent).
Result<Exprs> reduced_shape(InferCall& c, const Type& self) {
  size_t rank = self.shape.size();
  std::vector<bool> reduced(std::max<size_t>(rank, 1), !c.given("dim"));
  if (c.given("dim")) {
    SG_ASSIGN(std::vector<int64_t> dims, c.integers("dim"));
    if (dims.empty()) reduced.assign(reduced.size(), true);
    for (int64_t number : dims) {
      SG_ASSIGN(size_t dim, c.wrap_dim(number, rank));
      if (reduced[dim] && dims.size() > 1) return c.fail("a dimension is named twice");
      reduced[dim] = true;
    }
  }
  bool keep = false;
  if (c.given("keepdim")) {
    SG_ASSIGN(keep, c.boolean("keepdim"));
  }
  Exprs shape;
  for (size_t i = 0; i < rank; ++i) {
    if (!reduced[i]) shape.push_back(self.shape[i]);
    else if (keep) shape.push_back(c.sizes.number(1));
  }
  return shape;
}

Status reduced(InferCall& c, DType dtype) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, reduced_shape(c, *self));
  return c.give_contiguous(dtype, std::move(shape), *self);
}

// Of one element out of those reduced, of which there has to be one for each element of the result.
Status chosen(InferCall& c, DType dtype) {
  SG_TRY(reduced(c, dtype));
  SG_ASSIGN(const Type* self, c.tensor("self"));
  auto has_none = [&](const Exprs& shape) {
    return std::ranges::any_of(shape, [&](Expr size) { return c.sizes.constant(size) == 0; });
  };
  if (has_none(self->shape) && !has_none(c.results.back().shape))
    return c.fail("there is no largest or smallest of no elements");
  return ok_status();
}

DType summed(DType t) { return is_floating(t) || is_complex(t) ? t : DType::i64; }

// Values and indices of this shape, with the given strides.
Status values_and_indices(InferCall& c, const Type& self, const Exprs& shape, const Exprs& stride) {
  SG_TRY(c.give(self.dtype, shape, stride, self));
  return c.give(DType::i64, shape, stride, self);
}

}  // namespace

Status sum(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return reduced(c, c.dtype("dtype").value_or(summed(self->dtype)));
}

Status mean(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  DType dtype = c.dtype("dtype").value_or(self->dtype);
  if (!is_floating(dtype) && !is_complex(dtype)) return c.fail("needs a floating or complex element type");
  return reduced(c, dtype);
}

Status mean_float(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return reduced(c, is_floating(self->dtype) || is_complex(self->dtype) ? self->dtype : DType::f32);
}

// Of the middle one of no elements, which is NaN.
Status median(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return reduced(c, self->dtype);
}

Status amax(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return chosen(c, self->dtype);
}

Status argmax(InferCall& c) { return chosen(c, DType::i64); }

Status count_nonzero(InferCall& c) { return reduced(c, DType::i64); }

Status any(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return reduced(c, self->dtype == DType::u8 ? DType::u8 : DType::boolean);
}

Status variance(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return reduced(c, real_part(c.dtype("dtype").value_or(self->dtype)));
}

// An infinite order chooses an element, and a negative one has no value for none.
Status vector_norm(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  const DType dtype = real_part(c.dtype("dtype").value_or(self->dtype));
  const Arg* order = c.find(c.op.param_index("ord") < 0 ? "p" : "ord");
  const double n = order == nullptr               ? 2
                   : order->is(ArgKind::floating) ? order->as_float()
                   : order->is(ArgKind::integer)  ? static_cast<double>(order->as_int())
                                                  : 2;
  return n < 0 || std::isinf(n) ? chosen(c, dtype) : reduced(c, dtype);
}

Status variance_mean(InferCall& c) {
  SG_TRY(variance(c));
  return mean(c);
}

Status max_dim(InferCall& c) {
  SG_TRY(amax(c));
  return argmax(c);
}

// Along the last axis by default.
Status mode(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  size_t rank = self->shape.size(), axis = rank == 0 ? 0 : rank - 1;
  bool keeps = false;
  if (c.given("dim")) {
    SG_ASSIGN(axis, c.dim("dim", rank));
  }
  if (c.given("keepdim")) {
    SG_ASSIGN(keeps, c.boolean("keepdim"));
  }
  Exprs shape = self->shape;
  if (keeps && rank > 0) shape[axis] = c.sizes.number(1);
  else if (rank > 0) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return values_and_indices(c, *self, shape, c.sizes.contiguous(shape));
}

Status cumsum(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  DType dtype = c.dtype("dtype").value_or(summed(self->dtype));
  if (dtype == DType::boolean) return c.fail("does not give bools");
  return c.give_contiguous(dtype, self->shape, *self);
}

Status cumsum_written(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  if (self->dtype == DType::boolean) return c.fail("does not write bools");
  return c.give(*self);
}

Status logcumsumexp(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status cummax(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  return values_and_indices(c, *self, self->shape, c.sizes.contiguous(self->shape));
}

Status sort(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  return values_and_indices(c, *self, self->shape, c.sizes.preserved(*self));
}

Status argsort(InferCall& c) {
  SG_TRY(sort(c));
  c.results.erase(c.results.begin());
  return ok_status();
}

Status topk(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Expr k, c.size("k"));
  Exprs shape = self->shape;
  if (!shape.empty()) {
    auto most = c.sizes.constant(shape[dim]), wanted = c.sizes.constant(k);
    if (most && wanted && *wanted > *most) return c.fail("k is larger than the dimension");
    shape[dim] = k;
  }
  return values_and_indices(c, *self, shape, c.sizes.contiguous(shape));
}

Status histc(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Expr bins, c.size("bins"));
  return c.give_contiguous(self->dtype, {bins}, *self);
}

}  // namespace sg::infer
