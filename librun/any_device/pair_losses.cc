// Losses of two tensors element by element and their gradients; gates (glu) and the gradients of prelu. In double.
#include <algorithm>
#include <cmath>

#include "librun/any_device/give_loss.h"
#include "librun/cpu/inner_call.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/pair_blocks.h"
#include "librun/cpu/rows.h"
#include "librun/work/pair.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// An argument as contiguous doubles of this shape; null if omitted.
Result<const double*> operand(KernelCall& call, std::string_view name, std::span<const int64_t> shape) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return static_cast<const double*>(nullptr);
  const Tensor& t = call.tensor(name);
  if (!broadcasts(t, shape)) return call.fail("'" + std::string(name) + "' does not broadcast to the operands");
  return contiguous_as(call, broadcast_to(t, shape), DType::f64).as<double>();
}

template <class Loss>
double number_of(KernelCall& call) {
  return *Loss::kNumber == 0 ? 0 : call.number(Loss::kNumber);
}

Result<BlockOperand> block_operand(KernelCall& call, std::string_view name, std::span<const int64_t> shape) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return BlockOperand(call);
  const Tensor& t = call.tensor(name);
  if (!broadcasts(t, shape)) return call.fail("'" + std::string(name) + "' does not broadcast to the operands");
  return BlockOperand(call, t, shape);
}

Status expect_probabilities(const KernelCall& call, const BlockOperand& x, int64_t n) {
  for (int64_t first = 0; first < n; first += kLaneBlock) {
    const int64_t count = std::min(kLaneBlock, n - first);
    const double* p = x.at(first, count, 0);
    for (int64_t i = 0; i < count; ++i)
      if (!(p[i] >= 0 && p[i] <= 1)) return call.fail("an input is not within [0, 1]: " + std::to_string(p[i]));
  }
  return ok_status();
}

template <class Loss>
Status pair_loss_there(KernelCall& call, std::span<const int64_t> shape) {
  SG_ASSIGN(const double* x, operand(call, "self", shape));
  SG_ASSIGN(const double* y, operand(call, "target", shape));
  SG_ASSIGN(const double* weight, operand(call, "weight", shape));
  Tensor losses = workspace(call, DType::f64, shape);
  const int64_t n = losses.elements();
  for_each(call, n, 1, work::PairLoss<Loss>{x, y, weight, number_of<Loss>(call), losses.as<double>()});
  if (std::is_same_v<Loss, work::BinaryCrossEntropy>) for_each(call, n, 1, work::CheckProbability{x, report_of(call)});
  return give_loss(call, losses, static_cast<double>(n)), ok_status();
}

template <class Loss>
Status pair_loss(KernelCall& call) {
  const std::vector<int64_t> shape = broadcast_shape(call.tensor("self"), call.tensor("target"));
  if (on_device(call)) return pair_loss_there<Loss>(call, shape);
  SG_ASSIGN(const BlockOperand x, block_operand(call, "self", shape));
  SG_ASSIGN(const BlockOperand y, block_operand(call, "target", shape));
  SG_ASSIGN(const BlockOperand weight, block_operand(call, "weight", shape));
  const double number = number_of<Loss>(call);
  const int64_t n = broadcast_to(call.tensor("self"), shape).elements();
  if (std::is_same_v<Loss, work::BinaryCrossEntropy>) SG_TRY(expect_probabilities(call, x, n));
  give_losses(call, n, [&](int64_t first, int64_t count, int thread, double* to) {
    return work::PairLoss<Loss>{x.at(first, count, thread), y.at(first, count, thread), weight.at(first, count, thread),
                                number, to};
  });
  return ok_status();
}

template <class Loss>
Status pair_loss_backward(KernelCall& call) {
  const Tensor& out = call.result();
  const double number = number_of<Loss>(call),
               share = call.integer("reduction") == kMean ? 1 / static_cast<double>(out.elements()) : 1;
  if (on_device(call)) {
    SG_ASSIGN(const double* g, operand(call, "grad_output", out.sizes()));
    SG_ASSIGN(const double* x, operand(call, "self", out.sizes()));
    SG_ASSIGN(const double* y, operand(call, "target", out.sizes()));
    SG_ASSIGN(const double* weight, operand(call, "weight", out.sizes()));
    Tensor slopes = workspace(call, DType::f64, out.sizes());
    for_each(call, out.elements(), 1, work::PairSlope<Loss>{g, x, y, weight, number, share, slopes.as<double>()});
    return copy(call, out, slopes), ok_status();
  }
  SG_ASSIGN(const BlockOperand g, block_operand(call, "grad_output", out.sizes()));
  SG_ASSIGN(const BlockOperand x, block_operand(call, "self", out.sizes()));
  SG_ASSIGN(const BlockOperand y, block_operand(call, "target", out.sizes()));
  SG_ASSIGN(const BlockOperand weight, block_operand(call, "weight", out.sizes()));
  write_blocks(call, out, [&](int64_t first, int64_t count, int thread, double* to) {
    return work::PairSlope<Loss>{g.at(first, count, thread),
                                 x.at(first, count, thread),
                                 y.at(first, count, thread),
                                 weight.at(first, count, thread),
                                 number,
                                 share,
                                 to};
  });
  return ok_status();
}

