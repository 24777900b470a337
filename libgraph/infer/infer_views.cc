// Views: the same storage under another shape, stride, offset or element type; and the copies of such views.
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

Status give_view(InferCall& c, const Type& self, Exprs shape, Exprs stride) {
  Type t = self;
  t.shape = std::move(shape);
  t.stride = std::move(stride);
  return c.give(std::move(t));
}

// A shape with -1 for the one size that follows from the number of elements.
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

// `self` without the dimensions that are marked and of size 1.
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

Result<const Type*> ranked(InferCall& c, size_t at_least) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() < at_least) return c.fail("needs at least " + std::to_string(at_least) + " dimensions");
  return self;
}

// A bound of a slice as a distance from the beginning, within [0, size] where that is known.
Expr slice_bound(InferCall& c, Expr bound, Expr size) {
  auto value = c.sizes.constant(bound), limit = c.sizes.constant(size);
  if (value && *value < 0) {
    bound = c.sizes.exprs().add(bound, size);
    value = c.sizes.constant(bound);
    if (value && *value < 0) return c.sizes.number(0);
  }
  if (value && limit) return c.sizes.number(std::min(*value, *limit));
  if (value == INT64_MAX) return size;
  if (value && c.sizes.lower(size).value_or(0) >= *value) return bound;
  return value ? c.sizes.exprs().min(bound, size) : bound;
}

// Elements begin, begin + step, ... below end of one dimension.
Result<Type> sliced(InferCall& c, const Type& self, size_t dim, Expr begin, Expr end, Expr step) {
  ExprPool& e = c.sizes.exprs();
  if (c.sizes.constant(step).value_or(1) <= 0) return c.fail("the step of a slice has to be positive");
  Expr length = e.sub(end, begin);
  if (!c.sizes.is(step, 1)) length = e.floordiv(e.add(length, e.sub(step, c.sizes.number(1))), step);
  if (c.sizes.constant(length).value_or(0) < 0) length = c.sizes.number(0);
  Type t = self;
  t.offset = e.add(t.offset, e.mul(begin, t.stride[dim]));
  t.shape[dim] = length;
  t.stride[dim] = e.mul(t.stride[dim], step);
  return t;
}

// The slice of a tensor that the arguments ask for.
Result<Type> slice_of(InferCall& c, const Type& self) {
  if (self.shape.empty()) return c.fail("needs at least 1 dimensions");
  SG_ASSIGN(size_t dim, c.dim("dim", self.shape.size()));
  Expr size = self.shape[dim], begin = c.sizes.number(0), end = size, step = c.sizes.number(1);
  if (c.given("start")) {
    SG_ASSIGN(begin, c.size("start"));
  }
  if (c.given("end")) {
    SG_ASSIGN(end, c.size("end"));
  }
  if (c.given("step")) {
    SG_ASSIGN(step, c.size("step"));
  }
  return sliced(c, self, dim, slice_bound(c, begin, size), slice_bound(c, end, size), step);
}

// The part of a tensor at the index that the arguments ask for, without the dimension.
Result<Type> selected(InferCall& c, const Type& self) {
  if (self.shape.empty()) return c.fail("needs at least 1 dimensions");
  SG_ASSIGN(size_t dim, c.dim("dim", self.shape.size()));
  SG_ASSIGN(Expr index, c.size("index"));
  auto value = c.sizes.constant(index), size = c.sizes.constant(self.shape[dim]);
  if (value && size && *size >= 0 && (*value < -*size || *value >= *size))
    return c.fail("index " + std::to_string(*value) + " is out of range");
  if (value && *value < 0) index = c.sizes.exprs().add(index, self.shape[dim]);
  Type t = self;
  t.offset = c.sizes.exprs().add(t.offset, c.sizes.exprs().mul(index, t.stride[dim]));
  t.shape.erase(t.shape.begin() + static_cast<ptrdiff_t>(dim));
  t.stride.erase(t.stride.begin() + static_cast<ptrdiff_t>(dim));
  return t;
}

// A contiguous tensor of the recorded sizes, as the gradients of views are.
Result<Type> whole_gradient(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(Exprs shape, c.size_list("input_sizes"));
  for (Expr size : shape)
    if (c.sizes.constant(size).value_or(0) < 0) return c.fail("a negative size in a shape");
  Exprs stride = c.sizes.contiguous(shape);
  return c.make(grad->dtype, std::move(shape), std::move(stride), grad->device);
}

