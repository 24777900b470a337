// Factorisations by elimination, and systems with triangular matrices. Recursive, so that nearly all work is in
// products.
#pragma once

#include "librun/cpu/linear/dense.h"

namespace sg::cpu::linear {

enum class Diagonal : uint8_t { given, ones };  // ones: whatever lies there
enum class Pivoting : uint8_t { none, rows };
enum class Swaps : uint8_t { in_order, back };

// x = l^-1 x, of what lies on the diagonal of l and below it.
template <class T>
void solve_lower(const Factor<T>& l, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space);
// x = u^-1 x, of what lies on the diagonal of u and above it.
template <class T>
void solve_upper(const Factor<T>& u, const Block<T>& x, Diagonal diagonal, const Workspace<T>& space);

// a = L L^H: the lower half of a becomes L; the upper one is left. Answers 0, or which leading minor is not positive.
// `turned`: [a.rows * a.columns] numbers of space.
template <class T>
int32_t cholesky(const Block<T>& a, T* turned, const Workspace<T>& space);

// P a = L U, row i of a having been swapped with row pivots[i] (from 0 on) before i + 1. Answers 0, or the first number
// on the diagonal of U, counted from 1, that is zero. Without pivoting rows stay.
template <class T>
int32_t lu(const Block<T>& a, int32_t* pivots, Pivoting pivoting, const Workspace<T>& space);

// The swaps of lu(): P x, or back: P^T x.
template <class T>
void swap_rows(const Block<T>& x, const int32_t* pivots, int64_t count, Swaps swaps);

// x = a^-1 x, or a^-H x, a being factored by lu().
template <class T>
void solve_factored(const Factor<T>& a, const int32_t* pivots, Operator op, const Block<T>& x,
                    const Workspace<T>& space);

}  // namespace sg::cpu::linear
