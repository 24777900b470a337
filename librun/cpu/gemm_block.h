// Products of blocks that fit a cache, by one thread: what gemm() is made of, for kernels that multiply blocks of their
// own.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/gemm_tile.h"

namespace sg::cpu {

// A packed for tiles: [sum blocks, rows, kPackedRow]. A block of at most kSumBlock columns may just as well be written
// in that layout where it is made.
inline int64_t packed_a_size(int64_t rows, int64_t k) { return (k + kSumBlock - 1) / kSumBlock * rows * kPackedRow; }

template <class T>
void pack_a(const TileKernels<T>& kernels, const MatrixView& a, int64_t rows, int64_t k, T* to);

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
template <class T>
void multiply_packed(const TileKernels<T>& kernels, const T* a, int64_t rows, const MatrixView& b, int64_t columns,
                     int64_t k, Starts start, T* c, int64_t c_step, bool padded, T* panel);

// out[i, j] = from[i * step + j], rounded to out's type.
template <class T>
void store_block(const T* from, int64_t step, const MatrixView& out, int64_t rows, int64_t columns);

// One batch entry of a tensor whose last two axes are a matrix; `entry` counts the axes before in row-major order.
MatrixView matrix_of(const Tensor& t, int64_t entry);

}  // namespace sg::cpu