// A copy that lies as `self` does, gaps and offset included; dense where elements of `self` share a place.
Status give_clone(InferCall& c, const Type& self) {
  bool shares = false;
  for (size_t i = 0; i < self.shape.size(); ++i)
    shares = shares || (c.sizes.is(self.stride[i], 0) && !c.sizes.is(self.shape[i], 1));
  if (shares) return c.give(self.dtype, self.shape, c.sizes.preserved(self), self);
  return c.give(self);
}

// A copy of `self` in which `part` is replaced by `src`.
Status replaced(InferCall& c, const Type& self, const Type& part) {
  SG_TRY(c.expect_shape("src", part.shape));
  return c.give(self.dtype, self.shape, c.sizes.preserved(self), self);
}

// Consecutive parts of one dimension; as views, or as fresh tensors.
Status parts(InferCall& c, const Type& self, size_t dim, const Exprs& lengths, bool fresh = false) {
  Expr begin = c.sizes.number(0);
  ExprPool& e = c.sizes.exprs();
  for (Expr length : lengths) {
    if (c.sizes.constant(length).value_or(0) < 0) return c.fail("a part cannot have a negative length");
    Expr end = e.add(begin, length);
    SG_ASSIGN(Type part, sliced(c, self, dim, begin, end, c.sizes.number(1)));
    if (fresh) SG_TRY(c.give_contiguous(part.dtype, part.shape, self));
    else SG_TRY(c.give(std::move(part)));
    begin = end;
  }
  auto x = c.sizes.constant(begin), y = c.sizes.constant(self.shape[dim]);
  if (x && y && *x != *y)
    return c.fail("the parts hold " + std::to_string(*x) + " of " + std::to_string(*y) + " elements");
  return ok_status();
}

Status split_evenly(InferCall& c, const Type& self, size_t dim, Expr length) {
  ExprPool& e = c.sizes.exprs();
  auto size = c.sizes.constant(self.shape[dim]), step = c.sizes.constant(length);
  if (size && *size < 0) return c.fail("a negative size");
  if (step && *step < (size == 0 ? 0 : 1)) return c.fail("the length of a part has to be positive");
  uint64_t count = c.node.result_count;  // when the sizes are symbolic the node says how many
  if (size && step) count = *size == 0 ? 1 : static_cast<uint64_t>((*size - 1) / *step + 1);
  if (count == 0 || count > c.node.result_count) return c.fail("has " + std::to_string(count) + " parts");
  Exprs lengths(count, length);
  lengths.back() = e.sub(self.shape[dim], e.mul(c.sizes.number(static_cast<int64_t>(count) - 1), length));
  return parts(c, self, dim, lengths);
}

// The element type changes from `from` to `to` bytes an element.
Result<Type> retyped(InferCall& c, const Type& self, DType dtype, int from, int to) {
  ExprPool& e = c.sizes.exprs();
  Type t = self;
  t.dtype = dtype;
  if (from == to) return t;
  if (t.shape.empty()) return c.fail("a tensor without dimensions cannot change its element size");
  if (c.is_outside(t.stride.back(), 1, 1) && c.is_outside(t.shape.back(), 0, 1))
    return c.fail("the last stride has to be 1");
  if (from > to) {
    Expr ratio = c.sizes.number(from / to);
    for (Expr& stride : t.stride) stride = e.mul(stride, ratio);
    t.stride.back() = c.sizes.number(1);
    t.shape.back() = e.mul(t.shape.back(), ratio);
    t.offset = e.mul(t.offset, ratio);
    return t;
  }
  Expr ratio = c.sizes.number(to / from);
  auto divides = [&](Expr x) { return c.sizes.constant(x).value_or(0) % (to / from) == 0; };
  if (!divides(t.shape.back())) return c.fail("the last size is no multiple of the ratio of element sizes");
  if (!divides(t.offset) || !std::all_of(t.stride.begin(), t.stride.end() - 1, divides))
    return c.fail("an element of the view would begin within one of the tensor");
  for (Expr& stride : t.stride) stride = e.floordiv(stride, ratio);
  t.stride.back() = c.sizes.number(1);
  t.shape.back() = e.floordiv(t.shape.back(), ratio);
  t.offset = e.floordiv(t.offset, ratio);
  return t;
}

DType complex_of(DType t) { return t == DType::f64 ? DType::c128 : t == DType::f32 ? DType::c64 : DType::c32; }
DType part_of(DType t) { return t == DType::c128 ? DType::f64 : t == DType::c64 ? DType::f32 : DType::f16; }

