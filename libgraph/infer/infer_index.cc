// Indexing, gathering, concatenating and padding.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// The effect of tensor[indices] on dimensions: the indexed ones collapse into the indices' broadcast shape, placed
// where they were if they are adjacent, else first.
struct Indexing {
  Exprs shape;
  Type source;  // `self`, restrided to the result; stride 0 along the indices' dimensions
};

bool is_mask(const Type& t) { return t.dtype == DType::boolean || t.dtype == DType::u8; }

Result<Exprs> index_shape(InferCall& c, const std::vector<const Type*>& indices) {
  Exprs shape;
  for (const Type* index : indices) {
    if (index == nullptr) continue;
    if (is_mask(*index)) return c.fail("a mask has a data-dependent number of elements");
    if (index->dtype != DType::i64 && index->dtype != DType::i32)
      return c.fail("an index has to have i64 or i32 as element type");
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
  size_t position = runs == 1 ? first : 0;  // of the indices' dimensions
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
    if (other.size() != shape.size()) return c.fail("the tensors have different numbers of dimensions");
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

bool is_legacy_empty(const InferCall& c, const Type& t) { return t.shape.size() == 1 && c.sizes.is(t.shape[0], 0); }

// The tensors to concatenate, without PyTorch's legacy empty vectors, and their common element type; one of the vectors
// where there is nothing else.
Result<std::vector<const Type*>> to_join(InferCall& c, DType* dtype) {
  SG_ASSIGN(std::vector<const Type*> all, c.tensors("tensors"));
  std::vector<const Type*> tensors;
  const Type* skipped = nullptr;
  for (const Type* t : all) {
    if (t == nullptr) return c.fail("a tensor is missing");
    *dtype = promote(*dtype, t->dtype);
    if (is_legacy_empty(c, *t)) skipped = t;
    else tensors.push_back(t);
  }
  if (tensors.empty() && skipped != nullptr) tensors.push_back(skipped);
  if (tensors.empty()) return c.fail("needs at least one tensor");
  return tensors;
}

// A scalar counts as a vector of one.
Exprs at_least_vector(InferCall& c, const Type& t) { return t.shape.empty() ? Exprs{c.sizes.number(1)} : t.shape; }

// Each index addresses one element along `dim`. All tensors have equal ranks; the index must fit into the others,
// except along `dim` of `self`, where its values decide. `src`: the scattered tensor's name; empty for none. An empty
// index may have any rank.
Status expect_scatter(InferCall& c, const Type& self, int64_t dim, std::string_view src) {
  SG_ASSIGN(const Type* index, c.tensor("index"));
  Exprs into = at_least_vector(c, self), at = at_least_vector(c, *index);
  SG_ASSIGN(size_t axis, c.wrap_dim(dim, self.shape.size()));
  if (c.sizes.is(c.sizes.count(index->shape), 0)) return ok_status();
  if (at.size() != into.size()) return c.fail("'index' needs as many dimensions as 'self'");
  auto within = [&](const Exprs& sizes, bool along, std::string_view name) -> Status {
    for (size_t i = 0; i < at.size(); ++i)
      if (auto have = c.sizes.constant(at[i]), limit = c.sizes.constant(sizes[i]);
          (along || i != axis) && have && limit && *have > *limit)
        return c.fail("'index' is larger than '" + std::string(name) + "' along dimension " + std::to_string(i));
    return ok_status();
  };
  SG_TRY(within(into, false, "self"));
  if (src.empty()) return ok_status();
  SG_ASSIGN(const Type* source, c.tensor(src));
  Exprs from = at_least_vector(c, *source);
  if (from.size() != into.size()) return c.fail("'" + std::string(src) + "' needs as many dimensions as 'self'");
  return within(from, true, src);
}

Status scattered(InferCall& c, bool written) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  int64_t dim = 0;
  if (c.op.param_index("dim") >= 0) {
    SG_ASSIGN(dim, c.integer("dim"));
  }
  SG_TRY(expect_scatter(c, *self, dim, c.op.param_index("src") >= 0 ? "src" : ""));
  return written ? c.give(*self) : c.give_contiguous(self->dtype, self->shape, *self);
}

// A vector of indices along one dimension, and a source with as many slices as there are indices.
Status expect_slices(InferCall& c, const Type& self) {
  SG_ASSIGN(const Type* index, c.tensor("index"));
  SG_ASSIGN(size_t dim, c.dim("dim", self.shape.size()));
  if (index->shape.size() > 1) return c.fail("'index' has to be a vector");
  if (c.op.param_index("source") < 0) return ok_status();
  SG_ASSIGN(const Type* source, c.tensor("source"));
  Exprs wanted = at_least_vector(c, self), given = at_least_vector(c, *source);
  wanted[dim] = c.sizes.count(index->shape);
  bool fits = given.size() == wanted.size();
  for (size_t i = 0; fits && i < wanted.size(); ++i) fits = c.may_equal(given[i], wanted[i]);
  return fits ? ok_status() : Status(c.fail("'source' does not have the shape of what is indexed"));
}

// The values must broadcast to what the indices select; how much a mask selects depends on the data.
Status expect_put(InferCall& c, const Type& self) {
  SG_ASSIGN(std::vector<const Type*> indices, c.tensors("indices"));
  if (indices.size() > self.shape.size()) return c.fail("more indices than dimensions");
  for (const Type* index : indices)
    if (index != nullptr && is_mask(*index)) return ok_status();
  SG_ASSIGN(Indexing picked, indexing(c, self, std::move(indices)));
  return c.expect_broadcast("values", picked.shape);
}

}  // namespace

