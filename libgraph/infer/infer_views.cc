// Views with another shape or order of the whole storage, and copies of such views.
#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/infer/infer_rules.h"
#include "libgraph/infer/infer_view.h"

namespace sg::infer {
namespace {

Status give_view(InferCall& c, const Type& self, Exprs shape, Exprs stride) {
  Type t = self;
  t.shape = std::move(shape);
  t.stride = std::move(stride);
  return c.give(std::move(t));
}

// A shape in which -1 stands for the one size that follows from the number of elements.
Result<Exprs> complete_shape(InferCall& c, const Type& self, Exprs shape) {
  ExprPool& e = c.sizes.exprs();
  Expr known = c.sizes.number(1);
  size_t open = shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!c.sizes.is(shape[i], -1)) {
      if (c.sizes.constant(shape[i]).value_or(0) < 0) return c.fail("a negative size in a shape");
      known = e.mul(known, shape[i]);
      continue;
    }
    if (open != shape.size()) return c.fail("only one size of a shape can be -1");
    open = i;
  }
  Expr count = c.sizes.count(self.shape);
  if (open != shape.size()) {
    if (c.sizes.is(known, 0)) return c.fail("-1 beside a size of 0 has no value");
    shape[open] = e.floordiv(count, known);
    known = e.mul(known, shape[open]);
  }
  auto x = c.sizes.constant(known), y = c.sizes.constant(count);
  if (e.is_invalid(known) || e.is_invalid(count)) return c.fail("a tensor with more than 2**63 elements");
  if (x && y && *x != *y) return c.fail("the shape has " + std::to_string(*x) + " elements, not " + std::to_string(*y));
  return shape;
}

Status reshaped(InferCall& c, std::string_view shape_name, bool may_copy) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs wanted, c.size_list(shape_name));
  SG_ASSIGN(Exprs shape, complete_shape(c, *self, std::move(wanted)));
  if (auto stride = c.sizes.view_strides(*self, shape))
    return give_view(c, *self, std::move(shape), std::move(*stride));
  if (!may_copy) return c.fail("the strides do not allow a view of that shape");
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status reordered(InferCall& c, const Type& self, const std::vector<size_t>& dims) {
  Type t = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    t.shape[i] = self.shape[dims[i]];
    t.stride[i] = self.stride[dims[i]];
  }
  return c.give(std::move(t));
}

std::vector<size_t> identity(size_t rank) {
  std::vector<size_t> dims(rank);
  for (size_t i = 0; i < rank; ++i) dims[i] = i;
  return dims;
}

// `self` without the marked dimensions of size 1.
Status without(InferCall& c, const Type& self, const std::vector<bool>& marked) {
  Exprs shape, stride;
  for (size_t i = 0; i < self.shape.size(); ++i) {
    if (marked[i] && c.sizes.is(self.shape[i], 1)) continue;
    shape.push_back(self.shape[i]);
    stride.push_back(self.stride[i]);
  }
  return give_view(c, self, std::move(shape), std::move(stride));
}

Result<std::vector<size_t>> dims_of(InferCall& c, std::string_view name, size_t rank) {
  SG_ASSIGN(std::vector<int64_t> numbers, c.integers(name));
  std::vector<size_t> dims;
  for (int64_t number : numbers) {
    SG_ASSIGN(size_t dim, c.wrap_dim(number, rank));
    if (std::find(dims.begin(), dims.end(), dim) != dims.end()) return c.fail("a dimension is named twice");
    dims.push_back(dim);
  }
  return dims;
}

Status expanded(InferCall& c, const Type& self, const Exprs& wanted) {
  if (wanted.size() < self.shape.size()) return c.fail("fewer sizes than the tensor has dimensions");
  size_t added = wanted.size() - self.shape.size();
  Exprs shape = wanted, stride(wanted.size(), c.sizes.number(0));
  for (size_t i = wanted.size(); i-- > 0;) {
    if (i < added) {
      if (self.shape.empty()) continue;  // a scalar repeats along every axis, including those of size 1
      if (c.sizes.is(shape[i], -1)) return c.fail("-1 for a dimension that the tensor does not have");
      if (!c.sizes.is(shape[i], 1)) continue;
      stride[i] = i + 1 == wanted.size() ? c.sizes.number(1) : c.sizes.exprs().mul(shape[i + 1], stride[i + 1]);
      continue;
    }
    Expr have = self.shape[i - added];
    if (c.sizes.is(shape[i], -1)) shape[i] = have;
    bool repeats = c.sizes.is(have, 1) && !c.sizes.is(shape[i], 1);
    auto x = c.sizes.constant(have), y = c.sizes.constant(shape[i]);
    if (!repeats && x && y && *x != *y)
      return c.fail("cannot expand " + std::to_string(*x) + " to " + std::to_string(*y));
    if (!repeats) stride[i] = self.stride[i - added];
  }
  return give_view(c, self, std::move(shape), std::move(stride));
}

}  // namespace

Result<const Type*> ranked(InferCall& c, size_t at_least) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() < at_least) return c.fail("needs at least " + plural(at_least, "dimension"));
  return self;
}

