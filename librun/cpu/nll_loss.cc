// Negative log-likelihood of class indices, and its gradient.
#include "librun/cpu/class_loss.h"

namespace sg::cpu {
namespace {

// One sample is a vector of classes; a batch is rows of them, and so are planes [batch, classes, height, width].
struct Samples {
  Tensor scores;  // [samples, classes]
  ClassLabels labels;
};

Tensor as_batch(const Tensor& t) {
  if (t.rank == 2) return t;
  Tensor batch = t;  // [classes] -> [1, classes]
  batch.rank = 2;
  batch.shape[0] = 1, batch.stride[0] = 0;
  batch.shape[1] = t.shape[0], batch.stride[1] = t.stride[0];
  return batch;
}

// [batch, classes, height, width] as [batch * height * width, classes].
Tensor rows_of_planes(KernelCall& call, const Tensor& planes) {
  Tensor last = contiguous(call, swap_axes(swap_axes(planes, 1, 2), 2, 3));
  int64_t classes = planes.dim(1);
  return make_tensor(last.data, planes.dtype, std::array{classes == 0 ? 0 : planes.elements() / classes, classes});
}

Result<Samples> samples(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const Tensor scores = self.rank == 4 ? rows_of_planes(call, self) : as_batch(self);
  SG_ASSIGN(ClassLabels labels, class_labels(call, scores.dim(0), scores.dim(1)));
  return Samples{scores, labels};
}

template <class T>
void forward(KernelCall& call, const Samples& s, const Tensor& result) {
  const bool one_each = call.integer("reduction") == kNoReduction && call.tensor("self").rank != 1;
  give_class_loss<T>(call, s.labels, result, one_each, [&](int64_t i) {
    return static_cast<double>(
        static_cast<Compute<T>>(s.scores.as<T>()[i * s.scores.step(0) + s.labels.target[i] * s.scores.step(1)]));
  });
}

Status nll_loss(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  const Tensor& planes = call.result(0);
  bool one_each = planes.rank == 3;  // one loss a place of planes: as rows
  Tensor out = one_each ? call.scratch().tensor(planes.dtype, std::array{s.labels.count}) : planes;
  visit_floating(s.scores.dtype, [&]<class T>() { forward<T>(call, s, out); });
  if (one_each) copy(call, planes, make_tensor(out.data, planes.dtype, planes.sizes()));
  return ok_status();
}

template <class T>
void backward(KernelCall& call, const Samples& s, const Tensor& out, const Tensor& grad) {
  const ClassSlopes<T> slope(call, s.labels, grad);
  for (int64_t i = 0; i < s.labels.count; ++i)
    if (s.labels.counts(i)) out.as<T>()[i * out.stride[0] + s.labels.target[i] * out.stride[1]] = slope(i);
}

Status nll_loss_backward(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  Tensor grad = per_sample(call.tensor("grad_output"));
  bool planes = call.tensor("self").rank == 4;
  if (grad.rank == 3) {
    Tensor line = contiguous(call, grad);
    grad = make_tensor(line.data, line.dtype, std::array{line.elements()});
  }
  if (grad.dim(0) != 1 && grad.dim(0) != s.labels.count) return call.fail("needs one gradient a sample");
  Tensor out = planes ? call.scratch().tensor(s.scores.dtype, s.scores.sizes()) : as_batch(call.result());
  fill(call, out, Scalar::integer(0));
  visit_floating(s.scores.dtype, [&]<class T>() { backward<T>(call, s, out, grad); });
  if (!planes) return ok_status();
  Tensor last = swap_axes(swap_axes(call.result(), 1, 2), 2, 3);
  copy(call, last, make_tensor(out.data, out.dtype, last.sizes()));
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
