// Fourier transforms along one axis as elementwise work (work/fourier.h): what fourier.cc does in thread buffers, for
// devices, with one launch per factor of the length. It also runs on the CPU, for tests.
//
// Memory  Two to four times the tensor in complex double, for the duration of the call.
// Bits    differ from those of fourier.cc, whose order of summation is different. Both compute in double.
// `from` and `to` may be the same memory. REQUIRES: they fit each other, as in fourier.cc.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// Complex to complex; real to the first half of the transform, or to all of it if `to` has room; half to real.
void complex_axis_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, bool forward, double scale);
void real_to_complex_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale);
void complex_to_real_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale);

}  // namespace sg::cpu