// The real (0) or imaginary (1) numbers of a complex tensor.
Status component(InferCall& c, int64_t which) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!is_complex(self->dtype)) return which == 0 ? c.give(*self) : Status(c.fail("needs a complex tensor"));
  ExprPool& e = c.sizes.exprs();
  Type t = *self;
  t.dtype = part_of(self->dtype);
  for (Expr& stride : t.stride) stride = e.mul(stride, c.sizes.number(2));
  t.offset = e.add(e.mul(t.offset, c.sizes.number(2)), c.sizes.number(which));
  return c.give(std::move(t));
}

Status expanded(InferCall& c, const Type& self, const Exprs& wanted) {
  if (wanted.size() < self.shape.size()) return c.fail("fewer sizes than the tensor has dimensions");
  size_t added = wanted.size() - self.shape.size();
  Exprs shape = wanted, stride(wanted.size(), c.sizes.number(0));
  for (size_t i = wanted.size(); i-- > 0;) {
    if (i < added) {
      if (self.shape.empty()) continue;  // a number is repeated along every axis, those of size 1 too
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

// Gives fresh tensors the shapes that a view rule gave.
Status made_fresh(InferCall& c, Status (*view_rule)(InferCall&)) {
  SG_TRY(view_rule(c));
  for (Type& t : c.results) t = c.make(t.dtype, t.shape, c.sizes.contiguous(t.shape), t.device);
  return ok_status();
}

}  // namespace

Status view(InferCall& c) { return reshaped(c, "size", false); }
Status unsafe_view(InferCall& c) { return reshaped(c, "size", false); }
Status reshape(InferCall& c) { return reshaped(c, "shape", true); }
Status view_copy(InferCall& c) {
  return made_fresh(c, [](InferCall& call) { return reshaped(call, "size", true); });
}
Status expand_copy(InferCall& c) { return made_fresh(c, expand); }
Status permute_copy(InferCall& c) { return made_fresh(c, permute); }
Status slice_copy(InferCall& c) { return made_fresh(c, slice); }

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

Status select(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type t, selected(c, *self));
  return c.give(std::move(t));
}

Status slice(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type t, slice_of(c, *self));
  return c.give(std::move(t));
}

Status narrow(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Expr start, c.size("start"));
  SG_ASSIGN(Expr length, c.size("length"));
  Expr begin = slice_bound(c, start, self->shape[dim]), end = c.sizes.exprs().add(begin, length);
  auto last = c.sizes.constant(end), size = c.sizes.constant(self->shape[dim]);
  if (c.sizes.constant(length).value_or(0) < 0) return c.fail("a part cannot have a negative length");
  if (last && size && *last > *size) return c.fail("the part ends beyond the dimension");
  SG_ASSIGN(Type t, sliced(c, *self, dim, begin, end, c.sizes.number(1)));
  return c.give(std::move(t));
}

Status diagonal(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 2));
  SG_ASSIGN(size_t first, c.dim("dim1", self->shape.size()));
  SG_ASSIGN(size_t second, c.dim("dim2", self->shape.size()));
  SG_ASSIGN(int64_t shift, c.integer("offset"));
  if (first == second) return c.fail("needs two different dimensions");
  if (shift < -INT32_MAX || shift > INT32_MAX) return c.fail("the offset is out of range");
  ExprPool& e = c.sizes.exprs();
  Expr rows = self->shape[first], columns = self->shape[second];
  (shift >= 0 ? columns : rows) = e.sub(shift >= 0 ? columns : rows, c.sizes.number(shift >= 0 ? shift : -shift));
  Expr length = e.min(rows, columns);
  if (c.sizes.constant(length).value_or(0) < 0) length = c.sizes.number(0);
  Type t = *self;
  if (!c.sizes.is(length, 0))
    t.offset = e.add(t.offset, shift >= 0 ? e.mul(c.sizes.number(shift), t.stride[second])
                                          : e.mul(c.sizes.number(-shift), t.stride[first]));
  Expr stride = e.add(t.stride[first], t.stride[second]);
  for (size_t dim : {std::max(first, second), std::min(first, second)}) {
    t.shape.erase(t.shape.begin() + static_cast<ptrdiff_t>(dim));
    t.stride.erase(t.stride.begin() + static_cast<ptrdiff_t>(dim));
  }
  t.shape.push_back(length);
  t.stride.push_back(stride);
  return c.give(std::move(t));
}

