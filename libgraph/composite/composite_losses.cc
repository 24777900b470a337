// Losses and distances.
#include <cmath>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

constexpr int64_t kEach = 0, kMean = 1;

ValueId mul(CompositeCall& c, ValueId a, PartArg b) { return c.make("mul.Tensor", {a, std::move(b)}); }
ValueId add(CompositeCall& c, ValueId a, PartArg b) { return c.make("add.Tensor", {a, std::move(b)}); }
ValueId sub(CompositeCall& c, ValueId a, PartArg b) { return c.make("sub.Tensor", {a, std::move(b)}); }
ValueId number_less(CompositeCall& c, PartArg n, ValueId v) { return c.make("rsub.Scalar", {v, std::move(n)}); }
ValueId zeros_like(CompositeCall& c, ValueId v) { return c.make("zeros_like", {v}); }
ValueId at_least_0(CompositeCall& c, ValueId v) { return c.make("clamp_min", {v, 0}); }

void give_reduced(CompositeCall& c, ValueId loss) {
  int64_t reduction = c.integer("reduction");
  c.give(reduction == kEach ? loss : c.make(reduction == kMean ? "mean" : "sum", {loss}));
}

int common_rank(CompositeCall& c, ValueId a, ValueId b) { return std::max(c.rank(a), c.rank(b)); }

ValueId distance(CompositeCall& c, ValueId a, ValueId b, const Arg& p, const Arg& eps, bool keep) {
  int last = common_rank(c, a, b) - 1;
  return c.make("norm.ScalarOpt_dim", {c.make("add.Scalar", {sub(c, a, b), eps}), p, Numbers{last}, keep});
}

// One class per row, or per pixel of two-dimensional planes.
ValueId nll(CompositeCall& c, ValueId self, ValueId target, bool planes) {
  return c.make_all(planes ? "nll_loss2d_forward" : "nll_loss_forward",
                    {self, target, c.tensor("weight"), c.integer("reduction"), c.arg("ignore_index")})[0];
}

}  // namespace

void l1_loss(CompositeCall& c) { give_reduced(c, c.make("abs", {sub(c, c.tensor("self"), c.tensor("target"))})); }

void kl_div(CompositeCall& c) {
  ValueId self = c.tensor("self"), target = c.tensor("target");
  if (c.flag("log_target")) return give_reduced(c, mul(c, c.make("exp", {target}), sub(c, target, self)));
  give_reduced(c, sub(c, c.make("xlogy.Tensor", {target, target}), mul(c, target, self)));
}

void poisson_nll_loss(CompositeCall& c) {
  ValueId self = c.tensor("input"), target = c.tensor("target"), loss;
  if (c.flag("log_input")) loss = sub(c, c.make("exp", {self}), mul(c, target, self));
  else loss = sub(c, self, mul(c, target, c.make("log", {c.make("add.Scalar", {self, c.arg("eps")})})));
  if (c.flag("full")) {
    ValueId half_log = c.make("mul.Scalar", {c.make("log", {c.make("mul.Scalar", {target, 2 * M_PI})}), 0.5});
    ValueId stirling = add(c, sub(c, mul(c, target, c.make("log", {target})), target), half_log);
    loss = add(c, loss, c.make("masked_fill.Scalar", {stirling, c.make("le.Scalar", {target, 1}), 0}));
  }
  give_reduced(c, loss);
}

void hinge_embedding_loss(CompositeCall& c) {
  ValueId self = c.tensor("self"), target = c.tensor("target"), zeros = zeros_like(c, self);
  ValueId far = c.make("where.self",
                       {c.make("ne.Scalar", {target, 1}), at_least_0(c, number_less(c, c.arg("margin"), self)), zeros});
  give_reduced(c, add(c, far, c.make("where.self", {c.make("ne.Scalar", {target, -1}), self, zeros})));
}

void margin_ranking_loss(CompositeCall& c) {
  ValueId apart = mul(c, c.make("neg", {c.tensor("target")}), sub(c, c.tensor("input1"), c.tensor("input2")));
  give_reduced(c, at_least_0(c, c.make("add.Scalar", {apart, c.arg("margin")})));
}

void cosine_embedding_loss(CompositeCall& c) {
  ValueId a = c.tensor("input1"), b = c.tensor("input2"), target = c.tensor("target");
  Numbers dim{c.rank(target)};
  auto sum_of = [&](ValueId x, ValueId y) { return c.make("sum.dim_IntList", {mul(c, x, y), dim}); };
  ValueId product = sum_of(a, b), squares_a = c.make("add.Scalar", {sum_of(a, a), 1e-12}),
          squares_b = c.make("add.Scalar", {sum_of(b, b), 1e-12});
  ValueId cosine = c.make("div.Tensor", {product, c.make("sqrt", {mul(c, squares_a, squares_b)})}),
          zeros = zeros_like(c, cosine);
  ValueId near = c.make("where.self", {c.make("eq.Scalar", {target, 1}), number_less(c, 1, cosine), zeros});
  ValueId over = at_least_0(c, c.make("sub.Scalar", {cosine, c.arg("margin")}));
  give_reduced(c, add(c, near, c.make("where.self", {c.make("eq.Scalar", {target, -1}), over, zeros})));
}

