#include "librun/any_device/give_loss.h"

#include "librun/cpu/rows.h"
#include "librun/work/pair.h"
#include "librun/work/run.h"

namespace sg::cpu {

double sum_of(KernelCall& call, const double* x, int64_t n) {
  int64_t blocks = (n + kPieceElements - 1) / kPieceElements;
  auto* partial = call.scratch().take<double>(blocks + 1);
  call.team().parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      partial[b] = row_sum(x + b * kPieceElements, std::min(kPieceElements, n - b * kPieceElements));
  });
  return row_sum(partial, blocks);
}

void give_loss(KernelCall& call, const Tensor& losses, double divisor) {
  const int64_t reduction = call.integer("reduction");
  if (reduction == kNone) return copy(call, call.result(), losses);
  if (Backend* backend = backend_of(call.context())) {
    Tensor sum = backend->scratch(DType::f64, {});
    backend->sum(sum, losses);
    if (reduction == kMean) for_each(call, 1, 1, work::Divide{sum.as<double>(), divisor});
    return copy(call, call.result(), sum);
  }
  const double sum = sum_of(call, losses.as<double>(), losses.elements());
  fill(call, call.result(), Scalar::floating(reduction == kMean ? sum / divisor : sum));
}

void give_weighted_loss(KernelCall& call, const Tensor& losses, const Tensor& weights) {
  if (call.integer("reduction") != kMean) return give_loss(call, losses, 1);
  Backend* backend = backend_of(call.context());
  if (!backend) return give_loss(call, losses, sum_of(call, weights.as<double>(), weights.elements()));
  const Tensor sum = backend->scratch(DType::f64, {}), whole = backend->scratch(DType::f64, {});
  backend->sum(sum, losses);
  backend->sum(whole, weights);
  for_each(call, 1, 1, work::DivideEach{sum.as<double>(), whole.as<double>(), sum.as<double>()});
  copy(call, call.result(), sum);
}

}  // namespace sg::cpu
