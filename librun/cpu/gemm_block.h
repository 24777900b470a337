// Products of blocks that fit a cache, by one thread: what gemm() is made of, for kernels that multiply blocks of their
// own.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

// A packed for tiles: [sum blocks, rows, Packing<P>::kRow]. A block of at most kSumBlock columns may just as well be written
// in that layout where it is made.
template <class P = float>
int64_t packed_a_size(int64_t rows, int64_t k) {
  return (k + kSumBlock - 1) / kSumBlock * rows * Packing<P>::kRow;
}

template <class P>
void pack_a(const TileKernels<P>& kernels, const MatrixView& a, int64_t rows, int64_t k, P* to);

// Elements of the space that multiply_packed packs a panel of B into.
inline constexpr int64_t kPanelSize = kSumBlock * kMaxTileColumns;

inline int64_t padded_columns(int64_t columns) {
  return (columns + kMaxTileColumns - 1) / kMaxTileColumns * kMaxTileColumns;
}

// How the first block of sums meets C, and how the others do.
struct Starts {
  TileStart first = TileStart::zero, later = TileStart::add;
};

// c (start)= a @ b: a packed [rows, k], b [k, columns]. With `padded`, rows of c have room for padded_columns(columns),
// and what lies behind the last column is zero or stays.
template <class P>
void multiply_packed(const TileKernels<P>& kernels, const P* a, int64_t rows, const MatrixView& b, int64_t columns,
                     int64_t k, Starts start, typename Packing<P>::Sum* c, int64_t c_step, bool padded, P* panel);

// One batch entry of a tensor whose last two axes are a matrix; `entry` counts the axes before in row-major order.
MatrixView matrix_of(const Tensor& t, int64_t entry);

}  // namespace sg::cpu
