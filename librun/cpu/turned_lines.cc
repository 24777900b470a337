#include "librun/cpu/turned_lines.h"

#include "librun/work/shapes.h"

namespace sg::cpu {

std::optional<LineTiles> LineTiles::along(const Tensor& t, int64_t axis) {
  constexpr int64_t kFewLines = 8, kLong = 4096;
  if (t.rank < 2 || !t.is_contiguous() || t.conjugate || !is_floating(t.dtype)) return std::nullopt;
  const int at = wrap_axis(axis, t.rank);
  LineTiles tiles{t.dim(at), 1, t.dim(at) <= kLong ? 32 : 16, 0, 0};
  for (int i = at + 1; i < t.rank; ++i) tiles.inner *= t.dim(i);
  if (tiles.inner < kFewLines || t.elements() == 0) return std::nullopt;
  tiles.across = (tiles.inner + tiles.together - 1) / tiles.together;
  tiles.count = t.elements() / (tiles.length * tiles.inner) * tiles.across;
  return tiles;
}

template <class C>
TurnedLines<C>::TurnedLines(KernelCall& call, const LineTiles& tiles)
    : tiles_(tiles),
      kernels_(tile_kernels<C>(best_isa())),
      rows_(call.scratch().template take<C>(call.team().size() * tiles.together * step())),
      lines_(call.scratch().template take<C>(call.team().size() * tiles.together * tiles.length)) {}

template <class C>
C* TurnedLines<C>::read(const Tensor& t, int64_t tile, int thread) const {
  C* rows = rows_ + thread * tiles_.together * step();
  const std::byte* from = t.data + tiles_.begin(tile) * dtype_bytes(t.dtype);
  pack_block(kernels_, MatrixView{from, t.dtype, 1, tiles_.inner}, tiles_.lines(tile), tiles_.length, rows, step());
  return rows;
}

template <class C>
void TurnedLines<C>::write(const Tensor& result, int64_t tile, int thread) const {
  const C* rows = rows_ + thread * tiles_.together * step();
  const MatrixView from{reinterpret_cast<const std::byte*>(rows), kTileType<C>, 1, step()};
  std::byte* to = result.data + tiles_.begin(tile) * dtype_bytes(result.dtype);
  const int64_t lines = tiles_.lines(tile);
  if (result.dtype == kTileType<C>)
    return pack_block(kernels_, from, tiles_.length, lines, reinterpret_cast<C*>(to), tiles_.inner);
  C* turned = lines_ + thread * tiles_.together * tiles_.length;
  pack_block(kernels_, from, tiles_.length, lines, turned, lines);
  store_block(turned, lines, MatrixView{to, result.dtype, tiles_.inner, 1}, tiles_.length, lines);
}

template class TurnedLines<float>;
template class TurnedLines<double>;

}  // namespace sg::cpu