Status unfold(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(size_t dim, c.dim("dimension", self->shape.size()));
  SG_ASSIGN(Expr size, c.size("size"));
  SG_ASSIGN(Expr step, c.size("step"));
  if (c.sizes.constant(step).value_or(1) <= 0) return c.fail("the step has to be positive");
  if (self->shape.empty()) {  // one element: a window of it, or of nothing
    if (c.is_outside(size, 0, 1)) return c.fail("a window of a number has at most one element");
    Type t = *self;
    t.shape.push_back(size);
    t.stride.push_back(c.sizes.number(1));
    return c.give(std::move(t));
  }
  if (auto window = c.sizes.constant(size), whole = c.sizes.constant(self->shape[dim]);
      window && (*window < 0 || (whole && *window > *whole)))
    return c.fail("a window of " + std::to_string(*window) + " is not within the dimension");
  ExprPool& e = c.sizes.exprs();
  Type t = *self;
  t.shape[dim] = e.add(e.floordiv(e.sub(t.shape[dim], size), step), c.sizes.number(1));
  t.shape.push_back(size);
  t.stride.push_back(self->stride[dim]);
  t.stride[dim] = e.mul(self->stride[dim], step);
  return c.give(std::move(t));
}

Status unbind(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  int64_t count = c.sizes.constant(self->shape[dim]).value_or(c.node.result_count);
  if (count != c.node.result_count) return c.fail("has " + std::to_string(count) + " parts");
  Type t = *self;
  t.shape.erase(t.shape.begin() + static_cast<ptrdiff_t>(dim));
  t.stride.erase(t.stride.begin() + static_cast<ptrdiff_t>(dim));
  for (int64_t i = 0; i < count; ++i) {
    SG_TRY(c.give(t));
    t.offset = c.sizes.exprs().add(t.offset, self->stride[dim]);
  }
  return ok_status();
}

Status split(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Expr length, c.size("split_size"));
  return split_evenly(c, *self, dim, length);
}

Status split_with_sizes(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Exprs lengths, c.size_list("split_sizes"));
  return parts(c, *self, dim, lengths);
}

Status split_with_sizes_copy(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(Exprs lengths, c.size_list("split_sizes"));
  return parts(c, *self, dim, lengths, true);
}

Status chunk(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  SG_ASSIGN(int64_t count, c.integer("chunks"));
  if (count <= 0) return c.fail("needs a positive number of chunks");
  ExprPool& e = c.sizes.exprs();
  if (c.sizes.is(self->shape[dim], 0))
    return parts(c, *self, dim,
                 Exprs(static_cast<size_t>(std::min<int64_t>(count, c.node.result_count)), c.sizes.number(0)));
  Expr length = e.floordiv(e.add(self->shape[dim], c.sizes.number(count - 1)), c.sizes.number(count));
  return split_evenly(c, *self, dim, length);
}

Status view_dtype(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  DType dtype = c.dtype("dtype").value_or(DType::none);
  if (dtype_bytes(dtype) <= 0 || dtype_bytes(self->dtype) <= 0) return c.fail("needs an element type");
  SG_ASSIGN(Type t, retyped(c, *self, dtype, dtype_bytes(self->dtype), dtype_bytes(dtype)));
  return c.give(std::move(t));
}

Status view_as_complex(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  if (!is_floating(self->dtype) || !c.sizes.is(self->shape.back(), 2)) return c.fail("needs pairs of floating numbers");
  ExprPool& e = c.sizes.exprs();
  auto is_odd = [&](Expr x) { return c.sizes.constant(x).value_or(0) % 2 != 0; };
  if (c.is_outside(self->stride.back(), 1, 1)) return c.fail("the last stride has to be 1");
  if (is_odd(self->offset) || std::any_of(self->stride.begin(), self->stride.end() - 1, is_odd))
    return c.fail("a pair would begin within another");
  Type t = *self;
  t.dtype = complex_of(self->dtype);
  t.shape.pop_back();
  t.stride.pop_back();
  for (Expr& stride : t.stride) stride = e.floordiv(stride, c.sizes.number(2));
  t.offset = e.floordiv(t.offset, c.sizes.number(2));
  return c.give(std::move(t));
}

Status view_as_real(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!is_complex(self->dtype)) return c.fail("needs a complex tensor");
  ExprPool& e = c.sizes.exprs();
  Type t = *self;
  t.dtype = part_of(self->dtype);
  for (Expr& stride : t.stride) stride = e.mul(stride, c.sizes.number(2));
  t.offset = e.mul(t.offset, c.sizes.number(2));
  t.shape.push_back(c.sizes.number(2));
  t.stride.push_back(c.sizes.number(1));
  return c.give(std::move(t));
}