// T: the precision that the operands' type needs from elementary functions.
template <class T>
Status bce_with_logits_as(KernelCall& call) {
  const std::vector<int64_t> shape = broadcast_shape(call.tensor("self"), call.tensor("target"));
  using Work = work::CrossEntropyOfLogits<T>;
  if (on_device(call)) {
    SG_ASSIGN(const double* x, operand(call, "self", shape));
    SG_ASSIGN(const double* y, operand(call, "target", shape));
    SG_ASSIGN(const double* weight, operand(call, "weight", shape));
    SG_ASSIGN(const double* positive, operand(call, "pos_weight", shape));
    Tensor losses = workspace(call, DType::f64, shape);
    for_each(call, losses.elements(), 1, Work{x, y, weight, positive, losses.as<double>()});
    return give_loss(call, losses, static_cast<double>(losses.elements())), ok_status();
  }
  SG_ASSIGN(const BlockOperand x, block_operand(call, "self", shape));
  SG_ASSIGN(const BlockOperand y, block_operand(call, "target", shape));
  SG_ASSIGN(const BlockOperand weight, block_operand(call, "weight", shape));
  SG_ASSIGN(const BlockOperand positive, block_operand(call, "pos_weight", shape));
  const int64_t n = broadcast_to(call.tensor("self"), shape).elements();
  give_losses(call, n, [&](int64_t first, int64_t count, int thread, double* to) {
    return Work{x.at(first, count, thread), y.at(first, count, thread), weight.at(first, count, thread),
                positive.at(first, count, thread), to};
  });
  return ok_status();
}

Status bce_with_logits(KernelCall& call) {
  const bool wide = call.tensor("self").dtype == DType::f64 || call.tensor("target").dtype == DType::f64;
  return wide ? bce_with_logits_as<double>(call) : bce_with_logits_as<float>(call);
}

// --- activations with two results or two halves ---

// log_sigmoid, and exp(-|x|) if it is requested.
Status log_sigmoid_forward(KernelCall& call) {
  const ParamValue self = param_of(call.tensor("self"));
  const Tensor& small = call.result(1);
  SG_TRY(call_op(call, "aten.log_sigmoid.default", {{"self", self}}, {call.result(0)}));
  if (small.elements() == 0) return ok_status();
  SG_TRY(call_op(call, "aten.abs.default", {{"self", self}}, {small}));
  SG_TRY(call_op(call, "aten.neg.default", {{"self", param_of(small)}}, {small}));
  return call_op(call, "aten.exp.default", {{"self", param_of(small)}}, {small});
}

Status prelu_backward_there(KernelCall& call) {
  std::span<const int64_t> shape = call.result(0).sizes();
  SG_ASSIGN(const double* g, operand(call, "grad_output", shape));
  SG_ASSIGN(const double* x, operand(call, "self", shape));
  SG_ASSIGN(const double* w, operand(call, "weight", shape));
  Tensor out = workspace(call, DType::f64, shape), of_weight = workspace(call, DType::f64, shape);
  for_each(call, out.elements(), kPieceElements,
           work::PreluBackward{{g, x, w, out.as<double>()}, {g, x, of_weight.as<double>()}});
  copy(call, call.result(0), out);
  copy(call, call.result(1), of_weight);
  return ok_status();
}

Status prelu_backward(KernelCall& call) {
  if (on_device(call)) return prelu_backward_there(call);
  std::span<const int64_t> shape = call.result(0).sizes();
  SG_ASSIGN(const BlockOperand g, block_operand(call, "grad_output", shape));
  SG_ASSIGN(const BlockOperand x, block_operand(call, "self", shape));
  SG_ASSIGN(const BlockOperand w, block_operand(call, "weight", shape));
  write_blocks(call, call.result(0), [&](int64_t first, int64_t count, int thread, double* to) {
    return work::PreluSlope{g.at(first, count, thread), x.at(first, count, thread), w.at(first, count, thread), to};
  });
  write_blocks(call, call.result(1), [&](int64_t first, int64_t count, int thread, double* to) {
    return work::PreluWeightSlope{g.at(first, count, thread), x.at(first, count, thread), to};
  });
  return ok_status();
}