void multilabel_margin_loss(CompositeCall& c) {
  c.give(
      c.make_all("multilabel_margin_loss_forward", {c.tensor("self"), c.tensor("target"), c.integer("reduction")})[0]);
}

void triplet_margin_loss(CompositeCall& c) {
  ValueId anchor = c.tensor("anchor"), near = c.tensor("positive"), far = c.tensor("negative");
  auto apart = [&](ValueId a, ValueId b) { return distance(c, a, b, c.arg("p"), c.arg("eps"), false); };
  ValueId to_near = apart(anchor, near), to_far = apart(anchor, far);
  if (c.flag("swap")) to_far = c.make("minimum", {to_far, apart(near, far)});
  give_reduced(c, at_least_0(c, sub(c, c.make("add.Scalar", {to_near, c.arg("margin")}), to_far)));
}

void multi_margin_loss(CompositeCall& c) {
  ValueId self = c.tensor("self"), target = c.tensor("target"), weight = c.tensor("weight");
  bool single = c.rank(self) <= 1;
  if (single) self = c.make("reshape", {self, ArgList{Arg::integer(1), c.product(self, 0, c.rank(self))}});
  target = c.make("reshape", {target, ArgList{c.size(self, 0)}});
  ValueId column = c.make("unsqueeze", {target, 1});
  ValueId over = at_least_0(c, add(c, number_less(c, c.arg("margin"), c.make("gather", {self, 1, column})), self));
  if (c.number("p") == 2) over = mul(c, over, over);
  if (!weight.is_none()) over = mul(c, over, c.make("unsqueeze", {c.make("index_select", {weight, 0, target}), 1}));
  over = c.make("scatter.value", {over, 1, column, 0});
  ValueId loss = c.make("div.Scalar", {c.make("sum.dim_IntList", {over, Numbers{1}}), c.size(self, 1)});
  if (single && c.integer("reduction") == kEach) loss = c.make("squeeze.dim", {loss, 0});
  give_reduced(c, loss);
}

void nll_loss(CompositeCall& c) { c.give(nll(c, c.tensor("self"), c.tensor("target"), false)); }
void nll_loss2d(CompositeCall& c) { c.give(nll(c, c.tensor("self"), c.tensor("target"), true)); }

// Inputs of any rank: three dimensions and more than four are reshaped to planes.
void nll_loss_nd(CompositeCall& c) {
  ValueId self = c.tensor("self"), target = c.tensor("target");
  int rank = c.rank(self);
  if (rank < 1) return c.fail("needs a dimension of classes");
  if (rank <= 2) return c.give(nll(c, self, target, false));
  if (rank == 4) return c.give(nll(c, self, target, true));
  Arg batch = c.size(self, 0), classes = c.size(self, 1), one = Arg::integer(1), rest = c.product(self, 2, rank);
  ValueId planes = c.make("reshape", {self, ArgList{batch, classes, one, rest}});
  ValueId loss = nll(c, planes, c.make("reshape", {target, ArgList{batch, one, rest}}), true);
  c.give(c.integer("reduction") == kEach ? c.make("view", {loss, c.shape(target)}) : loss);
}

void pairwise_distance(CompositeCall& c) {
  c.give(distance(c, c.tensor("x1"), c.tensor("x2"), c.arg("p"), c.arg("eps"), c.flag("keepdim")));
}

void cosine_similarity(CompositeCall& c) {
  ValueId a = c.tensor("x1"), b = c.tensor("x2");
  int64_t dim = c.integer("dim");
  auto unit = [&](ValueId v) {
    ValueId norm = c.make("linalg_vector_norm", {v, 2, Numbers{dim}, true});
    return c.make("div.Tensor", {v, c.make("clamp_min", {norm, c.arg("eps")})});
  };
  if (c.rank(a) != c.rank(b)) {  // `dim` refers to the broadcast shape
    ArgList shape = c.shape(c.rank(a) > c.rank(b) ? a : b);
    a = c.make("expand", {a, shape}), b = c.make("expand", {b, shape});
  }
  c.give(c.make("sum.dim_IntList", {mul(c, unit(a), unit(b)), Numbers{dim}}));
}

void dist(CompositeCall& c) {
  c.give(c.make("linalg_vector_norm", {sub(c, c.tensor("self"), c.tensor("other")), c.arg("p")}));
}

