#include "librun/cpu/gemm_block.h"

#include <algorithm>
#include <utility>

#include "librun/cpu/gemm_prefetch.h"

namespace sg::cpu {
namespace {

// A tile at the right edge of a result: computed beside it.
template <class T>
void run_edge_tile(const TileKernels<T>& kernels, Tile<T> tile, int64_t rows, int64_t columns) {
  alignas(64) T edge[kMaxTileRows * kMaxTileColumns] = {};
  T* c = std::exchange(tile.c, edge);
  int64_t step = std::exchange(tile.c_step, kMaxTileColumns);
  if (tile.start != TileStart::zero)
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c + i * step, columns, edge + i * kMaxTileColumns);
  kernels.run[rows - 1](tile);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(edge + i * kMaxTileColumns, columns, c + i * step);
}

template <class T>
void pack_panel(const TileKernels<T>& kernels, const MatrixView& b, int64_t k, int64_t columns, T* to) {
  int64_t width = kernels.columns;
  pack_block(kernels, b, k, columns, to, width);
  if (columns < width)
    for (int64_t i = 0; i < k; ++i) std::fill(to + i * width + columns, to + (i + 1) * width, T(0));
}

}  // namespace

template <class T>
void pack_a(const TileKernels<T>& kernels, const MatrixView& a, int64_t rows, int64_t k, T* to) {
  for (int64_t k0 = 0; k0 < k; k0 += kSumBlock, to += rows * kPackedRow)
    pack_block(kernels, a.at(0, k0), rows, std::min(kSumBlock, k - k0), to, kPackedRow);
}

template <class T>
void multiply_packed(const TileKernels<T>& kernels, const T* a, int64_t rows, const MatrixView& b, int64_t columns,
                     int64_t k, Starts start, T* c, int64_t c_step, bool padded, T* panel) {
  int64_t tiles = (rows + kernels.rows - 1) / kernels.rows, width = kernels.columns;
  for (int64_t j = 0; j < columns; j += width) {
    int64_t count = std::min(width, columns - j);
    const T* block = a;
    TileStart now = start.first;
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += kSumBlock, block += rows * kPackedRow, now = start.later) {
      int64_t length = std::min(kSumBlock, k - k0);
      MatrixView part = b.at(k0, j);
      // For one tile of rows packing would cost more than it saves.
      bool direct = tiles == 1 && count == width && part.column_step == 1 && part.dtype == kTileType<T>;
      if (!direct) pack_panel(kernels, part, length, count, panel);
      const T* panel_b = direct ? reinterpret_cast<const T*>(part.data) : panel;
      Prefetch next;
      if (k0 + kSumBlock < k) next = Prefetch(b.at(k0 + kSumBlock, j), std::min(kSumBlock, k - k0 - kSumBlock), count);
      else if (j + width < columns)
        next = Prefetch(b.at(0, j + width), std::min(kSumBlock, k), std::min(width, columns - j - width));
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        int64_t tile_rows = rows / tiles + (t < rows % tiles);
        Tile<T> tile{
            block + i * kPackedRow, panel_b, direct ? part.row_step : width, length, c + i * c_step + j, c_step, now};
        next.issue(next.lines() / tiles + 1);
        if (!padded && count < width) run_edge_tile(kernels, tile, tile_rows, count);
        else kernels.run[tile_rows - 1](tile);
        i += tile_rows;
      }
    }
  }
}

template <class T>
void store_block(const T* from, int64_t step, const MatrixView& out, int64_t rows, int64_t columns) {
  visit_floating(out.dtype, [&]<class Out>() {
    auto* to = reinterpret_cast<Out*>(const_cast<std::byte*>(out.data));
    for (int64_t i = 0; i < rows; ++i, from += step, to += out.row_step)
      if (out.column_step == 1)
        for (int64_t j = 0; j < columns; ++j) to[j] = static_cast<Out>(static_cast<Compute<Out>>(from[j]));
      else
        for (int64_t j = 0; j < columns; ++j)
          to[j * out.column_step] = static_cast<Out>(static_cast<Compute<Out>>(from[j]));
  });
}

MatrixView matrix_of(const Tensor& t, int64_t entry) {
  MatrixView v{t.data, t.dtype, t.step(-2), t.step(-1)};
  int64_t offset = 0;
  for (int axis = t.rank - 3; axis >= 0; --axis) {
    offset += entry % t.dim(axis) * t.step(axis);
    entry /= t.dim(axis);
  }
  v.data += offset * dtype_bytes(t.dtype);
  return v;
}

#define SG_INSTANTIATE(T)                                                                                              \
  template void pack_a(const TileKernels<T>&, const MatrixView&, int64_t, int64_t, T*);                                \
  template void multiply_packed(const TileKernels<T>&, const T*, int64_t, const MatrixView&, int64_t, int64_t, Starts, \
                                T*, int64_t, bool, T*);                                                                \
  template void store_block(const T*, int64_t, const MatrixView&, int64_t, int64_t);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
