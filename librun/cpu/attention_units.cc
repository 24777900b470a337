#include "librun/cpu/attention_units.h"

#include <immintrin.h>

#include <algorithm>

// gcc 12 warns about its own undefined vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define SG_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace sg::cpu {
namespace {

constexpr int64_t kTileBytes = kUnitTile * sizeof(uint16_t), kRowBytes = kUnitDepth * sizeof(uint16_t);
constexpr int64_t kScoreTiles = kKeyBlock / kUnitLines;

int64_t tiles_of(int64_t lines) { return (lines + kUnitLines - 1) / kUnitLines; }
int64_t steps_of(int64_t depth) { return (depth + kUnitDepth - 1) / kUnitDepth; }

// Packs a matrix [lines, depth] as [tile, step], tiles of lines `steps` apart.
void pack_tiles(TileForm form, const MatrixView& from, int64_t lines, int64_t depth, int64_t steps, uint16_t* to) {
  for (int64_t i = 0; i < lines; i += kUnitLines)
    for (int64_t d = 0; d < depth; d += kUnitDepth)
      pack_parts(Units::whole, form, from.at(i, d), std::min(kUnitLines, lines - i), std::min(kUnitDepth, depth - d),
                 LineScales(), to + (i / kUnitLines * steps + d / kUnitDepth) * kUnitTile, kUnitTile);
}

SG_AVX512_BF16 [[gnu::always_inline]] inline __m512 first_of(const float* from, int64_t count) {
  const int64_t lanes = std::clamp<int64_t>(count, 0, kUnitLines);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << lanes) - 1), from);
}

SG_AVX512_BF16 [[gnu::always_inline]] inline __m512i rounded_of(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// Scores as lines, of keys in steps of kUnitDepth: [tile of rows, step].
SG_AVX512_BF16 void round_lines(const float* scores, int64_t count, int64_t columns, uint16_t* to) {
  const int64_t steps = steps_of(columns);
  for (int64_t i = 0; i < count; ++i, scores += kPackedRow) {
    uint16_t* line = to + i / kUnitLines * steps * kUnitTile + i % kUnitLines * kUnitDepth;
    for (int64_t s = 0; s < steps; ++s) {
      const float* from = scores + s * kUnitDepth;
      const int64_t left = columns - s * kUnitDepth;
      _mm512_store_si512(line + s * kUnitTile, rounded_of(first_of(from, left), first_of(from + 16, left - 16)));
    }
  }
}

// Scores as pairs of adjacent rows, of keys as lines: [tile of keys, step of kUnitDepth rows].
SG_AVX512_BF16 void round_pairs(const float* scores, int64_t count, int64_t columns, uint16_t* to) {
  const int64_t steps = steps_of(count);
  alignas(64) uint16_t order[kUnitDepth];
  for (uint16_t i = 0; i < kUnitDepth; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * kUnitLines);
  const __m512i interleaved = _mm512_load_si512(order);
  for (int64_t p = 0; p < steps * kUnitLines; ++p, scores += 2 * kPackedRow) {
    uint16_t* line = to + p / kUnitLines * kUnitTile + p % kUnitLines * kUnitDepth;
    const int64_t of_second = 2 * p + 1 < count ? columns : 0;
    for (int64_t j = 0; j < columns; j += kUnitLines, line += steps * kUnitTile) {
      __m512i pairs = _mm512_setzero_si512();
      if (2 * p < count)
        pairs = rounded_of(first_of(scores + j, columns - j), first_of(scores + kPackedRow + j, of_second - j));
      _mm512_store_si512(line, _mm512_permutexvar_epi16(interleaved, pairs));
    }
  }
}

}  // namespace

bool multiplies_by_units(const KernelCall& call, const Attention& a, DType rows) {
  static const bool rounds = __builtin_cpu_supports("avx512bf16");
  const int64_t width = std::min(a.key.dim(3), a.value.dim(3));
  return a.query.dtype == DType::bf16 && rows == DType::bf16 && width > short_sum(Units::whole) && rounds &&
         has_units(Units::whole) && call.numerics() == Numerics::fast && !call.ordered_sums;
}

UnitSide::UnitSide(KernelCall& call, SideSizes sizes, SideTypes, SideUses uses)
    : uses_(uses),
      sizes_(sizes),
      width_tiles_(tiles_of(sizes.width)),
      width_steps_(steps_of(sizes.width)),
      key_tiles_(tiles_of(sizes.keys)),
      key_steps_(steps_of(sizes.keys)) {
  Scratch& s = call.scratch();
  constexpr int64_t row_tiles = kRows / kUnitLines, row_steps = kRows / kUnitDepth;
  for (int64_t i = 0; i < std::max({width_steps_, kKeyBlock / kUnitDepth, row_steps}); ++i)
    steps_.push_back(i * kTileBytes);
  if (uses.scores) {
    by_key_ = s.take<uint16_t>(key_tiles_ * width_steps_ * kUnitTile);
    rows_ = s.take<uint16_t>(row_tiles * width_steps_ * kUnitTile);
  }
  if (uses.to_rows) by_width_ = s.take<uint16_t>(width_tiles_ * key_steps_ * kUnitTile);
  if (uses.to_rows || uses.to_side) rounded_ = s.take<uint16_t>(kScoreTiles * row_steps * kUnitTile);
  if (uses.to_side) {
    turned_ = s.take<uint16_t>(width_tiles_ * row_steps * kUnitTile);
    sums_ = s.take<float>((width_tiles_ + 1) / 2 * ((key_tiles_ + 1) / 2) * 4 * kUnitSums);
    stored_ = s.take<float>(kUnitLines * width_tiles_ * kUnitLines);
  }
}

