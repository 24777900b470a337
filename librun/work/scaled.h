// Products of float8 matrices and the scales of their operands. In float, or double if the run is in double.
#pragma once

#include <cstdint>
#include <type_traits>

#include "librun/work/work.h"

namespace sg::work {

// One number for all elements (step 0), or one for each.
template <class C>
struct Factors {
  const C* at = nullptr;
  int64_t step = 0;

  SG_INLINE C operator[](int64_t i) const { return at[i * step]; }
};

// Scales sums of products in place by their row and column, adds the column's bias, and multiplies by `of_result`.
template <class C>
struct ScaleSums {
  static constexpr const char* kName = std::is_same_v<C, double> ? "work_scale_sums_f64" : "work_scale_sums";
  C* sums;  // [rows, columns]
  int64_t columns;
  Factors<C> rows_scale, columns_scale;
  Factors<C> bias, of_result;  // null = none

  SG_INLINE void at(int64_t row, int64_t column) const {
    C& sum = sums[row * columns + column];
    C x = sum * rows_scale[row] * columns_scale[column];
    if (bias.at) x = x + bias[column];
    if (of_result.at) x = x * of_result[0];
    sum = x;
  }
  SG_INLINE void operator()(int64_t i) const { at(i / columns, i % columns); }
};

// Scales a matrix in place: each block of `high` rows and `wide` columns by its scale.
template <class C>
struct ScaleBlocks {
  static constexpr const char* kName = std::is_same_v<C, double> ? "work_scale_blocks_f64" : "work_scale_blocks";
  C* numbers;                           // [rows, columns]
  int64_t columns, high, wide, blocks;  // `blocks`: number of blocks in a row
  const C* scales;

  SG_INLINE void at(int64_t row, int64_t column) const {
    numbers[row * columns + column] *= scales[row / high * blocks + column / wide];
  }
  SG_INLINE void operator()(int64_t i) const { at(i / columns, i % columns); }
};

}  // namespace sg::work
