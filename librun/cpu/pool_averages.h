// Averages over windows of planes of floats, and their gradients, a row of windows at a time: sums in double, each in
// the order of work::AvgPool and work::PoolBackward.
#pragma once

#include "librun/kernel.h"
#include "librun/work/pool.h"

namespace sg::cpu {

struct Divisor {
  bool given, padded;
  int64_t value;
};

// REQUIRES: tensors of floats on the processor.
void average_windows(KernelCall& call, const work::Window& w, const Divisor& by);  // from "self"
void spread_averages(KernelCall& call, const work::Window& w, const Divisor& by);  // from "grad_output"

}  // namespace sg::cpu
