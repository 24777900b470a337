// Matrix products and convolutions.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_planes.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

bool fits(const InferCall& c, Expr a, Expr b) { return c.may_equal(a, b); }

Result<const Type*> matrix(InferCall& c, std::string_view name, size_t rank) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  if (t->shape.size() != rank)
    return c.fail("'" + std::string(name) + "' needs " + std::to_string(rank) + " dimensions");
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

// Rows as images of one row.
Type as_image(InferCall& c, const Type& rows) {
  Type t = rows;
  t.shape.insert(t.shape.begin() + 2, c.sizes.number(1));
  t.stride.insert(t.stride.begin() + 2, c.sizes.exprs().mul(rows.shape[2], rows.stride[2]));
  return t;
}

// A convolution's results are channels-last if its input or its weight is, else contiguous; those of rows, by the
// weight alone.
Exprs convolution_strides(InferCall& c, const Type& input, const Type& weight, const Exprs& shape) {
  if (shape.size() == 3) {
    if (!is_channels_last(c.sizes, as_image(c, weight))) return c.sizes.contiguous(shape);
    Exprs out = c.sizes.channels_last({shape[0], shape[1], c.sizes.number(1), shape[2]});
    out.erase(out.begin() + 2);
    return out;
  }
  bool last = is_channels_last(c.sizes, input) || is_channels_last(c.sizes, weight);
  return last ? c.sizes.channels_last(shape) : c.sizes.contiguous(shape);
}

constexpr int64_t kMostSpatial = int64_t{1} << 40;  // limit for a window's numbers, so that products cannot overflow

// One number per spatial dimension, or one for all, each within [least, kMostSpatial].
Result<Exprs> window_numbers(InferCall& c, std::string_view name, size_t rank, int64_t least) {
  SG_ASSIGN(Exprs list, each_axis(c, name, rank));
  for (Expr e : list)
    if (c.is_outside(e, least, kMostSpatial))
      return c.fail("'" + std::string(name) + "' has to be " + (least > 0 ? "positive" : "at least 0") +
                    " and no huge number");
  return list;
}

}  // namespace

Status mm(InferCall& c) { return product(c, "self", "mat2", 2); }
Status bmm(InferCall& c) { return product(c, "self", "mat2", 3); }

// Products of i8, accumulated in i32.
Status int_mm(InferCall& c) {
  SG_TRY(mm(c));
  if (c.results[0].dtype != DType::i8) return c.fail("'self' and 'mat2' have to be i8");
  c.results[0].dtype = DType::i32;
  return ok_status();
}

Status addmm(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(product(c, "mat1", "mat2", 2));
  if (self->shape.size() > 2) return c.fail("'self' has more dimensions than the product");
  return c.expect_broadcast("self", c.results[0].shape);
}

// The product is added to `self` in place.
Status addmm_written(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(product(c, "mat1", "mat2", 2));
  SG_TRY(c.expect_shape("self", c.results[0].shape));
  c.results.clear();
  return c.give(*self);
}

Status baddbmm(InferCall& c) {
  SG_TRY(product(c, "batch1", "batch2", 3));
  return c.expect_broadcast("self", c.results[0].shape);
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
  SG_TRY(c.expect_broadcast("self", {mat->shape[0]}));
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
  if (input->shape.empty() || weight->shape.empty() || weight->shape.size() > 2)
    return c.fail("needs an input and a matrix");
  if (!fits(c, input->shape.back(), weight->shape.back())) return c.fail("the inner sizes differ");
  Exprs shape(input->shape.begin(), input->shape.end() - 1);
  if (weight->shape.size() == 2) shape.push_back(weight->shape[0]);
  SG_TRY(c.expect_broadcast("bias", shape));
  return c.give_contiguous(input->dtype, std::move(shape), *input);
}

