#include "librun/cpu/gemm_block.h"

#include <algorithm>
#include <utility>

namespace sg::cpu {
namespace {

// A tile at the right edge of a result: computed in a buffer.
template <class P>
void run_edge_tile(const TileKernels<P>& kernels, Tile<P> tile, int64_t rows, int64_t columns) {
  using T = typename Packing<P>::Sum;
  alignas(64) T edge[kMaxTileRows * kMaxTileColumns] = {};
  T* c = std::exchange(tile.c, edge);
  int64_t step = std::exchange(tile.c_step, kMaxTileColumns);
  if (tile.start != TileStart::zero)
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c + i * step, columns, edge + i * kMaxTileColumns);
  kernels.run[rows - 1](tile);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(edge + i * kMaxTileColumns, columns, c + i * step);
}

template <class P>
void pack_panel(const TileKernels<P>& kernels, const MatrixView& b, int64_t k, int64_t columns, P* to) {
  int64_t width = kernels.columns;
  pack_right(kernels, b, k, columns, to, width);
  if (columns < width)
    for (int64_t i = 0; i < packed_depth<P>(k); ++i) std::fill(to + i * width + columns, to + (i + 1) * width, P{});
}

// B in place, if tiles can read it like that. Null: it has to be packed.
template <class P>
const P* as_it_lies(const MatrixView& b, int64_t columns, int64_t width) {
  if constexpr (Packing<P>::kDepth == 1)
    if (columns == width && b.column_step == 1 && b.dtype == kTileType<P>) return reinterpret_cast<const P*>(b.data);
  return nullptr;
}

// Prefetching of the next panel of B, by the tiles of the current one.
class NextPanel {
 public:
  NextPanel() = default;
  NextPanel(const MatrixView& b, int64_t k, int64_t columns, int64_t tiles) {
    if (k == 0 || tiles == 0) return;
    if (b.column_step != 1 && b.row_step != 1) return;  // one element per line: not worthwhile
    const bool rows = b.column_step == 1;
    const int64_t size = dtype_bytes(b.dtype), pair = 2 * kCacheLine;
    data_ = b.data;
    step_ = (rows ? b.row_step : b.column_step) * size;
    pairs_ = ((rows ? columns : k) * size + pair - 1) / pair;
    of_tile_ = ((rows ? k : columns) * pairs_ + tiles - 1) / tiles;
  }
  // What tile t of `k` elements prefetches.
  Ahead of(int64_t t, int64_t k) const {
    if (!data_) return {};
    const int64_t first = t * of_tile_, run = first / pairs_, pair = first % pairs_;
    return {data_ + run * step_ + pair * 2 * kCacheLine, pairs_, pairs_ - pair, step_ - pairs_ * 2 * kCacheLine,
            std::max<int64_t>(1, k / of_tile_)};
  }

 private:
  const std::byte* data_ = nullptr;
  int64_t step_ = 0;     // bytes between runs: rows, or columns
  int64_t pairs_ = 1;    // pairs of lines per run
  int64_t of_tile_ = 1;  // pairs that a tile prefetches
};

}  // namespace

template <class P>
void pack_a(const TileKernels<P>& kernels, const MatrixView& a, int64_t rows, int64_t k, P* to) {
  constexpr int64_t kRow = Packing<P>::kRow;
  for (int64_t k0 = 0; k0 < k; k0 += kSumBlock, to += rows * kRow)
    pack_left(kernels, a.at(0, k0), rows, std::min(kSumBlock, k - k0), to, kRow);
}

template <class P>
void multiply_packed(const TileKernels<P>& kernels, const PackedProduct<P>& product,
                     const PackedSums<typename Packing<P>::Sum>& to, P* panel) {
  constexpr int64_t kRow = Packing<P>::kRow;
  const auto& [a, rows, b, columns, k] = product;
  int64_t tiles = (rows + kernels.rows - 1) / kernels.rows, width = kernels.columns;
  for (int64_t j = 0; j < columns; j += width) {
    int64_t count = std::min(width, columns - j);
    const P* block = a;
    TileStart now = to.start.first;
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += kSumBlock, block += rows * kRow, now = to.start.later) {
      int64_t length = std::min(kSumBlock, k - k0);
      MatrixView part = b.at(k0, j);
      const P* lies = as_it_lies<P>(part, count, width);
      if (!lies) pack_panel(kernels, part, length, count, panel);
      NextPanel next;
      if (k0 + kSumBlock < k) next = {b.at(k0 + kSumBlock, j), std::min(kSumBlock, k - k0 - kSumBlock), count, tiles};
      else if (j + width < columns)
        next = {b.at(0, j + width), std::min(kSumBlock, k), std::min(width, columns - j - width), tiles};
      for (int64_t t = 0, i = 0; t < tiles; ++t) {
        int64_t tile_rows = rows / tiles + (t < rows % tiles);
        const bool reads_b = lies && t == 0;  // and also packs it, if other tiles follow
        Tile<P> tile{block + i * kRow,
                     reads_b ? lies : panel,
                     reads_b ? part.row_step : width,
                     packed_depth<P>(length),
                     to.c + i * to.step + j,
                     to.step,
                     now,
                     next.of(t, packed_depth<P>(length)),
                     panel};
        if (!to.padded && count < width) run_edge_tile(kernels, tile, tile_rows, count);
        else (reads_b && tiles > 1 ? kernels.run_copying : kernels.run)[tile_rows - 1](tile);
        i += tile_rows;
      }
    }
  }
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

#define SG_INSTANTIATE(P)                                                               \
  template void pack_a(const TileKernels<P>&, const MatrixView&, int64_t, int64_t, P*); \
  template void multiply_packed(const TileKernels<P>&, const PackedProduct<P>&, const PackedSums<Packing<P>::Sum>&, P*);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
SG_INSTANTIATE(Bf16Pair)
#undef SG_INSTANTIATE

}  // namespace sg::cpu
