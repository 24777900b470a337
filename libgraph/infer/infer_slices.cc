// Views of a part: slices, splits, diagonals and windows; their copies and gradients, and tensors with a part replaced.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_rules.h"
#include "libgraph/infer/infer_view.h"

namespace sg::infer {
namespace {

// A slice bound as a distance from the start, clamped to [0, size] as far as that is known. What is negative counts
// from the end; where symbols decide that, and no range of theirs, it is as at capture.
Expr slice_bound(InferCall& c, Expr bound, Expr size) {
  const Expr zero = c.sizes.number(0);
  if (c.sizes.is_less(bound, zero)) {
    bound = c.sizes.exprs().add(bound, size);
    if (c.sizes.upper(bound).value_or(1) <= 0 || c.sizes.is_less(bound, zero)) return zero;
  }
  auto value = c.sizes.constant(bound), limit = c.sizes.constant(size);
  if (value && limit) return c.sizes.number(std::min(*value, *limit));
  if (value == INT64_MAX) return size;
  if (value && c.sizes.lower(size).value_or(0) >= *value) return bound;
  if (value) return c.sizes.exprs().min(bound, size);
  return c.sizes.is_less(size, bound) ? size : bound;
}

// The elements begin, begin + step, ... before `end` of one dimension.
Result<Type> sliced(InferCall& c, const Type& self, size_t dim, Expr begin, Expr end, Expr step) {
  ExprPool& e = c.sizes.exprs();
  if (c.sizes.constant(step).value_or(1) <= 0) return c.fail("the step of a slice has to be positive");
  Expr length = e.sub(end, begin);
  if (e.is_constant(length) && e.is_constant(step)) length = e.neg(e.floordiv(e.neg(length), step));  // cannot overflow
  else if (!c.sizes.is(step, 1)) length = e.floordiv(e.add(length, e.sub(step, c.sizes.number(1))), step);
  if (c.sizes.constant(length).value_or(0) < 0) length = c.sizes.number(0);
  Type t = self;
  t.offset = e.add(t.offset, e.mul(begin, t.stride[dim]));
  t.shape[dim] = length;
  t.stride[dim] = e.mul(t.stride[dim], step);
  return t;
}

// The slice that the arguments describe.
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
  begin = slice_bound(c, begin, size);
  end = slice_bound(c, end, size);
  SG_ASSIGN(Type part, sliced(c, self, dim, begin, c.sizes.is_less(end, begin) ? begin : end, step));
  part.shape[dim] = c.sizes.at_least_zero(part.shape[dim]);
  return part;
}

// The part at the given index, without the indexed dimension.
Result<Type> selected(InferCall& c, const Type& self) {
  if (self.shape.empty()) return c.fail("needs at least 1 dimensions");
  SG_ASSIGN(size_t dim, c.dim("dim", self.shape.size()));
  SG_ASSIGN(Expr index, c.size("index"));
  auto value = c.sizes.constant(index), size = c.sizes.constant(self.shape[dim]);
  if (value && size && *size >= 0 && (*value < -*size || *value >= *size))
    return c.fail("index " + std::to_string(*value) + " is out of range");
  if (c.sizes.is_less(index, c.sizes.number(0))) index = c.sizes.exprs().add(index, self.shape[dim]);
  Type t = self;
  t.offset = c.sizes.exprs().add(t.offset, c.sizes.exprs().mul(index, t.stride[dim]));
  t.shape.erase(t.shape.begin() + static_cast<ptrdiff_t>(dim));
  t.stride.erase(t.stride.begin() + static_cast<ptrdiff_t>(dim));
  return t;
}

// A contiguous tensor of the given sizes, like all gradients of views.
Result<Type> whole_gradient(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(Exprs shape, c.size_list("input_sizes"));
  for (Expr size : shape)
    if (c.sizes.constant(size).value_or(0) < 0) return c.fail("a negative size in a shape");
  Exprs stride = c.sizes.contiguous(shape);
  return c.make(grad->dtype, std::move(shape), std::move(stride), grad->device);
}

// A copy of `self` with `part` replaced by `src`.
Status replaced(InferCall& c, const Type& self, const Type& part) {
  SG_TRY(c.expect_shape("src", part.shape));
  return c.give(self.dtype, self.shape, c.sizes.preserved(self), self);
}

// Consecutive parts of one dimension, as views or as new tensors.
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
  uint64_t count = c.node.result_count;  // for symbolic sizes the node's result count decides
  if (size && step) count = *size == 0 ? 1 : static_cast<uint64_t>((*size - 1) / *step + 1);
  if (count == 0 || count > c.node.result_count)
    return c.fail("there are " + std::to_string(count) + " parts to be named");
  Exprs lengths(count, length);
  lengths.back() = e.sub(self.shape[dim], e.mul(c.sizes.number(static_cast<int64_t>(count) - 1), length));
  return parts(c, self, dim, lengths);
}

}  // namespace

Status select(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type t, selected(c, *self));
  return c.give(std::move(t));
}

Status slice_copy(InferCall& c) { return made_fresh(c, slice); }

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
  if (self->shape.empty()) {  // one element: the window contains it, or nothing
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
  if (count != c.node.result_count) return c.fail("there are " + std::to_string(count) + " parts to be named");
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

Status slice_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type part, slice_of(c, *self));
  SG_TRY(c.expect_broadcast("src", part.shape));
  return give_copy(c, *self);
}

Status select_scatter(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Type part, selected(c, *self));
  SG_TRY(c.expect_shape("src", part.shape));
  return give_copy(c, *self);
}

// Sizes, strides and offset refer to the memory of the result, which keeps the strides of `self`.
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

// Windows of `size` elements, `step` apart along `dim`; the gradient's last dimension is within the window. Its other
// dimensions may broadcast.
Status unfold_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_in"));
  SG_ASSIGN(Exprs shape, c.size_list("input_sizes"));
  SG_ASSIGN(size_t dim, c.dim("dim", shape.size()));
  SG_ASSIGN(int64_t size, c.integer("size"));
  SG_ASSIGN(int64_t step, c.integer("step"));
  if (shape.empty()) {  // a scalar is its only window
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
  for (size_t i = 0; i < std::min(shape.size(), grad->shape.size()); ++i)
    if (i != dim && c.sizes.constant(grad->shape[i]) == 1) windows[i] = grad->shape[i];
  SG_TRY(c.expect_shape("grad_in", windows));
  return c.give_contiguous(grad->dtype, shape, *grad);
}

Status select_backward(InferCall& c) {
  SG_ASSIGN(Type whole, whole_gradient(c));
  SG_ASSIGN(Type part, selected(c, whole));
  SG_TRY(c.expect_shape("grad_output", part.shape));
  return c.give(std::move(whole));
}

// Like split_with_sizes_copy, but into existing tensors.
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
