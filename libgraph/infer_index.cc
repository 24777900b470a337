// Indexing, gathering, joining and padding.
#include <algorithm>

#include "libgraph/infer_rules.h"

namespace sg::infer {
namespace {

// What tensor[indices] does to the dimensions: those that are indexed collapse into the indices' broadcast shape, which
// stands where they stood if they are neighbours, else in front.
struct Indexing {
  Exprs shape;
  Type source;   // `self` restrided to the result: 0 along the indices' dimensions
};

Result<Exprs> index_shape(InferCall& c, const std::vector<const Type*>& indices) {
  Exprs shape;
  for (const Type* index : indices) {
    if (index == nullptr) continue;
    if (index->dtype == DType::boolean || index->dtype == DType::u8) return c.fail("a mask has a data-dependent number of elements");
    auto both = c.sizes.broadcast(shape, index->shape);
    if (!both) return c.fail("the indices do not broadcast");
    shape = std::move(*both);
  }
  return shape;
}

Result<Indexing> indexing(InferCall& c, const Type& self, std::vector<const Type*> indices) {
  if (indices.size() > self.shape.size()) return c.fail("more indices than dimensions");
  indices.resize(self.shape.size(), nullptr);
  SG_ASSIGN(Exprs replaced, index_shape(c, indices));
  size_t runs = 0, first = indices.size();
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == nullptr) continue;
    first = std::min(first, i);
    runs += i == 0 || indices[i - 1] == nullptr;
  }
  size_t position = runs == 1 ? first : 0;   // of the indices' dimensions
  Indexing result;
  result.source = self;
  result.source.shape.clear(), result.source.stride.clear();
  auto put_indices = [&] {
    for (Expr size : replaced) result.source.shape.push_back(size), result.source.stride.push_back(c.sizes.number(0));
  };
  for (size_t i = 0; i <= indices.size(); ++i) {
    if (i == position) put_indices();
    if (i == indices.size() || indices[i] != nullptr) continue;
    result.source.shape.push_back(self.shape[i]), result.source.stride.push_back(self.stride[i]);
  }
  result.shape = result.source.shape;
  return result;
}

Result<Exprs> joined_shape(InferCall& c, const std::vector<const Type*>& tensors, size_t dim) {
  Exprs shape = tensors[0]->shape;
  for (size_t i = 1; i < tensors.size(); ++i) {
    const Exprs& other = tensors[i]->shape;
    if (other.size() != shape.size()) return c.fail("the ranks differ");
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == dim) {
        shape[d] = c.sizes.exprs().add(shape[d], other[d]);
        continue;
      }
      auto x = c.sizes.constant(shape[d]), y = c.sizes.constant(other[d]);
      if (x && y && *x != *y) return c.fail("the sizes of dimension " + std::to_string(d) + " differ");
      if (y) shape[d] = other[d];
    }
  }
  return shape;
}

// The tensors to join, None and PyTorch's legacy empty vectors left out, and their common element type.
Result<std::vector<const Type*>> to_join(InferCall& c, DType* dtype) {
  SG_ASSIGN(std::vector<const Type*> all, c.tensors("tensors"));
  std::vector<const Type*> tensors;
  const Type* skipped = nullptr;
  for (const Type* t : all) {
    if (t == nullptr) return c.fail("a tensor is missing");
    *dtype = promote(*dtype, t->dtype);
    bool legacy = t->shape.size() == 1 && c.sizes.is(t->shape[0], 0);
    if (legacy) skipped = t;
    else tensors.push_back(t);
  }
  if (tensors.empty() && skipped != nullptr) tensors.push_back(skipped);
  if (tensors.empty()) return c.fail("needs at least one tensor");
  return tensors;
}

}  // namespace

Status index(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::vector<const Type*> indices, c.tensors("indices"));
  SG_ASSIGN(Indexing result, indexing(c, *self, std::move(indices)));
  Exprs stride = c.sizes.elementwise(result.shape, {&result.source});
  return c.give(self->dtype, std::move(result.shape), std::move(stride), *self);
}

Status index_select(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* index, c.tensor("index"));
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  Exprs shape = self->shape;
  if (!shape.empty()) shape[dim] = c.sizes.count(index->shape);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status gather(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* index, c.tensor("index"));
  SG_TRY(c.dim("dim", self->shape.size()));
  if (!self->shape.empty() && !index->shape.empty() && index->shape.size() != self->shape.size())
    return c.fail("'index' needs as many dimensions as 'self'");
  return c.give_contiguous(self->dtype, index->shape, *self);
}

Status take(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* index, c.tensor("index"));
  return c.give_contiguous(self->dtype, index->shape, *self);
}

Status embedding(InferCall& c) {
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  SG_ASSIGN(const Type* indices, c.tensor("indices"));
  if (weight->shape.size() != 2) return c.fail("'weight' needs 2 dimensions");
  Exprs shape = indices->shape;
  shape.push_back(weight->shape[1]);
  return c.give_contiguous(weight->dtype, std::move(shape), *weight);
}

