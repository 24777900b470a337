// Sums of f32, bf16 and f16 in the order that PyTorch's CPU kernels have, so that a sum has the bits that it recorded
// if its summands do. That order is one of sizes, strides and types; not of the machine, nor of threads where a sum is
// short enough to be left to one of them.
//
//   Cascade   Numbers are added 16 at a time; 16 such sums to one, 16 of these, ... (larger powers of two if there are
//             many). In f32; a result in 16 bits is rounded at the end.
//   Row       Along a reduced axis: 4 cascades that take turns, each of 8 lanes where the axis is contiguous (8 pairs
//             for 16 bits); a row's last numbers are added first to the sum of the lanes.
//   Columns   Of adjacent outputs, 32 at a time are cascades down the rows; what is left of them are rows.
//   More      A further reduced axis adds its rows one after the other.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

enum class CascadeOf : uint8_t { sum, mean };

// Writes the call's result. False, and nothing is done: the sum is long, or its order there is not this one.
bool cascade_sum(KernelCall& call, const Tensor& self, CascadeOf what);

}  // namespace sg::cpu
