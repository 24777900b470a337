// Losses with one class per sample: the classes, their weights, and the reduction to results.
#pragma once

#include <string>

#include "librun/cpu/rows.h"

namespace sg::cpu {

enum LossReduction : int64_t { kNoReduction = 0, kMeanLoss = 1, kSumOfLosses = 2 };

// `target`, `weight` and `ignore_index` of a call.
struct ClassLabels {
  const int64_t* target;
  const double* weight = nullptr;  // by class
  int64_t ignored, count;

  bool counts(int64_t i) const { return target[i] != ignored; }
  double weight_of(int64_t i) const { return weight ? weight[target[i]] : 1.0; }
};

// Errors: not one target per sample, or a target that is not a class.
inline Result<ClassLabels> class_labels(KernelCall& call, int64_t samples, int64_t classes) {
  ClassLabels labels{nullptr, nullptr, call.integer("ignore_index"), samples};
  if (call.tensor("target").elements() != samples) return call.fail("needs one target a sample");
  labels.target = contiguous_as(call, call.tensor("target"), DType::i64).as<int64_t>();
  if (call.has("weight")) labels.weight = contiguous_as(call, call.tensor("weight"), DType::f64).as<double>();
  for (int64_t i = 0; i < samples; ++i)
    if (labels.counts(i) && (labels.target[i] < 0 || labels.target[i] >= classes))
      return call.fail("target " + std::to_string(labels.target[i]) + " at position " + std::to_string(i) +
                       " is out of range for " + std::to_string(classes) + " classes");
  return labels;
}

// A tensor with one number per sample, or a single number for all.
inline Tensor per_sample(const Tensor& t) {
  Tensor out = t;
  if (t.rank == 0) out.rank = 1, out.shape[0] = 1, out.stride[0] = 0;
  return out;
}

// Stores the loss in `result` and the total weight in result 1, both of T; score(i) is the score of sample i's class.
template <class T, class Score>
void give_class_loss(KernelCall& call, const ClassLabels& labels, const Tensor& result, bool one_each,
                     const Score& score) {
  const int64_t n = labels.count;
  auto* losses = call.scratch().take<double>(n);
  auto* weights = call.scratch().take<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = labels.counts(i) ? labels.weight_of(i) : 0.0;
    losses[i] = labels.counts(i) ? -score(i) * weights[i] : 0.0;
  }
  double weight = row_sum(weights, n);
  const double loss = row_sum(losses, n);
  auto rounded = [](double x) { return static_cast<T>(static_cast<Compute<T>>(x)); };
  const Tensor out = per_sample(result);
  if (one_each) {
    for (int64_t i = 0; i < n; ++i) out.as<T>()[i * out.stride[0]] = rounded(losses[i]);
    weight = 0;
  } else {
    *out.as<T>() = rounded(call.integer("reduction") == kMeanLoss ? loss / weight : loss);
  }
  *call.result(1).as<T>() = rounded(weight);
}

// The gradients of scores, from `grad_output` (of T) and `total_weight`.
template <class T>
class ClassSlopes {
 public:
  ClassSlopes(const KernelCall& call, const ClassLabels& labels, const Tensor& grad)
      : labels_(labels), grad_(grad), mean_(call.integer("reduction") == kMeanLoss) {
    total_ = number(per_sample(call.tensor("total_weight")), 0);
  }
  // The gradient of the score of sample i's class. REQUIRES: the sample counts
  T operator()(int64_t i) const {
    double g = -labels_.weight_of(i) * number(grad_, grad_.dim(0) == labels_.count ? i : 0);
    if (mean_) g /= total_;
    return static_cast<T>(static_cast<Compute<T>>(g));
  }

 private:
  static double number(const Tensor& t, int64_t i) {
    return static_cast<double>(static_cast<Compute<T>>(t.as<T>()[i * t.stride[0]]));
  }
  const ClassLabels& labels_;
  const Tensor& grad_;
  bool mean_;
  double total_;
};

}  // namespace sg::cpu
