// Singular values and vectors: reduction to a real bidiagonal matrix by reflections, then rotations (implicit QR).
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// a = U S V^H. `a` has at least as many rows as columns, n, and is overwritten. `values`: [n], decreasing; the rows of
// `left` [n or a.rows, a.rows] are the columns of U, those of `right` [n, n] the conjugated columns of V: V^H itself.
// If both have null data, only values are computed. Returns whether it converged, which it does unless a is not finite.
// space.own: singular_room(a.rows, n)
template <class T>
bool decompose_singular(const Block<T>& a, double* values, const Block<T>& left, const Block<T>& right,
                        const Workspace<T>& space);

int64_t singular_room(int64_t rows, int64_t columns);

}  // namespace sg::cpu::linear
