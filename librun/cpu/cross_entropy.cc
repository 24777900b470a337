// Cross entropy of classes and its gradient without storing log-probabilities: only each row's log-sum is stored, from
// which they are recomputed with the same bits as log-softmax.
#include "librun/cpu/class_loss.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/log_sum.h"
#include "librun/work/exp_float.h"

namespace sg::cpu {
namespace {

template <class C>
SG_INLINE C log_probability(C x, double log_sum) {
  return static_cast<C>(static_cast<double>(x) - log_sum);
}

// The gradient of a row in which only one class's score has an incoming gradient.
template <class C>
SG_CLONES void row_gradient(const C* x, double log_sum, C slope, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = 0 - math::exp_float(log_probability(x[i], log_sum)) * slope;
}

template <class C>
Status loss_of_rows(KernelCall& call, const ClassLabels& labels) {
  const Rows in = rows_of(call, call.tensor("self"), 1);
  const RowReader<C> x(call, in.tensor, in.length);
  auto* scores = call.scratch().take<C>(in.count);
  auto* log_sums = call.result(2).as<double>();
  for_rows(call, in.count, in.length, [&](int64_t row, int thread) {
    const C* numbers = x.row(row, thread);
    log_sums[row] = log_sum_of_exp(numbers, in.length);
    if (labels.counts(row)) scores[row] = log_probability(numbers[labels.target[row]], log_sums[row]);
  });
  give_class_loss<C>(call, labels, call.result(), call.integer("reduction") == kNoReduction,
                     [&](int64_t i) { return static_cast<double>(scores[i]); });
  return ok_status();
}

Status cross_entropy(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(const ClassLabels labels, class_labels(call, self.dim(0), self.dim(1)));
  return self.dtype == DType::f64 ? loss_of_rows<double>(call, labels) : loss_of_rows<float>(call, labels);
}

template <class C>
Status gradient_of_rows(KernelCall& call, const ClassLabels& labels) {
  const Tensor grad = per_sample(call.tensor("grad_output"));
  if (grad.dim(0) != 1 && grad.dim(0) != labels.count) return call.fail("needs one gradient a sample");
  const ClassSlopes<C> slope_of(call, labels, grad);
  const Rows in = rows_of(call, call.tensor("self"), 1);
  const auto* log_sums = contiguous(call, call.tensor("log_sum")).template as<double>();
  ResultRows out(call, call.result(), 1);
  const RowReader<C> x(call, in.tensor, in.length);
  const RowWriter<C> to(call, out.tensor(), in.length);
  for_rows(call, in.count, in.length, [&](int64_t row, int thread) {
    const C* numbers = x.row(row, thread);
    C* gradient = to.row(row, thread);  // may be the same memory as the numbers
    const C slope = labels.counts(row) ? slope_of(row) : C{0};
    const C number = labels.counts(row) ? numbers[labels.target[row]] : C{0};
    row_gradient(numbers, log_sums[row], slope, gradient, in.length);
    if (labels.counts(row))
      gradient[labels.target[row]] = slope - math::exp_float(log_probability(number, log_sums[row])) * slope;
    to.done(row, thread);
  });
  out.store(call);
  return ok_status();
}

Status cross_entropy_backward(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(const ClassLabels labels, class_labels(call, self.dim(0), self.dim(1)));
  return self.dtype == DType::f64 ? gradient_of_rows<double>(call, labels) : gradient_of_rows<float>(call, labels);
}

constexpr KernelRow kRows[] = {
    {"sg.cross_entropy", cross_entropy},
    {"sg.cross_entropy_backward", cross_entropy_backward},
};

}  // namespace

std::span<const KernelRow> cross_entropy_kernels() { return kRows; }

}  // namespace sg::cpu
