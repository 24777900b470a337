// Matrix products, convolutions and pooling.
#include <algorithm>

#include "libgraph/infer_rules.h"

namespace sg::infer {
namespace {

// Whether two sizes may be equal: only known and different ones may not.
bool fits(const InferCall& c, Expr a, Expr b) {
  auto x = c.sizes.constant(a), y = c.sizes.constant(b);
  return !x || !y || *x == *y;
}

Result<const Type*> matrix(InferCall& c, std::string_view name, size_t rank) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  if (t->shape.size() != rank) return c.fail("'" + std::string(name) + "' needs " + std::to_string(rank) + " dimensions");
  return t;
}

Status product(InferCall& c, std::string_view left, std::string_view right, size_t rank) {
  SG_ASSIGN(const Type* a, matrix(c, left, rank));
  SG_ASSIGN(const Type* b, matrix(c, right, rank));
  if (!fits(c, a->shape[rank - 1], b->shape[rank - 2])) return c.fail("the inner sizes differ");
  if (rank == 3 && !fits(c, a->shape[0], b->shape[0])) return c.fail("the batch sizes differ");
  if (a->dtype != b->dtype) return c.fail("the element types differ");
  Exprs shape = a->shape;
  shape[rank - 1] = b->shape[rank - 1];
  return c.give_contiguous(a->dtype, std::move(shape), *a);
}

// One number for every spatial dimension, or one each.
Result<Exprs> spatial(InferCall& c, std::string_view name, size_t rank) {
  SG_ASSIGN(Exprs list, c.size_list(name));
  if (list.size() == 1) list.assign(rank, list[0]);
  if (list.size() != rank) return c.fail("'" + std::string(name) + "' needs " + std::to_string(rank) + " numbers");
  return list;
}

struct Window {
  Expr kernel, stride, padding, dilation;
};

// How many positions a window has: (size + 2*padding - dilation*(kernel - 1) - 1) // stride + 1.
Expr window_count(InferCall& c, Expr size, const Window& w, bool ceil_mode) {
  ExprPool& e = c.sizes.exprs();
  Expr one = c.sizes.number(1);
  Expr span = e.add(size, e.mul(c.sizes.number(2), w.padding));
  span = e.sub(e.sub(span, e.mul(w.dilation, e.sub(w.kernel, one))), one);
  if (!ceil_mode) return e.add(e.floordiv(span, w.stride), one);
  Expr count = e.add(e.floordiv(e.add(span, e.sub(w.stride, one)), w.stride), one);
  auto last = c.sizes.constant(e.mul(e.sub(count, one), w.stride)), limit = c.sizes.constant(e.add(size, w.padding));
  return last && limit && *last >= *limit ? e.sub(count, one) : count;   // the last window has to begin inside
}

Exprs layout_like(InferCall& c, const Type& input, const Exprs& shape) {
  bool plain = c.sizes.is_contiguous(input) || !c.sizes.is_dense(input);
  return plain ? c.sizes.contiguous(shape) : c.sizes.in_order_of(input, shape);
}

// Whether PyTorch takes these strides for channels-last: channels lie closest, then the spatial axes from the last one on, then
// the batch. A dimension of size 1 fits anywhere; where only such ones would tell, the answer is no.
bool is_channels_last(InferCall& c, const Type& t) {
  size_t rank = t.shape.size();
  if (rank < 4 || c.sizes.is(t.stride[1], 0)) return false;
  std::vector<size_t> axes{1};
  for (size_t axis = rank - 1; axis > 1; --axis) axes.push_back(axis);
  axes.push_back(0);
  Expr least = c.sizes.number(0);
  for (size_t axis : axes) {
    if (c.sizes.is(t.shape[axis], 0) || (axis == 0 && c.sizes.same(least, t.stride[1]))) return false;
    if (!c.sizes.same(t.stride[axis], least) && c.sizes.compare(t.stride[axis], least) <= 0) return false;
    least = c.sizes.is(t.shape[axis], 1) ? t.stride[axis] : c.sizes.exprs().mul(t.stride[axis], t.shape[axis]);
  }
  return true;
}

// A convolution's results are channels-last when its input or its weight is, and contiguous otherwise.
Exprs convolution_strides(InferCall& c, const Type& input, const Type& weight, const Exprs& shape) {
  if (!is_channels_last(c, input) && !is_channels_last(c, weight)) return c.sizes.contiguous(shape);
  Exprs moved = shape;   // batch, spatial dimensions, channels
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  Exprs stride = c.sizes.contiguous(moved);
  std::rotate(stride.begin() + 1, stride.end() - 1, stride.end());
  return stride;
}

Result<Exprs> pooled_shape(InferCall& c, const Type& self) {
  if (self.shape.size() != 3 && self.shape.size() != 4) return c.fail("needs 3 or 4 dimensions");
  SG_ASSIGN(Exprs kernel, spatial(c, "kernel_size", 2));
  Exprs stride = kernel, dilation(2, c.sizes.number(1));
  SG_ASSIGN(Exprs given_stride, c.size_list("stride"));
  if (!given_stride.empty()) {
    SG_ASSIGN(stride, spatial(c, "stride", 2));
  }
  SG_ASSIGN(Exprs padding, spatial(c, "padding", 2));
  if (c.given("dilation")) {
    SG_ASSIGN(dilation, spatial(c, "dilation", 2));
  }
  SG_ASSIGN(bool ceil_mode, c.boolean("ceil_mode"));
  Exprs shape = self.shape;
  for (size_t i = 0; i < 2; ++i) {
    if (c.sizes.constant(stride[i]).value_or(1) <= 0) return c.fail("the stride has to be positive");
    Expr& size = shape[shape.size() - 2 + i];
    size = window_count(c, size, {kernel[i], stride[i], padding[i], dilation[i]}, ceil_mode);
  }
  return shape;
}

}  // namespace

