// Planes of channels: pooling, padding, resampling, windows as columns, grids. The spatial axes are the last one, two
// or three; how many they are stands in the op's name (avg_pool3d).
#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// 2 for "aten.max_pool2d_with_indices.default".
size_t axes_of(const InferCall& c) {
  for (size_t i = 1; i < c.op.name.size(); ++i)
    if (c.op.name[i] == 'd' && c.op.name[i - 1] >= '1' && c.op.name[i - 1] <= '3')
      return static_cast<size_t>(c.op.name[i - 1] - '0');
  return 2;
}

// Planes with their channels, batched or not.
Result<const Type*> planes(InferCall& c, std::string_view name) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  size_t rank = t->shape.size(), axes = axes_of(c);
  if (rank != axes + 1 && rank != axes + 2)
    return c.fail("needs " + std::to_string(axes + 1) + " or " + std::to_string(axes + 2) + " dimensions");
  return t;
}

// One number for every spatial axis, or one each.
Result<Exprs> each_axis(InferCall& c, std::string_view name, size_t axes) {
  SG_ASSIGN(Exprs list, c.size_list(name));
  if (list.size() == 1) list.assign(axes, list[0]);
  if (list.size() != axes) return c.fail("'" + std::string(name) + "' needs " + std::to_string(axes) + " numbers");
  return list;
}

bool below(const InferCall& c, Expr e, int64_t limit) {
  auto value = c.sizes.constant(e);
  return value && *value < limit;
}

constexpr int64_t kMostWindow = int64_t{1} << 30;  // of what a window's numbers may be: their products have room

struct Window {
  Exprs kernel, stride, padding, dilation;
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

// How many positions a window has along axis i of that size.
Expr window_count(InferCall& c, Expr size, const Window& w, size_t i, bool ceil_mode) {
  ExprPool& e = c.sizes.exprs();
  Expr one = c.sizes.number(1);
  Expr span = e.add(size, e.mul(c.sizes.number(2), w.padding[i]));
  span = e.sub(e.sub(span, e.mul(w.dilation[i], e.sub(w.kernel[i], one))), one);
  if (!ceil_mode) return e.add(e.floordiv(span, w.stride[i]), one);
  Expr count = e.add(e.floordiv(e.add(span, e.sub(w.stride[i], one)), w.stride[i]), one);
  Expr start = e.mul(e.sub(count, one), w.stride[i]);  // of the last window: it has to begin inside
  auto last = c.sizes.constant(start), limit = c.sizes.constant(e.add(size, w.padding[i]));
  return last && limit && *last >= *limit ? e.sub(count, one) : count;
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
    shape[first + i] = window_count(c, self.shape[first + i], w, i, ceil_mode);
    if (below(c, shape[first + i], 1)) return c.fail("the window is larger than the padded plane");
  }
  return shape;
}

// Ops on two axes keep the memory format of batched planes; others only where `any_rank` says so.
Exprs strides_for(InferCall& c, const Type& like, const Exprs& shape, bool any_rank) {
  size_t axes = axes_of(c);
  bool keeps = (axes == 2 || any_rank) && like.shape.size() == axes + 2;
  return keeps ? in_format_of(c, like, shape) : c.sizes.contiguous(shape);
}

enum class PadMode { reflect, replicate, circular };
constexpr int64_t kMostPlanePadding = int64_t{1} << 61;  // twice this and a size have no overflow