// Scales may be per tensor, per row or column, or per block of hardware-dependent size: the kernel checks them, as no
// type depends on them.
Status scaled_mm(InferCall& c) {
  SG_ASSIGN(const Type* a, matrix(c, "self", 2));
  SG_ASSIGN(const Type* b, matrix(c, "mat2", 2));
  if (!fits(c, a->shape[1], b->shape[0])) return c.fail("the inner sizes differ");
  SG_TRY(c.expect_broadcast("bias", {a->shape[0], b->shape[1]}));
  const DType dtype = c.dtype("out_dtype").value_or(a->dtype);
  if (!is_floating(dtype)) return c.fail("'out_dtype' has to be a floating element type");
  return c.give_contiguous(dtype, {a->shape[0], b->shape[1]}, *a);
}

Status grouped_mm(InferCall& c) {
  SG_ASSIGN(const Type* a, c.tensor("self"));
  SG_ASSIGN(const Type* b, c.tensor("mat2"));
  SG_ASSIGN(const Type* offsets, c.optional_tensor("offs"));
  size_t left = a->shape.size(), right = b->shape.size();
  if (left < 2 || left > 3 || right < 2 || right > 3) return c.fail("needs 2 or 3 dimensions on both sides");
  if ((left == 2 || right == 2) && (offsets == nullptr || offsets->shape.size() != 1))
    return c.fail("needs offsets of the groups");
  if (!fits(c, a->shape.back(), b->shape[right - 2])) return c.fail("the inner sizes differ");
  if (c.given("bias")) return c.fail("a bias is not part of this op's definition");
  if (left == 3 && right == 3 && !fits(c, a->shape[0], b->shape[0])) return c.fail("the numbers of groups differ");
  if (left != right && !fits(c, offsets->shape[0], (left == 3 ? a : b)->shape[0]))
    return c.fail("the number of offsets is not the number of groups");
  Exprs shape;
  if (left == 2 && right == 2) shape.push_back(offsets->shape[0]);
  if (left == 3 && right == 3) shape.push_back(a->shape[0]);
  shape.push_back(a->shape[left - 2]);
  shape.push_back(b->shape[right - 1]);
  DType dtype = c.dtype("out_dtype").value_or(a->dtype);
  if (!is_floating(dtype)) return c.fail("'out_dtype' has to be a floating element type");
  // Rows of the result start at multiples of 16 bytes, as the grouped kernels require.
  Exprs padded = shape;
  int64_t unit = std::max(1, 16 / std::max(1, dtype_bytes(dtype)));
  if (auto width = c.sizes.constant(shape.back())) {
    if (*width > INT64_MAX - unit) return c.fail("a size is too large");
    padded.back() = c.sizes.number((*width + unit - 1) / unit * unit);
  }
  Exprs stride = c.sizes.contiguous(padded);
  return c.give(dtype, std::move(shape), std::move(stride), *a);
}

