// Softmax, normalisation and losses.
#include <algorithm>

#include "libgraph/infer/infer_layout.h"
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

// The element type in which statistics of low-precision data are kept. On CPUs it is f32 if a parameter or running
// statistic is f32, else the input's type.
Result<DType> statistics(InferCall& c, const Type& input) {
  if (input.dtype != DType::bf16 && input.dtype != DType::f16) return input.dtype;
  if (!c.pool.strings[input.device].starts_with("cpu")) return DType::f32;
  for (std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (c.op.param_index(name) < 0) continue;
    SG_ASSIGN(const Type* like, c.optional_tensor(name));
    if (like != nullptr && like->dtype == DType::f32) return DType::f32;
  }
  return input.dtype;
}

Status give_or_none(InferCall& c, bool wanted, DType dtype, const Exprs& shape, const Type& like) {
  return wanted ? c.give_contiguous(dtype, shape, like) : c.give_none();
}

// The gradient of a normalized input as traced: (rstd / N) * (grad - ...), element by element; for two-byte types
// computed on contiguous f32 copies.
Status give_gradient(InferCall& c, bool wanted, const Type& input) {
  if (!wanted) return c.give_none();
  if (dtype_bytes(input.dtype) == 2) return c.give_contiguous(input.dtype, input.shape, input);
  SG_ASSIGN(const Type* grad, c.tensor("grad_out"));
  SG_ASSIGN(const Type* rstd, c.tensor("rstd"));
  return c.give(input.dtype, input.shape, c.sizes.elementwise(input.shape, {rstd, grad, &input}), input);
}

// The leading dimensions of `input`, and 1 for each normalized one.
Result<Exprs> statistics_shape(InferCall& c, const Type& input) {
  SG_ASSIGN(Exprs normalized, c.size_list("normalized_shape"));
  if (normalized.empty()) return c.fail("needs a normalised dimension");
  if (normalized.size() > input.shape.size()) return c.fail("more normalised dimensions than there are");
  Exprs shape = input.shape;
  for (size_t i = shape.size() - normalized.size(); i < shape.size(); ++i) {
    auto x = c.sizes.constant(shape[i]), y = c.sizes.constant(normalized[i - (shape.size() - normalized.size())]);
    if (x && y && *x != *y) return c.fail("the normalised shape is not that of the input");
    shape[i] = c.sizes.number(1);
  }
  return shape;
}

// Weight and bias have the normalized shape.
Status expect_affine(InferCall& c) {
  SG_ASSIGN(Exprs normalized, c.size_list("normalized_shape"));
  SG_TRY(c.expect_shape("weight", normalized));
  return c.op.param_index("bias") < 0 ? ok_status() : c.expect_shape("bias", normalized);
}

// Checks the tensors that have one element per channel.
Status expect_channels(InferCall& c, Expr channels) {
  bool evaluates = false;  // then nothing saved is read
  if (c.op.param_index("train") >= 0) {
    SG_ASSIGN(bool train, c.boolean("train"));
    evaluates = !train;
  }
  for (std::string_view name : {"weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd"})
    if (c.op.param_index(name) >= 0 && !(evaluates && name.starts_with("save_")))
      SG_TRY(c.expect_shape(name, {channels}));
  return ok_status();
}

// Checks N, C, HxW and group against the input.
Status expect_groups(InferCall& c, const Type& input) {
  SG_ASSIGN(Expr batch, c.size("N"));
  SG_ASSIGN(Expr channels, c.size("C"));
  SG_ASSIGN(Expr area, c.size("HxW"));
  SG_ASSIGN(Expr groups, c.size("group"));
  for (Expr e : {batch, channels, area})
    if (c.sizes.constant(e).value_or(0) < 0) return c.fail("N, C and HxW cannot be negative");
  auto n = c.sizes.constant(batch), k = c.sizes.constant(channels), hw = c.sizes.constant(area),
       g = c.sizes.constant(groups);
  if (g && (*g <= 0 || (k && *k % *g != 0))) return c.fail("'group' does not divide the channels");
  std::optional<int64_t> have = 1;
  for (Expr e : input.shape) {
    auto size = c.sizes.constant(e);
    int64_t product;
    have = have && size && !__builtin_mul_overflow(*have, *size, &product) ? std::optional(product) : std::nullopt;
  }
  int64_t want;
  bool known =
      have && n && k && hw && !__builtin_mul_overflow(*n, *k, &want) && !__builtin_mul_overflow(want, *hw, &want);
  if (known && want != *have) return c.fail("N, C and HxW are not those of the input");
  return ok_status();
}

