#include "librun/cpu/gemm_engine.h"

#include <algorithm>
#include <cmath>

namespace sg::cpu {
namespace {

// Size of packed A. The more rows at a time, the less often B is packed. For multiply-adds it leaves room for B and C
// in an L2 cache of 1 MB; matrix units spend more of their time on packing B, and use most of a typical L2 of 2 MB.
constexpr int64_t kFmaBytes = 560 << 10, kUnitBytes = 1600 << 10;
constexpr int64_t kStreamSums = 1 << 20;  // from this many sums on, no cache would keep them until they are read

}  // namespace

template <class P>
int64_t FmaEngine<P>::row_limit(int64_t) const {
  return kFmaBytes / (Packing<P>::kRow * static_cast<int64_t>(sizeof(P)));
}

template <class P>
void FmaEngine<P>::pack_rows(const GemmBlock<Sum>& block, GemmDepth depth, int64_t begin, int64_t end, P* a) const {
  constexpr int64_t kRow = Packing<P>::kRow;
  P* to = a + begin * kRow;
  for (int64_t k = depth.begin; k < depth.end; k += kSumBlock, to += block.rows() * kRow)
    pack_left(kernels_, block.job->a.at(block.i0 + begin, k), end - begin, std::min(kSumBlock, depth.end - k), to,
              kRow);
}

template <class P>
void FmaEngine<P>::pack_row(const GemmJob& job, int64_t row, GemmDepth depth, P* a) const {
  pack_left(kernels_, job.a.at(row, depth.begin), 1, depth.size(), a, Packing<P>::kRow);
}

template <class P>
void FmaEngine<P>::multiply(const GemmBlock<Sum>& block, GemmDepth depth, GemmColumns columns, const P* a,
                            P* panel) const {
  const GemmJob& job = *block.job;
  TileStart later = chain_ ? TileStart::chain : TileStart::add;
  TileStart start = depth.begin > 0 ? later : job.added ? TileStart::add : TileStart::zero;
  multiply_packed(kernels_, {a, block.rows(), job.b.at(depth.begin, columns.begin), columns.size(), depth.size()},
                  {block.sums + (columns.begin - block.c0), block.sums_step, !job.direct, {start, later}}, panel);
}

template class FmaEngine<float>;
template class FmaEngine<double>;
template class FmaEngine<Bf16Pair>;

int64_t UnitEngine::row_limit(int64_t k) const {
  int64_t row_bytes =
      product(std::clamp<int64_t>(k, 1, kDepth)).row_tile_size() / kUnitLines * static_cast<int64_t>(sizeof(Packed));
  return kUnitBytes / row_bytes / row_grain() * row_grain();
}

void UnitEngine::pack_rows(const GemmBlock<float>& block, GemmDepth depth, int64_t begin, int64_t end,
                           Packed* a) const {
  const int64_t tile_size = product(depth.size()).row_tile_size(), part_count = parts_of(units_);
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t i = tile * kUnitLines, lines = std::min(kUnitLines, block.rows() - i);
    auto& scales = *reinterpret_cast<LineScales*>(a + tile * tile_size);
    if (units_ == Units::f16) scale_lines(block.job->a.at(block.i0 + i, depth.begin), lines, depth.size(), &scales);
    Packed* to = a + tile * tile_size + kUnitHead;
    for (int64_t k = depth.begin; k < depth.end; k += kUnitDepth, to += part_count * kUnitTile)
      pack_parts(units_, TileForm::lines, block.job->a.at(block.i0 + i, k), lines, std::min(kUnitDepth, depth.end - k),
                 scales, to, kUnitTile);
  }
}