Status real(InferCall& c) { return component(c, 0); }
Status imag(InferCall& c) { return component(c, 1); }

Status slice_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type part, slice_of(c, *self));
  SG_TRY(c.expect_broadcast("src", part.shape));
  return give_clone(c, *self);
}

Status select_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type part, selected(c, *self));
  SG_TRY(c.expect_shape("src", part.shape));
  return give_clone(c, *self);
}

// Sizes, strides and offset speak of the memory of the result, which keeps the strides of `self`.
Status as_strided_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(as_strided(c));
  Type part = std::move(c.results.back());
  c.results.clear();
  return replaced(c, *self, part);
}

Status slice_backward(InferCall& c) {
  SG_ASSIGN(Type whole, whole_gradient(c));
  SG_ASSIGN(Type part, slice_of(c, whole));
  SG_TRY(c.expect_shape("grad_output", part.shape));
  return c.give(std::move(whole));
}

// Windows of `size` elements, `step` apart, lie along `dim`; what they hold is the last dimension of the gradient.
Status unfold_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_in"));
  SG_ASSIGN(Exprs shape, c.size_list("input_sizes"));
  SG_ASSIGN(size_t dim, c.dim("dim", shape.size()));
  SG_ASSIGN(int64_t size, c.integer("size"));
  SG_ASSIGN(int64_t step, c.integer("step"));
  if (shape.empty()) {  // a number is its only window
    if (size != 1) return c.fail("the windows do not fit");
    SG_TRY(c.expect_shape("grad_in", {c.sizes.number(1)}));
    return c.give_contiguous(grad->dtype, shape, *grad);
  }
  auto length = c.sizes.constant(shape[dim]);
  if (step < 1 || size < 1 || (length && size > *length)) return c.fail("the windows do not fit");
  Exprs windows = shape;
  if (length) windows[dim] = c.sizes.number((*length - size) / step + 1);
  else if (grad->shape.size() > dim) windows[dim] = grad->shape[dim];
  windows.push_back(c.sizes.number(size));
  SG_TRY(c.expect_shape("grad_in", windows));
  return c.give_contiguous(grad->dtype, shape, *grad);
}

Status select_backward(InferCall& c) {
  SG_ASSIGN(Type whole, whole_gradient(c));
  SG_ASSIGN(Type part, selected(c, whole));
  SG_TRY(c.expect_shape("grad_output", part.shape));
  return c.give(std::move(whole));
}

// Like split_with_sizes_copy, into tensors that are there.
Status split_with_sizes_copy_out(InferCall& c) {
  SG_TRY(split_with_sizes_copy(c));
  std::vector<Type> parts = std::move(c.results);
  c.results.clear();
  SG_ASSIGN(std::vector<const Type*> outs, c.tensors("out"));
  if (outs.size() != parts.size()) return c.fail("as many tensors as parts are needed in 'out'");
  for (size_t i = 0; i < outs.size(); ++i) {
    bool fits =
        outs[i] != nullptr && outs[i]->dtype == parts[i].dtype && outs[i]->shape.size() == parts[i].shape.size();
    for (size_t d = 0; fits && d < parts[i].shape.size(); ++d) fits = c.may_equal(outs[i]->shape[d], parts[i].shape[d]);
    if (!fits) return c.fail("tensor " + std::to_string(i) + " of 'out' does not have the type of its part");
  }
  return ok_status();
}

Status unpack(InferCall& c) {
  SG_ASSIGN(const Type* self, ranked(c, 1));
  const Arg* shapes = c.find("shapes");
  if (shapes == nullptr || !shapes->is(ArgKind::list) || self->shape.size() != 1)
    return c.fail("needs a flat tensor and a list of shapes");
  Type t = *self;
  ExprPool& e = c.sizes.exprs();
  for (const Arg& item : shapes->items()) {
    if (!item.is(ArgKind::list)) return c.fail("a shape is a list of sizes");
    t.shape.clear();
    for (const Arg& size : item.items()) {
      SG_ASSIGN(Expr value, c.as_size(size));
      t.shape.push_back(value);
    }
    t.stride = c.sizes.contiguous(t.shape);
    SG_TRY(c.give(t));
    t.offset = e.add(t.offset, c.sizes.count(t.shape));
  }
  auto end = c.sizes.constant(e.sub(t.offset, self->offset)), size = c.sizes.constant(self->shape[0]);
  if (end && size && *end > *size) return c.fail("the shapes have more elements than the flat tensor");
  return ok_status();
}

}  // namespace sg::infer