// One target per row; one weight per class.
Status expect_targets(InferCall& c, const Type& self) {
  if (self.shape.empty() || self.shape.size() > 2)
    return c.fail("needs a dimension of classes, and one of samples at most");
  size_t axis = self.shape.size() == 1 ? 0 : 1;
  Exprs rows = self.shape;
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(axis));
  SG_TRY(c.expect_shape("target", rows));
  return c.expect_shape("weight", {self.shape[axis]});
}

// A tensor of this shape; a vector of one element is accepted for a scalar.
Status expect_number_or(InferCall& c, std::string_view name, const Exprs& shape) {
  SG_ASSIGN(const Type* t, c.tensor(name));
  if (shape.empty() && t->shape.size() == 1 && c.sizes.is(t->shape[0], 1)) return ok_status();
  return c.expect_shape(name, shape);
}

Result<std::vector<int64_t>> mask_of(InferCall& c, size_t count) {
  SG_ASSIGN(std::vector<int64_t> mask, c.integers("output_mask"));
  if (mask.size() != count) return c.fail("needs " + std::to_string(count) + " outputs to choose from");
  return mask;
}

Result<const Type*> with_channels(InferCall& c, size_t at_least) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  if (input->shape.size() < at_least) return c.fail("needs a dimension of channels");
  return input;
}

Status reduced_loss(InferCall& c, const Type& like, const Exprs& unreduced) {
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  return c.give_contiguous(like.dtype, reduction == 0 ? unreduced : Exprs(), like);
}

}  // namespace

Status softmax(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  SG_ASSIGN(bool widen, c.boolean("half_to_float"));
  if (widen && dtype_bytes(self->dtype) != 2) return c.fail("'half_to_float' is for element types of two bytes");
  return c.give_contiguous(widen ? DType::f32 : self->dtype, self->shape, *self);
}

Status softmax_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  SG_TRY(c.expect_shape("output", grad->shape));
  SG_TRY(c.dim("dim", grad->shape.size()));
  DType dtype = c.dtype("input_dtype").value_or(grad->dtype);
  if (!is_floating(dtype)) return c.fail("needs a floating element type");
  if (!c.op.name.starts_with("aten._log_softmax")) return c.give_contiguous(dtype, grad->shape, *grad);
  SG_ASSIGN(const Type* output, c.tensor("output"));  // traced as grad - exp(output) * sum
  return c.give(dtype, grad->shape, c.sizes.elementwise(grad->shape, {grad, output}), *grad);
}

Status safe_softmax(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  DType dtype = c.dtype("dtype").value_or(self->dtype);
  if (!is_floating(dtype) || is_complex(self->dtype)) return c.fail("needs a floating element type");
  return c.give_contiguous(dtype, self->shape, *self);
}

Status native_layer_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(expect_affine(c));
  SG_ASSIGN(DType dtype, statistics(c, *input));
  SG_TRY(c.give_contiguous(input->dtype, input->shape, *input));
  SG_TRY(c.give_contiguous(dtype, shape, *input));
  return c.give_contiguous(dtype, shape, *input);
}

Status layer_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_TRY(statistics_shape(c, *input));
  SG_TRY(expect_affine(c));
  return c.give_contiguous(input->dtype, input->shape, *input);
}

Status native_layer_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs normalized, c.size_list("normalized_shape"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(expect_affine(c));
  SG_TRY(c.expect_shape("grad_out", input->shape));
  SG_TRY(c.expect_shape("mean", shape));
  SG_TRY(c.expect_shape("rstd", shape));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(const Type* bias, c.optional_tensor("bias"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  SG_TRY(give_gradient(c, mask[0] != 0, *input));
  SG_TRY(give_or_none(c, mask[1] != 0 && weight != nullptr, weight ? weight->dtype : input->dtype, normalized, *input));
  return give_or_none(c, mask[2] != 0 && bias != nullptr, bias ? bias->dtype : input->dtype, normalized, *input);
}

Status fused_rms_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(expect_affine(c));
  SG_TRY(c.give_contiguous(input->dtype, input->shape, *input));
  bool low = input->dtype == DType::bf16 || input->dtype == DType::f16;
  return c.give_contiguous(low ? DType::f32 : input->dtype, shape, *input);
}

Status fused_rms_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(expect_affine(c));
  SG_TRY(c.expect_shape("grad_out", input->shape));
  SG_TRY(c.expect_shape("rstd", shape));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 2));
  SG_TRY(give_gradient(c, mask[0] != 0, *input));
  const Type& like = weight != nullptr ? *weight : *input;
  return give_or_none(c, mask[1] != 0 && weight != nullptr, like.dtype, like.shape, like);
}

