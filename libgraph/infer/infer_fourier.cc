// Fourier transforms, with the strides of PyTorch's CPU library: first the untransformed axes in the order of the
// input's strides, then the transformed ones likewise (the halved one last).
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

Result<std::vector<size_t>> transformed(InferCall& c, const Type& self) {
  SG_ASSIGN(std::vector<int64_t> numbers, c.integers("dim"));
  std::vector<size_t> dims;
  for (int64_t number : numbers) {
    SG_ASSIGN(size_t dim, c.wrap_dim(number, self.shape.size()));
    if (self.shape.empty() || std::find(dims.begin(), dims.end(), dim) != dims.end())
      return c.fail("dimensions have to be different ones");
    dims.push_back(dim);
  }
  SG_ASSIGN(int64_t normalization, c.integer("normalization"));
  if (normalization < 0 || normalization > 2) return c.fail("there is no such normalization");
  return dims;
}

// `last`: how many transformed axes at the end keep their place, whatever their strides.
Exprs laid_out(InferCall& c, const Exprs& shape, const Exprs& input_stride, std::vector<size_t> dims,
               std::ptrdiff_t last) {
  for (Expr size : shape)
    if (c.sizes.is(size, 0)) return c.sizes.contiguous(shape);
  std::vector<size_t> order;
  for (size_t i = 0; i < shape.size(); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) order.push_back(i);
  // Insertion sort: with unknown sizes the comparison is no strict weak order, which std::sort needs.
  auto by_stride = [&](auto begin, auto end) {
    for (auto at = begin; at != end; ++at)
      for (auto it = at; it != begin && c.sizes.compare(input_stride[*it], input_stride[*(it - 1)]) > 0; --it)
        std::swap(*it, *(it - 1));
  };
  by_stride(order.begin(), order.end());
  by_stride(dims.begin(), dims.end() - last);
  order.insert(order.end(), dims.begin(), dims.end());
  Exprs sizes;
  for (size_t i : order) sizes.push_back(shape[i]);
  Exprs packed = c.sizes.contiguous(sizes), stride(shape.size());
  for (size_t k = 0; k < order.size(); ++k) stride[order[k]] = packed[k];
  return stride;
}

Expr half_of(InferCall& c, Expr size) {
  ExprPool& e = c.sizes.exprs();
  return e.add(e.floordiv(size, c.sizes.number(2)), c.sizes.number(1));
}

bool below(const InferCall& c, Expr e, int64_t limit) {
  auto value = c.sizes.constant(e);
  return value && *value < limit;
}

}  // namespace

Status fft_c2c(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (!is_complex(self->dtype)) return c.fail("needs a complex element type");
  SG_ASSIGN(std::vector<size_t> dims, transformed(c, *self));
  if (dims.empty()) return c.give(self->dtype, self->shape, c.sizes.preserved(*self), *self);
  return c.give(self->dtype, self->shape, laid_out(c, self->shape, self->stride, dims, 0), *self);
}

Status fft_r2c(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->dtype != DType::f32 && self->dtype != DType::f64) return c.fail("needs elements of f32 or f64");
  SG_ASSIGN(std::vector<size_t> dims, transformed(c, *self));
  SG_ASSIGN(bool onesided, c.boolean("onesided"));
  if (dims.empty()) return c.fail("needs a dimension to transform");
  Exprs shape = self->shape;
  if (below(c, shape[dims.back()], 1)) return c.fail("there is nothing to transform");
  if (onesided) shape[dims.back()] = half_of(c, shape[dims.back()]);
  Exprs stride = laid_out(c, shape, self->stride, dims, 1);
  return c.give(self->dtype == DType::f64 ? DType::c128 : DType::c64, shape, std::move(stride), *self);
}

Status fft_c2r(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->dtype != DType::c64 && self->dtype != DType::c128) return c.fail("needs elements of c64 or c128");
  SG_ASSIGN(std::vector<size_t> dims, transformed(c, *self));
  SG_ASSIGN(Expr last, c.size("last_dim_size"));
  if (dims.empty()) return c.fail("needs a dimension to transform");
  if (below(c, last, 1)) return c.fail("the last size has to be at least 1");
  auto have = c.sizes.constant(self->shape[dims.back()]), want = c.sizes.constant(half_of(c, last));
  if (have && want && *have != *want) return c.fail("the last dimension has to be half of its size and one");
  Exprs stride = self->stride;
  if (dims.size() > 1) stride = laid_out(c, self->shape, stride, std::vector<size_t>(dims.begin(), dims.end() - 1), 0);
  Exprs shape = self->shape;
  shape[dims.back()] = last;
  stride = laid_out(c, shape, stride, {dims.back()}, 1);
  return c.give(self->dtype == DType::c128 ? DType::f64 : DType::f32, shape, std::move(stride), *self);
}

}  // namespace sg::infer