// Elements per row of the gate and of the gated half; rows run over the axes before `dim`.
Result<int64_t> half_row(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const int axis = wrap_axis(call.integer("dim"), self.rank);
  if (self.rank == 0 || self.dim(axis) % 2 != 0) return call.fail("the dimension has to be even");
  int64_t length = self.dim(axis) / 2;
  for (int i = axis + 1; i < self.rank; ++i) length *= self.dim(i);
  return length;
}

template <class Work>
SG_CLONES void do_row(const Work& work) {
#pragma GCC ivdep
  for (int64_t i = 0; i < work.length; ++i) work.at(0, i);
}

template <class T>
void glu_there(KernelCall& call, int64_t length) {
  const Tensor out = workspace(call, kDTypeOf<T>, call.result().sizes());
  const auto* x = contiguous_as(call, call.tensor("self"), kDTypeOf<T>).template as<T>();
  for_each(call, out.elements(), 1, work::Glu<T>{x, length, out.as<T>()});
  copy(call, call.result(), out);
}

template <class T>
void glu_by_rows(KernelCall& call, int64_t length) {
  const Tensor x = contiguous(call, call.tensor("self"));
  const ResultRows out(call, call.result(), -1);
  const RowReader<T> halves(call, x, 2 * length);
  const RowWriter<T> to(call, out.tensor(), length);
  for_rows(call, length == 0 ? 0 : x.elements() / (2 * length), length, [&](int64_t row, int thread) {
    do_row(work::Glu<T>{halves.row(row, thread), length, to.row(row, thread)});
    to.done(row, thread);
  });
  out.store(call);
}

Status glu(KernelCall& call) {
  SG_ASSIGN(const int64_t length, half_row(call));
  visit_compute(call.tensor("self").dtype,
                [&]<class T>() { on_device(call) ? glu_there<T>(call, length) : glu_by_rows<T>(call, length); });
  return ok_status();
}

template <class T>
void glu_backward_there(KernelCall& call, int64_t length) {
  const Tensor &self = call.tensor("self"), &grad = call.tensor("grad_output");
  const Tensor out = workspace(call, kDTypeOf<T>, call.result().sizes());
  const auto* x = contiguous_as(call, self, kDTypeOf<T>).template as<T>();
  const auto* g = contiguous_as(call, grad, kDTypeOf<T>).template as<T>();
  for_each(call, grad.elements(), 1, work::GluBackward<T>{x, g, length, out.as<T>()});
  copy(call, call.result(), out);
}

template <class T>
void glu_backward_by_rows(KernelCall& call, int64_t length) {
  const Tensor x = contiguous(call, call.tensor("self")), grad = contiguous(call, call.tensor("grad_output"));
  const ResultRows out(call, call.result(), -1);
  const RowReader<T> halves(call, x, 2 * length), from(call, grad, length);
  const RowWriter<T> to(call, out.tensor(), 2 * length);
  for_rows(call, length == 0 ? 0 : grad.elements() / length, 2 * length, [&](int64_t row, int thread) {
    do_row(work::GluBackward<T>{halves.row(row, thread), from.row(row, thread), length, to.row(row, thread)});
    to.done(row, thread);
  });
  out.store(call);
}

Status glu_backward(KernelCall& call) {
  SG_ASSIGN(const int64_t length, half_row(call));
  if (2 * call.tensor("grad_output").elements() != call.result().elements())
    return call.fail("the gradient is of another shape than the op needs");
  visit_compute(call.tensor("self").dtype, [&]<class T>() {
    on_device(call) ? glu_backward_there<T>(call, length) : glu_backward_by_rows<T>(call, length);
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.mse_loss.default", pair_loss<work::SquaredError>},
    {"aten.mse_loss_backward.default", pair_loss_backward<work::SquaredError>},
    {"aten.binary_cross_entropy_with_logits.default", bce_with_logits},
    {"aten.smooth_l1_loss.default", pair_loss<work::SmoothL1>},
    {"aten.smooth_l1_loss_backward.default", pair_loss_backward<work::SmoothL1>},
    {"aten.huber_loss.default", pair_loss<work::Huber>},
    {"aten.huber_loss_backward.default", pair_loss_backward<work::Huber>},
    {"aten.soft_margin_loss.default", pair_loss<work::SoftMargin>},
    {"aten.soft_margin_loss_backward.default", pair_loss_backward<work::SoftMargin>},
    {"aten.binary_cross_entropy.default", pair_loss<work::BinaryCrossEntropy>},
    {"aten.binary_cross_entropy_backward.default", pair_loss_backward<work::BinaryCrossEntropy>},
    {"aten.log_sigmoid_forward.default", log_sigmoid_forward},
    {"aten._prelu_kernel_backward.default", prelu_backward},
    {"aten.glu.default", glu},
    {"aten.glu_backward.default", glu_backward},
};

}  // namespace

std::span<const KernelRow> pair_loss_kernels() { return kRows; }

}  // namespace sg::cpu
