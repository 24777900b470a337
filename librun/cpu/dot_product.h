// The product of two vectors by the multiply-adds that docs/design/005 defines for an element of a matrix product: chains
// over 256 numbers, added up in order. A tile of a matrix product would compute one element in hundreds; here chains run
// beside each other.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// out, one number of any float type = the sum of a * b: contiguous vectors of n float or double.
template <class T>
void dot_product(KernelCall& call, const T* a, const T* b, int64_t n, const Tensor& out);

}  // namespace sg::cpu
