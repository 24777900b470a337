// Copies blocks of matrices into the layout of gemm_tile.h, and sums out of it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "librun/cpu/gemm_tile.h"
#include "librun/element.h"
#include "librun/tensor.h"

namespace sg::cpu {

// A matrix of any float type: element [i, j] is data[i * row_step + j * column_step].
struct MatrixView {
  const std::byte* data = nullptr;
  DType dtype = DType::none;
  int64_t row_step = 0, column_step = 0;

  MatrixView at(int64_t row, int64_t column) const {
    return {data + (row * row_step + column * column_step) * dtype_bytes(dtype), dtype, row_step, column_step};
  }
  MatrixView transposed() const { return {data, dtype, column_step, row_step}; }
};

template <class T>  // float, double
inline constexpr DType kTileType = sizeof(T) == sizeof(double) ? DType::f64 : DType::f32;
template <>
inline constexpr DType kTileType<BF16> = DType::bf16;

// Converts a number to another type, rounding once; the same bits if the types are equal.
template <class To, class From>
SG_INLINE To converted(From x) {
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (sizeof(From) < sizeof(float)) return static_cast<To>(static_cast<Compute<From>>(x));
  else return static_cast<To>(static_cast<Compute<To>>(x));
}

// to[i * to_step + j] = from[i, j], converted to T (float or double).
template <class T>
void pack_block(const TileKernels<T>& kernels, const MatrixView& from, int64_t rows, int64_t columns, T* to,
                int64_t to_step);

// out[i, j] = from[i * step + j], rounded to out's type.
template <class T>
void store_block(const T* from, int64_t step, const MatrixView& out, int64_t rows, int64_t columns);

// The operands of a matrix product. A with rows along k: to[i * to_step + p] is element p of row i.
template <class P>  // float, double, Bf16Pair
void pack_left(const TileKernels<P>& kernels, const MatrixView& a, int64_t rows, int64_t k, P* to, int64_t to_step);
template <>
void pack_left(const TileKernels<Bf16Pair>&, const MatrixView& a, int64_t rows, int64_t k, Bf16Pair* to, int64_t step);

// B with columns along k: to[p * to_step + j] is element p of column j.
template <class P>
void pack_right(const TileKernels<P>& kernels, const MatrixView& b, int64_t k, int64_t columns, P* to, int64_t to_step);
template <>
void pack_right(const TileKernels<Bf16Pair>&, const MatrixView& b, int64_t k, int64_t columns, Bf16Pair* to,
                int64_t step);

}  // namespace sg::cpu
