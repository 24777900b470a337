// Factorisations by elimination, and triangular systems. Recursive, so that nearly all work is in products.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

enum class Diagonal : uint8_t { given, ones };  // ones: regardless of the stored diagonal
enum class Pivoting : uint8_t { none, rows };
enum class Swaps : uint8_t { in_order, back };

// x = l^-1 x, reading l's diagonal and the elements below it.
template <class T>
void solve_lower(const Factor<T>& l, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space);
// x = u^-1 x, reading u's diagonal and the elements above it.
template <class T>
void solve_upper(const Factor<T>& u, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space);

// a = L L^H: the lower half of a becomes L; the upper half stays. Returns 0, or which leading minor is not positive.
// `turned`: [a.rows * a.columns] elements of space.
template <class T>
int32_t cholesky(const Block<T>& a, T* turned, const Workspace<T>& space);

// P a = L U: row i of a is swapped with row pivots[i] (from 0) before row i + 1. Returns 0, or the index, from 1, of
// the first zero on the diagonal of U. Without pivoting rows stay.
template <class T>
int32_t lu(const Block<T>& a, int32_t* pivots, Pivoting pivoting, const Workspace<T>& space);

// Applies the swaps of lu(): P x, or the inverse: P^T x.
template <class T>
void swap_rows(const Block<T>& x, const int32_t* pivots, int64_t count, Swaps swaps);

// x = a^-1 x, or a^-H x, with a factored by lu().
template <class T>
void solve_factored(const Factor<T>& a, const int32_t* pivots, Operator op, const Block<T>& x,
                    const Workspace<T>& space);

}  // namespace sg::cpu::linear