// `padding`: before and after each of the last axes, the last one first.
Result<Exprs> padded_shape(InferCall& c, const Type& self, const Exprs& padding, PadMode mode) {
  size_t rank = self.shape.size();
  bool reflects = mode == PadMode::reflect;
  ExprPool& e = c.sizes.exprs();
  Exprs shape = self.shape;
  for (size_t i = 0; 2 * i < padding.size(); ++i) {
    Expr& size = shape[rank - 1 - i];
    Expr before = padding[2 * i], after = padding[2 * i + 1];
    auto n = c.sizes.constant(size), a = c.sizes.constant(before), b = c.sizes.constant(after);
    if (n && *n < 1) return c.fail("an axis without elements cannot be padded from within");
    if (c.is_outside(before, -kMostPlanePadding, kMostPlanePadding) ||
        c.is_outside(after, -kMostPlanePadding, kMostPlanePadding))
      return c.fail("the padding is out of range");
    if (reflects && n && ((a && *a >= *n) || (b && *b >= *n)))
      return c.fail("the padding has to be less than the axis");
    if (mode == PadMode::circular && n && ((a && *a > *n) || (b && *b > *n)))
      return c.fail("the padding is more than the axis");
    size = e.add(size, e.add(before, after));
    if (below(c, size, 1)) return c.fail("the padding cuts off all of an axis");
  }
  return shape;
}

Result<Exprs> padded_shape(InferCall& c, const Type& self) {
  size_t axes = axes_of(c);
  SG_ASSIGN(Exprs padding, c.size_list("padding"));
  if (padding.size() != 2 * axes) return c.fail("'padding' needs " + std::to_string(2 * axes) + " numbers");
  bool reflects = c.op.name.find("reflection") != std::string_view::npos;
  return padded_shape(c, self, padding, reflects ? PadMode::reflect : PadMode::replicate);
}

// floor(size * scale), for a scale that is a number of the host.
Result<Expr> scaled(InferCall& c, Expr size, const Arg& scale) {
  auto known = c.sizes.constant(size);
  double factor = scale.is(ArgKind::floating)  ? scale.as_float()
                  : scale.is(ArgKind::integer) ? static_cast<double>(scale.as_int())
                                               : 0;
  if (!(factor > 0)) return c.fail("a scale has to be a positive number");
  if (known) {
    double scaled_size = static_cast<double>(*known) * factor;
    if (!(scaled_size < 9e15)) return c.fail("a size of the result is too large");
    return c.sizes.number(static_cast<int64_t>(scaled_size));
  }
  if (factor != std::floor(factor) || factor > 9e15) return c.fail("a symbolic size needs a whole scale");
  return c.sizes.exprs().mul(size, c.sizes.number(static_cast<int64_t>(factor)));
}

// The spatial sizes that an upsampling op gives: output_size, or the input's times the scales.
Result<Exprs> upsampled_sizes(InferCall& c, const Exprs& input_sizes) {
  size_t axes = axes_of(c);
  if (c.given("output_size")) return each_axis(c, "output_size", axes);
  const Arg* scales = c.find("scale_factors");
  if (scales == nullptr || !scales->is(ArgKind::list) || scales->items().size() != axes)
    return c.fail("needs an output size, or a scale for every axis");
  Exprs sizes;
  for (size_t i = 0; i < axes; ++i) {
    SG_ASSIGN(Expr size, scaled(c, input_sizes[input_sizes.size() - axes + i], scales->items()[i]));
    sizes.push_back(size);
  }
  return sizes;
}

Result<Exprs> upsampled_shape(InferCall& c, const Exprs& input) {
  if (input.size() != axes_of(c) + 2) return c.fail("needs " + std::to_string(axes_of(c) + 2) + " dimensions");
  SG_ASSIGN(Exprs sizes, upsampled_sizes(c, input));
  Exprs shape(input.begin(), input.begin() + 2);
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  for (size_t i = 2; i < shape.size(); ++i)
    if (below(c, shape[i], 1) || below(c, input[i], 1)) return c.fail("sizes have to be at least 1");
  return shape;
}