Status native_group_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(Expr batch, c.size("N"));
  SG_ASSIGN(Expr groups, c.size("group"));
  SG_TRY(expect_groups(c, *input));
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_ASSIGN(DType dtype, statistics(c, *input));
  SG_TRY(c.give(input->dtype, input->shape, in_format_of(c, *input, input->shape), *input));
  SG_TRY(c.give_contiguous(dtype, {batch, groups}, *input));
  return c.give_contiguous(dtype, {batch, groups}, *input);
}

Status native_group_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(Expr channels, c.size("C"));
  SG_ASSIGN(Expr batch, c.size("N"));
  SG_ASSIGN(Expr groups, c.size("group"));
  SG_TRY(expect_groups(c, *input));
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_TRY(c.expect_shape("grad_out", input->shape));
  SG_TRY(c.expect_shape("mean", {batch, groups}));
  SG_TRY(c.expect_shape("rstd", {batch, groups}));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  Exprs stride = in_format_of(c, *input, input->shape);
  SG_TRY(mask[0] != 0 ? c.give(input->dtype, input->shape, std::move(stride), *input) : c.give_none());
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  DType dtype = weight != nullptr ? weight->dtype : input->dtype;
  SG_TRY(give_or_none(c, mask[1] != 0, dtype, {channels}, *input));
  return give_or_none(c, mask[2] != 0, dtype, {channels}, *input);
}

Status batch_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_ASSIGN(bool training, c.boolean("training"));
  if (!training) return batch_norm_eval(c);
  SG_ASSIGN(DType dtype, statistics(c, *input));
  SG_TRY(c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input));
  SG_TRY(c.give_contiguous(dtype, {input->shape[1]}, *input));
  return c.give_contiguous(dtype, {input->shape[1]}, *input);
}

// Outside of training no statistics are computed: two empty tensors.
Status batch_norm_eval(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  if (!c.given("running_mean") || !c.given("running_var"))
    return c.fail("running statistics are needed outside of training");
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_TRY(c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input));
  SG_TRY(c.give_contiguous(input->dtype, {c.sizes.number(0)}, *input));
  return c.give_contiguous(input->dtype, {c.sizes.number(0)}, *input);
}

// Only the normalized output, without statistics.
Status batch_norm_output(InferCall& c) {
  SG_TRY(batch_norm(c));
  c.results.resize(1);
  return ok_status();
}

Status instance_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_ASSIGN(bool own, c.boolean("use_input_stats"));
  if (!own && (!c.given("running_mean") || !c.given("running_var"))) return c.fail("running statistics are needed");
  return c.give_contiguous(input->dtype, input->shape, *input);
}

Status group_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(Expr groups, c.size("num_groups"));
  auto parts = c.sizes.constant(groups), channels = c.sizes.constant(input->shape[1]);
  if (parts && (*parts <= 0 || (channels && (*channels == 0 || *channels % *parts != 0))))
    return c.fail("'num_groups' does not divide the channels");
  SG_TRY(expect_channels(c, input->shape[1]));
  return c.give(input->dtype, input->shape, in_format_of(c, *input, input->shape), *input);
}

