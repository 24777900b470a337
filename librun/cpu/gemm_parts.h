// f32 numbers as sums of three bf16, laid out in the tiles that matrix units multiply (gemm_units.h).
//
// Exact: 3 times 8 bits of significand; parts below 2^-126 count as zero. inf, NaN and what rounds to inf have no parts:
// parts of theirs are inf and NaN, and every sum that they are in is NaN.
#pragma once

#include <cstdint>

#include "librun/cpu/gemm_pack.h"

namespace sg::cpu {

inline constexpr int64_t kUnitLines = 16, kUnitDepth = 32;           // of a tile: lines are rows of A, or columns of B
inline constexpr int64_t kUnitTile = kUnitLines * kUnitDepth;        // elements

inline constexpr int kParts = 3;                                     // high, middle, low

// How a tile lies in memory: [line, k], as A is read, or [pair of k, line, 2], as B is.
enum class TileForm : uint8_t { lines, pairs };

// Part p of from[line, k] into the tile at `to + p * part_step`; what lies behind `lines` and `depth` is zero.
// REQUIRES: f32; AVX-512; lines in 1..kUnitLines, depth in 1..kUnitDepth; `to` aligned to 64 bytes
void pack_parts(TileForm form, const MatrixView& from, int64_t lines, int64_t depth, uint16_t* to, int64_t part_step);

}  // namespace sg::cpu
