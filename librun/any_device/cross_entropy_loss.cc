// Cross entropy of scores, in double, rounded once at the end.
#include <cmath>

#include "librun/any_device/give_loss.h"
#include "librun/cpu/inner_call.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/classes.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// Rows of classes: axis 1, or the only axis.
struct Classes {
  work::ClassRows rows;  // log-probabilities
  int64_t count;
  Tensor per_row;  // one number per row: a shape without memory
};

// [.., classes], with the classes last, as contiguous log-probabilities.
Result<const double*> log_probabilities(KernelCall& call, const Tensor& last) {
  Tensor out = workspace(call, DType::f64, last.sizes());
  if (on_device(call)) {
    const ParamValue dim = param_of(Scalar::integer(-1));
    SG_TRY(call_op(call, "aten._log_softmax.default", {{"self", param_of(last)}, {"dim", dim}}, {out}));
    return out.as<double>();
  }
  const auto* from = contiguous_as(call, last, DType::f64).as<double>();
  const int64_t length = last.dim(-1);
  for_rows(call, length == 0 ? 0 : out.elements() / length, length, [&](int64_t row, int) {
    const double* x = from + row * length;
    double* to = out.as<double>() + row * length;
    double top = row_max(x, length);
    for (int64_t i = 0; i < length; ++i) to[i] = std::exp(x[i] - top);
    double shift = top + std::log(row_sum(to, length));
    for (int64_t i = 0; i < length; ++i) to[i] = x[i] - shift;
  });
  return out.as<double>();
}

Result<Classes> classes_of(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const int axis = self.rank > 1 ? 1 : 0;
  Classes c{{nullptr, nullptr, self.dim(axis), call.number("label_smoothing")}, 1, drop_axis(self, axis)};
  c.count = c.per_row.elements();
  SG_ASSIGN(c.rows.scores, log_probabilities(call, axis_last(self, axis)));
  if (call.has("weight")) c.rows.weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  return c;
}

// For targets that are probabilities of classes.
Status soft_cross_entropy(KernelCall& call, const Classes& c) {
  const Tensor& target = call.tensor("target");
  const auto* rows = contiguous_as(call, axis_last(target, target.rank > 1 ? 1 : 0), DType::f64).as<double>();
  Tensor losses = workspace(call, DType::f64, c.per_row.sizes());
  for_each(call, c.count, 1, work::SoftCrossEntropy{c.rows, rows, losses.as<double>()});
  give_loss(call, losses, static_cast<double>(c.count));
  return ok_status();
}

// For targets that are classes. A mean is weighted by the targets' weights.
Status hard_cross_entropy(KernelCall& call, const Classes& c) {
  const auto* at = contiguous_as(call, call.tensor("target"), DType::i64).as<int64_t>();
  const int64_t ignored = call.integer("ignore_index"), classes = c.rows.classes;
  for (int64_t i = 0; !on_device(call) && i < c.count; ++i)
    if (at[i] != ignored && (at[i] < 0 || at[i] >= classes))
      return call.fail("target " + std::to_string(at[i]) + " at position " + std::to_string(i) +
                       " is out of range for " + std::to_string(classes) + " classes");
  Tensor losses = workspace(call, DType::f64, c.per_row.sizes()),
         weights = workspace(call, DType::f64, c.per_row.sizes());
  for_each(call, c.count, 1,
           work::HardCrossEntropy{c.rows, at, ignored, losses.as<double>(), weights.as<double>(), report_of(call)});
  give_weighted_loss(call, losses, weights);
  return ok_status();
}

Status cross_entropy(KernelCall& call) {
  SG_ASSIGN(Classes c, classes_of(call));
  return is_floating(call.tensor("target").dtype) ? soft_cross_entropy(call, c) : hard_cross_entropy(call, c);
}

constexpr KernelRow kRows[] = {
    {"aten.cross_entropy_loss.default", cross_entropy},
};

}  // namespace

std::span<const KernelRow> cross_entropy_loss_kernels() { return kRows; }

}  // namespace sg::cpu