Result<Exprs> grid_shape(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* grid, c.tensor("grid"));
  size_t axes = axes_of(c);
  if (input->shape.size() != axes + 2 || grid->shape.size() != axes + 2)
    return c.fail("needs an input and a grid of " + std::to_string(axes + 2) + " dimensions");
  if (input->dtype != grid->dtype) return c.fail("input and grid are of different element types");
  for (size_t i = 2; i < axes + 2; ++i)
    if (below(c, input->shape[i], 1)) return c.fail("the planes have no elements");
  Exprs grid_want = grid->shape;
  grid_want[0] = input->shape[0];
  grid_want.back() = c.sizes.number(static_cast<int64_t>(axes));
  SG_TRY(c.expect_shape("grid", grid_want));
  SG_ASSIGN(int64_t mode, c.integer("interpolation_mode"));
  SG_ASSIGN(int64_t padding, c.integer("padding_mode"));
  if (mode < 0 || mode > 2 || padding < 0 || padding > 2) return c.fail("there is no such interpolation or padding");
  if (axes == 3 && mode == 2) return c.fail("cubic interpolation is for two axes");
  Exprs shape(input->shape.begin(), input->shape.begin() + 2);
  shape.insert(shape.end(), grid->shape.begin() + 1, grid->shape.end() - 1);
  return shape;
}

// What im2col makes of [channels, height, width]: [channels * window, positions].
struct Columns {
  Exprs shape;
  Exprs parts;  // channels, rows of the window, columns of it, rows of positions, columns of them
};

Result<Columns> columns_of(InferCall& c, Expr channels, Expr height, Expr width) {
  SG_ASSIGN(Window w, window(c, 2));
  ExprPool& e = c.sizes.exprs();
  Expr rows = window_count(c, height, w, 0, false), columns = window_count(c, width, w, 1, false);
  if (below(c, rows, 1) || below(c, columns, 1)) return c.fail("the window is larger than the padded plane");
  Exprs shape{e.mul(channels, e.mul(w.kernel[0], w.kernel[1])), e.mul(rows, columns)};
  return Columns{std::move(shape), {channels, w.kernel[0], w.kernel[1], rows, columns}};
}

}  // namespace

// --- pooling ---

Status max_pool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  Exprs stride = strides_for(c, *self, shape, axes_of(c) > 1);
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
  Exprs stride = strides_for(c, *self, shape, false);
  return c.give(self->dtype, shape, stride, *self);
}

Status pool_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, pooled_shape(c, *self));
  SG_TRY(c.expect_shape("grad_output", shape));
  bool maximum = c.op.param_index("indices") >= 0;
  if (maximum) SG_TRY(c.expect_shape("indices", shape));
  return c.give(self->dtype, self->shape, strides_for(c, *self, self->shape, maximum), *self);
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
  Exprs stride = strides_for(c, *self, shape, false);
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
  return c.give(self->dtype, self->shape, strides_for(c, *self, self->shape, false), *self);
}

Status max_unpool(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  size_t axes = axes_of(c);
  SG_ASSIGN(Exprs sizes, each_axis(c, "output_size", axes));
  SG_TRY(c.expect_shape("indices", self->shape));
  Exprs shape = self->shape;
  std::copy(sizes.begin(), sizes.end(), shape.end() - static_cast<std::ptrdiff_t>(axes));
  return c.give(self->dtype, shape, strides_for(c, *self, shape, false), *self);
}

// --- padding ---

Status plane_pad(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, padded_shape(c, *self));
  return c.give(self->dtype, shape, strides_for(c, *self, shape, false), *self);
}

// By a value, or from within the last one to three axes.
Status pad(InferCall& c) {
  std::string_view mode = c.text("mode");
  if (mode.empty() || mode == "constant") return constant_pad(c);
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(Exprs padding, c.size_list("pad"));
  size_t axes = padding.size() / 2, rank = self->shape.size();
  if (padding.size() % 2 != 0 || axes < 1 || axes > 3 || (rank != axes + 1 && rank != axes + 2))
    return c.fail("'pad' needs two numbers for each axis of a plane");
  if (c.given("value")) return c.fail("a value is for constant padding");
  PadMode how = mode == "reflect" ? PadMode::reflect : mode == "circular" ? PadMode::circular : PadMode::replicate;
  SG_ASSIGN(Exprs shape, padded_shape(c, *self, padding, how));
  bool keeps = axes == 2 && rank == 4 && how != PadMode::circular;
  Exprs stride = keeps ? in_format_of(c, *self, shape) : c.sizes.contiguous(shape);
  return c.give(self->dtype, shape, std::move(stride), *self);
}

