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

// sums[left tile, right tile, line of left, line of right] = left right, or its sum with what is there. Each is summed
// step after step, as Units::whole is. Room for four tiles. REQUIRES: has_units(Units::whole), a UnitTiles
void multiply_rows(const UnitRows& left, const UnitRows& right, int64_t steps, bool add, float* sums);

// Copies at most kUnitDepth numbers of each line, from + i * step to to[i] + at.
void copy_lines(const uint16_t* from, int64_t step, int64_t count, std::span<uint16_t* const> to, int64_t at);

}  // namespace sg::cpu