Status batch_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_TRY(expect_channels(c, input->shape[1]));
  SG_TRY(c.expect_shape("grad_out", input->shape));
  SG_ASSIGN(const Type* grad, c.tensor("grad_out"));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(bool train, c.boolean("train"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  DType dtype = weight != nullptr ? weight->dtype : input->dtype;
  std::vector<const Type*> layout{grad};  // traced as (grad_out - ... input ...) * scale
  if (train) layout.push_back(input);
  Exprs stride = c.sizes.elementwise(input->shape, layout);
  SG_TRY(mask[0] != 0 ? c.give(input->dtype, input->shape, std::move(stride), *input) : c.give_none());
  SG_TRY(give_or_none(c, mask[1] != 0, dtype, {input->shape[1]}, *input));
  return give_or_none(c, mask[2] != 0, dtype, {input->shape[1]}, *input);
}

Status nll_loss(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  SG_TRY(expect_targets(c, *self));
  SG_TRY(reduced_loss(c, *self, target->shape));
  return c.give_contiguous(self->dtype, {}, *self);
}

Status nll_loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(expect_targets(c, *self));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  bool by_sample = reduction == 0 && self->shape.size() == 2;
  SG_TRY(expect_number_or(c, "grad_output", by_sample ? Exprs{self->shape[0]} : Exprs()));
  SG_TRY(expect_number_or(c, "total_weight", {}));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

// Log-softmax and nll_loss_forward in one: the log-probabilities (f32 for half-precision `self`) are never in memory.
Status folded_cross_entropy(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() != 2) return c.fail("needs rows of classes");
  SG_TRY(expect_targets(c, *self));
  Type logs = *self;
  if (logs.dtype != DType::f64) logs.dtype = DType::f32;
  SG_TRY(reduced_loss(c, logs, {self->shape[0]}));
  SG_TRY(c.give_contiguous(logs.dtype, {}, *self));
  return c.give_contiguous(DType::f64, {self->shape[0]}, *self);
}

Status folded_cross_entropy_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() != 2) return c.fail("needs rows of classes");
  SG_TRY(expect_targets(c, *self));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  SG_TRY(expect_number_or(c, "grad_output", reduction == 0 ? Exprs{self->shape[0]} : Exprs()));
  SG_TRY(expect_number_or(c, "total_weight", {}));
  SG_TRY(c.expect_shape("log_sum", {self->shape[0]}));
  return c.give_contiguous(c.dtype("dtype").value_or(self->dtype), self->shape, *self);
}

Status cross_entropy(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  if (self->shape.empty()) return c.fail("needs a dimension of classes");
  Exprs rows = self->shape;
  rows.erase(rows.size() == 1 ? rows.begin() : rows.begin() + 1);
  SG_TRY(c.expect_shape("target", is_floating(target->dtype) ? self->shape : rows));  // probabilities, or class indices
  SG_TRY(c.expect_shape("weight", {self->shape[self->shape.size() == 1 ? 0 : 1]}));
  Type loss = *self;
  if (is_floating(target->dtype)) {
    SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
    loss.dtype = promote(loss.dtype, target->dtype);
    if (weight != nullptr) loss.dtype = promote(loss.dtype, weight->dtype);
  }
  return reduced_loss(c, loss, rows);
}

// A zero-dimensional operand does not widen a float tensor.
static DType type_of_pairs(const Type& self, const Type& target) {
  const bool floats = is_floating(self.dtype) && is_floating(target.dtype);
  if (floats && self.shape.empty() != target.shape.empty()) return self.shape.empty() ? target.dtype : self.dtype;
  return promote(self.dtype, target.dtype);
}

static Status loss_of_pairs(InferCall& c, DType dtype) {
  if (!is_floating(dtype)) return c.fail("needs a floating element type");
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  auto shape = c.sizes.broadcast(self->shape, target->shape);
  if (!shape) return c.fail("the shapes do not broadcast");
  for (std::string_view name : {"weight", "pos_weight"})
    if (c.op.param_index(name) >= 0) SG_TRY(c.expect_broadcast(name, *shape));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  Type loss = *self;
  loss.dtype = dtype;
  if (reduction != 0) return reduced_loss(c, loss, *shape);
  return c.give(dtype, *shape, c.sizes.elementwise(*shape, {self, target}), *self);
}

Status elementwise_loss(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  return loss_of_pairs(c, type_of_pairs(*self, *target));
}

// Traced as (1 - target) * self ...: the target determines element type and memory order.
Status bce_with_logits(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  SG_TRY(loss_of_pairs(c, is_floating(target->dtype) ? target->dtype : self->dtype));
  Type& loss = c.results[0];
  if (!loss.shape.empty()) loss.stride = c.sizes.elementwise(loss.shape, {target, self});
  return ok_status();
}

Status mse_loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  auto shape = c.sizes.broadcast(self->shape, target->shape);
  if (!shape) return c.fail("the shapes do not broadcast");
  SG_TRY(c.expect_broadcast("grad_output", *shape));
  Exprs stride = c.sizes.elementwise(*shape, {self, target});
  const DType dtype = type_of_pairs(*self, *target);
  if (!is_floating(dtype)) return c.fail("needs a floating element type");
  return c.give(dtype, *shape, std::move(stride), *self);
}

}  // namespace sg::infer
