// Margin losses between the classes of a sample (work/margin.h).
#include <algorithm>

#include "librun/any_device/give_loss.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/work/margin.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

using work::MarginRows;

struct Samples {
  MarginRows rows;
  int64_t count;
};

Samples samples_of(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const auto* scores = contiguous_as(call, self, DType::f64).as<double>();
  const auto* target = contiguous_as(call, call.tensor("target"), DType::i64).as<int64_t>();
  return {{self.rank == 0 ? 1 : self.dim(-1), scores, target, report_of(call)}, self.rank == 2 ? self.dim(0) : 1};
}

// Number of rows, of that many steps each, that justify using a thread.
int64_t grain_of(int64_t steps) { return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, steps)); }

work::MarginFactor factor_of(KernelCall& call, const Samples& s) {
  const int64_t reduction = call.integer("reduction");
  double each = 1 / static_cast<double>(s.rows.classes);
  if (reduction == kMean) each /= static_cast<double>(s.count);
  return {contiguous_as(call, call.tensor("grad_output"), DType::f64).as<double>(), reduction == kNone, each};
}

Tensor zeros(KernelCall& call, std::span<const int64_t> shape) {
  Tensor out = workspace(call, DType::f64, shape);
  fill(call, out, Scalar::integer(0));
  return out;
}

// Checks labels on the CPU; a device detects invalid ones itself.
Status expect_labels(KernelCall& call, const Samples& s) {
  if (on_device(call)) return ok_status();
  IndexCheck check;
  for (int64_t i = 0; i < s.count; ++i)
    for (int64_t at = i * s.rows.classes, end = at + s.rows.label_count(i); at < end; ++at)
      check.hold(s.rows.target[at], s.rows.classes, at);
  return check.status(call, s.rows.target, s.rows.classes);
}
Status expect_classes(KernelCall& call, const Samples& s) {
  if (on_device(call)) return ok_status();
  IndexCheck check;
  for (int64_t i = 0; i < s.count; ++i) check.hold(s.rows.target[i], s.rows.classes, i);
  return check.status(call, s.rows.target, s.rows.classes);
}

Status multilabel_margin_loss(KernelCall& call) {
  const Samples s = samples_of(call);
  SG_TRY(expect_labels(call, s));
  const Tensor marks = zeros(call, call.result(1).sizes());
  const Tensor losses = workspace(call, DType::f64, std::array{s.count});
  for_each(call, s.count, grain_of(s.rows.classes * s.rows.classes),
           work::MultilabelMargin{s.rows, marks.as<double>(), losses.as<double>()});
  const bool each = call.integer("reduction") == kNone;
  give_loss(call, each ? make_tensor(losses.data, DType::f64, call.result(0).sizes()) : losses,
            static_cast<double>(s.count));
  copy(call, call.result(1), marks);
  return ok_status();
}

Status multilabel_margin_loss_backward(KernelCall& call) {
  const Samples s = samples_of(call);
  SG_TRY(expect_labels(call, s));
  const auto* marks = contiguous_as(call, call.tensor("is_target"), DType::f64).as<double>();
  const Tensor slopes = zeros(call, call.result().sizes());
  for_each(call, s.count, grain_of(s.rows.classes * s.rows.classes),
           work::MultilabelMarginSlope{s.rows, factor_of(call, s), marks, slopes.as<double>()});
  copy(call, call.result(), slopes);
  return ok_status();
}

Status multi_margin_loss_backward(KernelCall& call) {
  const Samples s = samples_of(call);
  SG_TRY(expect_classes(call, s));
  const double p = call.number("p");
  if (p != 1 && p != 2) return call.fail("the power of the margin is 1 or 2");
  const double* weight = nullptr;
  if (call.has("weight")) weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  const Tensor slopes = zeros(call, call.result().sizes());
  for_each(
      call, s.count, grain_of(s.rows.classes),
      work::MultiMarginSlope{s.rows, factor_of(call, s), weight, call.number("margin"), p == 2, slopes.as<double>()});
  copy(call, call.result(), slopes);
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
