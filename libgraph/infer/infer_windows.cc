// Windows over planes of channels: pooling and its inverse, windows as columns.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_planes.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

constexpr int64_t kMostWindow = int64_t{1} << 30;  // limit for a window's numbers, so that products cannot overflow

struct Window {
  Exprs kernel, stride, padding, dilation;
  AxisWindow at(size_t i) const { return {kernel[i], stride[i], padding[i], dilation[i]}; }
};

Result<Window> window(InferCall& c, size_t axes) {
  Window w;
  SG_ASSIGN(w.kernel, each_axis(c, "kernel_size", axes));
  w.stride = w.kernel;
  SG_ASSIGN(Exprs given_stride, c.size_list("stride"));
  if (!given_stride.empty()) {
    SG_ASSIGN(w.stride, each_axis(c, "stride", axes));
  }
  w.padding.assign(axes, c.sizes.number(0));
  bool pads = c.given("padding") || c.op.params[static_cast<size_t>(c.op.param_index("padding"))].default_text != "[0]";
  if (pads) {
    SG_ASSIGN(w.padding, each_axis(c, "padding", axes));
  }
  w.dilation.assign(axes, c.sizes.number(1));
  if (c.given("dilation")) {
    SG_ASSIGN(w.dilation, each_axis(c, "dilation", axes));
  }
  for (size_t i = 0; i < axes; ++i) {
    if (below(c, w.kernel[i], 1) || below(c, w.stride[i], 1) || below(c, w.dilation[i], 1) || below(c, w.padding[i], 0))
      return c.fail("a window needs sizes, strides and dilations of at least 1, and no negative padding");
    for (Expr e : {w.kernel[i], w.stride[i], w.dilation[i], w.padding[i]})
      if (c.is_outside(e, 0, kMostWindow)) return c.fail("a number of the window is too large");
  }
  return w;
}

Result<Exprs> pooled_shape(InferCall& c, const Type& self) {
  size_t axes = axes_of(c), first = self.shape.size() - axes;
  SG_ASSIGN(Window w, window(c, axes));
  for (size_t i = 0; i < axes; ++i) {
    auto pad = c.sizes.constant(w.padding[i]), kernel = c.sizes.constant(w.kernel[i]),
         dilation = c.sizes.constant(w.dilation[i]);
    if (pad && kernel && dilation && *pad > ((*kernel - 1) * *dilation + 1) / 2)
      return c.fail("the padding is more than half of the window");
  }
  bool ceil_mode = false;
  if (c.op.param_index("ceil_mode") >= 0) {
    SG_ASSIGN(ceil_mode, c.boolean("ceil_mode"));
  }
  Exprs shape = self.shape;
  for (size_t i = 0; i < axes; ++i) {
    const Expr size = self.shape[first + i];
    shape[first + i] = ceil_mode ? window_count_beyond(c, size, w.at(i)) : window_count(c, size, w.at(i));
    if (below(c, shape[first + i], 1)) return c.fail("the window is larger than the padded plane");
  }
  return shape;
}

// Batched planes keep their memory format, whatever their number of axes.
Exprs max_pool_strides(InferCall& c, const Type& like, const Exprs& shape) {
  return is_batched(c, like) ? in_format_of(c, like, shape) : c.sizes.contiguous(shape);
}

// The result of im2col on [channels, height, width]: [channels * window, positions].
struct Columns {
  Exprs shape;
  Exprs parts;  // channels, window rows, window columns, rows of positions, columns of positions
};

Result<Columns> columns_of(InferCall& c, Expr channels, Expr height, Expr width) {
  SG_ASSIGN(Window w, window(c, 2));
  ExprPool& e = c.sizes.exprs();
  Expr rows = window_count(c, height, w.at(0)), columns = window_count(c, width, w.at(1));
  if (below(c, rows, 1) || below(c, columns, 1)) return c.fail("the window is larger than the padded plane");
  Exprs shape{e.mul(channels, e.mul(w.kernel[0], w.kernel[1])), e.mul(rows, columns)};
  return Columns{std::move(shape), {channels, w.kernel[0], w.kernel[1], rows, columns}};
}

}  // namespace

// --- pooling ---

Status max_pool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  Exprs stride = max_pool_strides(c, *self, shape);
  SG_TRY(c.give(self->dtype, shape, stride, *self));
  return c.op.results.size() == 2 ? c.give(DType::i64, shape, stride, *self) : ok_status();
}