Status made_fresh(InferCall& c, Status (*view_rule)(InferCall&)) {
  SG_TRY(view_rule(c));
  for (Type& t : c.results) t = c.make(t.dtype, t.shape, c.sizes.contiguous(t.shape), t.device);
  return ok_status();
}

Status view(InferCall& c) { return reshaped(c, "size", false); }
Status unsafe_view(InferCall& c) { return reshaped(c, "size", false); }
Status reshape(InferCall& c) { return reshaped(c, "shape", true); }
Status view_copy(InferCall& c) {
  return made_fresh(c, [](InferCall& call) { return reshaped(call, "size", true); });
}
Status lift_fresh_copy(InferCall& c) { return made_fresh(c, same); }
Status expand_copy(InferCall& c) { return made_fresh(c, expand); }
Status permute_copy(InferCall& c) { return made_fresh(c, permute); }

Status flatten(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t first, c.dim("start_dim", self->shape.size()));
  SG_ASSIGN(size_t last, c.dim("end_dim", self->shape.size()));
  if (first > last) return c.fail("start_dim comes after end_dim");
  Exprs shape(self->shape.begin(), self->shape.begin() + static_cast<ptrdiff_t>(std::min(first, self->shape.size())));
  Expr merged = c.sizes.number(1);
  for (size_t i = first; i <= last && i < self->shape.size(); ++i) merged = c.sizes.exprs().mul(merged, self->shape[i]);
  shape.push_back(merged);
  for (size_t i = last + 1; i < self->shape.size(); ++i) shape.push_back(self->shape[i]);
  if (shape == self->shape) return c.give(*self);
  if (auto stride = c.sizes.view_strides(*self, shape))
    return give_view(c, *self, std::move(shape), std::move(*stride));
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status unflatten(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Exprs inner, c.size_list("sizes"));
  Exprs shape = self->shape;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim));
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim), inner.begin(), inner.end());
  SG_ASSIGN(shape, complete_shape(c, *self, std::move(shape)));
  auto stride = c.sizes.view_strides(*self, shape);
  if (!stride) return c.fail("the strides do not allow that view");
  return give_view(c, *self, std::move(shape), std::move(*stride));
}

Status as_strided(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, c.size_list("size"));
  SG_ASSIGN(Exprs stride, c.size_list("stride"));
  if (shape.size() != stride.size()) return c.fail("as many strides as sizes are needed");
  Type t = *self;
  t.shape = std::move(shape);
  t.stride = std::move(stride);
  if (c.given("storage_offset")) {
    SG_ASSIGN(t.offset, c.size("storage_offset"));
  }
  return c.give(std::move(t));
}

Status t(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() > 2) return c.fail("needs at most 2 dimensions");
  return reverse_dims(c);
}

Status reverse_dims(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  std::vector<size_t> dims = identity(self->shape.size());
  std::reverse(dims.begin(), dims.end());
  return reordered(c, *self, dims);
}

Status transpose(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t first, c.dim("dim0", self->shape.size()));
  SG_ASSIGN(size_t second, c.dim("dim1", self->shape.size()));
  std::vector<size_t> dims = identity(self->shape.size());
  if (!dims.empty()) std::swap(dims[first], dims[second]);
  return reordered(c, *self, dims);
}

Status permute(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::vector<size_t> dims, dims_of(c, "dims", self->shape.size()));
  if (dims.size() != self->shape.size()) return c.fail("as many dims as the tensor has are needed");
  return reordered(c, *self, dims);
}

Status movedim(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t from, c.dim("source", self->shape.size()));
  SG_ASSIGN(size_t into, c.dim("destination", self->shape.size()));
  std::vector<size_t> dims = identity(self->shape.size());
  if (!dims.empty()) {
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(from));
    dims.insert(dims.begin() + static_cast<ptrdiff_t>(into), from);
  }
  return reordered(c, *self, dims);
}

Status squeeze(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return without(c, *self, std::vector<bool>(self->shape.size(), true));
}

Status squeeze_dim(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  std::vector<bool> marked(self->shape.size(), false);
  if (dim < marked.size()) marked[dim] = true;
  return without(c, *self, marked);
}

Status squeeze_dims(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::vector<size_t> dims, dims_of(c, "dim", self->shape.size()));
  std::vector<bool> marked(self->shape.size(), false);
  for (size_t dim : dims)
    if (dim < marked.size()) marked[dim] = true;
  return without(c, *self, marked);
}

Status unsqueeze(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size() + 1));
  Type t = *self;
  Expr stride = c.sizes.number(1);
  if (dim < self->shape.size()) stride = c.sizes.exprs().mul(self->shape[dim], self->stride[dim]);
  t.shape.insert(t.shape.begin() + static_cast<ptrdiff_t>(dim), c.sizes.number(1));
  t.stride.insert(t.stride.begin() + static_cast<ptrdiff_t>(dim), stride);
  return c.give(std::move(t));
}

Status expand(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs wanted, c.size_list("size"));
  return expanded(c, *self, wanted);
}

Status expand_as(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* other, c.tensor("other"));
  return expanded(c, *self, other->shape);
}

}  // namespace sg::infer
