#include "librun/cpu/side_lines.h"

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {

std::optional<LineTiles> LineTiles::along(const Tensor& t, int64_t axis) {
  constexpr int64_t kFewLines = 16, kShort = 256, kLong = 1 << 14;
  if (t.rank < 1 || !t.is_contiguous() || t.conjugate || !is_floating(t.dtype) || t.elements() == 0)
    return std::nullopt;
  const int at = wrap_axis(axis, t.rank);
  LineTiles tiles;
  tiles.length = t.dim(at);
  for (int i = at + 1; i < t.rank; ++i) tiles.inner *= t.dim(i);
  tiles.all = t.elements() / tiles.length;
  const bool is_narrow = tiles.inner < kFewLines;
  if (tiles.length >= (is_narrow ? kShort : kLong)) return std::nullopt;
  if (is_narrow && tiles.inner > 1) {
    tiles.group = kSideLines / tiles.inner, tiles.across = 1;
    tiles.count = (tiles.all / tiles.inner + tiles.group - 1) / tiles.group;
    return tiles;
  }
  tiles.across = (tiles.side() + kSideLines - 1) / kSideLines;
  tiles.count = tiles.all / tiles.side() * tiles.across;
  return tiles;
}

template <class C>
SideLines<C>::SideLines(KernelCall& call, const LineTiles& tiles)
    : tiles_(tiles),
      kernels_(tile_kernels<C>(best_isa())),
      lines_(call.scratch().template take<C>(call.team().size() * kSideLines * tiles.length)),
      turned_(call.scratch().template take<C>(call.team().size() * kSideLines * tiles.length)) {}

template <class C>
C* SideLines<C>::read(const Tensor& t, int64_t tile, int thread) const {
  C* to = lines_ + thread * kSideLines * tiles_.length;
  const std::byte* from = t.data + tiles_.begin(tile) * dtype_bytes(t.dtype);
  const int64_t lines = tiles_.lines(tile);
  if (lines < kSideLines) std::fill_n(to, kSideLines * tiles_.length, C{0});
  if (tiles_.group > 1) {
    const int64_t run = tiles_.length * tiles_.inner, bytes = run * dtype_bytes(t.dtype);
    for (int64_t r = 0; r < tiles_.runs(tile); ++r)
      pack_block(kernels_, MatrixView{from + r * bytes, t.dtype, tiles_.inner, 1}, tiles_.length, tiles_.inner,
                 to + r * tiles_.inner, kSideLines);
    return to;
  }
  pack_block(kernels_, MatrixView{from, t.dtype, tiles_.inner, tiles_.line_step()}, tiles_.length, lines, to,
             kSideLines);
  return to;
}

template <class C>
void SideLines<C>::write(const Tensor& result, int64_t tile, int thread) const {
  const C* from = lines_ + thread * kSideLines * tiles_.length;
  std::byte* to = result.data + tiles_.begin(tile) * dtype_bytes(result.dtype);
  const int64_t lines = tiles_.lines(tile), length = tiles_.length;
  if (tiles_.group > 1) {
    const int64_t bytes = length * tiles_.inner * dtype_bytes(result.dtype);
    for (int64_t r = 0; r < tiles_.runs(tile); ++r)
      store_block(from + r * tiles_.inner, kSideLines, {to + r * bytes, result.dtype, tiles_.inner, 1}, length,
                  tiles_.inner);
    return;
  }
  if (tiles_.inner > 1) return store_block(from, kSideLines, {to, result.dtype, tiles_.inner, 1}, length, lines);
  const MatrixView turn{reinterpret_cast<const std::byte*>(from), kTileType<C>, 1, kSideLines};
  if (result.dtype == kTileType<C>) return pack_block(kernels_, turn, lines, length, reinterpret_cast<C*>(to), length);
  C* turned = turned_ + thread * kSideLines * length;
  pack_block(kernels_, turn, lines, length, turned, length);
  store_block(turned, lines * length, {to, result.dtype, lines * length, 1}, 1, lines * length);
}

template class SideLines<float>;
template class SideLines<double>;

}  // namespace sg::cpu
