// Softmax, normalisation and losses.
#include <algorithm>

#include "libgraph/infer_rules.h"

namespace sg::infer {
namespace {

// The type in which statistics of low-precision data are kept. On CPU they are stored as the input is.
DType statistics(const InferCall& c, const Type& input) {
  bool low = input.dtype == DType::bf16 || input.dtype == DType::f16;
  return low && c.pool.strings[input.device].substr(0, 3) != "cpu" ? DType::f32 : input.dtype;
}

Status give_or_none(InferCall& c, bool wanted, DType dtype, const Exprs& shape, const Type& like) {
  return wanted ? c.give_contiguous(dtype, shape, like) : c.give_none();
}

// Leading dimensions of `input`, and 1 for each normalised one.
Result<Exprs> statistics_shape(InferCall& c, const Type& input) {
  SG_ASSIGN(Exprs normalized, c.size_list("normalized_shape"));
  if (normalized.size() > input.shape.size()) return c.fail("more normalised dimensions than there are");
  Exprs shape = input.shape;
  for (size_t i = shape.size() - normalized.size(); i < shape.size(); ++i) {
    auto x = c.sizes.constant(shape[i]), y = c.sizes.constant(normalized[i - (shape.size() - normalized.size())]);
    if (x && y && *x != *y) return c.fail("the normalised shape is not that of the input");
    shape[i] = c.sizes.number(1);
  }
  return shape;
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
  return c.give_contiguous(widen ? DType::f32 : self->dtype, self->shape, *self);
}

Status softmax_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad_output"));
  return c.give_contiguous(c.dtype("input_dtype").value_or(grad->dtype), grad->shape, *grad);
}

Status safe_softmax(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_TRY(c.dim("dim", self->shape.size()));
  return c.give_contiguous(c.dtype("dtype").value_or(self->dtype), self->shape, *self);
}

Status native_layer_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(c.give_contiguous(input->dtype, input->shape, *input));
  SG_TRY(c.give_contiguous(statistics(c, *input), shape, *input));
  return c.give_contiguous(statistics(c, *input), shape, *input);
}

Status layer_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_TRY(statistics_shape(c, *input));
  return c.give_contiguous(input->dtype, input->shape, *input);
}

Status native_layer_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs normalized, c.size_list("normalized_shape"));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(const Type* bias, c.optional_tensor("bias"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  SG_TRY(give_or_none(c, mask[0] != 0, input->dtype, input->shape, *input));
  SG_TRY(give_or_none(c, mask[1] != 0 && weight != nullptr, weight ? weight->dtype : input->dtype, normalized, *input));
  return give_or_none(c, mask[2] != 0 && bias != nullptr, bias ? bias->dtype : input->dtype, normalized, *input);
}

Status fused_rms_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs shape, statistics_shape(c, *input));
  SG_TRY(c.give_contiguous(input->dtype, input->shape, *input));
  return c.give_contiguous(statistics(c, *input), shape, *input);
}

Status fused_rms_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 2));
  SG_TRY(give_or_none(c, mask[0] != 0, input->dtype, input->shape, *input));
  const Type& like = weight != nullptr ? *weight : *input;
  return give_or_none(c, mask[1] != 0 && weight != nullptr, like.dtype, like.shape, like);
}

Status native_group_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(Expr batch, c.size("N"));
  SG_ASSIGN(Expr groups, c.size("group"));
  SG_TRY(c.give_contiguous(input->dtype, input->shape, *input));
  SG_TRY(c.give_contiguous(statistics(c, *input), {batch, groups}, *input));
  return c.give_contiguous(statistics(c, *input), {batch, groups}, *input);
}

Status native_group_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(Expr channels, c.size("C"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  SG_TRY(give_or_none(c, mask[0] != 0, input->dtype, input->shape, *input));
  SG_TRY(give_or_none(c, mask[1] != 0, input->dtype, {channels}, *input));
  return give_or_none(c, mask[2] != 0, input->dtype, {channels}, *input);
}

Status batch_norm(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(bool training, c.boolean("training"));
  if (!training) return batch_norm_eval(c);
  DType dtype = input->dtype == DType::bf16 || input->dtype == DType::f16 ? DType::f32 : input->dtype;
  SG_TRY(c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input));
  SG_TRY(c.give_contiguous(dtype, {input->shape[1]}, *input));
  return c.give_contiguous(dtype, {input->shape[1]}, *input);
}

// Outside training the statistics are not computed: two empty tensors.
Status batch_norm_eval(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_TRY(c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input));
  SG_TRY(c.give_contiguous(input->dtype, {c.sizes.number(0)}, *input));
  return c.give_contiguous(input->dtype, {c.sizes.number(0)}, *input);
}

Status batch_norm_backward(InferCall& c) {
  SG_ASSIGN(const Type* input, with_channels(c, 2));
  SG_ASSIGN(const Type* weight, c.optional_tensor("weight"));
  SG_ASSIGN(std::vector<int64_t> mask, mask_of(c, 3));
  DType dtype = weight != nullptr ? weight->dtype : input->dtype;
  SG_TRY(mask[0] != 0 ? c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input) : c.give_none());
  SG_TRY(give_or_none(c, mask[1] != 0, dtype, {input->shape[1]}, *input));
  return give_or_none(c, mask[2] != 0, dtype, {input->shape[1]}, *input);
}

Status nll_loss(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  SG_TRY(reduced_loss(c, *self, target->shape));
  return c.give_contiguous(self->dtype, {}, *self);
}

Status nll_loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status cross_entropy(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.empty()) return c.fail("needs a dimension of classes");
  Exprs rows = self->shape;
  rows.erase(rows.size() == 1 ? rows.begin() : rows.begin() + 1);
  return reduced_loss(c, *self, rows);
}

Status elementwise_loss(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  auto shape = c.sizes.broadcast(self->shape, target->shape);
  if (!shape) return c.fail("the shapes do not broadcast");
  return reduced_loss(c, *self, *shape);
}

Status loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  auto shape = c.sizes.broadcast(self->shape, target->shape);
  if (!shape) return c.fail("the shapes do not broadcast");
  Exprs stride = c.sizes.elementwise(*shape, {self, target});
  return c.give(promote(self->dtype, target->dtype), *shape, std::move(stride), *self);
}

}  // namespace sg::infer
