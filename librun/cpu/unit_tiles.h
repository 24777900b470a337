// Products of bf16 tiles on matrix units (gemm_units.h) whose rows lie anywhere, so that what slides over memory, as
// the windows of a convolution do, needs no copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "librun/cpu/gemm_units.h"

namespace sg::cpu {

inline constexpr int64_t kUnitSums = kUnitLines * kUnitLines;  // of a pair of tiles

// One or two tiles a step: row i of tile t in step s is at from[t] + at[t][s] + i * step, all in bytes.
//   left   rows are lines of kUnitDepth numbers: [line, k]
//   right  rows are pairs of adjacent k of kUnitLines lines: [pair of k, line, 2]
struct UnitRows {
  const void* from[2];
  const int64_t* at[2];
  int64_t step;
  int count;
};

// Where the sums of up to two by two tiles lie: that of line i of left tile l and line j of right tile r is
// at[l * left + r * right + i * row + j].
struct UnitPlaces {
  float* at;
  int64_t left, right, row;

  static UnitPlaces one_by_one(float* at) { return {at, 2 * kUnitSums, kUnitSums, kUnitLines}; }
  static UnitPlaces in_rows(float* at, int64_t row) { return {at, kUnitLines * row, kUnitLines, row}; }
};

// sums = left right, or its sum with what is there. Each is summed step after step, as Units::whole is. REQUIRES:
// has_units(Units::whole), a UnitTiles
void multiply_rows(const UnitRows& left, const UnitRows& right, int64_t steps, bool add, const UnitPlaces& sums);

// Copies at most kUnitDepth numbers of each line, from + i * step to to[i] + at.
void copy_lines(const uint16_t* from, int64_t step, int64_t count, std::span<uint16_t* const> to, int64_t at);

}  // namespace sg::cpu
