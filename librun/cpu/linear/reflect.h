// Householder reflections H = I - tau v v^H, v beginning with a one, as LAPACK has them: H^H takes a column to a
// multiple beta of the first unit vector, beta real and of the sign that the column's first number has not. tau is 0
// where there is nothing to do.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

// Of the column (alpha, x[0], x[step], ...) of 1 + n numbers: alpha becomes beta, x what v is behind its one.
template <class T>
T make_reflection(T* alpha, T* x, int64_t n, int64_t step);

// a = Q R: R on the diagonal of a and above it, the vectors below it, tau[min(rows, columns)]. space.own:
// reflections_room(a.rows, a.columns).
template <class T>
void factor_qr(const Block<T>& a, T* tau, const Workspace<T>& space);

// c = Q c, or Q^H c, Q being the product H_0 H_1 ... of the reflections whose vectors lie below a's diagonal.
// REQUIRES: a.rows == c.rows, count <= a.columns, a.rows. space.own: reflections_room(c.rows, c.columns)
template <class T>
void apply_reflections(const Block<T>& a, const T* tau, int64_t count, Operator op, const Block<T>& c,
                       const Workspace<T>& space);

// Numbers of Workspace::own.
int64_t reflections_room(int64_t rows, int64_t columns);

}  // namespace sg::cpu::linear
