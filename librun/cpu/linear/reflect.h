// Householder reflections H = I - tau v v^H, where v begins with 1, as in LAPACK: H^H maps a column to a multiple beta
// of the first unit vector; beta is real, with the sign opposite to the column's first element. tau is 0 if nothing
// needs to be done.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// For the column (alpha, x[0], x[step], ...) of 1 + n elements: alpha becomes beta, x the rest of v.
template <class T>
T make_reflection(T* alpha, T* x, int64_t n, int64_t step);

// a = Q R: R on and above the diagonal of a, the vectors below it, tau[min(rows, columns)]. space.own:
// reflections_room(a.rows, a.columns).
template <class T>
void factor_qr(const Block<T>& a, T* tau, const Workspace<T>& space);

// c = Q c, or Q^H c, where Q is the product H_0 H_1 ... of the reflections whose vectors are below a's diagonal.
// REQUIRES: a.rows == c.rows, count <= a.columns, a.rows. space.own: reflections_room(c.rows, c.columns)
template <class T>
void apply_reflections(const Block<T>& a, const T* tau, int64_t count, Operator op, const Block<T>& c,
                       const Workspace<T>& space);

// Number of elements needed in Workspace::own.
int64_t reflections_room(int64_t rows, int64_t columns);

}  // namespace sg::cpu::linear