// As one product: |a - b|^2 = |a|^2 - 2 a b + |b|^2.
void euclidean_dist(CompositeCall& c) {
  ValueId a = c.tensor("x1"), b = c.tensor("x2");
  auto squares = [&](ValueId v) {
    return c.make("sum.dim_IntList", {c.make("pow.Tensor_Scalar", {v, 2}), Numbers{-1}, true});
  };
  ValueId a2 = squares(a), b2 = squares(b);
  ValueId ones_a = c.make("ones_like", {a2}), ones_b = c.make("ones_like", {b2});
  ValueId left = c.make("cat", {Values{c.make("mul.Scalar", {a, -2}), a2, ones_a}, -1});
  ValueId right = c.make("cat", {Values{b, ones_b, b2}, -1});
  ValueId product = c.make("matmul", {left, c.make("transpose.int", {right, -2, -1})});
  c.give(c.make("sqrt", {at_least_0(c, product)}));
}

void cdist(CompositeCall& c) {
  c.give(c.make("_cdist_forward", {c.tensor("x1"), c.tensor("x2"), c.number("p"), c.arg("compute_mode")}));
}
void pdist(CompositeCall& c) {
  c.give(c.make("_pdist_forward", {c.make("contiguous", {c.tensor("self")}), c.number("p")}));
}

namespace {

// The loss of rows of logarithms of chances, and its gradient for a gradient of 1.
struct ClassLoss {
  ValueId loss, grad;
};

ClassLoss of_classes(CompositeCall& c, ValueId log_chances, ValueId factors, bool mean) {
  const int how = mean ? 1 : 2;
  const PartArg target = c.tensor("target"), ignored = c.arg("ignore_index");
  const Values loss = c.make_all("nll_loss_forward", {log_chances, target, factors, how, ignored});
  const ValueId one = c.make("ones_like", {loss[0]});
  return {loss[0], c.make("nll_loss_backward", {one, log_chances, target, factors, how, ignored, loss[1]})};
}

ClassLoss of_chances(CompositeCall& c, ValueId log_chances, ValueId target, ValueId factors, bool mean) {
  ValueId grad = c.make("neg", {factors.is_none() ? target : c.make("mul.Tensor", {target, factors})});
  if (mean) grad = c.make("div.Scalar", {grad, c.size(target, 0)});
  return {c.make("sum", {c.make("mul.Tensor", {grad, log_chances})}), grad};
}

}  // namespace

// F.linear_cross_entropy with options: the loss of a head, and its gradients for a gradient of 1. PyTorch makes them
// chunk by chunk; in the parts, that is left to sg-chunk --auto.
void linear_cross_entropy(CompositeCall& c) {
  const ValueId input = c.tensor("input"), weight = c.tensor("linear_weight"), target = c.tensor("target"),
                bias = c.tensor("linear_bias");
  if (c.number("label_smoothing") != 0) return c.fail("smooths its labels");
  if (c.rank(input) != 2 || c.rank(weight) != 2) return c.fail("needs a matrix of rows and one of weights");
  if (c.dtype_of(weight) != c.dtype_of(input)) return c.fail("has weights of another element type");
  const DType own = c.dtype_of(input), wide = c.dtype("acc_dtype").value_or(own);
  const bool mean = c.text("reduction") == "mean";
  auto as = [&](ValueId v, DType t) {
    return v.is_none() || c.dtype_of(v) == t ? v : c.make("_to_copy", {v, c.key("dtype", t)});
  };
  const ValueId turned = c.make("t", {weight});
  const ValueId logits = bias.is_none() ? c.make("mm", {input, turned}) : c.make("addmm", {bias, input, turned});
  const ValueId log_chances = c.make("_log_softmax", {as(logits, wide), 1, false});
  const ValueId factors = as(c.tensor("weight"), wide);
  const ClassLoss of = is_floating(c.dtype_of(target)) ? of_chances(c, log_chances, as(target, wide), factors, mean)
                                                       : of_classes(c, log_chances, factors, mean);
  c.give(as(of.loss, own));
  const ValueId grad = as(c.make("_log_softmax_backward_data", {of.grad, log_chances, 1, wide}), own);
  const Numbers no_matrix{0, 0};
  c.give(c.flag("compute_input_grad") ? c.make("mm", {grad, weight}) : c.make("new_empty", {input, no_matrix}));
  c.give(c.flag("compute_linear_weight_grad") ? c.make("mm", {c.make("t", {grad}), input})
                                              : c.make("new_empty", {input, no_matrix}));
  c.give(c.flag("compute_linear_bias_grad") ? c.make("sum.dim_IntList", {grad, Numbers{0}})
                                            : c.make("new_empty", {input, Numbers{0}}));
}

}  // namespace sg::composite
