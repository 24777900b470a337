// Sequence losses (CTC) and margin losses between classes.
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

constexpr int64_t kLongest = int64_t{1} << 40;

// Scores [time, batch, classes], a sequence of labels per entry, and the lengths of both: lists of numbers, or tensors.
struct Sequences {
  const Type* scores = nullptr;
  Expr batch, time;
  std::vector<int64_t> lengths;  // of the labels, if given as a list
  bool known = false;
};

Result<std::vector<int64_t>> lengths_of(InferCall& c, std::string_view name, Expr batch) {
  SG_ASSIGN(std::vector<int64_t> lengths, c.integers(name));
  if (!c.may_equal(c.sizes.number(static_cast<int64_t>(lengths.size())), batch))
    return c.fail("'" + std::string(name) + "' has not one number an entry of the batch");
  for (int64_t n : lengths)
    if (n < 0 || n > kLongest) return c.fail("'" + std::string(name) + "' cannot be " + std::to_string(n));
  return lengths;
}

Result<Sequences> sequences(InferCall& c) {
  Sequences s;
  SG_ASSIGN(s.scores, c.tensor("log_probs"));
  SG_ASSIGN(const Type* targets, c.tensor("targets"));
  if (s.scores->shape.size() != 3) return c.fail("'log_probs' is not of time, batch and classes");
  s.time = s.scores->shape[0], s.batch = s.scores->shape[1];
  bool rows = targets->shape.size() == 2;
  if (!rows && targets->shape.size() != 1) return c.fail("'targets' has one or two dimensions");
  if (rows && !c.may_equal(targets->shape[0], s.batch))
    return c.fail("'targets' does not have one row per entry of the batch");
  SG_ASSIGN(Expr blank, c.size("blank"));
  auto classes = c.sizes.constant(s.scores->shape[2]);
  if (c.is_outside(blank, 0, classes ? *classes - 1 : kLongest)) return c.fail("'blank' is not a class");
  s.known = c.type_of(*c.find("input_lengths")) == nullptr;
  if (!s.known) {
    SG_TRY(c.expect_shape("input_lengths", {s.batch}));
    SG_TRY(c.expect_shape("target_lengths", {s.batch}));
    return s;
  }
  SG_ASSIGN(std::vector<int64_t> inputs, lengths_of(c, "input_lengths", s.batch));
  SG_ASSIGN(s.lengths, lengths_of(c, "target_lengths", s.batch));
  if (inputs.size() != s.lengths.size()) return c.fail("'input_lengths' and 'target_lengths' differ in length");
  auto time = c.sizes.constant(s.time);
  for (int64_t n : inputs)
    if (time && n > *time)
      return c.fail("an input length is beyond the " + std::to_string(*time) + " steps that there are");
  return s;
}

// Scores per class: one row per sample, or a single row (or scalar).
Result<const Type*> samples(InferCall& c) {
  SG_ASSIGN(const Type* self, c.tensor("self"));
  if (self->shape.size() > 2) return c.fail("'self' has more than two dimensions");
  return self;
}

Exprs one_a_sample(const Type& self) { return self.shape.size() == 2 ? Exprs{self.shape[0]} : Exprs(); }

Status expect_gradient(InferCall& c, const Type& self) {
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  return reduction == 0 ? c.expect_shape("grad_output", one_a_sample(self)) : c.expect_shape("grad_output", {});
}

}  // namespace

// The loss of each entry, and the forward variables: for the longest label sequence, two per label plus one.
Status ctc_loss(InferCall& c) {
  SG_ASSIGN(Sequences s, sequences(c));
  SG_TRY(c.give_contiguous(s.scores->dtype, {s.batch}, *s.scores));
  if (s.known) {
    int64_t longest = 0;
    for (int64_t n : s.lengths) longest = std::max(longest, n);
    return c.give_contiguous(s.scores->dtype, {s.batch, s.time, c.sizes.number(2 * longest + 1)}, *s.scores);
  }
  if (c.node.result_count < 2) return c.fail("a result is missing");
  const Type& recorded = c.graph.type(c.node.result(1));
  if (recorded.kind == TypeKind::unknown) return c.give(Type());
  if (recorded.kind != TypeKind::tensor || recorded.shape.size() != 3)
    return c.fail("the second result has three dimensions");
  return c.give_contiguous(s.scores->dtype, {s.batch, s.time, recorded.shape[2]}, *s.scores);
}

Status ctc_loss_backward(InferCall& c) {
  SG_ASSIGN(Sequences s, sequences(c));
  SG_ASSIGN(const Type* alpha, c.tensor("log_alpha"));
  SG_TRY(c.expect_shape("grad", {s.batch}));
  SG_TRY(c.expect_shape("neg_log_likelihood", {s.batch}));
  if (alpha->shape.size() != 3) return c.fail("'log_alpha' is not of batch, time and states");
  SG_TRY(c.expect_shape("log_alpha", {s.batch, s.time, alpha->shape[2]}));
  return c.give_contiguous(s.scores->dtype, s.scores->shape, *s.scores);
}

Status multi_margin_loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, samples(c));
  SG_ASSIGN(const Type* target, c.tensor("target"));
  bool single = self->shape.size() < 2 && target->shape.size() == 1 && c.sizes.is(target->shape[0], 1);
  if (!single) SG_TRY(c.expect_shape("target", one_a_sample(*self)));
  SG_TRY(c.expect_shape("weight", {self->shape.empty() ? c.sizes.number(1) : self->shape.back()}));
  SG_TRY(expect_gradient(c, *self));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status multilabel_margin_loss(InferCall& c) {
  SG_ASSIGN(const Type* self, samples(c));
  SG_ASSIGN(int64_t reduction, c.integer("reduction"));
  SG_TRY(c.expect_shape("target", self->shape));
  SG_TRY(c.give_contiguous(self->dtype, reduction == 0 ? one_a_sample(*self) : Exprs(), *self));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

Status multilabel_margin_loss_backward(InferCall& c) {
  SG_ASSIGN(const Type* self, samples(c));
  SG_TRY(c.expect_shape("target", self->shape));
  SG_TRY(c.expect_shape("is_target", self->shape));
  SG_TRY(expect_gradient(c, *self));
  return c.give_contiguous(self->dtype, self->shape, *self);
}

}  // namespace sg::infer
