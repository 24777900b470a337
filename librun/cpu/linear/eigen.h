// Eigenvalues and vectors of a Hermitian matrix: by reflections to a real tridiagonal one, then by rotations (implicit
// QL).
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// Reads the lower half of `a`, and overwrites `a`. `values`: [n], increasing; row i of `vectors` is the eigenvector of
// value i, of length 1, with the sign or phase that the algorithm produces. Null data: no vectors. Returns whether it
// converged; only NaN prevents that. space.own: eigen_room(n)
template <class T>
bool decompose_hermitian(const Block<T>& a, double* values, const Block<T>& vectors, const Workspace<T>& space);

int64_t eigen_room(int64_t n);

}  // namespace sg::cpu::linear
