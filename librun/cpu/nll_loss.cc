// Negative log-likelihood of class indices, and its gradient.
#include "librun/cpu/class_loss.h"

namespace sg::cpu {
namespace {

// Scores [classes], [batch, classes] or [batch, classes, height, width]: contiguous, viewed as [batch, classes, plane].
struct Samples {
  Tensor scores;
  int64_t classes, plane;
  ClassLabels labels;

  // The offset of the score of sample i's class. REQUIRES: the sample counts
  int64_t at(int64_t i) const {
    if (plane == 1) return i * classes + labels.target[i];
    const int64_t entry = i / plane;
    return (entry * (classes - 1) + labels.target[i]) * plane + i;
  }
};

Result<Samples> samples(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const int64_t classes = self.dim(self.rank == 1 ? 0 : 1), plane = self.rank == 4 ? self.dim(2) * self.dim(3) : 1;
  const int64_t batch = self.rank == 1 ? 1 : self.dim(0);
  SG_ASSIGN(ClassLabels labels, class_labels(call, batch * plane, classes));
  return Samples{contiguous(call, self), classes, plane, labels};
}

template <class T>
void forward(KernelCall& call, const Samples& s, const Tensor& result) {
  const bool one_each = call.integer("reduction") == kNoReduction && call.tensor("self").rank != 1;
  const T* scores = s.scores.as<T>();
  give_class_loss<T>(call, s.labels, result, one_each,
                     [&](int64_t i) { return static_cast<double>(static_cast<Compute<T>>(scores[s.at(i)])); });
}

Status nll_loss(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  const Tensor& planes = call.result(0);
  bool one_each = planes.rank == 3;  // one loss per place of planes, as rows
  Tensor out = one_each ? call.scratch().tensor(planes.dtype, std::array{s.labels.count}) : planes;
  visit_floating(s.scores.dtype, [&]<class T>() { forward<T>(call, s, out); });
  if (one_each) copy(call, planes, make_tensor(out.data, planes.dtype, planes.sizes()));
  return ok_status();
}

template <class T>
void backward(KernelCall& call, const Samples& s, T* out, const Tensor& grad) {
  const ClassSlopes<T> slope(call, s.labels, grad);
  for (int64_t i = 0; i < s.labels.count; ++i)
    if (s.labels.counts(i)) out[s.at(i)] = slope(i);
}

Status nll_loss_backward(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  Tensor grad = per_sample(call.tensor("grad_output"));
  if (grad.rank == 3) {
    Tensor line = contiguous(call, grad);
    grad = make_tensor(line.data, line.dtype, std::array{line.elements()});
  }
  if (grad.dim(0) != 1 && grad.dim(0) != s.labels.count) return call.fail("needs one gradient a sample");
  const ResultRows out(call, call.result(), -1);
  fill(call, out.tensor(), Scalar::integer(0));
  visit_floating(s.scores.dtype, [&]<class T>() { backward<T>(call, s, out.tensor().as<T>(), grad); });
  out.store(call);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.nll_loss_forward.default", nll_loss},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss2d_forward.default", nll_loss},
    {"aten.nll_loss2d_backward.default", nll_loss_backward},
};

}  // namespace

std::span<const KernelRow> nll_loss_kernels() { return kRows; }

}  // namespace sg::cpu