void UnitEngine::pack_panel(const MatrixView& b, int64_t depth, int64_t columns, Packed* panel) const {
  const int64_t part_count = parts_of(units_);
  auto head = [&](int64_t half) -> LineScales& { return *reinterpret_cast<LineScales*>(panel + half * kUnitHead); };
  auto lines = [&](int64_t half) { return std::min(kUnitLines, columns - half * kUnitLines); };
  if (units_ == Units::f16)
    for (int64_t half = 0; half * kUnitLines < columns; ++half)
      scale_lines(b.at(0, half * kUnitLines).transposed(), lines(half), depth, &head(half));
  // Halves in turn: rows of B whose lines compete for cache sets are then read only once.
  Packed* to = panel + 2 * kUnitHead;
  for (int64_t k = 0; k < depth; k += kUnitDepth, to += 2 * part_count * kUnitTile)
    for (int64_t half = 0; half * kUnitLines < columns; ++half)  // sums of missing columns are discarded
      pack_parts(units_, TileForm::pairs, b.at(k, half * kUnitLines).transposed(), lines(half),
                 std::min(kUnitDepth, depth - k), head(half), to + half * kUnitTile, 2 * kUnitTile);
}

Prefetch UnitEngine::bring(MatrixView* b, int64_t depth, int64_t columns, float* copy) const {
  if (columns <= 0) return {};
  if (!has_parts(units_) || !Prefetch::rows_compete(*b, depth)) return {*b, depth, columns};
  const MatrixView from = *b;
  *b = {reinterpret_cast<std::byte*>(copy), DType::f32, kUnitColumns, 1};
  return {from, depth, columns, reinterpret_cast<std::byte*>(copy), kUnitColumns * sizeof(float)};
}

Prefetch UnitEngine::look_ahead(const GemmBlock<float>& block, GemmDepth depth, int64_t j) {
  if (j >= block.c1) return {};
  return {block.job->b.at(depth.begin, j), depth.size(), std::min(kUnitColumns, block.c1 - j)};
}

// Recomputes NaN sums with multiply-adds. This is rare: operands contain infinities or NaN, or numbers of such
// different magnitudes that parts are not accurate enough. All affected rows are done together.
void UnitEngine::repair(const GemmBlock<float>& block, int64_t first, int64_t rows, int64_t j, int64_t columns) const {
  GemmJob job = *block.job;
  job.added = false;
  const FmaEngine<float> fma(job.isa, false);
  auto sums_at = [&](int64_t i) { return block.sums + i * block.sums_step + (j - block.c0); };
  int64_t bad[2 * kUnitLines], count = 0;
  for (int64_t i = first; i < first + rows; ++i)
    if (std::any_of(sums_at(i), sums_at(i) + columns, [](float x) { return std::isnan(x); })) bad[count++] = i;
  alignas(64) float a[2 * kUnitLines * kPackedRow], panel[kPanelSize], again[2 * kUnitLines * kMaxTileColumns];
  for (int64_t c = 0; c < columns; c += fma.columns()) {
    const int64_t width = std::min(fma.columns(), columns - c);
    for (int64_t k = 0; k < job.k; k += kSumBlock) {
      const GemmDepth depth{k, std::min(k + kSumBlock, job.k)};
      for (int64_t r = 0; r < count; ++r) fma.pack_row(job, block.i0 + bad[r], depth, a + r * kPackedRow);
      GemmBlock<float> picked{&job, 0, count, j + c, j + columns, again, kMaxTileColumns};
      fma.multiply(picked, depth, {j + c, j + c + width, j + columns}, a, panel);
    }
    for (int64_t r = 0; r < count; ++r)
      for (int64_t x = 0; x < width; ++x) {
        float& sum = sums_at(bad[r])[c + x];
        if (!std::isnan(sum)) continue;
        sum = again[r * kMaxTileColumns + x];
        if (job.plain_self) sum += *reinterpret_cast<const float*>(job.self.at(block.i0 + bad[r], j + c + x).data);
      }
  }
}

// The same if sums are added to existing values, which has not been done for NaN sums: they are recomputed in a buffer.
void UnitEngine::add_repaired(const GemmBlock<float>& block, const UnitProduct& whole, int64_t first, int64_t rows,
                              int64_t j, int64_t columns) const {
  alignas(64) float again[2 * kUnitLines * kUnitColumns];
  bool is_nan[2 * kUnitLines * kUnitColumns];
  SumStore store;
  Prefetch nothing;
  multiply_tiles(whole, first / kUnitLines, rows, columns, {again, kUnitColumns, false, false, false}, &store, &nothing,
                 0);
  store.finish();
  std::transform(again, again + rows * kUnitColumns, is_nan, [](float x) { return std::isnan(x); });
  const int64_t top = block.i0 + first;
  repair({block.job, top, top + rows, j, j + columns, again, kUnitColumns}, 0, rows, j, columns);
  float* sums = block.sums + first * block.sums_step + (j - block.c0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c)
      if (is_nan[i * kUnitColumns + c]) sums[i * block.sums_step + c] += again[i * kUnitColumns + c];
}

