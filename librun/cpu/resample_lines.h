// Resampling one axis, or two axes at once, on the CPU: lines are read in the type of the tensor, and stay in a
// thread's memory between the two. The results of work::Resample, one axis after the other.
#pragma once

#include "librun/any_device/resample.h"

namespace sg::cpu {

// [outer, before.in, last.in, inner] becomes [outer, before.out, last.out, inner].
struct LineTaps {
  const Taps* before;  // null: there is no such axis
  const Taps& last;
  int64_t outer, inner;
};

// REQUIRES: contiguous tensors of floating dtypes, not empty.
void resample_lines(KernelCall& call, const LineTaps& taps, const Tensor& from, const Tensor& to);

// The same for a single axis with many inner elements, from f64 to f64.
void resample_one_axis(KernelCall& call, const LineTaps& taps, const Tensor& from, const Tensor& to);

}  // namespace sg::cpu