void UnitSide::set(const MatrixView& side) {
  if (set_ == side.data) return;
  set_ = side.data;
  if (uses_.scores) pack_tiles(TileForm::pairs, side, sizes_.keys, sizes_.width, width_steps_, by_key_);
  if (uses_.to_rows) pack_tiles(TileForm::pairs, side.transposed(), sizes_.width, sizes_.keys, key_steps_, by_width_);
}

void UnitSide::meet(const MatrixView& rows, int64_t count) {
  count_ = count;
  if (uses_.scores) pack_tiles(TileForm::lines, rows, count, sizes_.width, width_steps_, rows_);
  if (uses_.to_side) pack_tiles(TileForm::lines, rows.transposed(), sizes_.width, count, steps_of(count), turned_);
}

// One or two tiles, of those that lie `steps` apart.
UnitRows UnitSide::tiles(const uint16_t* from, int64_t steps, int64_t tile, int64_t end) const {
  const uint16_t* first = from + tile * steps * kUnitTile;
  return {{first, first + steps * kUnitTile}, {steps_.data(), steps_.data()}, kRowBytes, tile + 1 < end ? 2 : 1};
}

void UnitSide::scores(int64_t k, int64_t columns, float* to) const {
  const UnitTiles configured;
  const int64_t rows = tiles_of(count_), first = k / kUnitLines, end = first + tiles_of(columns);
  for (int64_t j = first; j < end; j += 2) {
    const UnitRows right = tiles(by_key_, width_steps_, j, end);
    for (int64_t i = 0; i < rows; i += 2)
      multiply_rows(tiles(rows_, width_steps_, i, rows), right, width_steps_, false,
                    UnitPlaces::in_rows(to + (i * kPackedRow + j - first) * kUnitLines, kPackedRow));
  }
}

void UnitSide::add_to_rows(const float* scores, int64_t count, int64_t k, int64_t columns, float* to,
                           int64_t step) const {
  round_lines(scores, count, columns, rounded_);
  const UnitTiles configured;
  const int64_t steps = steps_of(columns), rows = tiles_of(count);
  for (int64_t j = 0; j < width_tiles_; j += 2) {
    const UnitRows right = tiles(by_width_ + k / kUnitDepth * kUnitTile, key_steps_, j, width_tiles_);
    for (int64_t i = 0; i < rows; i += 2)
      multiply_rows(tiles(rounded_, steps, i, rows), right, steps, true,
                    UnitPlaces::in_rows(to + (i * step + j) * kUnitLines, step));
  }
}

void UnitSide::clear_sums() const {
  std::fill_n(sums_, (width_tiles_ + 1) / 2 * ((key_tiles_ + 1) / 2) * 4 * kUnitSums, 0.0f);
}

void UnitSide::add_to_side(const float* scores, int64_t k, int64_t columns) const {
  round_pairs(scores, count_, columns, rounded_);
  const UnitTiles configured;
  const int64_t steps = steps_of(count_), keys = tiles_of(columns), pairs = (key_tiles_ + 1) / 2;
  for (int64_t i = 0; i < width_tiles_; i += 2) {
    const UnitRows left = tiles(turned_, steps, i, width_tiles_);
    for (int64_t j = 0; j < keys; j += 2) {
      float* sums = sums_ + (i / 2 * pairs + (k / kUnitLines + j) / 2) * 4 * kUnitSums;
      multiply_rows(left, tiles(rounded_, steps, j, keys), steps, true, UnitPlaces::one_by_one(sums));
    }
  }
}

void UnitSide::store_sums(const MatrixView& to) const {
  const TileKernels<float>& kernels = tile_kernels<float>(best_isa());
  const int64_t step = width_tiles_ * kUnitLines, pairs = (key_tiles_ + 1) / 2;
  for (int64_t j = 0; j < key_tiles_; ++j) {
    for (int64_t i = 0; i < width_tiles_; ++i) {
      const float* sums = sums_ + (((i / 2 * pairs + j / 2) * 2 + i % 2) * 2 + j % 2) * kUnitSums;
      kernels.transpose(sums, kUnitLines, stored_ + i * kUnitLines, step);
    }
    const int64_t key = j * kUnitLines;
    store_block(stored_, step, to.at(key, 0), std::min(kUnitLines, sizes_.keys - key), sizes_.width);
  }
}

}  // namespace sg::cpu
