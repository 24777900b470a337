// Products of blocks that fit a cache, on one thread: the building blocks of gemm(), also for kernels that multiply
// their own blocks.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

// A packed for tiles: [sum blocks, rows, Packing<P>::kRow]. A block of at most kSumBlock columns may also be produced
// directly in that layout.
template <class P = float>
int64_t packed_a_size(int64_t rows, int64_t k) {
  return (k + kSumBlock - 1) / kSumBlock * rows * Packing<P>::kRow;
}

template <class P>
void pack_a(const TileKernels<P>& kernels, const MatrixView& a, int64_t rows, int64_t k, P* to);

// Elements of the buffer into which multiply_packed packs a panel of B.
inline constexpr int64_t kPanelSize = kSumBlock * kMaxTileColumns;

inline int64_t padded_columns(int64_t columns) {
  return (columns + kMaxTileColumns - 1) / kMaxTileColumns * kMaxTileColumns;
}

// How the first block of sums is combined with C, and how the others are.
struct Starts {
  TileStart first = TileStart::zero, later = TileStart::add;
};

// a @ b: a packed [rows, k], b [k, columns].
template <class P>
struct PackedProduct {
  const P* a;
  int64_t rows;
  MatrixView b;
  int64_t columns, k;
};

// Where the sums of a product go: [rows, columns], rows `step` apart. If padded, rows have room for
// padded_columns(columns), and the elements after the last column become zero or stay.
template <class Sum>
struct PackedSums {
  Sum* c;
  int64_t step;
  bool padded;
  Starts start;
};

// `panel`: kPanelSize elements.
template <class P>
void multiply_packed(const TileKernels<P>& kernels, const PackedProduct<P>& product,
                     const PackedSums<typename Packing<P>::Sum>& to, P* panel);

// One batch entry of a tensor whose last two axes are a matrix; `entry` is the row-major index over the preceding axes.
MatrixView matrix_of(const Tensor& t, int64_t entry);

}  // namespace sg::cpu
