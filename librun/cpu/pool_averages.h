// Averages over windows of float planes, and their gradients, a row of windows at a time: sums in double, each in the
// order of work::AvgPool and work::PoolBackward.
#pragma once

#include "librun/kernel.h"
#include "librun/work/pool.h"

namespace sg::cpu {

struct Divisor {
  bool given, padded;
  int64_t value;
};

// REQUIRES: float tensors on the CPU.
void average_windows(KernelCall& call, const work::Window& w, const Divisor& by);  // from "self"
void spread_averages(KernelCall& call, const work::Window& w, const Divisor& by);  // from "grad_output"

}  // namespace sg::cpu
