// Fourier transforms along one axis as work by element (work/fourier.h): what fourier.cc does in buffers of threads,
// here for devices, a launch a factor of the length. The processor can run it, too; tests do.
//
// Memory  Two to four times the tensor in complex double, for the time of the call.
// Bits    are not those of fourier.cc: sums are in another order. Both are in double.
// `from` and `to` may be the same memory. REQUIRES: they fit each other, as fourier.cc has it.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// Complex to complex; real to the first half of the transform, or to all of it where `to` has room; halves to real.
void complex_axis_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, bool forward, double scale);
void real_to_complex_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale);
void complex_to_real_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale);

}  // namespace sg::cpu