Status scatter(InferCall& c) { return scattered(c, false); }
Status scatter_written(InferCall& c) { return scattered(c, true); }

Status index_put(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_put(c, *self));
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

Status index_put_written(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_put(c, *self));
  return c.give(*self);
}

Status index_add(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_slices(c, *self));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status index_add_written(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_slices(c, *self));
  return c.give(*self);
}

Status index_fill(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_slices(c, *self));
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

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
  if (index->shape.size() > 1) return c.fail("'index' has to be a vector");
  Exprs shape = self->shape;
  if (!shape.empty()) shape[dim] = c.sizes.count(index->shape);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status gather(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* index, c.tensor("index"));
  SG_ASSIGN(int64_t dim, c.integer("dim"));
  SG_TRY(expect_scatter(c, *self, dim, ""));
  return c.give_contiguous(self->dtype, index->shape, *self);
}

Status take(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* index, c.tensor("index"));
  return c.give_contiguous(self->dtype, index->shape, *self);
}

Status embedding_renorm(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() != 2) return c.fail("the table is not a matrix");
  return c.give(*self);
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

Status repeat_interleave_int(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Expr repeats, c.size("repeats"));
  if (c.sizes.constant(repeats).value_or(0) < 0) return c.fail("nothing can be repeated a negative number of times");
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
  if (is_legacy_empty(c, *tensors[0])) return c.give_contiguous(dtype, tensors[0]->shape, *tensors[0]);  // any axis
  SG_ASSIGN(size_t dim, c.dim("dim", tensors[0]->shape.size()));
  SG_ASSIGN(Exprs shape, joined_shape(c, tensors, dim));
  bool last = std::all_of(tensors.begin(), tensors.end(), [&](const Type* t) { return is_channels_last(c.sizes, *t); });
  if (!last) return c.give_contiguous(dtype, std::move(shape), *tensors[0]);
  Exprs stride = c.sizes.channels_last(shape);
  return c.give(dtype, std::move(shape), std::move(stride), *tensors[0]);
}