Status embedding_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(Expr rows, c.size("num_weights"));
  if (grad->shape.empty()) return c.fail("'grad_output' needs a dimension");
  SG_TRY(c.expect_shape("indices", Exprs(grad->shape.begin(), grad->shape.end() - 1)));
  return c.give_contiguous(grad->dtype, {rows, grad->shape.back()}, *grad);
}

Status repeat_interleave(InferCall& c) {
  SG_ASSIGN(const Type* repeats, c.tensor("repeats"));
  if (!c.given("output_size")) return c.fail("the number of elements depends on the data: output_size is needed");
  SG_ASSIGN(Expr size, c.size("output_size"));
  return c.give_contiguous(repeats->dtype, {size}, *repeats);
}

Status repeat_interleave_int(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Expr repeats, c.size("repeats"));
  if (!c.given("dim"))
    return c.give_contiguous(self->dtype, {c.sizes.exprs().mul(c.sizes.count(self->shape), repeats)}, *self);
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  Exprs shape = self->shape;
  if (shape.empty()) shape.push_back(c.sizes.number(1));
  shape[dim] = c.sizes.exprs().mul(shape[dim], repeats);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status cat(InferCall& c) {
  DType dtype = DType::none;
  SG_ASSIGN(std::vector<const Type*> tensors, to_join(c, &dtype));
  if (tensors[0]->shape.empty()) return c.fail("tensors without dimensions cannot be joined");
  SG_ASSIGN(size_t dim, c.dim("dim", tensors[0]->shape.size()));
  SG_ASSIGN(Exprs shape, joined_shape(c, tensors, dim));
  return c.give_contiguous(dtype, std::move(shape), *tensors[0]);
}

Status stack(InferCall& c) {
  DType dtype = DType::none;
  SG_ASSIGN(std::vector<const Type*> tensors, c.tensors("tensors"));
  if (tensors.empty() || tensors[0] == nullptr) return c.fail("needs at least one tensor");
  for (const Type* t : tensors) {
    if (t == nullptr || t->shape.size() != tensors[0]->shape.size()) return c.fail("the shapes differ");
    dtype = promote(dtype, t->dtype);
  }
  SG_ASSIGN(size_t dim, c.dim("dim", tensors[0]->shape.size() + 1));
  Exprs shape = tensors[0]->shape;
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim), c.sizes.number(static_cast<int64_t>(tensors.size())));
  return c.give_contiguous(dtype, std::move(shape), *tensors[0]);
}

Status repeat(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, c.size_list("repeats"));
  if (shape.size() < self->shape.size()) return c.fail("fewer repeats than dimensions");
  size_t added = shape.size() - self->shape.size();
  for (size_t i = 0; i < self->shape.size(); ++i)
    shape[added + i] = c.sizes.exprs().mul(shape[added + i], self->shape[i]);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status flip(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::vector<int64_t> dims, c.integers("dims"));
  for (int64_t dim : dims) SG_TRY(c.wrap_dim(dim, self->shape.size()));
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

Status tril(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() < 2) return c.fail("needs at least 2 dimensions");
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status constant_pad(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs pad, c.size_list("pad"));
  if (pad.size() % 2 != 0 || pad.size() / 2 > self->shape.size()) return c.fail("'pad' needs two numbers a padded dimension");
  Exprs shape = self->shape;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    Expr& size = shape[shape.size() - 1 - i];
    size = c.sizes.exprs().add(size, c.sizes.exprs().add(pad[2 * i], pad[2 * i + 1]));
  }
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status diff(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* before, c.optional_tensor("prepend"));
  SG_ASSIGN(const Type* after, c.optional_tensor("append"));
  SG_ASSIGN(Expr order, c.size("n"));
  if (self->shape.empty()) return c.fail("needs at least one dimension");
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  Exprs shape = self->shape;
  for (const Type* extra : {before, after}) {
    if (extra == nullptr) continue;
    if (extra->shape.size() != shape.size()) return c.fail("what is joined needs as many dimensions");
    shape[dim] = c.sizes.exprs().add(shape[dim], extra->shape[dim]);
  }
  shape[dim] = c.sizes.exprs().sub(shape[dim], order);
  if (c.sizes.constant(shape[dim]).value_or(0) < 0) shape[dim] = c.sizes.number(0);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status one_hot(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Expr classes, c.size("num_classes"));
  if (c.sizes.is(classes, -1)) return c.fail("the number of classes depends on the data: num_classes is needed");
  Exprs shape = self->shape;
  shape.push_back(classes);
  return c.give_contiguous(DType::i64, std::move(shape), *self);
}

Status pack(InferCall& c) {
  SG_ASSIGN(std::vector<const Type*> tensors, c.tensors("tensors"));
  if (tensors.empty()) return c.fail("needs at least one tensor");
  Expr count = c.sizes.number(0);
  for (const Type* t : tensors) {
    if (t == nullptr) return c.fail("a tensor is missing");
    count = c.sizes.exprs().add(count, c.sizes.count(t->shape));
  }
  return c.give_contiguous(c.dtype("dtype").value_or(tensors[0]->dtype), {count}, *tensors[0]);
}

}  // namespace sg::infer
