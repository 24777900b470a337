// Planes of channels: padding, resampling, grids, shuffling between channels and pixels. Windows: infer_windows.cc.
#include <cmath>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_planes.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

enum class PadMode { reflect, replicate, circular };
constexpr int64_t kMostPlanePadding = int64_t{1} << 61;  // twice this plus a size cannot overflow

// `padding`: before and after each of the last axes, starting with the last one.
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

// floor(size * scale), for a scale that is a number on the host.
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

// The output sizes of an upsampling op: output_size, or the input's sizes times the scales.
Result<Exprs> upsampled_sizes(InferCall& c, const Exprs& input_sizes) {
  size_t axes = axes_of(c);
  if (const Arg* given = c.find("output_size")) {
    if (given->is(ArgKind::list) && given->items().size() != axes) return c.fail("needs a size for every axis");
    return each_axis(c, "output_size", axes);
  }
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

}  // namespace

// --- padding ---

Status plane_pad(InferCall& c) {
  SG_ASSIGN(const Type* self, planes(c, "self"));
  SG_ASSIGN(Exprs shape, padded_shape(c, *self));
  return c.give(self->dtype, shape, plane_strides(c, *self, shape), *self);
}

// Constant padding, or padding of the last one to three axes from within.
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

// --- channels and pixels ---

Status pixel_shuffle(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  bool up = c.op.param_index("upscale_factor") >= 0;
  SG_ASSIGN(int64_t factor, c.integer(up ? "upscale_factor" : "downscale_factor"));
  size_t rank = self->shape.size();
  if (rank < 3) return c.fail("needs at least 3 dimensions");
  if (factor < 1) return c.fail("the factor has to be at least 1");
  if (factor > (int64_t{1} << 30)) return c.fail("the factor is too large");
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
