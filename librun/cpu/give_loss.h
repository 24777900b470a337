// The reduction of losses: none, mean, sum.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The sum of contiguous doubles, in an order that hangs on their number alone.
double sum_of(KernelCall& call, const double* x, int64_t n);

// Reduces losses (contiguous doubles) into the first result as the call's `reduction` says. `divisor`: of a mean.
void give_loss(KernelCall& call, const Tensor& losses, double divisor);
// The same; a mean is that of the weights.
void give_weighted_loss(KernelCall& call, const Tensor& losses, const Tensor& weights);

}  // namespace sg::cpu
