// Matrix units (AMX): products of tiles of bf16 or f16, summed in f32. Here: products of f32 and of bf16 matrices.
//
// An element of A B, with A and B in parts (gemm_parts.h), is computed in steps of 32 k each, padded with zeros. A step
// multiplies pairs of parts in this order,
//
//   whole  the numbers themselves, which are bf16
//   bf16   high low, high middle, high high, middle high, middle middle, low high     (omitted terms: below 2^-26)
//   f16    high low, high high, low high (omitted: below 2^-22, 2^-26 on average)
//
// and each adds (e + o) to the sum, where e and o are chains of fused multiply-adds over the even and the odd k.
// Numbers (of bf16) and results below 2^-126 count as zero. Sums of f16 are scaled back at the end, rounding once if
// the result is below 2^-126. If a sum is below 2^16 before that, for each of its two lines that is wide, it becomes
// NaN instead, unless the other line is zero: the omitted remainders might matter. NaN results of parts are recomputed
// in another way (gemm_engine.h). The units behave like this on every machine that has them, and bits depend on nothing
// else.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_parts.h"
#include "librun/cpu/gemm_prefetch.h"

namespace sg::cpu {

// The best that the CPU has and the system lets this process use. Determined once.
Units best_units();
bool has_units(Units units);

inline constexpr int64_t kUnitColumns = 2 * kUnitLines;  // of a panel of B
inline constexpr int64_t kShortSum = 64;                 // k up to which multiply-adds are used instead of f16
// k up to which products are left to multiply-adds, because packing costs more than units gain; bf16 needs six products
// instead of three.
constexpr int64_t short_sum(Units units) {
  return units == Units::whole ? kUnitDepth / 2 : units == Units::bf16 ? 2 * kShortSum : kShortSum;
}
inline constexpr int64_t kUnitHead = sizeof(LineScales) / sizeof(uint16_t);  // in elements

// Occupies the thread's tile registers during its lifetime. Must not span a call that may change threads.
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
  bool swapped = false;  // parts in the order of b^T a^T, for the same bits as the product that this one replaces

  int64_t row_tile_size() const { return kUnitHead + steps * parts_of(units) * kUnitTile; }
  int64_t panel_size() const { return 2 * (kUnitHead + steps * parts_of(units) * kUnitTile); }
};

// The destination of sums.
struct UnitSums {
  float* c;
  int64_t step;
  bool add;                     // to the existing values
  bool stream;                  // bypass the caches where rows of a tile are whole cache lines
  bool spare;                   // keep the existing value where the sum is NaN
  const float* self = nullptr;  // rows to add last; null: none
  int64_t self_step = 0;
  // Where complete sums go instead, rounded to bf16, after rows of bf16 are added; null: to c.
  uint16_t* rounded = nullptr;
  int64_t rounded_step = 0;
  const uint16_t* rounded_self = nullptr;
  int64_t rounded_self_step = 0;
};

// Sums on their way from the units to memory. The sums of one product are stored a few at a time between the steps of
// the next, because the units take longer than the rest of the CPU.
class SumStore {
 public:
  static constexpr int64_t kTile = kUnitLines * kUnitLines;

  // The buffer for the next sums: [tile of A, tile of B, row, column].
  float* place() { return sums_[1 - at_]; }
  // The sums in place() are complete, and go to `to`; scales are read until they are stored. REQUIRES: the previous
  // sums are finished
  void begin(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, const UnitSums& to);
  int64_t rows_left() const { return rows_ - row_; }
  void store(int64_t rows);
  // Stores the rest. Returns whether any of the stored, or spared, sums is NaN.
  bool finish();

 private:
  alignas(64) float sums_[2][4 * kTile];
  int at_ = 0;
  UnitProduct product_;
  UnitSums to_ = {};
  int64_t first_ = 0, rows_ = 0, columns_ = 0, row_ = 0;
  bool nan_ = false;
};

// c (+)= a b for `rows` rows from row tile `first` on, at most two tiles, and `columns` columns; leaves the
// results in `store`, and stores its previous contents. Returns whether any of the latter is NaN.
bool multiply_tiles(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, const UnitSums& to,
                    SumStore* store, Prefetch* next, int64_t lines_a_step);

}  // namespace sg::cpu
