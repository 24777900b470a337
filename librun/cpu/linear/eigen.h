// Eigenvalues and vectors of a Hermitian matrix: by reflections to a real tridiagonal one, then by rotations (implicit
// QL).
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// Of the lower half of `a`, which is used up. `values`: [n], increasing; row i of `vectors` is the eigenvector of
// value i, of length 1; its sign or phase is what the algorithm gives. Null data: values alone. Whether it converged:
// it does but for NaN. space.own: eigen_room(n)
template <class T>
bool decompose_hermitian(const Block<T>& a, double* values, const Block<T>& vectors, const Workspace<T>& space);

int64_t eigen_room(int64_t n);

}  // namespace sg::cpu::linear
