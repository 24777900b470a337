// Axis rules of losses: independent rows, a sum over the rows, or a mean.
//
// A mean over n rows is the sum of the chunks' means, each weighted by its share n_c / n. If the data decides the
// divisor (ignored rows, weights), the chunks compute sums, which are divided once.
#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

enum Reduction : int64_t { kNone, kMean, kSum };

AxisState sum_state() {
  AxisState out;
  out.kind = AxisKind::partial;
  return out;
}

Result<Reduction> reduction_of(const AxisCall& c) {
  const int64_t reduction = c.integer("reduction", kMean);
  if (reduction < kNone || reduction > kSum) return c.fail("how it reduces is not known");
  return static_cast<Reduction>(reduction);
}

// The rows of class scores: axis 0, if the classes have an axis of their own.
Result<Along> scored_rows(AxisCall& c) {
  const ValueId self = c.tensor("self"), target = c.tensor("target");
  for (ValueId v : {self, target})
    if (const AxisState* s = c.along(v); s != nullptr && (s->along.axis != 0 || s->local))
      return c.fail(describe(c, v) + ": only the batch axis can be chunked");
  if (c.rank(self) < 2) return c.fail("its scores have no batch axis");
  const AxisState* s = c.along(self) != nullptr ? c.along(self) : c.along(target);
  if (s == nullptr) return c.fail("neither scores nor targets are chunked along an axis");
  const Along a = s->along;
  SG_TRY(c.want(self, a));
  SG_TRY(c.want(target, a));
  SG_TRY(c.want_whole(c.tensor("weight"), "the weight"));
  return a;
}

}  // namespace

Status share_rows(AxisCall& c, const Along& a) {
  if (!c.domain(a).is_rows) return c.fail("a mean over items, and how many a chunk has is decided by the data");
  c.share = a;
  return ok_status();
}

Status elementwise_loss(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, meet(c));
  if (reduction == kNone) return c.give_along(a);
  if (reduction == kMean) SG_TRY(share_rows(c, a));
  return c.give(sum_state());
}

// The gradient of a mean is divided by the number of rows.
Status elementwise_loss_backward(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, meet(c));
  if (reduction == kMean) SG_TRY(share_rows(c, a));
  return c.give_along(a);
}

Status nll_loss(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, scored_rows(c));
  if (reduction == kNone) {
    SG_TRY(c.give_along(a));
    return c.give_settled(Settle::first);
  }
  if (reduction == kMean) {
    if (c.type(c.tensor("self")).dtype == DType::f16)
      return c.fail("its mean is of f16, which may not hold the sum that a mean is made from: compute the loss in f32");
    SG_TRY(c.edit_word("reduction", Arg::integer(kSum)));
  }
  SG_TRY(c.give_settled(reduction == kMean ? Settle::quotient : Settle::sum));
  return c.give_settled(Settle::sum);
}

Status nll_loss_backward(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, scored_rows(c));
  const ValueId gradient = c.tensor("grad_output");
  if (reduction == kNone) SG_TRY(c.want(gradient, a));
  else SG_TRY(c.want_whole(gradient, "the gradient of one loss"));
  SG_TRY(c.want_whole(c.tensor("total_weight"), "the total weight"));
  return c.give_along(a);
}

// nll_loss on scores that are not yet logarithms, with one more number per row for the backward.
Status folded_loss(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, scored_rows(c));
  if (reduction == kMean) {
    SG_TRY(c.edit_word("reduction", Arg::integer(kSum)));
    SG_TRY(c.give_settled(Settle::quotient));
    SG_TRY(c.give_settled(Settle::sum));
  } else if (reduction == kSum) {
    SG_TRY(c.give(sum_state()));
    SG_TRY(c.give(sum_state()));
  } else {
    SG_TRY(c.give_along(a));
    SG_TRY(c.give_settled(Settle::first));
  }
  return c.give_along(a);
}

Status folded_loss_backward(AxisCall& c) {
  SG_TRY(nll_loss_backward(c));
  return c.want(c.tensor("log_sum"), c.given[0].along);
}

Status cross_entropy(AxisCall& c) {
  SG_ASSIGN(const Reduction reduction, reduction_of(c));
  SG_ASSIGN(const Along a, scored_rows(c));
  if (reduction == kNone) return c.give_along(a);
  if (reduction == kMean && c.rank(c.tensor("target")) != c.rank(c.tensor("self")))
    return c.fail("the data says how many rows its mean is over: use a sum, or log_softmax and nll_loss");
  if (reduction == kMean) SG_TRY(share_rows(c, a));
  return c.give(sum_state());
}

}  // namespace sg::axis
