// The reductions of losses: none, mean, sum.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The sum of contiguous doubles, in an order that depends only on their number.
double sum_of(KernelCall& call, const double* x, int64_t n);

// Reduces losses (contiguous doubles) into the first result by the call's `reduction`. `divisor`: for a mean.
void give_loss(KernelCall& call, const Tensor& losses, double divisor);
// The same, with a mean weighted by `weights`.
void give_weighted_loss(KernelCall& call, const Tensor& losses, const Tensor& weights);

}  // namespace sg::cpu
