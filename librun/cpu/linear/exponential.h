// The exponential of a matrix.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// out = e^a for a square `a`, which is overwritten. NaN if a is not finite. space.own: exponential_room(n)
template <class T>
void exponential(const Block<T>& a, const Block<T>& out, const Workspace<T>& space);

int64_t exponential_room(int64_t n);

}  // namespace sg::cpu::linear
