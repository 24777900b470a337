// Optimizer updates that PyTorch has as one operator on lists of parameters (`fused=True`), computed as its kernels do:
// in place, each parameter separately, powers of the step number in double. Also what torch.amp.GradScaler does around
// them: unscale the gradients of a scaled loss, and skip a step with infinite ones.
#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// The learning rate: a number, or a tensor of one element.
PartArg rate(CompositeCall& c) { return PartArg(c.arg("lr")); }
bool is_number(const PartArg& a) { return !a.arg.is(ArgKind::value); }

ValueId times(CompositeCall& c, ValueId a, PartArg b) { return c.make("mul.Tensor", {a, std::move(b)}); }
ValueId over(CompositeCall& c, ValueId a, PartArg b) { return c.make("div.Tensor", {a, std::move(b)}); }
ValueId in_double(CompositeCall& c, ValueId v) { return c.make("_to_copy", {v, c.key("dtype", DType::f64)}); }

// The named lists, which must have equal lengths.
std::vector<Values> lists(CompositeCall& c, std::initializer_list<std::string_view> names) {
  std::vector<Values> found;
  for (std::string_view name : names) found.push_back(c.tensors(name));
  for (const Values& list : found)
    if (list.size() != found[0].size()) c.fail("its lists have unequal lengths");
  return c.failed() ? std::vector<Values>(found.size()) : found;
}

// One step of one parameter, which writes to `written`. If the loss was scaled, the gradient is unscaled first, in
// place. If `found_inf` is set, everything written is restored.
template <typename Update>
void step(CompositeCall& c, ValueId grad, Values written, Update update) {
  const auto unscaled = [&] {
    if (c.has("grad_scale")) c.make("div_.Tensor", {grad, c.one_number(c.tensor("grad_scale"))});
    update();
  };
  if (!c.has("found_inf")) return unscaled();
  if (c.has("grad_scale")) written.push_back(grad);
  const ValueId is_skipped = c.make("ne.Scalar", {c.one_number(c.tensor("found_inf")), 0});
  Values before;
  for (ValueId v : written) before.push_back(c.make("clone", {v}));
  unscaled();
  for (size_t i = 0; i < written.size(); ++i)
    c.make("copy_", {written[i], c.make("where.self", {is_skipped, before[i], written[i]})});
}

// The effective gradient; decayed: includes the weight decay.
ValueId gradient(CompositeCall& c, ValueId grad, ValueId weight, bool decayed) {
  if (c.flag("maximize")) grad = c.make("neg", {grad});
  const double decay = c.number("weight_decay");
  return decayed && decay != 0 ? c.make("add.Tensor", {grad, weight, c.key("alpha", decay)}) : grad;
}

// weight -= rate * by
void step_back(CompositeCall& c, ValueId weight, ValueId by) {
  PartArg lr = rate(c);
  if (is_number(lr)) c.make("sub_.Tensor", {weight, by, c.key("alpha", std::move(lr))});
  else c.make("sub_.Tensor", {weight, times(c, by, std::move(lr))});
}

// 1 - beta ** steps, in double
ValueId correction(CompositeCall& c, double beta, ValueId steps) {
  return c.make("rsub.Scalar", {c.make("pow.Scalar", {beta, in_double(c, steps)}), 1});
}

void adam(CompositeCall& c, bool decoupled) {
  const double beta1 = c.number("beta1"), beta2 = c.number("beta2"), decay = c.number("weight_decay");
  const bool amsgrad = c.flag("amsgrad");
  auto all = lists(c, {"self", "grads", "exp_avgs", "exp_avg_sqs", "state_steps"});
  const Values largest = c.tensors("max_exp_avg_sqs");
  if (amsgrad && largest.size() != all[0].size()) return c.fail("its lists have unequal lengths");
  for (size_t i = 0; i < all[0].size() && !c.failed(); ++i) {
    const ValueId weight = all[0][i], mean = all[2][i], square = all[3][i], count = all[4][i];
    Values written = {weight, mean, square};
    if (amsgrad) written.push_back(largest[i]);
    step(c, all[1][i], written, [&] {
      const ValueId grad = gradient(c, all[1][i], weight, !decoupled);
      if (decoupled && decay != 0) step_back(c, weight, times(c, weight, decay));
      c.make("lerp_.Scalar", {mean, grad, 1 - beta1});
      c.make("addcmul_", {c.make("mul_.Tensor", {square, beta2}), grad, grad, c.key("value", 1 - beta2)});
      ValueId seen = square;
      if (amsgrad) seen = c.make("copy_", {largest[i], c.make("maximum", {largest[i], square})});
      const ValueId root = over(c, c.make("sqrt", {seen}), c.make("sqrt", {correction(c, beta2, count)}));
      const ValueId by =
          over(c, over(c, mean, correction(c, beta1, count)), c.make("add.Tensor", {root, c.arg("eps")}));
      step_back(c, weight, by);
    });
  }
}

}  // namespace

