// The product of two vectors, with the multiply-adds that docs/design/005 defines for an element of a matrix product:
// chains over 256 elements, added up in order. A tile of a matrix product would compute hundreds of elements for one;
// here the chains run in parallel.
#pragma once

#include "librun/kernel.h"

namespace sg::cpu {

// out (one element of any float type) = the sum of a * b: contiguous vectors of n floats or doubles.
template <class T>
void dot_product(KernelCall& call, const T* a, const T* b, int64_t n, const Tensor& out);

}  // namespace sg::cpu
