// A Hermitian matrix by reflections to a real tridiagonal one.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// a = Q T Q^H: the vectors of Q go below a's subdiagonal, T into d [n] and e [n - 1]. Reads the lower half of `a`,
// whose diagonal is real. tau: [n]; space.own: tridiagonal_room(n)
template <class T>
void make_tridiagonal(const Block<T>& a, double* d, double* e, T* tau, const Workspace<T>& space);

int64_t tridiagonal_room(int64_t n);

}  // namespace sg::cpu::linear
