#include "librun/cpu/gemm_engine.h"

#include <algorithm>
#include <cmath>

namespace sg::cpu {
namespace {

// About half of a usual L2, the other half being for B and C.
constexpr int64_t kFmaBytes = 1100 << 10, kUnitBytes = 1200 << 10;

}  // namespace

template <class T>
int64_t FmaEngine<T>::row_limit(int64_t k) const {
  int64_t blocks = std::clamp<int64_t>((k + kSumBlock - 1) / kSumBlock, 1, kGemmDepth / kSumBlock);
  return kFmaBytes / (blocks * kPackedRow * static_cast<int64_t>(sizeof(T)));
}

template <class T>
void FmaEngine<T>::pack_rows(const GemmBlock<T>& block, GemmDepth depth, int64_t begin, int64_t end, T* a) const {
  T* to = a + begin * kPackedRow;
  for (int64_t k = depth.begin; k < depth.end; k += kSumBlock, to += block.rows() * kPackedRow)
    pack_block(kernels_, block.job->a.at(block.i0 + begin, k), end - begin, std::min(kSumBlock, depth.end - k), to, kPackedRow);
}

template <class T>
void FmaEngine<T>::multiply(const GemmBlock<T>& block, GemmDepth depth, int64_t j, int64_t columns, const T* a, T* panel) const {
  const GemmJob& job = *block.job;
  TileStart later = chain_ ? TileStart::chain : TileStart::add;
  TileStart start = depth.begin == 0 ? TileStart::zero : later;
  multiply_packed(kernels_, a, block.rows(), job.b.at(depth.begin, j), columns, depth.size(), {start, later},
                  block.sums + (j - block.c0), block.sums_step, !job.direct, panel);
}

template class FmaEngine<float>;
template class FmaEngine<double>;

int64_t UnitEngine::row_limit(int64_t k) const {
  int64_t row_bytes = steps(std::clamp<int64_t>(k, 1, kGemmDepth)) * kUnitDepth * kParts * static_cast<int64_t>(sizeof(Packed));
  return kUnitBytes / row_bytes / row_grain() * row_grain();
}

void UnitEngine::pack_rows(const GemmBlock<float>& block, GemmDepth depth, int64_t begin, int64_t end, Packed* a) const {
  Packed* to = a + begin * steps(depth.size()) * kParts * kUnitTile;
  for (int64_t i = begin * kUnitLines; i < std::min(end * kUnitLines, block.rows()); i += kUnitLines)
    for (int64_t k = depth.begin; k < depth.end; k += kUnitDepth, to += kParts * kUnitTile)
      pack_parts(TileForm::lines, block.job->a.at(block.i0 + i, k), std::min(kUnitLines, block.rows() - i), std::min(kUnitDepth, depth.end - k),
                 to, kUnitTile);
}

void UnitEngine::pack_panel(const GemmJob& job, GemmDepth depth, int64_t j, int64_t columns, Packed* panel) const {
  for (int64_t k = depth.begin; k < depth.end; k += kUnitDepth, panel += 2 * kParts * kUnitTile)
    for (int64_t half = 0; half < 2; ++half) {
      int64_t lines = std::min(kUnitLines, columns - half * kUnitLines);
      if (lines > 0)       // sums of columns that are not there go nowhere
        pack_parts(TileForm::pairs, job.b.at(k, j + half * kUnitLines).transposed(), lines, std::min(kUnitDepth, depth.end - k),
                   panel + half * kUnitTile, 2 * kUnitTile);
    }
}

void UnitEngine::multiply(const GemmBlock<float>& block, GemmDepth depth, int64_t j, int64_t columns, const Packed* a, Packed* panel) const {
  const GemmJob& job = *block.job;
  UnitProduct product{a, panel, steps(depth.size()), job.swapped};
  UnitTiles tiles;
  for (int64_t end = j + columns; j < end; j += kUnitColumns) {
    int64_t width = std::min(kUnitColumns, end - j);
    pack_panel(job, depth, j, width, panel);
    Prefetch next;
    if (j + kUnitColumns < end) next = Prefetch(job.b.at(depth.begin, j + kUnitColumns), depth.size(), std::min(kUnitColumns, end - j - kUnitColumns));
    int64_t steps_in_all = std::max<int64_t>(1, product.steps * ((block.rows() + row_grain() - 1) / row_grain()));
    for (int64_t i = 0; i < block.rows(); i += row_grain()) {
      int64_t rows = std::min(row_grain(), block.rows() - i);
      float* c = block.sums + i * block.sums_step + (j - block.c0);
      multiply_tiles(product, i / kUnitLines, rows, width, depth.begin > 0, c, block.sums_step, &next, next.lines() / steps_in_all + 1);
      if (depth.end == job.k && has_nan(c, block.sums_step, rows, width)) repair(block, i, rows, j, width);
    }
  }
}

// Sums that are NaN, from multiply-adds. Seldom: where the operands hold infinities or NaN, or are about to.
void UnitEngine::repair(const GemmBlock<float>& block, int64_t first, int64_t rows, int64_t j, int64_t columns) const {
  const GemmJob& job = *block.job;
  const FmaEngine<float> fma(job.isa, false);
  for (int64_t i = first; i < first + rows; ++i) {
    float* sums = block.sums + i * block.sums_step + (j - block.c0);
    if (!has_nan(sums, 0, 1, columns)) continue;
    alignas(64) float a[kPackedRow], panel[kPanelSize], again[kMaxTileColumns];
    for (int64_t c = 0; c < columns; c += fma.columns()) {
      GemmBlock<float> row{&job, block.i0 + i, block.i0 + i + 1, j + c, j + columns, again, kMaxTileColumns};
      int64_t width = std::min(fma.columns(), columns - c);
      for (int64_t k = 0; k < job.k; k += kSumBlock) {
        GemmDepth depth{k, std::min(k + kSumBlock, job.k)};
        fma.pack_rows(row, depth, 0, 1, a);
        fma.multiply(row, depth, j + c, width, a, panel);
      }
      for (int64_t x = 0; x < width; ++x)
        if (std::isnan(sums[c + x])) sums[c + x] = again[x];
    }
  }
}

}  // namespace sg::cpu