namespace {

// The arguments per spatial dimension; conv2d and the like omit some that aten.convolution has.
struct Windows {
  Exprs stride, padding, dilation, output_padding;
  bool transposed = false;
  bool same = false;  // padded to keep the size; `padding` is unused then
};

Result<Windows> windows_of(InferCall& c, size_t axes) {
  Windows w;
  std::string_view name = c.op.name, word = c.text("padding");
  bool in_words = name.ends_with(".padding");
  if (in_words && c.given("padding") && word != "same" && word != "valid")
    return c.fail("'padding' has to be 'same' or 'valid'");
  w.same = in_words && word == "same";
  w.padding.assign(axes, c.sizes.number(0));
  if (!in_words) {
    SG_ASSIGN(w.padding, window_numbers(c, "padding", axes, 0));
  }
  SG_ASSIGN(w.stride, window_numbers(c, "stride", axes, 1));
  SG_ASSIGN(w.dilation, window_numbers(c, "dilation", axes, 1));
  w.output_padding.assign(axes, c.sizes.number(0));
  if (c.op.param_index("output_padding") >= 0) {
    SG_ASSIGN(w.output_padding, window_numbers(c, "output_padding", axes, 0));
  }
  w.transposed = name.find("conv_transpose") != std::string_view::npos;
  if (c.op.param_index("transposed") >= 0) {
    SG_ASSIGN(w.transposed, c.boolean("transposed"));
  }
  for (Expr step : w.stride)
    if (w.same && !c.sizes.is(step, 1)) return c.fail("'same' padding needs a stride of 1");
  return w;
}

// Checks the arguments of a convolution and computes its output shape.
Result<Exprs> convolved_shape(InferCall& c, const Type& input, const Type& weight) {
  size_t rank = input.shape.size();
  if (rank < 3 || rank > 5 || weight.shape.size() != rank)
    return c.fail("needs 3 to 5 dimensions, equally many on both sides");
  SG_ASSIGN(Windows windows, windows_of(c, rank - 2));
  const auto& [stride, padding, dilation, output_padding, transposed, same] = windows;
  SG_ASSIGN(Expr groups, c.size("groups"));
  ExprPool& e = c.sizes.exprs();
  Expr grouped = e.mul(weight.shape[1], groups), own = weight.shape[0];
  if (!fits(c, input.shape[1], transposed ? own : grouped)) return c.fail("the channels of input and weight differ");
  auto filters = c.sizes.constant(own), parts = c.sizes.constant(groups);
  if (filters && parts && *parts > 0 && *filters % *parts != 0) return c.fail("'groups' does not divide the filters");
  Exprs shape{input.shape[0], transposed ? grouped : own};
  for (size_t i = 0; i + 2 < rank; ++i) {
    Expr size = input.shape[i + 2], kernel = weight.shape[i + 2], one = c.sizes.number(1);
    if (c.sizes.constant(kernel).value_or(1) <= 0) return c.fail("the window has no elements");
    Expr out = window_count(c, size, {kernel, stride[i], padding[i], dilation[i]});
    if (transposed) {
      auto extra = c.sizes.constant(output_padding[i]), step = c.sizes.constant(stride[i]),
           apart = c.sizes.constant(dilation[i]);
      if (extra && step && apart && *extra >= std::max(*step, *apart))
        return c.fail("'output_padding' has to be smaller than the stride or the dilation");
      out = e.sub(e.mul(e.sub(size, one), stride[i]), e.mul(c.sizes.number(2), padding[i]));
      out = e.add(e.add(out, e.mul(dilation[i], e.sub(kernel, one))), e.add(output_padding[i], one));
    }
    shape.push_back(same ? size : out);
  }
  return shape;
}

// A single image, which conv2d and the like accept, as a batch of one.
Type as_batch(InferCall& c, const Type& image) {
  Type t = image;
  t.shape.insert(t.shape.begin(), c.sizes.number(1));
  t.stride.insert(t.stride.begin(), c.sizes.exprs().mul(image.shape[0], image.stride[0]));
  return t;
}

}  // namespace

Status convolution(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  bool single =
      c.op.param_index("transposed") < 0 && input->shape.size() >= 2 && input->shape.size() + 1 == weight->shape.size();
  Type batch = single ? as_batch(c, *input) : *input;
  SG_ASSIGN(Exprs shape, convolved_shape(c, batch, *weight));
  SG_TRY(c.expect_shape("bias", {shape[1]}));
  Exprs strides = convolution_strides(c, batch, *weight, shape);
  if (single) shape.erase(shape.begin()), strides.erase(strides.begin());
  return c.give(input->dtype, std::move(shape), std::move(strides), *input);
}

Status convolution_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.tensor("weight"));
  SG_ASSIGN(std::vector<int64_t> mask, c.integers("output_mask"));
  if (mask.size() != 3 || grad->shape.size() < 2) return c.fail("needs three outputs to choose from");
  SG_ASSIGN(Exprs shape, convolved_shape(c, *input, *weight));
  SG_TRY(c.expect_shape("grad_output", shape));
  size_t i = 0;
  for (const Type* of : {input, weight}) {
    Exprs strides = convolution_strides(c, *input, *weight, of->shape);
    SG_TRY(mask[i++] != 0 ? c.give(of->dtype, of->shape, std::move(strides), *of) : c.give_none());
  }
  return mask[2] ? c.give_contiguous(grad->dtype, {grad->shape[1]}, *grad) : c.give_none();
}

}  // namespace sg::infer
