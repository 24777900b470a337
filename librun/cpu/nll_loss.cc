// Negative log-likelihood of class indices, and its gradient.
#include <cmath>

#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// One sample is a vector of classes; a batch is rows of them, and so are planes [batch, classes, height, width].
struct Samples {
  Tensor scores;  // [samples, classes]
  const int64_t* target;
  const double* weight = nullptr;  // by class
  int64_t ignored;
  int64_t count() const { return scores.dim(0); }
  bool counts(int64_t i) const { return target[i] != ignored; }
  double weight_of(int64_t i) const { return weight ? weight[target[i]] : 1.0; }
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
  Samples s{self.rank == 4 ? rows_of_planes(call, self) : as_batch(self), nullptr, nullptr,
            call.integer("ignore_index")};
  if (call.tensor("target").elements() != s.count()) return call.fail("needs one target a sample");
  s.target = contiguous_as(call, call.tensor("target"), DType::i64).as<int64_t>();
  if (call.has("weight")) s.weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  for (int64_t i = 0; i < s.count(); ++i)
    if (s.counts(i) && (s.target[i] < 0 || s.target[i] >= s.scores.dim(1)))
      return call.fail("target " + std::to_string(s.target[i]) + " at position " + std::to_string(i) +
                       " is out of range for " + std::to_string(s.scores.dim(1)) + " classes");
  return s;
}

Tensor per_sample(const Tensor& t) {  // a result of one number a sample, or of one
  Tensor out = t;
  if (t.rank == 0) out.rank = 1, out.shape[0] = 1, out.stride[0] = 0;
  return out;
}

double sum_in_order(const double* x, int64_t n) { return row_sum(x, n); }

template <class T>
void forward(KernelCall& call, const Samples& s, const Tensor& result) {
  int64_t n = s.count(), reduction = call.integer("reduction");
  auto* losses = call.scratch().take<double>(n);
  auto* weights = call.scratch().take<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = s.counts(i) ? s.weight_of(i) : 0.0;
    double score = s.counts(i) ? static_cast<double>(static_cast<Compute<T>>(
                                     s.scores.as<T>()[i * s.scores.step(0) + s.target[i] * s.scores.step(1)]))
                               : 0.0;
    losses[i] = s.counts(i) ? -score * weights[i] : 0.0;
  }
  double weight = sum_in_order(weights, n), loss = sum_in_order(losses, n);
  auto rounded = [](double x) { return static_cast<T>(static_cast<Compute<T>>(x)); };
  Tensor out = per_sample(result);
  if (reduction == kNone && call.tensor("self").rank != 1) {
    for (int64_t i = 0; i < n; ++i) out.as<T>()[i * out.stride[0]] = rounded(losses[i]);
    weight = 0;
  } else {
    *out.as<T>() = rounded(reduction == kMean ? loss / weight : loss);
  }
  *call.result(1).as<T>() = rounded(weight);
}

Status nll_loss(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  const Tensor& planes = call.result(0);
  bool one_each = planes.rank == 3;  // one loss a place of planes: as rows
  Tensor out = one_each ? call.scratch().tensor(planes.dtype, std::array{s.count()}) : planes;
  visit_floating(s.scores.dtype, [&]<class T>() { forward<T>(call, s, out); });
  if (one_each) copy(call, planes, make_tensor(out.data, planes.dtype, planes.sizes()));
  return ok_status();
}

template <class T>
void backward(KernelCall& call, const Samples& s, const Tensor& out, const Tensor& grad) {
  int64_t reduction = call.integer("reduction");
  auto number = [](const Tensor& t, int64_t i) {
    return static_cast<double>(static_cast<Compute<T>>(t.as<T>()[i * t.stride[0]]));
  };
  double total = number(per_sample(call.tensor("total_weight")), 0);
  for (int64_t i = 0; i < s.count(); ++i) {
    if (!s.counts(i)) continue;
    double g = -s.weight_of(i) * number(grad, grad.dim(0) == s.count() ? i : 0);
    if (reduction == kMean) g /= total;
    out.as<T>()[i * out.stride[0] + s.target[i] * out.stride[1]] = static_cast<T>(static_cast<Compute<T>>(g));
  }
}

Status nll_loss_backward(KernelCall& call) {
  SG_ASSIGN(Samples s, samples(call));
  Tensor grad = per_sample(call.tensor("grad_output"));
  bool planes = call.tensor("self").rank == 4;
  if (grad.rank == 3) {
    Tensor line = contiguous(call, grad);
    grad = make_tensor(line.data, line.dtype, std::array{line.elements()});
  }
  if (grad.dim(0) != 1 && grad.dim(0) != s.count()) return call.fail("needs one gradient a sample");
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
