// Matrix units (AMX): products of tiles of bf16, summed up in f32. Here: products of f32 matrices.
//
// An element of A B, with A and B in parts (gemm_parts.h), is made of steps of 32 k each, zeros behind the last k. A step
// takes products of a part of A and a part of B one after the other,
//
//   high low, high middle, high high, middle high, middle middle, low high     (what is left out: below 2^-26)
//
// and each adds (e + o) to the sum, e and o being chains of fused multiply-adds over the even and the odd k. Numbers and
// results below 2^-126 count as zero. That is what the units do, on every machine that has them, and all that bits depend on.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_parts.h"
#include "librun/cpu/gemm_prefetch.h"

namespace sg::cpu {

// Whether the processor has them and the system lets this process use them. Asked for once.
bool has_matrix_units();

inline constexpr int64_t kUnitColumns = 2 * kUnitLines;              // of a panel of B

// In the caller's registers while it lives. Not across a call that may change threads.
class UnitTiles {
 public:
  UnitTiles();
  ~UnitTiles();
  UnitTiles(const UnitTiles&) = delete;
};

// A packed: [row tile, step, part, tile]; a panel of B packed: [step, part, 2 tiles].
struct UnitProduct {
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  int64_t steps = 0;                 // of A and of the panel
  bool swapped = false;              // parts in the order of b^T a^T: the bits of the product that it stands for
};

// c (+)= a b for `rows` rows from row tile `first` on, at most two tiles of them, and `columns` columns.
void multiply_tiles(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, bool add, float* c, int64_t c_step,
                    Prefetch* next, int64_t lines_a_step);

// Whether any of x[rows, columns] is NaN. REQUIRES: has_matrix_units, and at most kUnitColumns columns
bool has_nan(const float* x, int64_t step, int64_t rows, int64_t columns);

}  // namespace sg::cpu