Status plane_pad_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, padded_shape(c, *self));
  SG_TRY(c.expect_shape("grad_output", shape));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

// --- upsampling ---

Status upsample(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor(c.op.params[0].name));
  SG_ASSIGN(Exprs shape, upsampled_shape(c, self->shape));
  return c.give(self->dtype, shape, in_format_of(c, *self, shape), *self);
}

Status upsample_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(Exprs input, c.size_list("input_size"));
  SG_ASSIGN(Exprs shape, upsampled_shape(c, input));
  SG_TRY(c.expect_shape("grad_output", shape));
  if (c.op.name.find("bicubic") != std::string_view::npos) return c.give_contiguous(grad->dtype, input, *grad);
  return c.give(grad->dtype, input, in_format_of(c, *grad, input), *grad);
}

// --- grids ---

Status grid_sampler(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs shape, grid_shape(c));
  return c.give_contiguous(input->dtype, shape, *input);
}

Status grid_sampler_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* grid, c.tensor("grid"));
  SG_ASSIGN(Exprs shape, grid_shape(c));
  SG_TRY(c.expect_shape("grad_output", shape));
  SG_ASSIGN(std::vector<int64_t> mask, c.integers("output_mask"));
  if (mask.size() != 2) return c.fail("needs 2 outputs to choose from");
  SG_TRY(mask[0] ? c.give_contiguous(input->dtype, input->shape, *input) : c.give_none());
  return c.give_contiguous(grid->dtype, grid->shape, *grid);
}

// --- windows as columns ---

// PyTorch picks [batch, channels, window rows, rows, window columns, columns] and reshapes it: a view where it can be.
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

// --- channels and places ---

Status pixel_shuffle(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  bool up = c.op.param_index("upscale_factor") >= 0;
  SG_ASSIGN(int64_t factor, c.integer(up ? "upscale_factor" : "downscale_factor"));
  size_t rank = self->shape.size();
  if (rank < 3) return c.fail("needs at least 3 dimensions");
  if (factor < 1 || factor > (int64_t{1} << 30)) return c.fail("the factor has to be at least 1");
  ExprPool& e = c.sizes.exprs();
  Expr r = c.sizes.number(factor), area = c.sizes.number(factor * factor);
  auto divides = [&](Expr size, int64_t by) {
    auto n = c.sizes.constant(size);
    return !n || *n % by == 0;
  };
  Exprs shape = self->shape;
  Expr &channels = shape[rank - 3], &height = shape[rank - 2], &width = shape[rank - 1];
  if (up) {
    if (!divides(channels, factor * factor)) return c.fail("the factor's square does not divide the channels");
    channels = e.floordiv(channels, area), height = e.mul(height, r), width = e.mul(width, r);
  } else {
    if (!divides(height, factor) || !divides(width, factor)) return c.fail("the factor does not divide the plane");
    channels = e.mul(channels, area), height = e.floordiv(height, r), width = e.floordiv(width, r);
  }
  return c.give(self->dtype, shape, in_format_of(c, *self, shape), *self);
}

Status channel_shuffle(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(int64_t groups, c.integer("groups"));
  if (self->shape.size() < 3) return c.fail("needs at least 3 dimensions");
  auto channels = c.sizes.constant(self->shape[1]);
  if (groups < 1 || (channels && *channels % groups != 0)) return c.fail("'groups' does not divide the channels");
  return c.give(self->dtype, self->shape, in_format_of(c, *self, self->shape), *self);
}

}  // namespace sg::infer
