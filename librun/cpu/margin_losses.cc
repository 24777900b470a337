// Losses of margins between the classes of a sample: a row of scores each. Computed in double.
#include <algorithm>
#include <cmath>

#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1 };

struct Samples {
  int64_t count, classes;
  const double* scores;
  const int64_t* target;
  const double* row(int64_t i) const { return scores + i * classes; }
};

Samples samples_of(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Samples s{self.rank == 2 ? self.dim(0) : 1, self.rank == 0 ? 1 : self.dim(-1), nullptr, nullptr};
  s.scores = contiguous_as(call, self, DType::f64).as<double>();
  s.target = contiguous_as(call, call.tensor("target"), DType::i64).as<int64_t>();
  return s;
}

// What the gradient of sample i is multiplied with.
double factor_of(KernelCall& call, const Samples& s, const double* grad, int64_t i) {
  int64_t reduction = call.integer("reduction");
  double each = 1 / static_cast<double>(s.classes);
  if (reduction == kMean) each /= static_cast<double>(s.count);
  return each * grad[reduction == kNone ? i : 0];
}

const double* gradient_of(KernelCall& call) {
  return contiguous_as(call, call.tensor("grad_output"), DType::f64).as<double>();
}

// --- several classes a sample: those of `target` up to the first -1 ---

int64_t labels_in(const Samples& s, int64_t row) {
  const int64_t* from = s.target + row * s.classes;
  return std::find(from, from + s.classes, -1) - from;
}

Status expect_labels(KernelCall& call, const Samples& s) {
  IndexCheck check;
  for (int64_t i = 0; i < s.count; ++i)
    for (int64_t at = i * s.classes, end = at + labels_in(s, i); at < end; ++at)
      check.hold(s.target[at], s.classes, at);
  return check.status(call, s.target, s.classes);
}

Status multilabel_margin_loss(KernelCall& call) {
  const Samples s = samples_of(call);
  SG_TRY(expect_labels(call, s));
  const Tensor& out = call.result(0);
  Tensor is_target = call.scratch().tensor(DType::f64, call.result(1).sizes());
  fill(call, is_target, Scalar::integer(0));
  auto* losses = call.scratch().take<double>(s.count + 1);
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t n = labels_in(s, i), *labels = s.target + i * s.classes;
    double *marks = is_target.as<double>() + i * s.classes, sum = 0;
    for (int64_t k = 0; k < n; ++k) marks[labels[k]] = 1;
    for (int64_t k = 0; k < n; ++k)
      for (int64_t c = 0; c < s.classes; ++c)
        if (marks[c] == 0) sum += std::max(0.0, 1 - s.row(i)[labels[k]] + s.row(i)[c]);
    losses[i] = sum / static_cast<double>(s.classes);
  }
  int64_t reduction = call.integer("reduction");
  double divisor = reduction == kMean ? static_cast<double>(s.count) : 1;
  double total = reduction == kNone ? 0 : row_sum(losses, s.count) / divisor;
  if (reduction == kNone) copy(call, out, make_tensor(reinterpret_cast<std::byte*>(losses), DType::f64, out.sizes()));
  else fill(call, out, Scalar::floating(total));
  copy(call, call.result(1), is_target);
  return ok_status();
}

Status multilabel_margin_loss_backward(KernelCall& call) {
  const Samples s = samples_of(call);
  SG_TRY(expect_labels(call, s));
  const auto* marks = contiguous_as(call, call.tensor("is_target"), DType::f64).as<double>();
  const double* grad = gradient_of(call);
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, out, Scalar::integer(0));
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t* labels = s.target + i * s.classes;
    double *to = out.as<double>() + i * s.classes, factor = factor_of(call, s, grad, i);
    for (int64_t k = 0, n = labels_in(s, i); k < n; ++k)
      for (int64_t c = 0; c < s.classes; ++c) {
        if (marks[i * s.classes + c] != 0 || !(1 - s.row(i)[labels[k]] + s.row(i)[c] > 0)) continue;
        to[labels[k]] -= factor;
        to[c] += factor;
      }
  }
  copy(call, call.result(), out);
  return ok_status();
}

// --- one class a sample ---

Status multi_margin_loss_backward(KernelCall& call) {
  const Samples s = samples_of(call);
  IndexCheck check;
  for (int64_t i = 0; i < s.count; ++i) check.hold(s.target[i], s.classes, i);
  SG_TRY(check.status(call, s.target, s.classes));
  const double p = call.number("p"), margin = call.number("margin"), *grad = gradient_of(call);
  if (p != 1 && p != 2) return call.fail("the power of the margin is 1 or 2");
  const double* weight = nullptr;
  if (call.has("weight")) weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, out, Scalar::integer(0));
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t right = s.target[i];
    double *to = out.as<double>() + i * s.classes, factor = factor_of(call, s, grad, i) * (weight ? weight[right] : 1);
    for (int64_t c = 0; c < s.classes; ++c) {
      double beyond = margin - s.row(i)[right] + s.row(i)[c];
      if (c == right || !(beyond > 0)) continue;
      double slope = factor * (p == 1 ? 1 : 2 * beyond);
      to[c] = slope;
      to[right] -= slope;
    }
  }
  copy(call, call.result(), out);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.multi_margin_loss_backward.default", multi_margin_loss_backward},
    {"aten.multilabel_margin_loss_forward.default", multilabel_margin_loss},
    {"aten.multilabel_margin_loss_backward.default", multilabel_margin_loss_backward},
};

}  // namespace

std::span<const KernelRow> margin_loss_kernels() { return kRows; }

}  // namespace sg::cpu