void UnitEngine::finish(const GemmBlock<float>& block, int64_t i, int64_t j, UnitSums* to) {
  const GemmJob& job = *block.job;
  if (job.plain_self) {
    to->self = reinterpret_cast<const float*>(job.self.at(block.i0 + i, j).data);
    to->self_step = job.self.row_step;
  } else if (job.rounded) {
    to->rounded = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(job.out.at(block.i0 + i, j).data));
    to->rounded_step = job.out.row_step;
    if (!job.self.data) return;
    to->rounded_self = reinterpret_cast<const uint16_t*>(job.self.at(block.i0 + i, j).data);
    to->rounded_self_step = job.self.row_step;
  }
}

// Two row tiles at a time. Sums are stored while the next ones are computed, so NaNs are known one turn later.
void UnitEngine::multiply_panel(const GemmBlock<float>& block, const Pass& pass, int64_t j, int64_t columns,
                                Prefetch* next) const {
  const GemmJob& job = *block.job;
  const int64_t turns = (block.rows() + row_grain() - 1) / row_grain();
  const int64_t lines_a_step = next->lines() / std::max<int64_t>(1, pass.product.steps * turns) + 1;
  auto first = [&](int64_t turn) { return turn * row_grain(); };
  auto rows = [&](int64_t turn) { return std::min(row_grain(), block.rows() - first(turn)); };
  SumStore store;
  for (int64_t turn = 0; turn <= turns; ++turn) {
    bool is_nan;  // in the previous turn
    if (turn < turns) {
      const int64_t i = first(turn);
      UnitSums to{block.sums + i * block.sums_step + (j - block.c0), block.sums_step, pass.add, pass.stream,
                  job.added && has_parts(units_)};
      if (pass.last) finish(block, i, j, &to);
      is_nan = multiply_tiles(pass.product, i / kUnitLines, rows(turn), columns, to, &store, next, lines_a_step);
    } else {
      is_nan = store.finish();
    }
    if (turn == 0 || !is_nan || !pass.last || !has_parts(units_)) continue;
    if (job.added) add_repaired(block, pass.product, first(turn - 1), rows(turn - 1), j, columns);
    else repair(block, first(turn - 1), rows(turn - 1), j, columns);
  }
}

void UnitEngine::multiply(const GemmBlock<float>& block, GemmDepth depth, GemmColumns columns, const Packed* a,
                          Packed* panel) const {
  const GemmJob& job = *block.job;
  UnitProduct whole = product(depth.size());
  whole.a = a, whole.b = panel, whole.swapped = job.swapped;
  const bool last = depth.end == job.k, add = depth.begin > 0 || job.added;
  const bool finished = last && job.direct && job.alpha == 1 && (job.plain_self || !job.self.data);
  const bool streams =
      job.rounded ? last && job.m * job.n > 2 * kStreamSums : finished && !add && job.m * job.n > kStreamSums;
  const Pass pass{whole, last, add, streams};
  auto* copy = reinterpret_cast<float*>(panel + whole.panel_size());
  MatrixView b = job.b.at(depth.begin, columns.begin);
  UnitTiles tiles;
  for (int64_t j = columns.begin, then; j < columns.end; j = then) {
    then = std::min(j + kUnitColumns, columns.end);
    pack_panel(b, depth.size(), then - j, panel);
    b = job.b.at(depth.begin, then);
    Prefetch next = then < columns.end ? bring(&b, depth.size(), std::min(kUnitColumns, columns.end - then), copy)
                                       : look_ahead(block, depth, columns.then);
    multiply_panel(block, pass, j, then - j, &next);
    next.finish();
  }
}

}  // namespace sg::cpu
