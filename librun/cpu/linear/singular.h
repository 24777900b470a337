// Singular values and vectors: by reflections to a real bidiagonal matrix, then by rotations (implicit QR).
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// a = U S V^H. `a` has at least as many rows as columns, n, and is used up. `values`: [n], decreasing; the rows of
// `left` [n or a.rows, a.rows] are the columns of U, those of `right` [n, n] the columns of V, conjugated: V^H as it
// is. Null data of both: values alone. Whether it converged: it does but for what is not finite. space.own:
// singular_room(a.rows, n)
template <class T>
bool decompose_singular(const Block<T>& a, double* values, const Block<T>& left, const Block<T>& right,
                        const Workspace<T>& space);

int64_t singular_room(int64_t rows, int64_t columns);

}  // namespace sg::cpu::linear