Status mm(InferCall& c) { return product(c, "self", "mat2", 2); }
Status bmm(InferCall& c) { return product(c, "self", "mat2", 3); }

Status addmm(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(product(c, "mat1", "mat2", 2));
  if (!c.sizes.broadcast(self->shape, c.results[0].shape)) return c.fail("'self' does not broadcast to the product");
  return ok_status();
}

Status baddbmm(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(product(c, "batch1", "batch2", 3));
  if (!c.sizes.broadcast(self->shape, c.results[0].shape)) return c.fail("'self' does not broadcast to the product");
  return ok_status();
}

Status mv(InferCall& c) {
  SG_ASSIGN(const Type* self, matrix(c, "self", 2));
  SG_ASSIGN(const Type* vec, matrix(c, "vec", 1));
  if (!fits(c, self->shape[1], vec->shape[0])) return c.fail("the inner sizes differ");
  return c.give_contiguous(self->dtype, {self->shape[0]}, *self);
}

Status addmv(InferCall& c) {
  SG_ASSIGN(const Type* mat, matrix(c, "mat", 2));
  SG_ASSIGN(const Type* vec, matrix(c, "vec", 1));
  if (!fits(c, mat->shape[1], vec->shape[0])) return c.fail("the inner sizes differ");
  return c.give_contiguous(mat->dtype, {mat->shape[0]}, *mat);
}

Status dot(InferCall& c) {
  SG_ASSIGN(const Type* self, matrix(c, "self", 1));
  SG_ASSIGN(const Type* tensor, matrix(c, "tensor", 1));
  if (!fits(c, self->shape[0], tensor->shape[0])) return c.fail("the sizes differ");
  return c.give_contiguous(self->dtype, {}, *self);
}

Status matmul(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("self"));
  SG_ASSIGN(const Type* b, c.tensor("other"));
  if (a->shape.empty() || b->shape.empty()) return c.fail("needs at least one dimension on both sides");
  bool left_vector = a->shape.size() == 1, right_vector = b->shape.size() == 1;
  Expr inner = right_vector ? b->shape[0] : b->shape[b->shape.size() - 2];
  if (!fits(c, a->shape.back(), inner)) return c.fail("the inner sizes differ");
  Exprs left(a->shape.begin(), a->shape.end() - (left_vector ? 1 : 2));
  Exprs right(b->shape.begin(), b->shape.end() - (right_vector ? 1 : 2));
  auto shape = c.sizes.broadcast(left, right);
  if (!shape) return c.fail("the batch sizes do not broadcast");
  if (!left_vector) shape->push_back(a->shape[a->shape.size() - 2]);
  if (!right_vector) shape->push_back(b->shape.back());
  return c.give_contiguous(a->dtype, std::move(*shape), *a);
}

Status linear(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  if (input->shape.empty() || weight->shape.empty() || weight->shape.size() > 2) return c.fail("needs an input and a matrix");
  if (!fits(c, input->shape.back(), weight->shape.back())) return c.fail("the inner sizes differ");
  Exprs shape(input->shape.begin(), input->shape.end() - 1);
  if (weight->shape.size() == 2) shape.push_back(weight->shape[0]);
  return c.give_contiguous(input->dtype, std::move(shape), *input);
}