Status avg_pool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  if (c.given("divisor_override")) {
    SG_ASSIGN(int64_t divisor, c.integer("divisor_override"));
    if (divisor == 0) return c.fail("the divisor is zero");
  }
  Exprs stride = plane_strides(c, *self, shape);
  return c.give(self->dtype, shape, stride, *self);
}

Status pool_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  SG_TRY(c.expect_shape("grad_output", shape));
  bool maximum = c.op.param_index("indices") >= 0;
  if (maximum) SG_TRY(c.expect_shape("indices", shape));
  Exprs stride = maximum ? max_pool_strides(c, *self, self->shape) : plane_strides(c, *self, self->shape);
  return c.give(self->dtype, self->shape, std::move(stride), *self);
}

Status adaptive_pool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  size_t axes = axes_of(c);
  SG_ASSIGN(Exprs sizes, each_axis(c, "output_size", axes));
  Exprs shape = self->shape;
  for (size_t i = 0; i < axes; ++i) {
    Expr& size = shape[shape.size() - axes + i];
    if (below(c, size, 1)) return c.fail("the planes have no elements");
    size = sizes[i];
  }
  bool maximum = c.op.results.size() == 2;
  Exprs stride = plane_strides(c, *self, shape);
  SG_TRY(c.give(self->dtype, shape, stride, *self));
  return maximum ? c.give(DType::i64, shape, stride, *self) : ok_status();
}

Status adaptive_pool_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(const Type* grad, planes(c, "grad_output"));
  size_t axes = axes_of(c);
  if (grad->shape.size() != self->shape.size()) return c.fail("the gradient has another number of dimensions");
  Exprs shape = grad->shape;
  std::copy_n(self->shape.begin(), self->shape.size() - axes, shape.begin());
  SG_TRY(c.expect_shape("grad_output", shape));
  bool maximum = c.op.param_index("indices") >= 0;
  if (maximum) SG_TRY(c.expect_shape("indices", shape));
  return c.give(self->dtype, self->shape, plane_strides(c, *self, self->shape), *self);
}

Status max_unpool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  size_t axes = axes_of(c);
  SG_ASSIGN(Exprs sizes, each_axis(c, "output_size", axes));
  SG_TRY(c.expect_shape("indices", self->shape));
  Exprs shape = self->shape;
  std::copy(sizes.begin(), sizes.end(), shape.end() - static_cast<std::ptrdiff_t>(axes));
  return c.give(self->dtype, shape, plane_strides(c, *self, shape), *self);
}

// --- windows as columns ---

// PyTorch selects [batch, channels, window rows, rows, window columns, columns] and reshapes it: a view if possible.
Status im2col(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  size_t rank = self->shape.size();
  SG_ASSIGN(Columns columns, columns_of(c, self->shape[rank - 3], self->shape[rank - 2], self->shape[rank - 1]));
  Expr batch = rank == 4 ? self->shape[0] : c.sizes.number(1);
  const Exprs& p = columns.parts;
  Type picked = c.make(self->dtype, {batch, p[0], p[1], p[3], p[2], p[4]}, {}, self->device);
  picked.stride = c.sizes.contiguous(picked.shape);
  std::swap(picked.shape[3], picked.shape[4]), std::swap(picked.stride[3], picked.stride[4]);
  Exprs shape{batch, columns.shape[0], columns.shape[1]};
  Exprs stride = c.sizes.view_strides(picked, shape).value_or(c.sizes.contiguous(shape));
  if (rank == 3) shape.erase(shape.begin()), stride.erase(stride.begin());
  return c.give(self->dtype, shape, stride, *self);
}

Status col2im(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  size_t rank = self->shape.size();
  if (rank != 2 && rank != 3) return c.fail("needs 2 or 3 dimensions");
  SG_ASSIGN(Exprs sizes, each_axis(c, "output_size", 2));
  SG_ASSIGN(Exprs kernel, each_axis(c, "kernel_size", 2));
  ExprPool& e = c.sizes.exprs();
  Expr area = e.mul(kernel[0], kernel[1]);
  if (below(c, area, 1)) return c.fail("a window needs sizes of at least 1");
  Expr channels = e.floordiv(self->shape[rank - 2], area);
  SG_ASSIGN(Columns columns, columns_of(c, channels, sizes[0], sizes[1]));
  Exprs want(self->shape.begin(), self->shape.end() - 2);
  Exprs shape = want;
  want.insert(want.end(), columns.shape.begin(), columns.shape.end());
  SG_TRY(c.expect_shape("self", want));
  shape.insert(shape.end(), {channels, sizes[0], sizes[1]});
  return c.give_contiguous(self->dtype, shape, *self);
}

}  // namespace sg::infer