Status stack(InferCall& c) {
  DType dtype = DType::none;
  SG_ASSIGN(std::vector<const Type*> tensors, c.tensors("tensors"));
  if (tensors.empty() || tensors[0] == nullptr) return c.fail("needs at least one tensor");
  for (const Type* t : tensors) {
    bool fits = t != nullptr && t->shape.size() == tensors[0]->shape.size();
    for (size_t d = 0; fits && d < t->shape.size(); ++d) fits = c.may_equal(t->shape[d], tensors[0]->shape[d]);
    if (!fits) return c.fail("the shapes differ");
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
  for (Expr times : shape)
    if (c.sizes.constant(times).value_or(0) < 0) return c.fail("nothing can be repeated a negative number of times");
  for (size_t i = 0; i < self->shape.size(); ++i)
    shape[added + i] = c.sizes.exprs().mul(shape[added + i], self->shape[i]);
  return c.give_contiguous(self->dtype, std::move(shape), *self);
}

Status flip(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(std::vector<int64_t> dims, c.integers("dims"));
  std::vector<bool> seen(std::max<size_t>(self->shape.size(), 1), false);
  for (int64_t number : dims) {
    SG_ASSIGN(size_t dim, c.wrap_dim(number, self->shape.size()));
    if (seen[dim]) return c.fail("a dimension is named twice");
    seen[dim] = true;
  }
  return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
}

// Either one shift of the flattened tensor, or one per dim; shifts of the same dim add up.
Status roll(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shifts, c.size_list("shifts"));
  SG_ASSIGN(std::vector<int64_t> dims, c.integers("dims"));
  for (int64_t dim : dims) SG_TRY(c.wrap_dim(dim, self->shape.size()));
  if (shifts.size() != dims.size() && !(dims.empty() && shifts.size() == 1))
    return c.fail("as many shifts as dims are needed");
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status tril_written(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() < 2) return c.fail("needs at least 2 dimensions");
  return c.give(*self);
}

Status tril(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() < 2) return c.fail("needs at least 2 dimensions");
  return c.give_contiguous(self->dtype, self->shape, *self);
}

constexpr int64_t kMostPadding = int64_t{1} << 48;  // so that sums cannot overflow

Status constant_pad(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs pad, c.size_list("pad"));
  if (pad.size() % 2 != 0 || pad.size() / 2 > self->shape.size())
    return c.fail("'pad' needs two numbers per padded dimension");
  Exprs shape = self->shape;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    Expr& size = shape[shape.size() - 1 - i];
    if (c.is_outside(pad[2 * i], -kMostPadding, kMostPadding) ||
        c.is_outside(pad[2 * i + 1], -kMostPadding, kMostPadding))
      return c.fail("'pad' is out of range");
    size = c.sizes.exprs().add(size, c.sizes.exprs().add(pad[2 * i], pad[2 * i + 1]));
  }
  // Without added elements this is a copy of the remaining part of `self`.
  bool copies = std::all_of(pad.begin(), pad.end(), [&](Expr e) { return c.sizes.constant(e).value_or(1) <= 0; });
  Type left = *self;
  left.shape = shape;
  Exprs stride = copies ? c.sizes.preserved(left) : in_format_of(c, *self, shape);
  return c.give(self->dtype, std::move(shape), std::move(stride), *self);
}

Status diff(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* before, c.optional_tensor("prepend"));
  SG_ASSIGN(const Type* after, c.optional_tensor("append"));
  SG_ASSIGN(Expr order, c.size("n"));
  if (self->shape.empty()) return c.fail("needs at least one dimension");
  SG_ASSIGN(size_t dim, c.dim("dim", self->shape.size()));
  if (c.sizes.constant(order).value_or(0) < 0) return c.fail("the order of a difference cannot be negative");
  Exprs shape = self->shape;
  for (const Type* extra : {before, after}) {
    if (extra == nullptr) continue;
    bool fits = extra->shape.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == dim || c.may_equal(extra->shape[d], shape[d]);
    if (!fits) return c.fail("what is joined differs in dimensions that are not joined");
    if (c.sizes.is(order, 0)) continue;  // PyTorch concatenates nothing in this case
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
  SG_ASSIGN(Expr parts, c.size("parts"));
  const int64_t part_count = c.sizes.constant(parts).value_or(1);
  if (part_count <= 0) return c.fail("'parts' has to be positive");
  Expr count = c.sizes.number(0);
  for (const Type* t : tensors) {
    if (t == nullptr) return c.fail("a tensor is missing");
    const int64_t rows = t->shape.empty() ? 1 : c.sizes.constant(t->shape[0]).value_or(0);
    if (rows % part_count != 0) return c.fail("a first size is not a multiple of 'parts'");
    count = c.sizes.exprs().add(count, c.sizes.count(t->shape));
  }
  return c.give_contiguous(c.dtype("dtype").value_or(tensors[0]->dtype), {count}, *tensors[0]);
}

}  // namespace sg::infer