Status grouped_mm(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("self"));
  SG_ASSIGN(const Type* b, c.tensor("mat2"));
  SG_ASSIGN(const Type* offsets, c.optional_tensor("offs"));
  size_t left = a->shape.size(), right = b->shape.size();
  if (left < 2 || left > 3 || right < 2 || right > 3) return c.fail("needs 2 or 3 dimensions on both sides");
  if ((left == 2 || right == 2) && (offsets == nullptr || offsets->shape.size() != 1)) return c.fail("needs offsets of the groups");
  if (!fits(c, a->shape.back(), b->shape[right - 2])) return c.fail("the inner sizes differ");
  Exprs shape;
  if (left == 2 && right == 2) shape.push_back(offsets->shape[0]);
  if (left == 3 && right == 3) shape.push_back(a->shape[0]);
  shape.push_back(a->shape[left - 2]);
  shape.push_back(b->shape[right - 1]);
  DType dtype = c.dtype("out_dtype").value_or(a->dtype);
  // Rows of the result begin on multiples of 16 bytes, as the grouped kernels want them.
  Exprs padded = shape;
  int64_t unit = std::max(1, 16 / std::max(1, dtype_bytes(dtype)));
  if (auto width = c.sizes.constant(shape.back())) {
    if (*width > INT64_MAX - unit) return c.fail("a size is too large");
    padded.back() = c.sizes.number((*width + unit - 1) / unit * unit);
  }
  Exprs stride = c.sizes.contiguous(padded);
  return c.give(dtype, std::move(shape), std::move(stride), *a);
}

Status convolution(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  size_t rank = input->shape.size();
  if (rank < 3 || rank > 5 || weight->shape.size() != rank) return c.fail("needs 3 to 5 dimensions, equally many on both sides");
  SG_ASSIGN(Exprs stride, spatial(c, "stride", rank - 2));
  SG_ASSIGN(Exprs padding, spatial(c, "padding", rank - 2));
  SG_ASSIGN(Exprs dilation, spatial(c, "dilation", rank - 2));
  SG_ASSIGN(Exprs output_padding, spatial(c, "output_padding", rank - 2));
  SG_ASSIGN(bool transposed, c.boolean("transposed"));
  SG_ASSIGN(Expr groups, c.size("groups"));
  ExprPool& e = c.sizes.exprs();
  Exprs shape{input->shape[0], transposed ? e.mul(weight->shape[1], groups) : weight->shape[0]};
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (c.sizes.constant(stride[i]).value_or(1) <= 0) return c.fail("the stride has to be positive");
    Expr size = input->shape[i + 2], kernel = weight->shape[i + 2], one = c.sizes.number(1);
    Expr out = window_count(c, size, {kernel, stride[i], padding[i], dilation[i]}, false);
    if (transposed) {
      out = e.sub(e.mul(e.sub(size, one), stride[i]), e.mul(c.sizes.number(2), padding[i]));
      out = e.add(e.add(out, e.mul(dilation[i], e.sub(kernel, one))), e.add(output_padding[i], one));
    }
    shape.push_back(out);
  }
  Exprs strides = convolution_strides(c, *input, *weight, shape);
  return c.give(input->dtype, std::move(shape), std::move(strides), *input);
}

Status convolution_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  SG_ASSIGN(std::vector<int64_t> mask, c.integers("output_mask"));
  if (mask.size() != 3 || grad->shape.size() < 2) return c.fail("needs three outputs to choose from");
  if (input->shape.size() < 3 || weight->shape.size() != input->shape.size()) return c.fail("needs equally many dimensions on both sides");
  for (const Type* of : {input, weight}) {
    Exprs strides = convolution_strides(c, *input, *weight, of->shape);
    SG_TRY(mask[of == weight] ? c.give(of->dtype, of->shape, std::move(strides), *of) : c.give_none());
  }
  return mask[2] ? c.give_contiguous(grad->dtype, {grad->shape[1]}, *grad) : c.give_none();
}

Status max_pool2d(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  Exprs stride = layout_like(c, *self, shape);
  SG_TRY(c.give(self->dtype, shape, stride, *self));
  return c.give(DType::i64, shape, stride, *self);
}

Status avg_pool2d(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  Exprs stride = layout_like(c, *self, shape);
  return c.give(self->dtype, shape, stride, *self);
}

Status pool_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  if (c.op.param_index("indices") >= 0) SG_TRY(c.expect_shape("indices", grad->shape));
  return c.give(self->dtype, self->shape, layout_like(c, *self, self->shape), *self);
}

}  // namespace sg::infer
