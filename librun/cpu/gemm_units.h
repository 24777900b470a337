// Matrix units (AMX): products of tiles of bf16 or f16, summed up in f32. Here: products of f32 matrices.
//
// An element of A B, with A and B in parts (gemm_parts.h), is made of steps of 32 k each, zeros behind the last k. A
// step takes products of a part of A and a part of B one after the other,
//
//   bf16   high low, high middle, high high, middle high, middle middle, low high     (what is left out: below 2^-26)
//   f16    high low, high high, low high (below 2^-22, 2^-26 on the average)
//
// and each adds (e + o) to the sum, e and o being chains of fused multiply-adds over the even and the odd k. Numbers
// (of bf16) and results below 2^-126 count as zero. Sums of f16 are scaled back at the end, rounding once where the
// result is below 2^-126; one that is below 2^16 before, for each of its two lines that is wide, is NaN instead, unless
// the other line is zero: what its parts leave out might show, and what is NaN is computed again by other means
// (gemm_engine.h). That is what the units do, on every machine that has them, and all that bits depend on.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_parts.h"
#include "librun/cpu/gemm_prefetch.h"

namespace sg::cpu {

// The best that the processor has and the system lets this process use. Asked for once.
Units best_units();
bool has_units(Units units);

inline constexpr int64_t kUnitColumns = 2 * kUnitLines;  // of a panel of B
inline constexpr int64_t kShortSum = 64;                 // k up to which f16 is left to multiply-adds
// k up to which sums are left to multiply-adds: packing takes longer than units gain; bf16 has six products for three.
constexpr int64_t short_sum(Units units) { return units == Units::bf16 ? 2 * kShortSum : kShortSum; }
inline constexpr int64_t kUnitHead = sizeof(LineScales) / sizeof(uint16_t);  // elements

// In the caller's registers while it lives. Not across a call that may change threads.
class UnitTiles {
 public:
  UnitTiles();
  ~UnitTiles();
  UnitTiles(const UnitTiles&) = delete;
};

// A packed: row tiles of [LineScales, [step, part, tile]]; a panel of B: [2 LineScales, [step, part, 2 tiles]].
struct UnitProduct {
  Units units = Units::none;
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  int64_t steps = 0;     // of A and of the panel
  bool swapped = false;  // parts in the order of b^T a^T: the bits of the product that it stands for

  int64_t row_tile_size() const { return kUnitHead + steps * parts_of(units) * kUnitTile; }
  int64_t panel_size() const { return 2 * (kUnitHead + steps * parts_of(units) * kUnitTile); }
};

// Where sums go.
struct UnitSums {
  float* c;
  int64_t step;
  bool add;                     // to what is there
  bool stream;                  // past the caches, where rows of a tile are whole lines of them
  bool spare;                   // what is there where the sum is NaN
  const float* self = nullptr;  // rows of what is added last; null: nothing
  int64_t self_step = 0;
};

// Sums on their way from the units to memory. Those of one product are stored a few at a time between the steps of the
// next, which units take longer for than the rest of the processor.
class SumStore {
 public:
  static constexpr int64_t kTile = kUnitLines * kUnitLines;

  // Where the next sums are made: [tile of A, tile of B, row, column].
  float* place() { return sums_[1 - at_]; }
  // They are made, and go to `to`; scales are read until they are stored. REQUIRES: what was there before is finished
  void begin(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, const UnitSums& to);
  int64_t rows_left() const { return rows_ - row_; }
  void store(int64_t rows);
  // Stores what is left. Returns whether any of what was stored, or spared, is NaN.
  bool finish();

 private:
  alignas(64) float sums_[2][4 * kTile];
  int at_ = 0;
  UnitProduct product_;
  UnitSums to_ = {};
  int64_t first_ = 0, rows_ = 0, columns_ = 0, row_ = 0;
  bool nan_ = false;
};

// c (+)= a b for `rows` rows from row tile `first` on, at most two tiles of them, and `columns` columns, left to
// `store`; what was left to it before is stored now. Returns whether any of that is NaN.
bool multiply_tiles(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, const UnitSums& to,
                    SumStore* store, Prefetch* next, int64_t lines_a_step);

}  // namespace sg::cpu
