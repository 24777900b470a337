// Losses of two tensors element by element, and cross entropy. In double; one rounding at the end.
#include <cmath>

#include "librun/cpu/give_loss.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/pair.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

Tensor doubles(KernelCall& call, const Tensor& t, std::span<const int64_t> shape) {
  return contiguous_as(call, broadcast_to(t, shape), DType::f64);
}

template <class Fn>
Tensor each_loss(KernelCall& call, std::span<const int64_t> shape, const Fn& loss) {  // loss(i)
  Tensor losses = call.scratch().tensor(DType::f64, shape);
  call.team().parallel_for(losses.elements(), kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) losses.as<double>()[i] = loss(i);
  });
  return losses;
}

Status mse_loss(KernelCall& call) {
  std::vector<int64_t> shape = broadcast_shape(call.tensor("self"), call.tensor("target"));
  const auto* x = doubles(call, call.tensor("self"), shape).as<double>();
  const auto* y = doubles(call, call.tensor("target"), shape).as<double>();
  Tensor losses = workspace(call, DType::f64, shape);
  for_each(call, losses.elements(), kPieceElements,
           work::PairLoss<work::SquaredError>{x, y, nullptr, 0, losses.as<double>()});
  give_loss(call, losses, static_cast<double>(losses.elements()));
  return ok_status();
}

Status mse_loss_backward(KernelCall& call) {
  const Tensor& out = call.result();
  const auto* g = doubles(call, call.tensor("grad_output"), out.sizes()).as<double>();
  const auto* x = doubles(call, call.tensor("self"), out.sizes()).as<double>();
  const auto* y = doubles(call, call.tensor("target"), out.sizes()).as<double>();
  const double share = call.integer("reduction") == kMean ? 1 / static_cast<double>(out.elements()) : 1;
  Tensor slopes = workspace(call, DType::f64, out.sizes());
  for_each(call, out.elements(), kPieceElements,
           work::PairSlope<work::SquaredError>{g, x, y, nullptr, 0, share, slopes.as<double>()});
  copy(call, out, slopes);
  return ok_status();
}

Status bce_with_logits(KernelCall& call) {
  std::vector<int64_t> shape = broadcast_shape(call.tensor("self"), call.tensor("target"));
  const auto* x = doubles(call, call.tensor("self"), shape).as<double>();
  const auto* y = doubles(call, call.tensor("target"), shape).as<double>();
  const double* weight = call.has("weight") ? doubles(call, call.tensor("weight"), shape).as<double>() : nullptr;
  const double* positive =
      call.has("pos_weight") ? doubles(call, call.tensor("pos_weight"), shape).as<double>() : nullptr;
  Tensor losses = workspace(call, DType::f64, shape);
  for_each(call, losses.elements(), kPieceElements,
           work::CrossEntropyOfLogits{x, y, weight, positive, losses.as<double>()});
  give_loss(call, losses, static_cast<double>(losses.elements()));
  return ok_status();
}

// --- cross entropy ---

// Rows of classes: axis 1, or the only one.
struct Classes {
  Tensor scores;  // [rows, classes], doubles, log-probabilities
  Tensor shape;   // of one number a row
  const double* weight;
  int64_t rows, classes;
};

Classes classes_of(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int axis = self.rank > 1 ? 1 : 0;
  Rows rows = rows_of(call, self, axis, DType::f64);
  Classes c{call.scratch().tensor(DType::f64, rows.tensor.sizes()), drop_axis(self, axis), nullptr, rows.count,
            rows.length};
  if (call.has("weight")) c.weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  for_rows(call, rows.count, rows.length, [&](int64_t row, int) {
    const double* x = rows.tensor.as<double>() + row * rows.length;
    double* to = c.scores.as<double>() + row * rows.length;
    double top = row_max(x, rows.length);
    for (int64_t i = 0; i < rows.length; ++i) to[i] = std::exp(x[i] - top);
    double shift = top + std::log(row_sum(to, rows.length));
    for (int64_t i = 0; i < rows.length; ++i) to[i] = x[i] - shift;
  });
  return c;
}

// Targets are probabilities of classes.
Status soft_cross_entropy(KernelCall& call, const Classes& c) {
  const Tensor& target = call.tensor("target");
  Tensor rows = rows_of(call, target, target.rank > 1 ? 1 : 0, DType::f64).tensor;
  double smooth = call.number("label_smoothing");
  Tensor losses = each_loss(call, c.shape.sizes(), [&](int64_t row) {
    double sum = 0;
    for (int64_t k = 0; k < c.classes; ++k) {
      double p = rows.as<double>()[row * c.classes + k] * (1 - smooth) + smooth / static_cast<double>(c.classes);
      sum -= p * c.scores.as<double>()[row * c.classes + k] * (c.weight ? c.weight[k] : 1);
    }
    return sum;
  });
  give_loss(call, losses, static_cast<double>(c.rows));
  return ok_status();
}

// Targets are classes. A mean is weighted by the targets' weights.
Status hard_cross_entropy(KernelCall& call, const Classes& c) {
  Tensor target = contiguous_as(call, call.tensor("target"), DType::i64);
  const auto* at = target.as<int64_t>();
  int64_t ignored = call.integer("ignore_index");
  double smooth = call.number("label_smoothing");
  for (int64_t i = 0; i < c.rows; ++i)
    if (at[i] != ignored && (at[i] < 0 || at[i] >= c.classes))
      return call.fail("target " + std::to_string(at[i]) + " at position " + std::to_string(i) +
                       " is out of range for " + std::to_string(c.classes) + " classes");
  auto weight_of = [&](int64_t row) { return at[row] == ignored ? 0.0 : c.weight ? c.weight[at[row]] : 1.0; };
  Tensor losses = each_loss(call, c.shape.sizes(), [&](int64_t row) {
    if (at[row] == ignored) return 0.0;
    const double* p = c.scores.as<double>() + row * c.classes;
    double spread = 0;
    for (int64_t k = 0; smooth != 0 && k < c.classes; ++k) spread -= p[k] * (c.weight ? c.weight[k] : 1);
    return -(1 - smooth) * weight_of(row) * p[at[row]] + smooth * spread / static_cast<double>(c.classes);
  });
  Tensor weights = each_loss(call, c.shape.sizes(), weight_of);
  give_loss(call, losses, sum_of(call, weights.as<double>(), c.rows));
  return ok_status();
}

Status cross_entropy(KernelCall& call) {
  Classes c = classes_of(call);
  return is_floating(call.tensor("target").dtype) ? soft_cross_entropy(call, c) : hard_cross_entropy(call, c);
}

constexpr KernelRow kRows[] = {
    {"aten.mse_loss.default", mse_loss},
    {"aten.mse_loss_backward.default", mse_loss_backward},
    {"aten.binary_cross_entropy_with_logits.default", bce_with_logits},
    {"aten.cross_entropy_loss.default", cross_entropy},
};

}  // namespace

std::span<const KernelRow> loss_kernels() { return kRows; }

}  // namespace sg::cpu