void fused_adam(CompositeCall& c) { adam(c, false); }
void fused_adamw(CompositeCall& c) { adam(c, true); }

void fused_sgd(CompositeCall& c) {
  const double momentum = c.number("momentum");
  auto all = lists(c, {"self", "grads"});
  const Values kept = c.tensors("momentum_buffer_list");
  if (momentum != 0 && kept.size() != all[0].size()) return c.fail("its lists have unequal lengths");
  for (size_t i = 0; i < all[0].size() && !c.failed(); ++i) {
    Values written = {all[0][i]};
    if (momentum != 0) written.push_back(kept[i]);
    step(c, all[1][i], written, [&] {
      ValueId by = gradient(c, all[1][i], all[0][i], true);
      if (momentum != 0) {
        const ValueId now = c.flag("is_first_step")
                                ? c.make("copy_", {kept[i], by})
                                : c.make("add_.Tensor", {c.make("mul_.Tensor", {kept[i], momentum}), by,
                                                         c.key("alpha", 1 - c.number("dampening"))});
        by = c.flag("nesterov") ? c.make("add.Tensor", {by, now, c.key("alpha", momentum)}) : now;
      }
      step_back(c, all[0][i], by);
    });
  }
}

// The learning rate decays with the steps: lr / (1 + (step - 1) * lr_decay).
void fused_adagrad(CompositeCall& c) {
  const double lr_decay = c.number("lr_decay");
  auto all = lists(c, {"self", "grads", "state_sums", "state_steps"});
  for (size_t i = 0; i < all[0].size() && !c.failed(); ++i) {
    step(c, all[1][i], {all[0][i], all[2][i]}, [&] {
      const ValueId grad = gradient(c, all[1][i], all[0][i], true);
      c.make("addcmul_", {all[2][i], grad, grad});
      const ValueId before = c.make("sub.Tensor", {in_double(c, all[3][i]), 1});
      const ValueId slower = c.make("add.Tensor", {times(c, before, lr_decay), 1});
      const ValueId root = c.make("add.Tensor", {c.make("sqrt", {all[2][i]}), c.arg("eps")});
      step_back(c, all[0][i], over(c, over(c, grad, slower), root));
    });
  }
}

// Unscales the gradients. `found_inf` becomes 1 if one is not finite, else it keeps its value.
void unscale_and_check(CompositeCall& c) {
  const ValueId found = c.tensor("found_inf"), inverse = c.one_number(c.tensor("inv_scale"));
  for (ValueId grad : c.tensors("self")) {
    const bool is_wide = c.dtype_of(grad) == DType::f64 || c.dtype_of(grad) == DType::f32;
    const ValueId wide = is_wide ? grad : c.make("_to_copy", {grad, c.key("dtype", DType::f32)});
    const ValueId is_bad = c.make("any", {c.make("logical_not", {c.make("isfinite", {wide})})});
    c.make("copy_", {found, c.make("where.ScalarSelf", {is_bad, 1.0, found})});
    c.make("copy_", {grad, times(c, wide, inverse)});
  }
}

// The scale shrinks after a skipped step, and grows after `growth_interval` steps without one, if it stays finite.
void update_scale(CompositeCall& c) {
  const ValueId scale = c.tensor("self"), tracker = c.tensor("growth_tracker");
  const ValueId skipped = c.make("ne.Scalar", {c.tensor("found_inf"), 0});
  const auto scaled = [&](std::string_view factor) {
    return c.make("_to_copy", {times(c, in_double(c, scale), c.number(factor)), c.key("dtype", c.dtype_of(scale))});
  };
  const ValueId count = c.make("add.Tensor", {tracker, 1});
  const ValueId grows = c.make("eq.Scalar", {count, c.integer("growth_interval")});
  const ValueId larger = scaled("scale_growth_factor");
  const ValueId can = c.make("logical_and", {grows, c.make("isfinite", {larger})});
  const ValueId kept = c.make("where.self", {can, larger, scale});
  c.make("copy_", {tracker, c.make("where.ScalarSelf", {c.make("logical_or", {skipped, grows}), 0, count})});
  c.give(c.make("copy_", {scale, c.make("where.self", {skipped, scaled("scale_backoff_factor"), kept})}));
}

}  // namespace sg::composite
